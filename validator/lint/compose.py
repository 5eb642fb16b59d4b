"""Read a compose file: which image a service has, whether it gets GPUs, and which it shows to TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from yaml import MappingNode, Node, ScalarNode

from .base_images import BaseImage, base_image
from .environment import VISIBLE_DEVICES, Environment, Stated
from .instructions import substituted
from .source_file import Source, read_source
from .yaml_places import items, members, place_of, root_of, scalar

#: Tags of Compose that say how a value replaces that of another file.
_TAG = re.compile(r"(?<![^\s\[,])!(?:reset|override)\b")
#: Variables that the NVIDIA runtime reads.
_FOR_GPU = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")


def of_compose(path: Path) -> tuple[list[Environment], list[Source]]:
    """Return an environment for each service. Raises InputError."""
    source = read_source(path)
    # Spaces instead of the tags keep lines and columns as they are.
    plain = replace(source, text=_TAG.sub(lambda tag: " " * len(tag[0]), source.text))
    services = _child(root_of(plain, "a compose file"), "services")
    return [_service(source, service) for service in _members(services).values()], [source]


def _service(source: Source, service: Node) -> Environment:
    image = _text(_child(service, "image"))
    base = base_image(image) if image else BaseImage()
    variables = dict(_variables(_child(service, "environment")))
    for_gpu = base.for_gpu or _gets_gpus(service) or any(name in variables for name in _FOR_GPU)
    devices = variables.get(VISIBLE_DEVICES)
    stated = None
    if devices is not None and (value := _text(devices[1])) is not None:
        stated = Stated(value.partition("=")[2] if devices[0] else value, place_of(source, devices[1]))
    return Environment((), for_gpu=for_gpu, visible_devices=stated)


def _gets_gpus(service: Node) -> bool:
    """Return whether a service asks for GPUs: `gpus`, `runtime: nvidia`, or reserved devices."""
    if _child(service, "gpus") is not None or _text(_child(service, "runtime")) == "nvidia":
        return True
    node: Node | None = service
    for key in ("deploy", "resources", "reservations", "devices"):
        node = _child(node, key)
    return any(
        _text(capability) == "gpu"
        for device in items(node)
        for capability in items(_child(device, "capabilities"))
    )


def _variables(node: Node | None) -> Iterator[tuple[str, tuple[bool, Node]]]:
    """Yield the name of each variable, whether its node also holds the name (`NAME=VALUE`), and the node.

    A variable without a value gets the one in the user's shell, so it is left out.
    """
    for name, value in _members(node).items():
        if not _is_null(value):
            yield name, (False, value)
    for item in items(node):
        name, equals, _ = (_text(item) or "").partition("=")
        if equals:
            yield name, (True, item)


def _child(node: Node | None, key: str) -> Node | None:
    return _members(node).get(key)


def _members(node: Node | None) -> dict[str, Node]:
    """Return the members of a mapping by name, including those that `<<` takes from other mappings."""
    own = members(node)
    merged = own.pop("<<", None)
    if isinstance(merged, MappingNode):
        return _members(merged) | own
    taken: dict[str, Node] = {}
    # If several mappings have the same member, the first one counts.
    for other in reversed([*items(merged)]):
        taken |= _members(other)
    return taken | own


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and not node.style and node.value in ("", "~", "null")


def _text(node: Node | None) -> str | None:
    """Return a scalar with its variables replaced by their defaults; None if one of them has no default."""
    text = scalar(node)
    return None if text is None else substituted(text, {})
