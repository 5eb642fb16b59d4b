"""Choose what compiles the byte code of images."""

from __future__ import annotations

from ..assemble.base import Base
from ..assemble.bytecode import Runner
from ..assemble.destinations import Destination
from ..assemble.image import put_base
from ..assemble.layer_table import LayerTable
from ..assemble.runners import bubblewrap
from ..engines.docker import Endpoint
from ..engines.docker.base_container import BaseContainer


def compiler(base: Base, table: LayerTable, endpoint: Endpoint | None) -> Runner | None:
    """Return what runs the Python of a base: a container of the engine, bubblewrap without one, or None."""
    if endpoint is None:
        return bubblewrap(base)

    def put(destination: Destination) -> str:
        return put_base(base, destination, table)

    return BaseContainer(endpoint, base, put)
