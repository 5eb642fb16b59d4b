"""Read the YAML of a matrix file into PyYAML's nodes, which know their position, within stated limits.

PyYAML's composers recurse as deep as the text nests (the C one until the stack overflows), accept duplicate
keys, and forget which tags were written. So the parser's events are checked as nodes are made of them.
A problem is reported with its position.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec.inspect import (
    BoolType,
    DateTimeType,
    DictType,
    IntType,
    ListType,
    Metadata,
    StrType,
    StructType,
    Type,
    UnionType,
    type_info,
)
from yaml import MappingNode, Node, ScalarNode, SequenceNode
from yaml.composer import Composer

from ..errors import InputError
from ..model.codec import NEVER, parse_timestamp
from ..resources import manual
from ..system.files import read_file

#: A message lists at most this many problems, because a file of another kind would fill the screen.
MAX_SHOWN = 100

#: Text from the file is cut at this many characters when a message repeats it.
MAX_QUOTED = 60

#: What to do next, where nothing more exact can be said.
HINT = f"nothing was changed; {manual('reference/matrix.md')} describes the file and has an example"


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong.

    line, column: counted from 1, in characters; 0 if the problem concerns the file as a whole.
    path: the path of the value (`images[2].cudnn`), empty for the document itself.
    """

    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class MatrixError(InputError):
    """A matrix file that can't be used, with every problem found in it, in the order of the file."""

    def __init__(self, file: str, problems: Iterable[Problem], *, hint: str = HINT) -> None:
        self.file = file
        self.problems: tuple[Problem, ...] = tuple(sorted(set(problems)))
        lines = []
        for problem in self.problems[:MAX_SHOWN]:
            where = f"{file}:{problem.line}:{problem.column}" if problem.line else file
            lines.append(f"{where}: {problem}")
        if len(self.problems) > MAX_SHOWN:
            lines.append(f"{file}: and {len(self.problems) - MAX_SHOWN} more problems")
        super().__init__("\n".join(lines), hint=hint)


def quote(text: str) -> str:
    """Return the text in double quotes, cut when long, without characters that control a terminal."""
    shown = text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "…"
    chars = (char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in shown)
    return f'"{"".join(chars)}"'


#: What a line of a requirements file or of a lock may begin with: an option, a path, an address, or a name
#: and what follows a name.
_OF_REQUIREMENTS = re.compile(
    r"--?[a-z][a-z-]*|[./~][\w./+~-]*\Z|(?:(?:git|hg|svn|bzr)\+)?(?:[a-z]+://|file:)[^\s]*\Z"
    r"|[A-Za-z0-9][\w.+-]* ?(?:\[[^]]*\] ?)?(?:\Z|[=<>!~]=|[<>;@(])"
)


def quote_line(text: str) -> str:
    """Return a line of a requirements file or of a lock in double quotes, if it looks like one.

    The file may be one with secrets that a matrix names by mistake or on purpose. So of an option, only its
    name is shown, and of an address, not the part before `@`.
    """
    found = _OF_REQUIREMENTS.match(text)
    if found is None:
        return "the line"
    return quote(found[0] if text.startswith("-") else without_user(text))


def without_user(text: str) -> str:
    """Return a text without the user and the password of an address in it."""
    return re.sub(r"(//)[^/@\s]*@", r"\1", text)


def join_words(words: Sequence[str]) -> str:
    """Return `a`, `a and b`, or `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def unknown_name(name: str, known: Iterable[str], what: str = "") -> str:
    """Return the sentence for an unknown name, with the nearest. what: such as `the profile`, before it."""
    choices = list(known)
    subject = f"{what} {quote(name)}" if what else quote(name)
    near = difflib.get_close_matches(name, choices, n=3, cutoff=0.5)
    if not near:
        return f"{subject} is not known; choose from {join_words(choices)}"
    return f"{subject} is not known; the nearest {'is' if len(near) == 1 else 'are'} {join_words(near)}"


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

_File = TypeVar("_File", bound=msgspec.Struct)
_Value = TypeVar("_Value")
_Read = TypeVar("_Read")


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

    def read_each(
        self, values: Iterable[_Value], path: Path, read: Callable[[_Value], _Read]
    ) -> Iterator[tuple[int, _Read]]:
        """Yield what is read from each value of a list, with its index. An error is noted at the value."""
        for index, value in enumerate(values):
            try:
                yield index, read(value)
            except ValueError as error:
                self.report((*path, index), str(error))

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
        if self.problems:
            raise MatrixError(self.file, self.problems)


class EmptyFile(MatrixError):
    """A file without content, or with nothing but comments."""


def read_document(path: FilePath) -> Document:
    """Read a file. Raises MatrixError if it can't be read, is too large, or is not YAML within the limits."""
    file = str(path)
    try:
        content = read_file(path, MAX_BYTES)
    except OSError as error:
        problem = Problem(0, 0, "", f"can't be read: {error.strerror}")
        raise MatrixError(file, [problem], hint="give the matrix file with --matrix PATH") from None
    return parse_document(content, file)


