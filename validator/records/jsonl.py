"""Records as JSON Lines, to carry them between machines. Importing twice changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import IO

from ..errors import InputError
from ..model.record import Record

#: A longer line is no record of ours; reading on would only fill the memory.
LINE_LIMIT = 64 * 1024 * 1024


def write(records: Iterable[Record], stream: IO[str]) -> int:
    """Write one record a line; gives back how many."""
    count = 0
    for record in records:
        stream.write(json.dumps(record.as_json(), sort_keys=True, separators=(",", ":")) + "\n")
        count += 1
    return count


def read(stream: IO[bytes], where: str) -> Iterator[Record]:
    """Read records. Raises InputError naming the line that is not one."""
    for number, line in enumerate(iter(lambda: stream.readline(LINE_LIMIT + 1), b""), start=1):
        if len(line) > LINE_LIMIT:
            raise InputError(f"{where}:{number}: the line is longer than {LINE_LIMIT} bytes")
        if not line.strip():
            continue
        try:
            document = json.loads(line)
            if not isinstance(document, dict):
                raise ValueError("not a JSON object")
            yield Record.from_json(document)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{where}:{number}: {error}",
                hint="export it again with `python -m validator records export`; nothing was imported",
            ) from error
