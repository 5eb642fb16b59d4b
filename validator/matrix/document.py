"""Read the YAML of a matrix file into PyYAML's nodes, which know their position, within stated limits.

PyYAML's composers recurse as deep as the text nests (the C one until the stack overflows), accept duplicate
keys, and forget which tags were written. So the parser's events are checked as nodes are made of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import yaml
from yaml import MappingNode, Node, ScalarNode, SequenceNode
from yaml.composer import Composer

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
    composer: Any = type("_Composer", (_LimitedComposer, _LOADER), {})(text, file)
    try:
        root = composer.compose_stream()
    except yaml.MarkedYAMLError as error:
        raise MatrixError(file, [*composer.problems, _syntax_problem(error)]) from None
    if composer.problems:
        raise MatrixError(file, composer.problems)
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


class _LimitedComposer(Composer):
    """PyYAML's composer, which checks each event before it makes a node of it.

    It comes before a loader in a class's bases. An exceeded limit or a wrong alias ends the reading at once;
    other problems are collected.
    """

    # Methods of the loader.
    check_event: Any
    get_event: Any
    peek_event: Any

    def __init__(self, text: str, file: str) -> None:
        _LOADER.__init__(self, text)
        Composer.__init__(self)  # which the loader in C does not call
        self.file = file
        self.problems: list[Problem] = []
        self.path: Path = ()
        self.depth = -1
        #: The deepest level so far within the value that is being read.
        self.deepest = 0
        self.events = 0
        #: Values with those that aliases repeat.
        self.values = 0
        #: The values in the content of an anchor, and the levels below it; None within that content.
        self.extents: dict[str, tuple[int, int] | None] = {}
        #: The lines of the keys of each mapping.
        self.lines: dict[int, dict[str, int]] = {}

    def compose_stream(self) -> Node | None:
        """Return the root of the only document, or None for a file without one.

        Raises MatrixError, or yaml.MarkedYAMLError at a syntax error.
        """
        self.get_event()  # stream start
        if self.check_event(yaml.StreamEndEvent):
            return None
        root = self.compose_document()
        if not self.check_event(yaml.StreamEndEvent):
            message = "a second document begins here; the file may have only one"
            raise self._failed(self.peek_event(), (), message)
        return root

    def compose_node(self, parent: Node | None, index: Any) -> Any:
        """Return the node of the next value. index: in a list, the key of a value, or None for a key."""
        event: Any = self.peek_event()
        around, self.depth = self.path, self.depth + 1
        if isinstance(index, Node):
            self.path = (*around, index.value if isinstance(index, ScalarNode) else "?")
        elif index is not None:
            self.path = (*around, index)
        self.events += 1
        if self.events > MAX_VALUES:
            raise self._failed(event, (), f"the file contains more than {MAX_VALUES:,} values")
        if isinstance(event, yaml.AliasEvent):
            self._check_alias(event)
            node = super().compose_node(parent, index)
        else:
            node = self._compose_content(event, parent, index)
        if index is None and isinstance(parent, MappingNode):
            self._check_key(event, node, self.lines.setdefault(id(parent), {}))
        self.path, self.depth = around, self.depth - 1
        return node

    def _compose_content(self, event: Any, parent: Node | None, index: Any) -> Any:
        if self.depth > MAX_DEPTH:
            raise self._failed(event, (), f"nests deeper than {MAX_DEPTH} levels")
        if event.anchor is not None:
            if event.anchor in self.extents:
                self._report(event, f"the anchor &{event.anchor} is defined twice")
                self.anchors.pop(event.anchor, None)
            self.extents[event.anchor] = None
        self._check_scalar_and_tag(event)
        values, deepest = self.values, self.deepest
        self.values, self.deepest = values + 1, self.depth
        node = super().compose_node(parent, index)
        if self.values - values > MAX_VALUES:
            raise self._failed(event, self.path, f"its aliases expand to more than {MAX_VALUES:,} values")
        if event.anchor is not None:
            self.extents[event.anchor] = (self.values - values, self.deepest - self.depth)
        self.deepest = max(deepest, self.deepest)
        return node

    def _check_alias(self, event: Any) -> None:
        if event.anchor not in self.extents:
            raise self._failed(event, self.path, f"the alias *{event.anchor} has no anchor before it")
        extent = self.extents[event.anchor]
        if extent is None:
            raise self._failed(event, self.path, f"the alias *{event.anchor} refers to itself")
        values, levels = extent
        if self.depth + levels > MAX_DEPTH:
            message = f"nests deeper than {MAX_DEPTH} levels with its aliases expanded"
            raise self._failed(event, self.path, message)
        self.values += values
        self.deepest = max(self.deepest, self.depth + levels)

    def _check_key(self, event: Any, key: Node | None, lines: dict[str, int]) -> None:
        if not isinstance(key, ScalarNode):
            self._report(event, "a key must be text, not a list or a mapping")
        elif key.value in lines:
            first = lines[key.value]
            self._report(event, f"the key {quote(key.value)} is given twice (first on line {first})")
        else:
            lines[key.value] = event.start_mark.line + 1

    def _check_scalar_and_tag(self, event: Any) -> None:
        kind = "map" if isinstance(event, yaml.MappingStartEvent) else "seq"
        if isinstance(event, yaml.ScalarEvent):
            kind = "str"
            if not event.value.replace("\n", " ").replace("\t", " ").isprintable():
                self._report(event, f"{quote(event.value)} contains a character that can't be printed")
        if event.tag not in (None, "!", _STANDARD + kind):
            self._report(event, f"the tag {quote(event.tag.replace(_STANDARD, '!!'))} is not allowed")

    def _report(self, event: Any, message: str) -> None:
        self.problems.append(_problem(event, self.path, message))

    def _failed(self, event: Any, path: Path, message: str) -> MatrixError:
        return MatrixError(self.file, [*self.problems, _problem(event, path, message)])
