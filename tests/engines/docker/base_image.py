"""A base in the engine as an image of its own, for tests that need any image with a Python and a shell."""

from __future__ import annotations

from validator.assemble.base_finder import BasePolicy, Bases
from validator.assemble.image import put_base
from validator.assemble.layer_table import LayerTable
from validator.engines.docker import EngineImages
from validator.engines.endpoint import Endpoint
from validator.engines.images import load
from validator.model.spec import PROJECT, ImageSpec


def base_image(endpoint: Endpoint, spec: ImageSpec) -> str:
    """Give the engine the default base of a spec, and return its name there."""
    name = f"{PROJECT}-base:for-tests-{spec.python}"
    table = LayerTable()
    base = Bases(BasePolicy.AUTO, table, EngineImages(endpoint)).base(spec, lambda _: None)
    load(endpoint, name, lambda into: put_base(base, into, table))
    return name
