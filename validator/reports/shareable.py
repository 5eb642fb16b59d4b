"""Take names of people and machines, and credentials, out of a diagnosis that will be published."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from ..model.diagnosis import Cause, Diagnosis, Evidence
from ..redaction.redact import Redaction


def shareable(diagnosis: Diagnosis, names: Iterable[str] = ()) -> Diagnosis:
    """Return the diagnosis with every text redacted, before markup makes names hard to find.

    names: to take out in addition to those that are found in the diagnosis.
    """
    redact = Redaction(_texts(diagnosis), names)

    def evidence(entries: Iterable[Evidence]) -> tuple[Evidence, ...]:
        return tuple(dataclasses.replace(entry, text=redact(entry.text)) for entry in entries)

    def cause(found: Cause) -> Cause:
        remedies = tuple(
            dataclasses.replace(
                remedy,
                says=redact(remedy.says),
                commands=tuple(redact(command) for command in remedy.commands),
            )
            for remedy in found.remedies
        )
        return dataclasses.replace(
            found,
            title=redact(found.title),
            evidence=evidence(found.evidence),
            remedies=remedies,
            reasons=tuple(dataclasses.replace(one, text=redact(one.text)) for one in found.reasons),
        )

    return dataclasses.replace(
        diagnosis,
        causes=tuple(cause(found) for found in diagnosis.causes),
        unknown=evidence(diagnosis.unknown),
        facts={name: redact(value) for name, value in diagnosis.facts.items()},
        read=redact(diagnosis.read),
        next_command=redact(diagnosis.next_command),
    )


def _texts(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield every text that may contain a name."""
    for cause in diagnosis.causes:
        yield cause.title
        yield from (entry.text for entry in cause.evidence)
        yield from (reason.text for reason in cause.reasons)
    for harmless in diagnosis.harmless:
        yield from (entry.text for entry in harmless.evidence)
    yield from (entry.text for entry in diagnosis.unknown)
    yield from diagnosis.facts.values()
    yield diagnosis.next_command
