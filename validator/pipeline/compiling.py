"""Choose what compiles the byte code of images."""

from __future__ import annotations

from ..assemble.base import Base
from ..assemble.bytecode import Runner
from ..assemble.destinations import Destination
from ..assemble.encodings import encoding
from ..assemble.image import put_base
from ..assemble.layers import Layers
from ..assemble.runners import bubblewrap
from ..assemble.table import LayerTable
from ..engines.docker.base_container import BaseContainer
from ..engines.docker.endpoint import Endpoint, connect
from ..errors import MissingError

#: The end of a sentence that says why there is no byte code.
NO_COMPILER = "no Docker engine answers, and bubblewrap is not installed or can't use user namespaces here"


def compiler(base: Base, table: LayerTable, endpoint: Endpoint | None = None) -> Runner | None:
    """Return what runs the Python of a base: a container, bubblewrap if no engine answers, or None.

    endpoint: the engine, if it is known.
    """
    if endpoint is None:
        try:
            endpoint = connect()
        except MissingError:
            return bubblewrap(base)

    def put(destination: Destination) -> str:
        return put_base(base, destination, table, encoding(Layers.ZSTD))

    return BaseContainer(endpoint, base, put)
