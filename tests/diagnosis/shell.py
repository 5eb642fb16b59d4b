"""Read the programs that a shell command starts, without starting a shell."""

from __future__ import annotations

import ast
import functools
import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import tree_sitter
import tree_sitter_bash

from . import options

#: Programs that start another one, which their arguments name.
_STARTERS = frozenset({"sudo", "exec", "command", "nohup", "time"})
_PYTHON = re.compile(r"py|python[\d.]*")
_SHELLS = frozenset({"sh", "bash"})


@dataclass(frozen=True)
class Call:
    """One program with its arguments.

    subcommand: words after the program that select one, such as `run` or `image inspect`. given: the options,
    without their values. rest: the other arguments. in_image: the program runs in a container.
    """

    program: str
    subcommand: str
    given: tuple[str, ...]
    rest: tuple[str, ...]
    in_image: bool = False

    @property
    def name(self) -> str:
        return f"{self.program} {self.subcommand}".strip()


class ShellSyntaxError(Exception):
    """A text that is not a command of a shell."""


def calls(command: str) -> list[Call]:
    """Return the programs that a command starts, those in containers and substitutions too.

    A line of a Dockerfile (`RUN ...`) or a notebook (`!...`) is read as its command. Raises ShellSyntaxError,
    or SyntaxError for the code of `python -c`.
    """
    dockerfile = command.startswith("RUN ")
    # The programs of an environment on Windows.
    text = command.replace("\\Scripts\\", "/Scripts/")
    return list(_in_text(text.removeprefix("RUN ").removeprefix("!"), dockerfile))


def programs(command: str) -> Iterator[list[str]]:
    """Yield the words of each program that a command starts, those that `bash -c` starts too.

    Raises ShellSyntaxError.
    """
    tree = _parser().parse(command.encode())
    if tree.root_node.has_error:
        raise ShellSyntaxError(command)
    left = [tree.root_node]
    while left:
        node = left.pop()
        left += reversed(node.children)
        if node.type == "command":
            found = [word for child in node.children if (word := _word(child)) is not None]
            yield found
            for shell, option, inner in zip(found, found[1:], found[2:], strict=False):
                if shell in _SHELLS and option == "-c":
                    yield from programs(inner)


def _in_text(text: str, in_image: bool) -> Iterator[Call]:
    tree = _parser().parse(text.encode())
    if tree.root_node.has_error:
        raise ShellSyntaxError(text)
    yield from _in_node(tree.root_node, in_image)


def _in_node(node: tree_sitter.Node, in_image: bool) -> Iterator[Call]:
    if node.type == "command":
        words = [word for child in node.children if (word := _word(child)) is not None]
        yield from _of_words(words, in_image)
    for child in node.children:
        yield from _in_node(child, in_image)


def _word(node: tree_sitter.Node) -> str | None:
    """Return a word without its quotes; None for what is no argument, such as a variable's value."""
    if node.type in ("variable_assignment", "file_redirect", "comment"):
        return None
    text = (node.text or b"").decode()
    if node.type in ("raw_string", "string"):
        return text[1:-1].replace('\\"', '"') if node.type == "string" else text[1:-1]
    try:
        return "".join(shlex.split(text))
    except ValueError:
        return text


def _of_words(words: Sequence[str], in_image: bool) -> Iterator[Call]:
    """Yield the call of a program, and of the one that it starts."""
    while words and (words[0] in _STARTERS or "=" in words[0]):
        words = words[1:]
    if not words:
        return
    program, *arguments = words
    program = program.rpartition("/")[2]
    if _PYTHON.fullmatch(program) and arguments[:1] == ["-m"]:
        program, *arguments = arguments[1:]
    elif _PYTHON.fullmatch(program) and arguments[:1] == ["-c"]:
        ast.parse(arguments[1])
    elif program == "uvx" and arguments[:1] == ["--from"]:
        program, *arguments = arguments[2:]
    elif program in _SHELLS and arguments[:1] == ["-c"]:
        yield Call(program, "", ("-c",), ())
        yield from _in_text(arguments[1], in_image)
        return
    subcommand = options.subcommand(program, arguments)
    arguments = arguments[len(subcommand.split()) :]
    known = options.of(program, subcommand)
    given, rest = _split(arguments, known or {}, starts=options.starts(program, subcommand))
    yield Call(program, subcommand, given, rest, in_image)
    if options.starts(program, subcommand):
        skipped = 0 if program == "srun" else 1
        inside = in_image or program != "srun"
        yield from _of_words([word for word in rest[skipped:] if word != "--"], inside)


def _split(
    arguments: Sequence[str], known: Mapping[str, bool], *, starts: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split arguments into options without their values, and the rest.

    known: option -> whether it takes a value. starts: everything from the first other argument on belongs to
    another program.
    """
    given: list[str] = []
    rest: list[str] = []
    left = iter(arguments)
    for word in left:
        if word == "--":
            rest += left
        elif word.startswith("-") and word != "-":
            name, equals, _ = word.partition("=")
            given.append(name)
            if known.get(name) and not equals:
                next(left, None)
        elif starts:
            rest += itertools.chain([word], left)
        else:
            rest.append(word)
    return tuple(given), tuple(rest)


@functools.cache
def _parser() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def words(text: str) -> list[str]:
    """Return the words of a command without substitutions, as a shell gives them to the program."""
    return shlex.split(text)
