"""Read the YAML of a matrix file into PyYAML's nodes, which know their position, within stated limits.

PyYAML's composers recurse as deep as the text nests (the C one until the stack overflows), accept duplicate
keys, and forget which tags were written. So the parser's events are checked before nodes are made of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import yaml
from yaml import MappingNode, Node, ScalarNode, SequenceNode

from .problems import MatrixError, Problem, quote

#: The file may have this many bytes,
MAX_BYTES = 1024 * 1024
#: nest this deep (the schema needs six levels),
MAX_DEPTH = 16
#: and contain this many values, counted again wherever an alias repeats them.
MAX_VALUES = 100_000
#: Reading stops at this many problems, because nobody reads more of them, and each one takes time.
MAX_PROBLEMS = 1000

#: The keys and indexes that lead to a value, such as ("images", 2, "cudnn").
Path = tuple[str | int, ...]

#: The characters that YAML does not allow in a file (YAML 1.1, section 5.1), and the byte order mark.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_WORD = re.compile(r"[\w-]{1,60}")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STANDARD = "tag:yaml.org,2002:"


@dataclass
class Document:
    """The root node of a matrix file, and the problems and warnings found in the file so far."""

    file: str
    root: Node
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    _closed: frozenset[str] = frozenset()

    def report(self, path: Path, message: str, *, at_key: bool = False) -> None:
        """Note a problem at the value of a path, or at its key.

        A problem is noted at the part of the path that exists. So if a single value is given in place of a
        list, index 0 is that value: `images[2].cudnn`, not `images[2].cudnn[0]`. Raises MatrixError at
        MAX_PROBLEMS.
        """
        node, known = _locate(self.root, path, key=at_key)
        if show(known) in self._closed:
            return
        self.problems.append(_problem(node, known, message))
        if len(self.problems) >= MAX_PROBLEMS:
            self.raise_problems()

    def warn(self, path: Path, message: str) -> None:
        """Note something at the key of a path that is allowed, but probably wrong."""
        node, known = _locate(self.root, path, key=True)
        self.warnings.append(_problem(node, known, message))

    @property
    def directory(self) -> FilePath:
        """The directory of the file, to which the paths in it are relative."""
        return FilePath(self.file).parent

    def close_reported(self) -> None:
        """Ignore further problems at values that have one: a value of the wrong type has no meaning."""
        self._closed = frozenset(problem.path for problem in self.problems)

    def line(self, path: Path) -> int:
        """Return the line where the value of a path begins, counted from 1."""
        return int(_locate(self.root, path)[0].start_mark.line) + 1

    def raise_problems(self) -> None:
        """Raise MatrixError when there is a problem."""
        if self.problems:
            raise MatrixError(self.file, self.problems)


def read_document(path: FilePath) -> Document:
    """Read a file. Raises MatrixError if it can't be read, is too large, or is not YAML within the limits."""
    file = str(path)
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        # ValueError: the name contains NUL, which no file name can.
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        problem = Problem(0, 0, "", f"can't be read: {said}")
        raise MatrixError(file, [problem], hint="give the matrix file with --matrix PATH") from None
    if len(content) > MAX_BYTES:
        raise MatrixError(file, [Problem(0, 0, "", f"is larger than {MAX_BYTES:,} bytes")])
    return parse_document(content, file)


def parse_document(content: bytes, file: str) -> Document:
    """Parse the one document of a file's content. file: the name for messages. Raises MatrixError."""
    text = _decode(content, file)
    _refuse_forbidden_characters(text, file)
    checker = _Checker(file, iter(yaml.parse(text, Loader=_LOADER)))
    try:
        checker.check_stream()
        if checker.problems:
            raise MatrixError(file, checker.problems)
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        raise MatrixError(file, [*checker.problems, _syntax_problem(error)]) from None
    if root is None or kind_of(root) == "null":
        raise MatrixError(file, [Problem(1, 1, "", "the file is empty")])
    return Document(file, root)


def kind_of(node: Node) -> str:
    """Return what YAML reads a node as: `map`, `seq`, `str`, `float`, `int`, `bool`, `null`, ..."""
    return str(node.tag).rpartition(":")[2]


def keys_of(node: MappingNode) -> dict[str, tuple[Node, Node]]:
    """Return the key and the value of each name in a mapping, in the order of the file."""
    return {key.value: (key, value) for key, value in node.value}


def plain_value(node: Node) -> Any:
    """Return a node as text, lists and mappings, whatever types YAML gives to plain scalars."""
    if isinstance(node, MappingNode):
        return {name: plain_value(value) for name, (_, value) in keys_of(node).items()}
    if isinstance(node, SequenceNode):
        return [plain_value(item) for item in node.value]
    assert isinstance(node, ScalarNode)
    return node.value


def show(path: Path) -> str:
    """Return a path as messages write it: `images[2].cudnn`. A key that is not a plain word is quoted."""
    return "".join(
        f"[{part}]" if isinstance(part, int) else f".{part if _WORD.fullmatch(part) else quote(part)}"
        for part in path
    ).lstrip(".")


def _locate(root: Node, path: Path, *, key: bool = False) -> tuple[Node, Path]:
    """Return the node at the part of a path that exists, and that part. key: the last key, not its value."""
    node, known = root, ()  # type: tuple[Node, Path]
    for position, part in enumerate(path):
        if isinstance(node, MappingNode) and part in (keys := keys_of(node)):
            name, value = keys[str(part)]
            node = name if key and position == len(path) - 1 else value
        elif isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
        else:
            break
        known = (*known, part)
    return node, known


