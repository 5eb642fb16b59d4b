"""The probe's version: what it declares, plus a digest of its sources when it runs from its archive."""

import pkgutil

from . import __version__

#: Written into the archive by whoever packs it; the host side computes the same text from the same sources.
FILE = "VERSION"


def version() -> str:
    """`1.0.0+0123456789ab` from an archive, `1.0.0+source` from a source tree."""
    try:
        packed = pkgutil.get_data(__name__.rpartition(".")[0], FILE)
    except OSError:
        packed = None
    return packed.decode().strip() if packed else __version__ + "+source"
