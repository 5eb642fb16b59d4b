"""Gather what the page shows from the records: each cell's newest record, its history, speed and layers.

The details of a measured cell are a separate file, which the page loads when the cell is opened.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ...model.codec import NEVER, encode
from ...model.diagnosis import WAYS, Diagnosis
from ...model.record import Certificate, Layer, Record
from ...model.report import CheckOutcome, Ratio, Spread, XlaSpeedup
from ...records.history import credible_time, finish_time
from ..printable import script_json


@dataclass(frozen=True)
class Past:
    """A record of a cell without its report. credible: True if its finish time can be right."""

    record: str
    finished: str
    verdict: str
    reason: str
    engine: str
    driver: str | None
    image_digest: str | None
    lock_digest: str | None
    probe_version: str | None
    credible: bool = True

    def changed_since(self, earlier: Past) -> tuple[str, ...]:
        """Return what else differs from an earlier record: `lock`, `image`, `driver`, `probe`, `engine`."""
        pairs = {
            "lock": (self.lock_digest, earlier.lock_digest),
            "image": (self.image_digest, earlier.image_digest),
            "driver": (self.driver, earlier.driver),
            "probe": (self.probe_version, earlier.probe_version),
            "engine": (self.engine, earlier.engine),
        }
        return tuple(name for name, (now, then) in pairs.items() if now != then)


@dataclass(frozen=True)
class Measurements:
    """Everything that the page shows from the records.

    latest: the newest record of each cell.
    history: the records of each cell, oldest first, those whose time can't be right before all others.
    speeds: the speed of each cell, from the newest record that measured it.
    layers: the layers of each image spec, from the newest record that has them.
    """

    latest: dict[str, Record] = field(default_factory=dict)
    history: dict[str, list[Past]] = field(default_factory=dict)
    speeds: dict[str, Speed] = field(default_factory=dict)
    layers: dict[str, tuple[Layer, ...]] = field(default_factory=dict)


def gather(records: Iterable[Record], now: datetime) -> Measurements:
    """Gather the measurements from records, in any order. Reads them once."""
    found = Measurements()
    history: dict[str, list[tuple[datetime, str, Past]]] = {}
    #: The times of the values found so far, by kind and owner.
    times: dict[tuple[str, str], datetime] = {}
    for record in records:
        when = credible_time(finish_time(record), now)
        past = Past(
            record=record.id, finished=record.finished, verdict=record.verdict.value, reason=record.reason,
            engine=record.engine, driver=record.facts.driver, image_digest=record.image_digest,
            lock_digest=record.lock_digest, probe_version=record.probe_version, credible=when is not None,
        )  # fmt: skip
        history.setdefault(record.cell, []).append((when or NEVER, record.id, past))
        if when is None:
            continue

        def is_newest(kind: str, name: str, when: datetime = when) -> bool:
            newest = when >= times.get((kind, name), NEVER)
            if newest:
                times[kind, name] = when
            return newest

        if is_newest("record", record.cell):
            found.latest[record.cell] = record
        if (speed := speed_of(record)) is not None and is_newest("speed", record.cell):
            found.speeds[record.cell] = speed
        if record.layers and is_newest("layers", record.image):
            found.layers[record.image] = record.layers
    for cell, dated in history.items():
        found.history[cell] = [past for _, _, past in sorted(dated, key=lambda each: each[:2])]
    return found


#: The modes that the check `xla_speedup` measures (docs/reference/report.md).
MODES = ("eager", "graph", "xla")


@dataclass(frozen=True)
class Speed:
    """The speed of a training step, measured in three modes within one run.

    device: `CPU` or `GPU`. batch: the number of examples in a step. speedup: the time of a graph's step
    divided by that of a step with XLA. steps: the seconds of a step, by mode (`MODES`).
    """

    cell: str
    image: str
    host: str
    device: str
    batch: int | None
    finished: str
    speedup: Spread
    steps: Mapping[str, Spread]


def speed_of(record: Record) -> Speed | None:
    """Return the measured speed, or None if it was not measured, did not pass or is incomplete."""
    check = record.result(XlaSpeedup.check)
    if check is None or check.outcome is not CheckOutcome.PASS or not isinstance(check.evidence, XlaSpeedup):
        return None
    evidence = check.evidence
    steps = {mode.mode: mode.step_s for mode in evidence.modes}
    found = [steps.get(name) for name in MODES]
    ratio = evidence.ratios.get("xla/graph", Ratio()).step_time
    known = [spread for spread in (*found, ratio) if spread is not None and spread.is_positive]
    if evidence.device_type is None or evidence.model is None or len(known) <= len(MODES):
        # An older probe's evidence, or an imported report.
        return None
    return Speed(
        cell=record.cell,
        image=record.image,
        host=record.host_class,
        device=evidence.device_type,
        batch=evidence.model.batch,
        finished=record.finished,
        speedup=known[-1].inverted(),
        steps=dict(zip(MODES, known, strict=False)),
    )


@dataclass(frozen=True)
class Size:
    """The size of an image. size: its unpacked layers, in bytes. shared: those that other images have too."""

    image: str
    size: int
    shared: int
    layers: int

    @property
    def own(self) -> int:
        return self.size - self.shared


@dataclass(frozen=True)
class Storage:
    """The storage of several images, in bytes.

    together: their sum as if nothing was shared. stored: the sum of all layers, each counted once.
    """

    images: tuple[Size, ...]
    together: int
    stored: int


def storage(layers: Mapping[str, Sequence[Layer]], images: Sequence[str]) -> Storage:
    """Return the storage of those images whose layers are known.

    layers: the layers by the image spec's identifier. images: identifiers, in the order of the result.
    """
    # An image may have a layer twice, but it is stored only once.
    known = {
        image: {layer.digest: layer.size for layer in layers[image]} for image in images if image in layers
    }
    users = Counter(digest for found in known.values() for digest in found)
    sizes = tuple(
        Size(
            image,
            sum(found.values()),
            sum(size for digest, size in found.items() if users[digest] > 1),
            len(found),
        )
        for image, found in known.items()
    )
    stored = {digest: size for found in known.values() for digest, size in found.items()}
    return Storage(sizes, sum(size.size for size in sizes), sum(stored.values()))


def readable(size: int) -> str:
    """Return a size as text such as `885.8 MB` or `8.1 GB`."""
    for unit, least in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if size >= least:
            return f"{size / least:.1f} {unit}"
    return f"{size} B"


def factor(value: float) -> str:
    """Return text such as `1.31 times`, which screen readers read well."""
    return f"{value:.2f} times"


def milliseconds(seconds: float) -> str:
    value = seconds * 1000
    return f"{value:.0f} ms" if value >= 100 else f"{value:.3g} ms"


# Make the details of a measured cell, and write values as the page's script reads them.


def detail(
    record: Record, history: Sequence[Past], certificates: Sequence[Certificate], diagnosis: Diagnosis | None
) -> dict[str, Any]:
    """Return the details of a record. history: that of its cell, oldest first."""
    named = (
        "id", "reason", "engine", "base", "image_digest", "lock_digest", "probe_version", "started",
        "finished", "versions",
    )  # fmt: skip
    host = {
        "GPU": ", ".join(record.facts.gpu_names),
        "driver": record.facts.driver,
        "CUDA of the driver": record.facts.driver_cuda,
        "system": record.facts.os,
        "kernel": record.facts.kernel,
        "container": record.facts.container,
    }
    speed = {}
    if (found := speed_of(record)) is not None:
        steps = {mode: found.steps[mode].median for mode in MODES}
        speed = {f"step, {mode}, on the {found.device}": milliseconds(steps[mode]) for mode in MODES}
        speed["speedup by XLA"] = factor(found.speedup.median)
    findings = encode(diagnosis) if diagnosis else {"causes": [], "unknown": []}
    for cause in findings["causes"]:
        for remedy in cause["remedies"]:
            remedy["way"] = WAYS.get(remedy["way"], remedy["way"])
    return {
        "record": {name: getattr(record, name) for name in named} | {"origin": record.origin.value},
        "host": {name: value for name, value in host.items() if value},
        "layers": encode(record.layers or ()),
        "packages": dict(sorted(record.environment.packages.items())),
        "speed": speed,
        "checks": [
            {
                "id": check.id,
                "outcome": check.outcome.value,
                "summary": check.sentence,
                "required": check.required,
                "evidence": check.evidence.raw,
                "duration_s": check.duration_s,
            }
            for check in record.results
        ],
        "causes": findings["causes"],
        "unknown": findings["unknown"],
        "certificates": [
            {
                "issued": certificate.issued,
                "measured": certificate.measured,
                "signer": certificate.signer,
                "host_class": certificate.host_class,
                "driver": certificate.driver,
                "gpus": [f"{gpu.name} ({gpu.compute_capability})" for gpu in certificate.gpus],
                "record": certificate.record_id,
                "fixture": certificate.fixture,
                "limits": [limit.sentence for limit in certificate.limits],
            }
            for certificate in certificates
        ],
        # The newest comes first, each with what else changed since the one before.
        "history": [
            {name: getattr(past, name) for name in ("record", "finished", "verdict", "reason", "driver")}
            | {"changed": list(past.changed_since(earlier)) if earlier else []}
            for earlier, past in zip((None, *history), history, strict=False)
        ][::-1],
    }


def detail_file(content: dict[str, Any], mark: str) -> tuple[str, str]:
    """Return the file's name and content.

    The name is a digest, so that a page never loads the details of another version of the page. The file is a
    script, since a page that was opened from disk can't load anything else: it calls a function of the page.
    """
    text = script_json(content)
    name = hashlib.sha256(text.encode("ascii")).hexdigest()[:20]
    return name, f"// {mark}\ncellDetail({script_json(name)}, {script_json(text)});\n"