def _problem(place: Any, path: Path, message: str) -> Problem:
    """Make a problem at the start of a node or an event."""
    mark = place.start_mark
    return Problem(mark.line + 1, mark.column + 1, show(path), message)


def _decode(content: bytes, file: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # A byte order mark is removed before offsets are counted.
        offset = error.start + len(content) - len(error.object)
        before = content[:offset]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8-sig")) + 1
        message = f"not UTF-8: the byte 0x{content[offset]:02x} at offset {offset}"
        raise MatrixError(file, [Problem(line, column, "", message)], hint="save the file as UTF-8") from None


def _refuse_forbidden_characters(text: str, file: str) -> None:
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
class _Extent:
    """The content of an alias: the number of values, the levels below, and the text if it is a scalar."""

    values: int
    levels: int
    text: str | None = None


@dataclass
class _Checker:
    """Checks the events of a document. An exceeded limit or a wrong alias ends the check at once."""

    file: str
    events: Iterator[Any]
    problems: list[Problem] = field(default_factory=list)
    anchors: dict[str, _Extent] = field(default_factory=dict)
    open_anchors: set[str] = field(default_factory=set)
    values: int = 0

    def check_stream(self) -> None:
        """Raises MatrixError, or yaml.MarkedYAMLError at a syntax error; other problems are collected."""
        next(self.events)  # stream start
        if isinstance(next(self.events), yaml.StreamEndEvent):
            return
        self.check_node(next(self.events), (), 0)
        next(self.events)  # document end
        following = next(self.events)
        if not isinstance(following, yaml.StreamEndEvent):
            raise self.failed(following, (), "a second document begins here; the file may have only one")

    def check_node(self, event: Any, path: Path, depth: int) -> _Extent:
        self.values += 1
        if self.values > MAX_VALUES:
            raise self.failed(event, (), f"the file contains more than {MAX_VALUES:,} values")
        if isinstance(event, yaml.AliasEvent):
            return self.check_alias(event, path, depth)
        if depth > MAX_DEPTH:
            raise self.failed(event, (), f"nests deeper than {MAX_DEPTH} levels")
        self.check_anchor(event, path)
        if isinstance(event, yaml.ScalarEvent):
            extent = self.check_scalar(event, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            extent = self.check_sequence(event, path, depth)
        else:
            extent = self.check_mapping(event, path, depth)
        if extent.values > MAX_VALUES:
            raise self.failed(event, path, f"its aliases expand to more than {MAX_VALUES:,} values")
        if event.anchor is not None:
            self.open_anchors.discard(event.anchor)
            self.anchors[event.anchor] = extent
        return extent

    def check_anchor(self, event: Any, path: Path) -> None:
        if event.anchor is None:
            return
        if event.anchor in self.anchors or event.anchor in self.open_anchors:
            self.report(event, path, f"the anchor &{event.anchor} is defined twice")
        self.open_anchors.add(event.anchor)

    def check_alias(self, event: Any, path: Path, depth: int) -> _Extent:
        if event.anchor in self.open_anchors:
            raise self.failed(event, path, f"the alias *{event.anchor} refers to itself")
        if event.anchor not in self.anchors:
            raise self.failed(event, path, f"the alias *{event.anchor} has no anchor before it")
        target = self.anchors[event.anchor]
        if depth + target.levels > MAX_DEPTH:
            raise self.failed(event, path, f"nests deeper than {MAX_DEPTH} levels with its aliases expanded")
        return target

    def check_scalar(self, event: Any, path: Path) -> _Extent:
        self.check_tag(event, path, "str")
        if not event.value.replace("\n", " ").replace("\t", " ").isprintable():
            self.report(event, path, f"{quote(event.value)} contains a character that can't be printed")
        return _Extent(1, 0, event.value)

    def check_sequence(self, event: Any, path: Path, depth: int) -> _Extent:
        self.check_tag(event, path, "seq")
        children: list[_Extent] = []
        while not isinstance(inner := next(self.events), yaml.SequenceEndEvent):
            children.append(self.check_node(inner, (*path, len(children)), depth + 1))
        return _around(children)

    def check_mapping(self, event: Any, path: Path, depth: int) -> _Extent:
        self.check_tag(event, path, "map")
        children: list[_Extent] = []
        lines: dict[str, int] = {}
        while not isinstance(inner := next(self.events), yaml.MappingEndEvent):
            key = self.check_node(inner, path, depth + 1)
            name = "?" if key.text is None else key.text
            if key.text is None:
                self.report(inner, path, "a key must be text, not a list or a mapping")
            elif name in lines:
                self.report(
                    inner, path, f"the key {quote(name)} is given twice (first on line {lines[name]})"
                )
            else:
                lines[name] = inner.start_mark.line + 1
            children.append(self.check_node(next(self.events), (*path, name), depth + 1))
        return _around(children)

    def check_tag(self, event: Any, path: Path, kind: str) -> None:
        if event.tag not in (None, "!", _STANDARD + kind):
            name = event.tag.replace(_STANDARD, "!!")
            self.report(event, path, f"the tag {quote(name)} is not allowed")

    def report(self, event: Any, path: Path, message: str) -> None:
        self.problems.append(_problem(event, path, message))

    def failed(self, event: Any, path: Path, message: str) -> MatrixError:
        return MatrixError(self.file, [*self.problems, _problem(event, path, message)])


def _around(children: list[_Extent]) -> _Extent:
    values = 1 + sum(child.values for child in children)
    return _Extent(values, 1 + max((child.levels for child in children), default=0))
