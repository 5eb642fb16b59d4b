"""Runners that tests make up: throw-away keys, signed measurements, and the certifier who asked for them."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from validator.certify.acceptance import Certifier, Issued, certify
from validator.certify.signatures import Signer
from validator.certify.trust import (
    THROW_AWAY,
    Challenge,
    IssuedChallenges,
    Ledger,
    Party,
    Signatory,
    Trust,
    TrustFile,
    new_challenge,
    read_key,
)
from validator.certify.trust_file import entry_line
from validator.model.codec import now_utc, parse_timestamp
from validator.model.record import (
    GpuIdentity,
    Measurement,
    Outside,
    Record,
    read_record,
    report_digest,
    statement_of,
)
from validator.registry.client import Registry

from .building import INPUTS, Builder, make_builder
from .fixtures import MEASURED_AT
from .private_keys import make_key, signed


@dataclass(frozen=True)
class Runner:
    """A machine with a key. party: its entry in a trust file."""

    key: Path
    party: Party

    def sign(self, statement: bytes) -> str:
        """Return the bundle around a statement, as JSON."""
        return signed(statement, self.key).decode()

    def changed(self, **changes: Any) -> Runner:
        """Return the same machine with another entry."""
        return replace(self, party=replace(self.party, **changes))


def make_runner(directory: Path, name: str = "gpu-1", *host_classes: str, throw_away: bool = True) -> Runner:
    """Make a runner. host_classes: `*-h100` if none is given. throw_away: mark the key as made for a test."""
    key = directory / f"{name}.pem"
    public = make_key(key)
    signatory = Signatory(key=f"{THROW_AWAY}\n{public}" if throw_away else public)
    until = now_utc() + timedelta(days=365)
    return Runner(key, Party(name, signatory, until, host_classes=host_classes or ("*-h100",)))


@dataclass(frozen=True)
class Desk:
    """Somebody who certifies: who may speak there, and what was asked."""

    runners: tuple[Runner, ...]
    challenges: IssuedChallenges = field(default_factory=lambda: IssuedChallenges({}))

    @property
    def certifier(self) -> Certifier:
        return Certifier(TrustFile(runners=tuple(runner.party for runner in self.runners)), self.challenges)

    def ask(self, asked: str, issued: datetime = MEASURED_AT) -> Challenge:
        """Make a challenge for a cell or an image."""
        challenge = new_challenge(asked, issued)
        self.challenges.by_value[challenge.value] = challenge
        return challenge

    def measured(self, record: Record, runner: Runner | None = None, **changes: Any) -> Record:
        """Return the record as the runner delivers it: with a challenge of this desk, and signed."""
        issued = parse_timestamp(record.started) or MEASURED_AT
        return measured(record, runner or self.runners[0], self.ask(record.cell, issued), **changes)


def measured(record: Record, runner: Runner, challenge: Challenge | None, **changes: Any) -> Record:
    """Return a record with the measurement that a runner signs. changes: to the measurement."""
    value = challenge.value if challenge is not None else None
    if record.report is not None:
        record = msgspec.structs.replace(record, report={**record.report, "challenge": value})
    measurement = msgspec.structs.replace(measurement_of_record(record, value), **changes)
    return msgspec.structs.replace(record, measurement=runner.sign(statement_of(measurement)))


def measurement_of_record(record: Record, challenge: str | None) -> Measurement:
    """Return what an honest runner signs for a record."""
    report = record.report
    return Measurement(
        image_digest=str(record.image_digest),
        image=record.image,
        host_class=record.host_class,
        cell=record.cell,
        lock_digest=str(record.lock_digest),
        report_digest=report_digest(report) if report is not None else None,
        challenge=challenge,
        outside=outside_of(record.host),
        probe_version=str(record.probe_version),
        started=record.started,
        finished=record.finished,
        depth="quick",
        fixture=bool(report and report.get("fixture", False)),
        tensorflow_wheel=record.tensorflow_wheel,
    )


def outside_of(host: Mapping[str, Any]) -> Outside:
    """Return what the host itself sees, if its probe told the truth."""
    gpus = [GpuIdentity(gpu["uuid"], gpu["name"], gpu["compute_capability"]) for gpu in host["gpus"]]
    return Outside(host["driver"], host["kernel_driver"], tuple(sorted(gpus, key=lambda gpu: gpu.uuid)))


# For tests that are about certificates rather than measurements: one machine that may sign for all fixtures.

_ALL = ("*-h100", "*-a100", "*-t4")


@functools.cache
def _machine(throw_away: bool) -> Runner:
    directory = Path(os.environ["XDG_STATE_HOME"]) / "runners"
    directory.mkdir(parents=True, exist_ok=True)
    return make_runner(directory, "fixture" if throw_away else "real", *_ALL, throw_away=throw_away)


@functools.cache
def _measured_once(identifier: str, content: bytes) -> Record:
    made = read_record(content)
    # A broken image has no report that could be marked.
    fixture = made.report is None or bool(made.report.get("fixture"))
    challenge = Ledger().issue(made.cell, parse_timestamp(made.started))
    return measured(made, _machine(fixture), challenge, fixture=fixture)


def as_measured(made: Record) -> Record:
    """Return the record as that machine delivers it: the same one for the same record."""
    return _measured_once(made.id, json.dumps(made.document()).encode())


@functools.cache
def builder() -> Builder:
    """Return the builder of all images that tests make up."""
    directory = Path(os.environ["XDG_STATE_HOME"]) / "builders"
    directory.mkdir(parents=True, exist_ok=True)
    return make_builder(directory, "fixture-builder")


def prove(registry: Registry, digest: str, image: str) -> None:
    """Let that builder sign what an image was made from."""
    builder().prove_once(registry, digest, replace(INPUTS, image=image))


def note_proven(registry: Registry, digest: str, image: str) -> None:
    """Remember that a copied image comes with what that builder signed."""
    builder().note_proven(registry, digest, replace(INPUTS, image=image))


def parties() -> TrustFile:
    """Return who may speak: that machine and that builder."""
    return TrustFile(builders=(builder().party,), runners=(_machine(True).party, _machine(False).party))


def certifier() -> Certifier:
    """Return whoever asked that machine, and believes it."""
    return Certifier(parties(), Ledger())


def trust_file() -> Path:
    """Return a trust file with that machine and that builder."""
    path = Path(os.environ["XDG_STATE_HOME"]) / "runners" / "trust.yaml"
    if not path.exists():
        path.write_text(trust_yaml(_machine(True), _machine(False), builders=(builder(),)), encoding="ascii")
    return path


def certify_measured(
    registry: Registry, made: Record, signer: Signer, trust: Trust, *, now: datetime | None = None
) -> Issued:
    """Certify a record as that machine delivers it, of an image that a registered builder made."""
    prove(registry, str(made.image_digest), made.image)
    return certify(registry, as_measured(made), signer, trust, certifier(), now=now)


def trust_yaml(*runners: Runner, builders: Sequence[Builder] = (), release: Trust | None = None) -> str:
    """Return the text of a trust file. release: whose key signs certificates."""
    lines = ["runners:", *(f"  - {entry_line(runner.party)}" for runner in runners)]
    if builders:
        lines += ["builders:", *(f"  - {entry_line(builder.party)}" for builder in builders)]
    if release is not None and release.key is not None:
        lines.append(f"release: {{key: {json.dumps(read_key(release.key))}}}")
    return "\n".join(lines) + "\n"
