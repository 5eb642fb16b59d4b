"""Find what else changed between two records of a cell, as the possible causes of another verdict.

Where one side could not know a fact (nothing was probed, the engine has no images), no change is reported.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from ..model.facts import Gpu
from ..model.record import Record
from ..model.report import CheckResult

#: Facts of the host, as its probe names them (docs/reference/report.md).
_HOST = ("driver", "driver_cuda", "kernel_driver", "kernel", "os", "glibc", "container")


@dataclass(frozen=True)
class Change:
    """One thing that differs."""

    kind: Annotated[str, "What differs: see below."]
    name: Annotated[str | None, "The package, version or variable; null where there is only one of the kind."]
    before: Annotated[str | None, "Null for something that was not there."]
    after: Annotated[str | None, "Null for something that is not there any more."]


@dataclass(frozen=True)
class CheckChange:
    """A check whose outcome differs."""

    id: Annotated[str, "Which check it is."]
    before: Annotated[str | None, "The outcome; null if it did not run."]
    after: Annotated[str | None, "The outcome; null if it did not run."]
    summary: Annotated[str | None, "One sentence, from the newer record."]


def changes(before: Record, after: Record) -> tuple[Change, ...]:
    """Return what changed: first in the environment and the host, then in what measured them."""
    old, new = before.environment, after.environment
    return (
        *_one("lock", before.lock_digest, after.lock_digest),
        *_each("package", old.packages, new.packages),
        *_each("version", before.versions, after.versions),
        *_one("base", before.base, after.base),
        *(
            Change(change.name or "", None, change.before, change.after)
            for change in _each("host", _host(before), _host(after))
        ),
        *_each("variable", old.variables, new.variables),
        *_one("engine", before.engine, after.engine),
        *_one("probe", before.probe_version, after.probe_version),
        *_one("image", before.image_digest, after.image_digest),
    )


def changed_checks(before: Record, after: Record) -> tuple[CheckChange, ...]:
    """Return the checks whose outcome differs, in the newer record's order."""
    old = {check.id: check for check in before.results}
    new = {check.id: check for check in after.results}
    names = (*new, *(name for name in old if name not in new))
    found = (_check_change(name, old.get(name), new.get(name)) for name in names)
    return tuple(change for change in found if change.before != change.after)


def _check_change(name: str, before: CheckResult | None, after: CheckResult | None) -> CheckChange:
    return CheckChange(
        name,
        before.outcome.value if before else None,
        after.outcome.value if after else None,
        after.sentence if after else None,
    )


def _one(kind: str, before: str | None, after: str | None) -> list[Change]:
    if before is None or after is None or before == after:
        return []
    return [Change(kind, None, before, after)]


def _each(kind: str, before: Mapping[str, str | None], after: Mapping[str, str | None]) -> list[Change]:
    """Compare name by name. An empty mapping means that its side knows nothing."""
    if not before or not after:
        return []
    names = [*before, *(name for name in after if name not in before)]
    pairs = [(name, before.get(name), after.get(name)) for name in names]
    return [Change(kind, name, old, new) for name, old, new in pairs if old != new]


def _host(record: Record) -> dict[str, str | None]:
    if not record.host:
        return {}
    facts = record.facts
    return {
        **{name: getattr(facts, name) for name in _HOST},
        "gpu": _models(facts.gpus),
        "machine": _machine(facts.gpus),
        "cpu": facts.cpu.model if facts.cpu else None,
    }


def _models(gpus: Iterable[Gpu]) -> str | None:
    """Return `2 NVIDIA H100 80GB HBM3 (9.0)`."""
    models = Counter(f"{gpu.name} ({gpu.compute_capability})" for gpu in gpus)
    return ", ".join(f"{count} {model}" for model, count in sorted(models.items())) or None


def _machine(gpus: Iterable[Gpu]) -> str | None:
    """Return a digest of the GPUs' UUIDs, which identify a person's hardware and must not be shown."""
    uuids = sorted(gpu.uuid for gpu in gpus if gpu.uuid)
    return hashlib.sha256("\n".join(uuids).encode(errors="replace")).hexdigest()[:12] if uuids else None
