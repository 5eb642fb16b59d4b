"""Split a Dockerfile into instructions and commands, as BuildKit reads it, and substitute its variables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..model.finding import Place
from .source_file import Source

_INSTRUCTION = re.compile(r"\s*(?P<keyword>[A-Za-z]+)(?:\s+(?P<rest>.*))?$", re.DOTALL)
_ESCAPE = re.compile(r"#\s*escape\s*=\s*`", re.IGNORECASE)
_HEREDOC = re.compile(r"<<-?\s*(?P<quote>['\"]?)(?P<name>[A-Za-z_]\w*)(?P=quote)")
_FLAG = re.compile(r"\s*--[a-z][\w-]*(?:=\S+)?(?=\s)")
_VARIABLE = re.compile(
    r"\\\$|\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<name>[A-Za-z_]\w*)(?:(?P<how>:?[-+])(?P<other>[^{}]*))?\})"
)
#: Ends a command of a shell, outside of quotes.
_SEPARATOR = re.compile(r"&&|\|\||[;|\n]|(?:^|\s)(?:then|do|else)\s|\(|\)")


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    file: the Dockerfile's name. keyword: in capital letters. rest: what follows, on one line, with line
    breaks only in heredocs. lines: its lines with their numbers.
    """

    file: str
    keyword: str
    rest: str
    lines: tuple[tuple[int, str], ...]

    def place_of(self, pattern: str) -> Place:
        """Return the place where a pattern occurs first, or that of the instruction."""
        for number, text in self.lines:
            match = re.search(pattern, text, re.IGNORECASE)
            if match is not None and not text.lstrip().startswith("#"):
                return Place(self.file, number, match.start() + 1)
        number, text = self.lines[0]
        return Place(self.file, number, len(text) - len(text.lstrip()) + 1)


def instructions(source: Source) -> Iterator[Instruction]:
    """Yield the instructions of a Dockerfile. What is not one is left out."""
    lines = list(enumerate(source.text.splitlines(), start=1))
    escape = "`" if any(_ESCAPE.match(line) for _, line in lines[:5]) else "\\"
    position = 0
    while position < len(lines):
        start, ended = position, False
        parts: list[str] = []
        while position < len(lines) and not ended:
            line = lines[position][1].rstrip()
            position += 1
            if line.lstrip().startswith("#") or not line.strip():
                # Comments and empty lines may stand between the lines of an instruction.
                ended = not parts
                continue
            ended = not line.endswith(escape)
            parts.append(line if ended else line[: -len(escape)])
        match = _INSTRUCTION.fullmatch(" ".join(parts))
        if match is None:
            continue
        rest, keyword = match["rest"] or "", match["keyword"].upper()
        if keyword in ("RUN", "COPY", "ADD"):
            for heredoc in _HEREDOC.finditer(rest):
                body, position = _heredoc(lines, position, heredoc["name"])
                if keyword == "RUN":
                    rest += "\n" + body
        begin = next(
            index for index in range(start, position) if lines[index][1].strip()[:1] not in ("", "#")
        )
        yield Instruction(source.name, keyword, rest, tuple(lines[begin:position]))


def _heredoc(lines: list[tuple[int, str]], position: int, name: str) -> tuple[str, int]:
    """Return the body of a heredoc and the position of the line after it."""
    body = []
    while position < len(lines):
        line = lines[position][1]
        position += 1
        if line.strip() == name:
            break
        body.append(line)
    return re.sub(r"\\\n", " ", "\n".join(body)), position


def split_options(rest: str) -> tuple[list[tuple[str, str]], str]:
    """Return an instruction's own options, such as `--mount=type=cache`, and the text after them."""
    options = []
    while match := _FLAG.match(rest):
        name, _, value = match[0].strip().removeprefix("--").partition("=")
        options.append((name, value))
        rest = rest[match.end() :]
    return options, rest.strip()


def substituted(text: str, values: Mapping[str, str | None]) -> str | None:
    """Return a text with its variables replaced, or None if one of them is not known.

    values: None for a variable that has no value in the file.
    """
    unknown = False

    def value(match: re.Match[str]) -> str:
        nonlocal unknown
        name = match["plain"] or match["name"]
        if name is None:
            return match[0]
        known = values.get(name)
        how, other = match["how"] or "", match["other"] or ""
        if how.endswith("+"):
            return other if known else ""
        if known is None or (not known and how == ":-"):
            unknown = unknown or not how
            return other
        return known

    replaced = _VARIABLE.sub(value, text)
    return None if unknown else replaced


def commands(rest: str) -> Iterator[str]:
    """Yield the commands that a RUN instruction starts, each on one line."""
    _, text = split_options(rest)
    if text.startswith("["):
        try:
            words = json.loads(text)
        except (ValueError, RecursionError):
            words = None
        if isinstance(words, list) and all(isinstance(word, str) for word in words):
            shell = len(words) == 3 and words[1] in ("-c", "-lc", "-exc")
            yield from commands(words[2]) if shell else [" ".join(words)]
            return
    hidden = re.sub(r"\"[^\"\n]*\"|'[^'\n]*'", lambda quoted: "x" * len(quoted[0]), text)
    start = 0
    for match in [*_SEPARATOR.finditer(hidden), None]:
        end = match.start() if match else len(text)
        command = " ".join(text[start:end].split())
        if command:
            yield command
        start = match.end() if match else end


def assignments(rest: str) -> Iterator[tuple[str, str | None]]:
    """Yield the names and values of an ARG or ENV instruction. The value is None if none is given."""
    old = re.fullmatch(r"(?P<name>[A-Za-z_]\w*)[ \t]+(?P<value>[^=].*)", rest.strip())
    if old is not None and "=" not in old["name"] and not re.match(r"\S+=", old["value"]):
        yield old["name"], _unquoted(old["value"])
        return
    for match in re.finditer(r"([A-Za-z_]\w*)(?:=((?:\"[^\"]*\"|'[^']*'|\\.|[^\s\"'])*))?", rest):
        yield match[1], None if match[2] is None else _unquoted(match[2])


def _unquoted(text: str) -> str:
    return re.sub(r"[\"']", "", text.strip())
