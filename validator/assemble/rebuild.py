"""Find out if an image in a registry is exactly what its lock and base give, by making every layer again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest
from typing import Annotated, Any

import msgspec

from ..errors import MissingError
from ..registry.client import Registry
from ..system.pools import map_in_threads
from . import encoding
from .base_registry import read_config
from .configuration import Step, config_document, settings
from .layer_sources import ImagePlan
from .layer_table import LayerTable
from .layers import LayerSource
from .progress import Progress

_AT_ONCE = 2


class Finding(str, Enum):
    """The result of comparing a layer or the configuration of an image.

    EQUAL: the wheels give it. DIFFERS: they give something else. BASE: not from wheels, but a layer of the
    base that the image names. EXTRA: the lock and the base don't give such a layer.
    MISSING: the image lacks what they give.
    """

    EQUAL = "equal"
    DIFFERS = "differs"
    BASE = "base"
    EXTRA = "extra"
    MISSING = "missing"


@dataclass(frozen=True)
class Compared:
    """A layer of an image, or its configuration, next to what its lock gives."""

    name: Annotated[str, "Which layer it is, or `configuration`."]
    finding: Annotated[Finding, "What the comparison showed."]
    found: Annotated[
        str | None,
        "The diff_id of the layer in the image, or the digest of its configuration; null if the image"
        " lacks it.",
    ]
    expected: Annotated[str | None, "The right digest; null if there should be none, or for a base layer."]

    @property
    def is_right(self) -> bool:
        return self.finding in (Finding.EQUAL, Finding.BASE)


@dataclass(frozen=True)
class PublishedImage:
    """An image in a registry. diff_ids: of its layers, lowest first. config: as JSON values."""

    diff_ids: tuple[str, ...]
    config_digest: str
    config: dict[str, Any]

    @property
    def labels(self) -> dict[str, str]:
        return (self.config.get("config") or {}).get("Labels") or {}


def published_image(registry: Registry, digest: str) -> PublishedImage:
    """Return what an image says about itself. Raises InputError if it is not an image, and MissingError."""
    what = f"the image {registry.repository.at(digest)}"
    manifest = registry.manifest(digest)
    if manifest is None:
        raise MissingError(f"{what} is not in the registry", hint="check its name")
    config, diff_ids = read_config(registry, manifest, what)
    assert manifest.config is not None
    return PublishedImage(tuple(diff_ids), manifest.config.digest, config)


def rebuild(
    image: PublishedImage, plan: ImagePlan, table: LayerTable, progress: Progress
) -> tuple[Compared, ...]:
    """Make every layer of a plan again, without the layer table, and compare it with the image's.

    Layers and a configuration that are equal count from now on as computed by this machine. Raises
    ValidatorError for a wheel that does not match its lock, and MissingError if one can't be downloaded.
    """
    layers = tuple(_compare_layers(image, plan, table, progress))
    configuration = _compare_configuration(image, plan)
    if configuration.is_right:
        table.add_content(image.config_digest)
    return (*layers, configuration)


def uncomputed(image: PublishedImage, table: LayerTable) -> tuple[str, ...]:
    """Return the diff_ids, and the digest of the configuration, that this machine has not computed itself."""
    return tuple(part for part in (*image.diff_ids, image.config_digest) if not table.has_content(part))


def _compare_layers(
    image: PublishedImage, plan: ImagePlan, table: LayerTable, progress: Progress
) -> Iterator[Compared]:
    base, below = plan.base, len(plan.base.layers)
    for number, layer in enumerate(base.layers):
        found = image.diff_ids[number] if number < len(image.diff_ids) else None
        is_same = found == layer.diff_id
        if is_same:
            table.add_content(layer.diff_id)
        finding = Finding.BASE if is_same else Finding.MISSING if found is None else Finding.DIFFERS
        yield Compared(f"base {base.name}", finding, found, layer.diff_id)

    def diff_id(source: LayerSource) -> str:
        progress(f"making {source.name} again")
        return encoding.encode(source.entries(), lambda part: None).diff_id

    expected = map_in_threads(diff_id, plan.layers, _AT_ONCE)
    sources = [*plan.layers, plan.last()]
    expected.append(diff_id(sources[-1]))
    for source, found, wanted in zip_longest(sources, image.diff_ids[below:], expected):
        name = source.name if source else "a layer that the lock does not have"
        if found is not None and found == wanted:
            table.add_content(found)
            yield Compared(name, Finding.EQUAL, found, wanted)
        else:
            finding = (
                Finding.EXTRA if wanted is None else Finding.MISSING if found is None else Finding.DIFFERS
            )
            yield Compared(name, finding, found, wanted)


def _compare_configuration(image: PublishedImage, plan: ImagePlan) -> Compared:
    """Compare everything but the names of the layers, which follow no rules."""
    steps = [Step("", diff_id) for diff_id in image.diff_ids]
    configured = settings(plan.spec, plan.lock, plan.base, plan.recipe)
    wanted = msgspec.json.decode(config_document(configured, steps, plan.created), type=dict[str, Any])
    found = {key: value for key, value in image.config.items() if key != "history"}
    wanted.pop("history")
    different = sorted(key for key in {*found, *wanted} if found.get(key) != wanted.get(key))
    name = "configuration" + (f" ({', '.join(different)})" if different else "")
    finding = Finding.DIFFERS if different else Finding.EQUAL
    return Compared(name, finding, image.config_digest, None)