def parse_document(content: bytes, file: str) -> Document:
    """Parse the one document of a file's content. file: the name for messages. Raises MatrixError."""
    text = _decode(content, file)
    if found := _FORBIDDEN.search(text):
        line = text.count("\n", 0, found.start()) + 1
        column = found.start() - text.rfind("\n", 0, found.start())
        message = f"the character U+{ord(found[0]):04X} is not allowed in a YAML file"
        raise MatrixError(file, [Problem(line, column, "", message)])
    composer: Any = type("_Composer", (_LimitedComposer, _LOADER), {})(text, file)
    try:
        root = composer.compose_stream()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        said = ", ".join(part for part in (error.context, error.problem) if part)
        problem = Problem(line, column, "", f"not YAML: {said}")
        raise MatrixError(file, [*composer.problems, problem]) from None
    if composer.problems:
        raise MatrixError(file, composer.problems)
    if root is None or kind_of(root) == "null":
        raise EmptyFile(file, [Problem(1, 1, "", "the file is empty")])
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
        """Return the root of the only document, or None. Raises MatrixError or yaml.MarkedYAMLError."""
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


# Read a document, such as a matrix file, into the types of its schema, and report each value that does not
# fit. Only the shape is checked here: `images` checks whether a release, a version or a GPU exists.

_INTEGER = re.compile(r"[0-9]{1,9}")
#: What YAML reads as false.
_FALSE = ("false", "no", "off")

#: The words of messages for the types that YAML gives to plain scalars.
_KINDS = {
    "float": "a number",
    "int": "a number",
    "bool": "a truth value",
    "null": "nothing",
    "timestamp": "a date",
}


def check_shape(document: Document, kind: type[_File]) -> _File:
    """Report everything in a document that does not have the types of this struct, and return its content.

    Where a value has the wrong type, the content has the text that was written, or nothing. So what is known
    of the rest can still be checked; further problems at such a value are ignored. A list of texts that was
    given has at least one text.
    """
    struct = _type_of(kind)
    assert isinstance(struct, StructType)
    content: _File = _read_struct(document.root, struct, (), document)
    document.close_reported()
    return content


_type_of = functools.cache(type_info)


def _read(node: Node, expected: Type, path: Path, document: Document) -> Any:
    if isinstance(expected, Metadata):
        return _read(node, expected.type, path, document)
    if isinstance(expected, UnionType):
        # Text or a mapping.
        if isinstance(node, SequenceNode):
            document.report(path, _wrong_type("text or a mapping", node))
            return ""
        wanted = StructType if isinstance(node, MappingNode) else StrType
        kinds = (one for one in map(_plain, expected.types) if isinstance(one, wanted))
        return _read(node, next(kinds), path, document)
    if isinstance(expected, StructType):
        return _read_struct(node, expected, path, document)
    if isinstance(expected, DictType):
        if not isinstance(node, MappingNode):
            document.report(path, _wrong_type("a mapping", node))
            return {}
        _check_length(node, expected, path, document)
        return {
            name: _read(value, expected.value_type, (*path, name), document)
            for name, (_, value) in keys_of(node).items()
        }
    if isinstance(expected, ListType):
        return _read_list(node, expected, path, document)
    return _read_scalar(node, expected, path, document)


def _plain(expected: Type) -> Type:
    return _plain(expected.type) if isinstance(expected, Metadata) else expected


