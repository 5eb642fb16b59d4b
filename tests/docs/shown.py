"""Read the blocks of code in the documentation: commands, what they print, and files."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from markdown_it import MarkdownIt

from docs.transcripts import ROOT, pages

from ..diagnosis import shell

#: The page of causes: its commands are those of the remedies, which tests/diagnosis checks.
CAUSES = "docs/causes.md"
#: The mark of a block whose output is from another machine, with where it comes from.
ELSEWHERE = re.compile(r"<!-- output: (.+?) -->", re.DOTALL)
#: The mark of a file that `run --format` writes. tests/delivery gives each to the tool that it is for.
WRITTEN = re.compile(r"<!-- start: \w+ -->")
#: Finds the blocks of a page. What is inside paragraphs takes most of the time, and nothing here needs it.
_MARKDOWN = MarkdownIt("commonmark").disable("inline")


@dataclass(frozen=True)
class Block:
    """One block of code.

    commands: what a person types in a console, or a shell script as a whole. output: what is shown below.
    origin: what the comment above the block says about its output, or None.
    """

    page: str
    line: int
    language: str
    text: str
    commands: tuple[str, ...]
    output: str
    origin: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@functools.cache
def blocks() -> tuple[Block, ...]:
    """Return all blocks of all pages except that of the causes, also those in lists or without a language."""
    names = {str(path.relative_to(ROOT)): path for path in pages()}
    return tuple(
        block
        for name, path in names.items()
        if name != CAUSES
        for block in read(name, path.read_text(encoding="utf-8"))
    )


def read(page: str, text: str) -> Iterator[Block]:
    """Yield the blocks of a page."""
    above = ""
    for token in _MARKDOWN.parse(text):
        if token.type in ("fence", "code_block"):
            assert token.map is not None
            language = token.info.strip()
            commands, output = _typed(token.content) if language == "console" else ([], "")
            if language == "sh" and not WRITTEN.search(above):
                commands = [token.content]
            origin = ELSEWHERE.search(above)
            yield Block(
                page,
                token.map[0] + 1,
                language,
                token.content,
                tuple(commands),
                output,
                origin[1] if origin else None,
            )
        above = token.content if token.type == "html_block" else ""


def of_this_tool(command: str) -> Iterator[list[str]]:
    """Yield the arguments of each call of this tool in a command, however it is started.

    Raises ShellSyntaxError.
    """
    for words in shell.programs(command):
        while words and "=" in words[0]:
            words = words[1:]
        at = [index for index, word in enumerate(words) if word.rpartition("/")[2] == "validator"]
        if at:
            yield words[at[0] + 1 :]
        elif words and words[0].removeprefix("./") == "scripts/build-matrix":
            yield ["build-matrix", *words[1:]]
        elif words and words[0].removeprefix("./") == "scripts/here":
            yield words[1:]


def _typed(text: str) -> tuple[list[str], str]:
    """Return the commands of a console, and what they printed."""
    commands: list[str] = []
    output: list[str] = []
    going_on = False
    for line in text.splitlines():
        if line.startswith("$ ") and not going_on:
            commands.append(line[2:])
        elif going_on:
            commands[-1] += f"\n{line}"
        else:
            output.append(line)
        going_on = bool(commands) and not output and line.endswith("\\")
    return commands, "\n".join(output)
