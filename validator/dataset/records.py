"""Records and their checks as rows, without what must not leave a machine.

Every text of a record passes through the redaction, and control characters become visible codes. Only
identifiers of the matrix, which is published in the same export, stay as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from ..model.codec import encode
from ..model.record import Origin, Record
from ..model.spec import cell_identifier
from ..model.timestamps import parse_timestamp
from ..redaction.redact import Redaction, names_in
from ..reports.printable import printable
from .tables import CheckRow, RecordRow

#: Turns a text of a record into one that may be published.
Clean = Callable[[str], str]
#: A `Redaction` remembers all its texts, so a new one is made after this many records.
_TOGETHER = 100
#: Texts that are remembered with the names in them, or redacted.
_REMEMBERED = 20_000


def exported(records: Iterable[Record]) -> Iterator[Record]:
    """Yield the records that belong in an export: all but rehearsals, which prove nothing."""
    return (record for record in records if record.origin is not Origin.REHEARSAL)


def names_of(records: Iterable[Record], known: Collection[str]) -> set[str]:
    """Return the names of people and machines that the records reveal anywhere, also in what is not exported.

    known: identifiers of the matrix, which are not such names.
    """
    # Records repeat each other's texts, and finding names takes time.
    names = functools.lru_cache(_REMEMBERED)(lambda text: tuple(names_in(text)))
    found: set[str] = set()
    for record in records:
        # `image@host` looks like a user at a host.
        document = record.document() | {"cell": None}
        found.update(name for text in dict.fromkeys(_texts(document)) for name in names(text))
    return found - set(known)


class Cleaner:
    """Cleans the texts of records. names: see `names_of`, or None to keep names. known: as there."""

    def __init__(self, names: Collection[str] | None, known: Collection[str]) -> None:
        self._names = names
        self._known = known
        self._calls = 0
        self._redact: Clean = str
        # Records repeat each other's texts.
        self._cleaned = functools.lru_cache(_REMEMBERED)(self._clean)

    def start(self) -> None:
        """Prepare for another record."""
        if self._names is not None and self._calls % _TOGETHER == 0:
            self._redact = Redaction((), self._names)
        self._calls += 1

    def text(self, text: str) -> str:
        return self._cleaned(text)

    def _clean(self, text: str) -> str:
        return printable(text if text in self._known else self._redact(text))

    def value(self, value: Any) -> Any:
        """Return JSON or a tuple with every text cleaned, also the names of fields."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return type(value)(map(self.value, value))
        if isinstance(value, dict):
            cleaned: dict[str, Any] = {}
            for name, entry in value.items():
                # Two names may become the same one.
                clean = self.text(name)
                while clean in cleaned:
                    clean += "_"
                cleaned[clean] = self.value(entry)
            return cleaned
        return value


def record_rows(records: Iterable[Record], clean: Cleaner) -> Iterator[RecordRow]:
    """Yield the row of each record, in their order."""
    for record in records:
        clean.start()
        image, host = clean.text(record.image), clean.text(record.host_class)
        versions, facts = record.versions, record.facts
        yield RecordRow(
            id=record.id,
            cell=cell_identifier(image, host),
            image=image,
            host=host,
            verdict=record.verdict,
            reason=clean.text(record.reason),
            origin=record.origin,
            fixture=(record.report or {}).get("fixture") is True,
            signed=record.measurement is not None,
            engine=clean.text(record.engine),
            tensorflow=clean.value(versions.get("tensorflow")),
            python=clean.value(versions.get("python")),
            cuda=clean.value(versions.get("cuda")),
            cudnn=clean.value(versions.get("cudnn")),
            driver=clean.value(facts.driver),
            driver_cuda=clean.value(facts.driver_cuda),
            gpus=clean.value(tuple(facts.gpu_names)),
            compute_capabilities=clean.value(
                tuple(gpu.compute_capability or "unknown" for gpu in facts.gpus)
            ),
            os=clean.value(facts.os),
            kernel=clean.value(facts.kernel),
            container=clean.value(facts.container),
            started=parse_timestamp(record.started),
            finished=parse_timestamp(record.finished),
            image_digest=clean.value(record.image_digest),
            lock_digest=clean.value(record.lock_digest),
            base=clean.value(record.base),
            probe_version=clean.value(record.probe_version),
            limits=clean.value(encode(list(record.limits))),
        )


def check_rows(records: Iterable[Record], clean: Cleaner) -> Iterator[CheckRow]:
    """Yield the row of each check of each record, in their order."""
    for record in records:
        clean.start()
        seen: dict[str, int] = {}
        for check in record.results:
            name = clean.text(check.id)
            seen[name] = seen.get(name, 0) + 1
            repeated = f"/{seen[name]}" if seen[name] > 1 else ""
            yield CheckRow(
                id=f"{record.id}/{name}{repeated}",
                record=record.id,
                check=name,
                outcome=check.outcome,
                required=check.required,
                seconds=check.duration_s,
                summary=clean.text(check.sentence),
                codes=clean.value(tuple(problem.code for problem in check.problems)),
                evidence=clean.value(check.evidence.raw),
            )


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in parsed JSON, also the names of fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for pair in value.items():
            yield from _texts(pair)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _texts(entry)
