"""YAML text into nodes that know their position, within stated limits.

The parser's events are composed here instead of by PyYAML: its composers recurse as deep as the text nests
(the C one until the stack is gone), keep the last of two equal keys, and lose how a scalar was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from .problems import MatrixError, Problem, quote

#: The file may have this many bytes,
MAX_BYTES = 1024 * 1024
#: nest this deep (the schema needs six levels),
MAX_DEPTH = 16
#: and hold this many values, counted again wherever an alias repeats them.
MAX_VALUES = 100_000

Path = tuple[str | int, ...]

#: What YAML allows in a file (YAML 1.1, section 5.1), less the byte order mark.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_WORD = re.compile(r"[\w-]{1,60}")
_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: Tells what a plain scalar means; `3.10` is a number, `2.21.0` is text.
_RESOLVER: Any = yaml.resolver.Resolver()
_STANDARD = "tag:yaml.org,2002:"
_TEXT, _SEQUENCE, _MAPPING = (_STANDARD + name for name in ("str", "seq", "map"))


@dataclass(frozen=True)
class Scalar:
    """One value. `kind` is what YAML makes of it: `str`, `float`, `int`, `bool`, `null`, `timestamp`, ..."""

    line: int
    column: int
    text: str
    kind: str


@dataclass(frozen=True)
class Items:
    """A sequence."""

    line: int
    column: int
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Entries:
    """A mapping; each key with its value, in the order of the file."""

    line: int
    column: int
    entries: dict[str, tuple[Scalar, Node]]


Node: TypeAlias = Scalar | Items | Entries


def show(path: Path) -> str:
    """`images[2].cudnn`; a key that is no plain word stands in quotes."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{_key(part)}" for part in path).lstrip(".")


def _key(name: str) -> str:
    return name if _WORD.fullmatch(name) else quote(name)


def locate(root: Node, path: Path, *, key: bool = False) -> tuple[Node, Path]:
    """The node at a path, as far as it exists, and the part of the path that exists.

    A single value stands for a list of one, so index 0 of a scalar is the scalar itself.
    key: the last key of the path instead of its value.
    """
    node, known = root, ()  # type: tuple[Node, Path]
    for position, part in enumerate(path):
        if isinstance(node, Entries) and part in node.entries:
            name, value = node.entries[str(part)]
            node = name if key and position == len(path) - 1 else value
        elif isinstance(node, Items) and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
        else:
            break
        known = (*known, part)
    return node, known


def parse(text: str, file: str) -> Node | None:
    """Compose the one document of a text; None when there is nothing in it.

    Raises MatrixError with all problems found (syntax errors and broken limits end the reading at once).
    """
    _refuse_control_characters(text, file)
    composer = _Composer(file, iter(yaml.parse(text, Loader=_PARSER)))
    try:
        root = composer.document()
    except yaml.MarkedYAMLError as error:
        raise composer.failed(_syntax_problem(error)) from None
    if composer.problems:
        raise MatrixError(file, composer.problems)
    return root


def _refuse_control_characters(text: str, file: str) -> None:
    found = _FORBIDDEN.search(text)
    if found:
        line = text.count("\n", 0, found.start()) + 1
        column = found.start() - text.rfind("\n", 0, found.start())
        message = f"the character U+{ord(found[0]):04X} is not allowed in a YAML file"
        raise MatrixError(file, [Problem(line, column, "", message)])


