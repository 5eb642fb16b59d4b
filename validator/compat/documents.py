"""Reading the project's own data files.

What was read is kept as Python keeps the bytecode of a module, in `__pycache__` or under the prefix for it,
and is taken for as long as the file has not changed by a byte. Parsing YAML takes fifty times as long.
"""

from __future__ import annotations

import contextlib
import importlib.util
import marshal
import os
import sys
import zlib
from pathlib import Path
from typing import Any

#: Bytes of the checksum before what is kept.
_SUM = 4


def read(path: Path) -> Any:
    """What is in a YAML file. Raises OSError and yaml.YAMLError."""
    source = path.read_bytes()
    kept = Path(importlib.util.cache_from_source(f"{path}.py"))
    # Whatever is wrong with what was kept, the file itself is at hand.
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
        written = kept.read_bytes()
        # What is damaged is not looked into: it may ask for any amount of memory.
        if written[:_SUM] == _sum(written[_SUM:]):
            of, content = marshal.loads(written[_SUM:])
            if of == source:
                return content
    content = _parsed(source)
    if not sys.dont_write_bytecode:
        _keep(kept, source, content)
    return content


def _parsed(source: bytes) -> Any:
    # Importing it takes as long as the rest, and where all is kept it is not needed.
    import yaml

    # With libyaml it takes a fifth of the time.
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(source, Loader=loader)


def _keep(kept: Path, source: bytes, content: Any) -> None:
    """Keep it, if that can be done: not on a full disk, in a directory of others, or with a date in it."""
    with contextlib.suppress(OSError, ValueError):
        written = marshal.dumps((source, content))
        kept.parent.mkdir(parents=True, exist_ok=True)
        temporary = kept.with_name(f"{kept.name}.{os.getpid()}")
        try:
            temporary.write_bytes(_sum(written) + written)
            temporary.replace(kept)
        finally:
            temporary.unlink(missing_ok=True)


def _sum(written: bytes) -> bytes:
    return zlib.crc32(written).to_bytes(_SUM, "little")
