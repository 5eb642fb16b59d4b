"""Mark the tests that only the weekly workflows run: those of the list in `weekly.yaml`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..support import read_yaml


@dataclass(frozen=True)
class Row:
    """A module or a test that moved, by the beginning of its id.

    reason: why a run of every week is enough, and what `.ci/run` still has of it
    kept: the parameters of the test, as pytest names them, that stay in `.ci/run`
    """

    name: str
    reason: str
    kept: tuple[str, ...] = ()


def _rows(found: Any, name: str) -> Iterator[Row]:
    if isinstance(found, str):
        yield Row(name, found)
    elif "reason" in found:
        yield Row(name, found["reason"], tuple(found["kept"]))
    else:
        for test, inner in found.items():
            yield from _rows(inner, f"{name}::{test}" if name else test)


WEEKLY = tuple(_rows(read_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")), ""))


def mark(items: Sequence[pytest.Item]) -> None:
    """Mark the tests of the rows with `weekly`."""
    rows = {row.name: row for row in WEEKLY}
    for item in items:
        name, _, parameters = item.nodeid.partition("[")
        row = rows.get(name) or rows.get(name.partition("::")[0])
        if row is not None and parameters.removesuffix("]") not in row.kept:
            item.add_marker("weekly")
