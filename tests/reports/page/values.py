"""Make images, host classes and records for small test pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from validator.model.diagnosis import Cause, Diagnosis, Evidence, Remedy
from validator.model.prediction import Outcome, PlannedCell, Reason, decide
from validator.model.record import Certificate, GpuFacts, Record, Verdict
from validator.model.spec import Cell, Choice, HostClass, ImageSpec, Variant, cell_identifier
from validator.reports.overview import overview
from validator.reports.page.measurements import gather
from validator.reports.page.site import Sources
from validator.versions import ComputeCapability, DriverRelease

from ...records.values import record
from ...support import said

H100 = HostClass("r580-h100", DriverRelease.parse("580"), ComputeCapability(9, 0), "h100")
T4 = HostClass("r535-t4", DriverRelease.parse("535"), ComputeCapability(7, 5), "t4")
NO_GPU = HostClass.without_gpu()
#: Later than every record of these tests.
NOW = datetime(2026, 12, 1, tzinfo=timezone.utc)


def image(release: str = "2.21.0", python: str = "3.12", cuda: str = "12.5", cudnn: str = "9.3") -> ImageSpec:
    return ImageSpec(release, python, Variant.GPU, Choice("as-built", cuda), Choice("as-built", cudnn))


IMAGES = [
    image(python="3.11"),
    image(python="3.12"),
    image("2.20.0", "3.12"),
    image("2.18.1", "3.12", "12.5", "9.3"),
]


def planned(
    images: Iterable[ImageSpec] = IMAGES,
    hosts: Sequence[HostClass] = (T4, H100),
    outcome: Outcome = Outcome.WORKS,
    text: str = "the wheel has machine code for it",
    mode: str | None = None,
) -> list[PlannedCell]:
    reason = Reason(outcome, text, "a-fact", "https://example.org/facts", "verified", mode=mode)
    # Where a reason is about one mode, the other one works.
    others = () if mode is None else (Reason(Outcome.WORKS, "it runs", "a-fact", "", "verified"),)
    return [PlannedCell(Cell(spec, host), decide((reason, *others))) for spec in images for host in hosts]


def measured(
    spec: ImageSpec, where: HostClass | str, verdict: Verdict, number: int = 0, **changes: Any
) -> Record:
    """Make a record. `certified` is only a value here; no machine has measured it."""
    name = where if isinstance(where, str) else where.identifier
    fields: dict[str, Any] = {
        "cell": cell_identifier(spec.identifier, name),
        "image": spec.identifier,
        "host_class": name,
        "verdict": verdict,
        "reason": f"found to be {verdict.value}",
        "engine": "docker",
        "image_digest": f"sha256:{number:064x}",
        "host": {"driver": "580.65.06", "gpus": [{"name": "NVIDIA H100 PCIe"}]},
        "versions": {"tensorflow": spec.tensorflow},
        "checks": [check("driver"), check("gpu_compute", "fail" if verdict is Verdict.FAILED else "pass")],
    }
    return record(number, **(fields | changes))


def check(name: str, outcome: str = "pass", evidence: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {
        "id": name,
        "outcome": outcome,
        **said(f"about {name}", outcome),
        "required": True,
        "evidence": dict(evidence or {"seen": 1}),
        "duration_s": 0.5,
    }


def speedup(share: float = 0.5, step_s: float = 0.02, device: str = "GPU", **changes: Any) -> dict[str, Any]:
    """Make a check `xla_speedup` in which XLA takes this share of a graph's time."""

    def spread(median: float) -> dict[str, float]:
        return {"median": median, "q1": median * 0.8, "q3": median * 1.25, "min": 0, "max": 9, "samples": 15}

    evidence: dict[str, Any] = {
        "device_type": device,
        "model": {"batch": 32},
        "modes": [
            {"mode": "eager", "step_s": spread(step_s * 2)},
            {"mode": "graph", "step_s": spread(step_s)},
            {"mode": "xla", "step_s": spread(step_s * share)},
        ],
        "ratios": {"xla/graph": {"step_time": spread(share)}},
    }
    return check("xla_speedup", evidence=evidence | changes)


def diagnosis(text: str = "A cause.", command: str = "mend it") -> Diagnosis:
    cause = Cause(
        "a_cause",
        text,
        "What it means.",
        (Evidence("the line that shows it", "line 1"),),
        (Remedy("host", "Mend it so.", (command,)),),
        ("https://example.org/cause",),
    )
    return Diagnosis("cause_found", (cause,), (), ())


def sources(
    records: Iterable[Record] = (), cells: Iterable[PlannedCell] | None = None, **changes: Any
) -> Sources:
    made = list(records)
    measurements = gather(made, NOW)
    by_id = {record.id: record for record in made}
    fields: dict[str, Any] = {
        "rows": overview(planned() if cells is None else cells, measurements.latest),
        "measurements": measurements,
        "profile": "nightly",
        "certificates": {},
        "diagnose": lambda record: diagnosis() if record.verdict is Verdict.FAILED else None,
        "registry": None,
        "fetch": lambda identifiers: {identifier: by_id[identifier] for identifier in identifiers},
    }
    return Sources(**(fields | changes))


def certificate(found: Record, **changes: Any) -> Certificate:
    """Make an unsigned certificate for a record of `measured`, marked as a fixture."""
    fields: dict[str, Any] = {
        "image_digest": found.image_digest,
        "image": found.image,
        "host_class": found.host_class,
        "driver": "580.65.06",
        "gpus": (GpuFacts("NVIDIA H100 PCIe", "9.0"),),
        "lock_digest": found.lock_digest,
        "probe_version": found.probe_version,
        "tensorflow": "2.21.0",
        "python": "3.12",
        "cuda": "12.5",
        "cudnn": "9.3",
        "passed": ("driver",),
        "skipped": (),
        "failed": (),
        "record_id": found.id,
        "measured": found.finished,
        "issued": "2026-01-02T00:00:00+00:00",
        "expires": "2026-01-15T00:00:00+00:00",
        "signer": "a key of the tests",
        "fixture": True,
    }
    return Certificate(**(fields | changes))
