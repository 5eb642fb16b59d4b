"""Read a YAML or JSON file into nodes, which know their place."""

from __future__ import annotations

from collections.abc import Iterator

from yaml import MappingNode, Node, SequenceNode

from ..errors import InputError
from ..matrix.document import parse_document
from ..matrix.problems import MatrixError
from ..model.finding import Place
from .source_file import Source


def root_of(source: Source, what: str) -> MappingNode:
    """Return the mapping that a file is. what: what it should be, for messages. Raises InputError."""
    try:
        root = parse_document(source.text.encode(), source.name).root
    except MatrixError as error:
        raise InputError(str(error)) from None
    if not isinstance(root, MappingNode):
        raise InputError(f"{source.name} is not {what}: it is not a mapping")
    return root


def items(node: Node | None) -> Iterator[Node]:
    """Yield the items of a list; none for any other node."""
    yield from node.value if isinstance(node, SequenceNode) else ()


def place_of(source: Source, node: Node) -> Place:
    """Return where a node begins."""
    return Place(source.name, node.start_mark.line + 1, node.start_mark.column + 1)