def _read_struct(node: Node, expected: StructType, path: Path, document: Document) -> Any:
    fields = {field.name: field for field in expected.fields}
    empty = {field.name: _empty(_plain(field.type)) for field in expected.fields if field.required}
    if not isinstance(node, MappingNode):
        document.report(path, _wrong_type("a mapping", node))
        return expected.cls(**empty)
    values = {}
    for name, (_, value) in keys_of(node).items():
        if name in fields:
            values[name] = _read(value, fields[name].type, (*path, name), document)
        else:
            near = difflib.get_close_matches(name, fields, n=1, cutoff=0.6)
            instead = f"did you mean {near[0]}?" if near else f"the keys here are {join_words(list(fields))}"
            document.report((*path, name), f"unknown key; {instead}", at_key=True)
    for name in empty.keys() - values.keys():
        document.report(path, f"the key {name} is missing")
    return expected.cls(**{**empty, **values})


def _empty(expected: Type) -> Any:
    if isinstance(expected, ListType | DictType):
        return [] if isinstance(expected, ListType) else {}
    return NEVER if isinstance(expected, DateTimeType) else ""


def _read_list(node: Node, expected: ListType, path: Path, document: Document) -> Any:
    of_texts = isinstance(_plain(expected.item_type), StrType | UnionType)
    if not isinstance(node, SequenceNode):
        if of_texts:
            return [_read(node, expected.item_type, path, document)]
        document.report(path, _wrong_type("a list", node))
        return []
    _check_length(node, expected, path, document)
    items = [
        _read(item, expected.item_type, (*path, index), document)
        for index, item in enumerate(node.value[: expected.max_length])
    ]
    return items or ([""] if of_texts else [])


def _check_length(node: Node, expected: ListType | DictType, path: Path, document: Document) -> None:
    if len(node.value) < (expected.min_length or 0):
        document.report(path, "is empty; it needs at least one value")
    elif expected.max_length is not None and len(node.value) > expected.max_length:
        document.report(path, f"is longer than {expected.max_length} values")


def _read_scalar(node: Node, expected: Type, path: Path, document: Document) -> Any:
    kind, text = kind_of(node), node.value if isinstance(node, ScalarNode) else ""
    if isinstance(expected, DateTimeType):
        # In ISO 8601. YAML reads some times as dates when they are not quoted.
        time = parse_timestamp(text) if kind in ("str", "timestamp") else None
        if kind not in ("str", "timestamp"):
            document.report(path, _wrong_type("a date or a time", node))
        elif time is None:
            such_as = "such as 2027-11-22 or 2027-11-22T06:30Z"
            document.report(path, f"{quote(text)} is not a time ({such_as})")
        return time or NEVER
    if isinstance(expected, BoolType):
        if kind != "bool":
            document.report(path, _wrong_type("true or false", node))
        return isinstance(node, ScalarNode) and text.lower() not in _FALSE
    if isinstance(expected, IntType):
        limits = f"a whole number from {expected.ge} to {expected.le}"
        if not _INTEGER.fullmatch(text):
            document.report(path, _wrong_type(limits, node))
            return 0
        if not (expected.ge or 0) <= int(text) <= (expected.le or 0):
            document.report(path, f"expected {limits}, found {text}")
        return int(text)
    assert isinstance(expected, StrType)
    if kind != "str":
        document.report(path, _wrong_type("text", node))
    elif len(text) < (expected.min_length or 0):
        document.report(path, "is empty")
    elif expected.max_length is not None and len(text) > expected.max_length:
        document.report(path, f"is longer than {expected.max_length} characters")
    return text


def _wrong_type(expected: str, node: Node) -> str:
    if not isinstance(node, ScalarNode):
        found = "a mapping" if isinstance(node, MappingNode) else "a list"
        return f"expected {expected}, found {found}"
    kind = kind_of(node)
    if kind == "null":
        return "is empty"
    if kind == "str":
        return f"expected {expected}, found the text {quote(node.value)}"
    found = f"{_KINDS.get(kind, 'a ' + kind)} ({node.value})"
    if expected == "text":
        return f"expected text, found {found}; write {quote(node.value)}, in quotes"
    return f"expected {expected}, found {found}"