def _syntax_problem(error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    said = ", ".join(part for part in (error.context, error.problem) if part)
    return Problem(line, column, "", f"not YAML: {said}")


@dataclass(frozen=True)
class _Composed:
    """A node with what its aliases would cost: values in it, and levels below it."""

    node: Node
    size: int
    height: int


@dataclass
class _Composer:
    file: str
    events: Iterator[Any]
    problems: list[Problem] = field(default_factory=list)
    anchors: dict[str, _Composed] = field(default_factory=dict)
    open_anchors: set[str] = field(default_factory=set)
    values: int = 0

    def failed(self, problem: Problem) -> MatrixError:
        return MatrixError(self.file, [*self.problems, problem])

    def fail(self, event: Any, path: Path, message: str) -> MatrixError:
        return self.failed(self.problem(event, path, message))

    @staticmethod
    def problem(event: Any, path: Path, message: str) -> Problem:
        mark = event.start_mark
        return Problem(mark.line + 1, mark.column + 1, show(path), message)

    def document(self) -> Node | None:
        next(self.events)  # stream start
        if isinstance(next(self.events), yaml.StreamEndEvent):
            return None
        root = self.compose(next(self.events), (), 0)
        next(self.events)  # document end
        following = next(self.events)
        if not isinstance(following, yaml.StreamEndEvent):
            raise self.fail(following, (), "a second document begins here; the file holds one")
        empty = isinstance(root.node, Scalar) and root.node.kind == "null"
        return None if empty else root.node

    def compose(self, event: Any, path: Path, depth: int) -> _Composed:
        self.values += 1
        if self.values > MAX_VALUES:
            raise self.fail(event, (), f"the file holds more than {MAX_VALUES:,} values")
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, path, depth)
        if depth > MAX_DEPTH:
            raise self.fail(event, (), f"nests deeper than {MAX_DEPTH} levels")
        if event.anchor is not None:
            self.open_anchors.add(event.anchor)
        if isinstance(event, yaml.ScalarEvent):
            composed = self.scalar(event, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            composed = self.sequence(event, path, depth)
        else:
            composed = self.mapping(event, path, depth)
        if composed.size > MAX_VALUES:
            raise self.fail(event, path, f"its aliases expand to more than {MAX_VALUES:,} values")
        if event.anchor is not None:
            self.open_anchors.discard(event.anchor)
            self.anchors[event.anchor] = composed
        return composed

    def alias(self, event: Any, path: Path, depth: int) -> _Composed:
        if event.anchor in self.open_anchors:
            raise self.fail(event, path, f"the alias *{event.anchor} stands inside what it names")
        if event.anchor not in self.anchors:
            raise self.fail(event, path, f"the alias *{event.anchor} names no anchor before it")
        target = self.anchors[event.anchor]
        if depth + target.height > MAX_DEPTH:
            raise self.fail(event, path, f"nests deeper than {MAX_DEPTH} levels by its aliases")
        return target

    def tag(self, event: Any, path: Path, plain_tag: str) -> None:
        if event.tag not in (None, "!", plain_tag):
            name = event.tag.replace(_STANDARD, "!!")
            self.problems.append(self.problem(event, path, f"the tag {quote(name)} is not allowed"))

    def scalar(self, event: Any, path: Path) -> _Composed:
        self.tag(event, path, _TEXT)
        plain = event.tag is None and event.implicit[0]
        tag = _RESOLVER.resolve(yaml.ScalarNode, event.value, (True, False)) if plain else _TEXT
        if not event.value.replace("\n", " ").replace("\t", " ").isprintable():
            message = f"{quote(event.value)} holds a character that can't be printed"
            self.problems.append(self.problem(event, path, message))
        mark = event.start_mark
        node = Scalar(mark.line + 1, mark.column + 1, event.value, tag.rpartition(":")[2])
        return _Composed(node, 1, 0)

    def sequence(self, event: Any, path: Path, depth: int) -> _Composed:
        self.tag(event, path, _SEQUENCE)
        children: list[_Composed] = []
        while not isinstance(inner := next(self.events), yaml.SequenceEndEvent):
            children.append(self.compose(inner, (*path, len(children)), depth + 1))
        mark = event.start_mark
        node = Items(mark.line + 1, mark.column + 1, tuple(child.node for child in children))
        return _around(node, children)

    def mapping(self, event: Any, path: Path, depth: int) -> _Composed:
        self.tag(event, path, _MAPPING)
        entries: dict[str, tuple[Scalar, Node]] = {}
        children: list[_Composed] = []
        while not isinstance(inner := next(self.events), yaml.MappingEndEvent):
            key = self.compose(inner, path, depth + 1).node
            name = key.text if isinstance(key, Scalar) else "?"
            value = self.compose(next(self.events), (*path, name), depth + 1)
            children.append(value)
            if not isinstance(key, Scalar):
                self.problems.append(self.problem(inner, path, "a key must be text, not a list or a mapping"))
            elif name in entries:
                first = entries[name][0].line
                message = f"the key {quote(name)} is given twice (first on line {first})"
                self.problems.append(self.problem(inner, path, message))
            else:
                entries[name] = (key, value.node)
        mark = event.start_mark
        return _around(Entries(mark.line + 1, mark.column + 1, entries), children)


def _around(node: Node, children: list[_Composed]) -> _Composed:
    size = 1 + sum(child.size for child in children)
    return _Composed(node, size, 1 + max((child.height for child in children), default=0))


# Collects what is wrong with a file, each with the position of its value.

#: Reading ends when this many problems are found: more are not read by anyone, and each costs time.
MAX_PROBLEMS = 1000


@dataclass
class Findings:
    """The problems found so far in the document under `root`."""

    file: str
    root: Node
    problems: list[Problem] = field(default_factory=list)
    sealed: frozenset[str] = frozenset()

    def add(self, path: Path, message: str, *, at_key: bool = False) -> None:
        """Note a problem at the value of a path, or at its key.

        A single value in place of a list stands at its own place: `images[2].cudnn`, not `…cudnn[0]`.
        Raises MatrixError when there are too many.
        """
        node, known = locate(self.root, path, key=at_key)
        if show(known) in self.sealed:
            return
        self.problems.append(Problem(node.line, node.column, show(known), message))
        if len(self.problems) >= MAX_PROBLEMS:
            self.raise_if_any()

    def seal(self) -> None:
        """Take no second problem with a value that has one: a value of a wrong type has no meaning."""
        self.sealed = frozenset(problem.path for problem in self.problems)

    def line(self, path: Path) -> int:
        """The line where the value of a path begins."""
        return locate(self.root, path)[0].line

    def raise_if_any(self) -> None:
        """Raises MatrixError when there is a problem."""
        if self.problems:
            raise MatrixError(self.file, self.problems)
