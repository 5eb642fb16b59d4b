"""The probe as a directory, for tests that start it many times."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from validator.engines.protocol import probe_archive


def unpacked_probe(directory: Path) -> Path:
    """Unpack the probe and return its directory, which Python runs as it runs the archive.

    Out of an archive, Python compiles all of the probe at every start of the probe and of its workers.
    """
    with zipfile.ZipFile(io.BytesIO(probe_archive())) as archive:
        archive.extractall(directory)
    return directory
