"""What else changed between two records of a cell: the suspects, when its verdict changed.

A side that could not know a thing (nothing was probed, the engine has no images) tells of no change in it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..model.record import Record

#: Facts of the host, as its probe names them (docs/reference/report.md).
_HOST = ("driver", "driver_cuda", "kernel_driver", "kernel", "os", "glibc", "container")


@dataclass(frozen=True)
class Change:
    """One thing that is not as it was.

    kind: `lock`, `package`, `version`, `driver`, `gpu`, `machine`, `variable` and so on.
    name: of the package, version or variable; None where there is only one of the kind.
    before, after: None for what was not there.
    """

    kind: str
    name: str | None
    before: str | None
    after: str | None

    def as_json(self) -> dict[str, str | None]:
        return dict(vars(self))


@dataclass(frozen=True)
class CheckChange:
    """A check with another outcome. None where the check was not made; summary is the newer one's."""

    id: str
    before: str | None
    after: str | None
    summary: str | None

    def as_json(self) -> dict[str, str | None]:
        return dict(vars(self))


def changes(before: Record, after: Record) -> tuple[Change, ...]:
    """What changed: first what the environment and the host are made of, then what measured them."""
    return (
        *_one("lock", before.lock_digest, after.lock_digest),
        *_each("package", _environment(before, "packages"), _environment(after, "packages")),
        *_each("version", before.versions, after.versions),
        *_one("base", before.base, after.base),
        *(
            Change(change.name or "", None, change.before, change.after)
            for change in _each("host", _host(before), _host(after))
        ),
        *_each("variable", _environment(before, "variables"), _environment(after, "variables")),
        *_one("engine", before.engine, after.engine),
        *_one("probe", before.probe_version, after.probe_version),
        *_one("image", before.image_digest, after.image_digest),
    )


def changed_checks(before: Record, after: Record) -> tuple[CheckChange, ...]:
    """Checks whose outcome is another one, in the newer record's order."""
    old = {check["id"]: check for check in before.checks}
    new = {check["id"]: check for check in after.checks}
    return tuple(
        CheckChange(
            name,
            old.get(name, {}).get("outcome"),
            new.get(name, {}).get("outcome"),
            new.get(name, {}).get("summary"),
        )
        for name in (*new, *(name for name in old if name not in new))
        if old.get(name, {}).get("outcome") != new.get(name, {}).get("outcome")
    )


def _one(kind: str, before: str | None, after: str | None) -> list[Change]:
    if before is None or after is None or before == after:
        return []
    return [Change(kind, None, _text(before), _text(after))]


def _each(kind: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> list[Change]:
    """Differences name by name. An empty mapping is one that nobody could fill."""
    if not before or not after:
        return []
    names = [*before, *(name for name in after if name not in before)]
    pairs = [(name, _text(before.get(name)), _text(after.get(name))) for name in names]
    return [Change(kind, name, old, new) for name, old, new in pairs if old != new]


def _host(record: Record) -> dict[str, Any]:
    host = record.host
    if not host:
        return {}
    # A record may come from a file that a person edited; what is of another shape tells nothing.
    listed = host.get("gpus")
    gpus = [gpu for gpu in listed if isinstance(gpu, dict)] if isinstance(listed, list) else []
    cpu = host.get("cpu")
    return {
        **{name: host.get(name) for name in _HOST},
        "gpu": _models(gpus),
        "machine": _machine(gpus),
        "cpu": cpu.get("model") if isinstance(cpu, dict) else cpu,
    }


def _models(gpus: Iterable[Mapping[str, Any]]) -> str | None:
    """`2 NVIDIA H100 80GB HBM3 (9.0)`"""
    models = Counter(f"{gpu.get('name')} ({gpu.get('compute_capability')})" for gpu in gpus)
    return ", ".join(f"{count} {model}" for model, count in sorted(models.items())) or None


def _machine(gpus: Iterable[Mapping[str, Any]]) -> str | None:
    """Tells machines apart by their GPUs' UUIDs, which name a person's hardware and are not shown."""
    uuids = sorted(str(gpu["uuid"]) for gpu in gpus if gpu.get("uuid"))
    return hashlib.sha256("\n".join(uuids).encode(errors="replace")).hexdigest()[:12] if uuids else None


def _environment(record: Record, name: str) -> dict[str, Any]:
    """`packages` or `variables` of the report's environment."""
    environment = record.report.get("environment") if isinstance(record.report, dict) else None
    found = environment.get(name) if isinstance(environment, dict) else None
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, sort_keys=True)
