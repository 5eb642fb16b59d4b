"""Read a YAML or JSON file into nodes, which know their place."""

from __future__ import annotations

from collections.abc import Iterator

from yaml import MappingNode, Node, ScalarNode, SequenceNode

from ..errors import InputError
from ..matrix.document import keys_of, parse_document
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


def entries(node: Node | None) -> dict[str, tuple[Node, Node]]:
    """Return the nodes of the key and the value for each key of a mapping; none for any other node."""
    return keys_of(node) if isinstance(node, MappingNode) else {}


def members(node: Node | None) -> dict[str, Node]:
    """Return the values of a mapping by their keys; none for any other node."""
    return {name: value for name, (_, value) in entries(node).items()}


def items(node: Node | None) -> Iterator[Node]:
    """Yield the items of a list; none for any other node."""
    yield from node.value if isinstance(node, SequenceNode) else ()


def scalar(node: Node | None) -> str | None:
    """Return the text of a scalar, and None for any other node."""
    return str(node.value) if isinstance(node, ScalarNode) else None


def place_of(source: Source, node: Node) -> Place:
    """Return where a node begins."""
    return Place(source.name, node.start_mark.line + 1, node.start_mark.column + 1)
