"""Badges: for each minor release and each image spec, on how many host classes it is certified."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...model.record import Verdict
from ..overview import Row

#: Widths of characters of a 11 px sans-serif, good enough to leave room: the drawing fits text to its box.
_NARROW, _WIDE = frozenset("fijlrtI.,:;|'()[]1 "), frozenset("mwMW@%")
_PADDING = 7


@dataclass(frozen=True)
class Badge:
    """name: of the file, without its ending. tone: `good`, `mixed`, `bad` or `plain`."""

    name: str
    label: str
    message: str
    tone: str

    @property
    def title(self) -> str:
        return f"{self.label}: {self.message}"

    @property
    def label_width(self) -> int:
        return _width(self.label) + 2 * _PADDING

    @property
    def message_width(self) -> int:
        return _width(self.message) + 2 * _PADDING


def badges(rows: Iterable[Row]) -> Iterator[Badge]:
    """One a minor release, then one an image spec; of those that are planned for machines with a GPU."""
    minors: dict[str, list[Row]] = {}
    images: dict[str, list[Row]] = {}
    for row in rows:
        if row.planned is not None and row.planned.cell.host.has_gpu:
            minor = ".".join(row.planned.cell.image.tensorflow.split(".")[:2])
            minors.setdefault(minor, []).append(row)
            images.setdefault(row.image, []).append(row)
    for name, group in minors.items():
        yield _badge(name, f"TensorFlow {name}", group)
    for name, group in images.items():
        yield _badge(name, name, group)


def _badge(name: str, label: str, rows: Sequence[Row]) -> Badge:
    hosts = {row.host for row in rows}
    certified = _hosts(rows, Verdict.CERTIFIED)
    failed = _hosts(rows, Verdict.FAILED, Verdict.BROKEN) - certified
    message = f"certified on {len(certified)} of {len(hosts)} host class{'es' if len(hosts) != 1 else ''}"
    if failed:
        message += f", failed on {len(failed)}"
    tones = {(True, False): "good", (True, True): "mixed", (False, True): "bad", (False, False): "plain"}
    return Badge(name, label, message, tones[bool(certified), bool(failed)])


def _hosts(rows: Iterable[Row], *verdicts: Verdict) -> set[str]:
    return {row.host for row in rows if row.record and row.record.verdict in verdicts}


def _width(text: str) -> int:
    return round(sum(3.6 if char in _NARROW else 9.6 if char in _WIDE else 6.6 for char in text))
