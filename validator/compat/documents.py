"""Reading the project's own data files, quickly.

PyYAML finds a document's structure in C and makes its values in Python, which takes two thirds of the time; a
command that reads a short log spends more on that than on the log. So the values are made here: of each plain
scalar once, by PyYAML's own rules, and of all else directly.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.resolver import BaseResolver, Resolver

#: With libyaml its parser, else PyYAML's own.
_PARSER: Any = yaml._yaml.CParser if yaml.__with_libyaml__ else yaml.SafeLoader
_PLAIN: Any = Resolver()
_TEXT = BaseResolver.DEFAULT_SCALAR_TAG
_CONSTRUCTOR: Any = SafeConstructor()


class _Nodes(_PARSER, BaseResolver):  # type: ignore[misc]
    """The structure of a document; what a scalar means is left open."""

    def __init__(self, content: bytes) -> None:
        _PARSER.__init__(self, content)
        BaseResolver.__init__(self)


def read(path: Path) -> Any:
    """What is in a YAML file of the project: mappings, lists, and scalars as YAML 1.1 has them.

    Merge keys and tags are not for such files. Raises OSError and yaml.YAMLError.
    """
    node = _Nodes(path.read_bytes()).get_single_node()
    return None if node is None else _value(node)


def _value(node: Node) -> Any:
    if isinstance(node, ScalarNode):
        # Quoted and block scalars have a style, and are text.
        return node.value if node.style else _plain(node.value)
    if isinstance(node, SequenceNode):
        return [_value(entry) for entry in node.value]
    assert isinstance(node, MappingNode)
    return {_value(key): _value(value) for key, value in node.value}


@functools.lru_cache(maxsize=4096)
def _plain(text: str) -> Any:
    tag = _PLAIN.resolve(ScalarNode, text, (True, False))
    return text if tag == _TEXT else _CONSTRUCTOR.construct_object(ScalarNode(tag, text))
