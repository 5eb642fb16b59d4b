"""Signing of measurements: a fake engine, and a signer that only notes what it gets."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from validator.engines.protocol import Built, ProbeRequest
from validator.errors import MissingError, ValidatorError
from validator.locks.lock_files import LockDirectory
from validator.model.record import (
    GpuIdentity,
    Outside,
    Record,
    Unread,
    Verdict,
    measurement_of,
    report_digest,
)
from validator.pipeline.build_matrix import build_matrix
from validator.pipeline.run import Event, Options, Phase, Result, Run, Runner, Status
from validator.records.store import Store
from validator.system.package_sources import PackageSources
from validator.system.processes import Progress

from .fakes import H100, FakeEngine, outside_of, report
from .test_build_matrix import SPEC, write_lock

DIGEST = f"sha256:{'a' * 64}"
_seen = outside_of(H100)
assert isinstance(_seen, Outside)
SEEN: Outside = _seen
CELL = f"{SPEC.identifier}@r580-h100"
T4 = {"name": "Tesla T4", "compute_capability": "7.5", "uuid": "GPU-T4"}
BOTH = Outside(SEEN.driver, SEEN.kernel_driver, (*SEEN.gpus, GpuIdentity("GPU-T4", "Tesla T4", "7.5")))


@dataclasses.dataclass
class Answering(FakeEngine):
    """An engine whose probe sees only the GPUs that the request names, and repeats the challenge."""

    digest: str | None = DIGEST
    seen: Outside | Unread = SEEN
    outcomes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cards: tuple[dict[str, str], ...] = (*H100["gpus"],)

    def probe(self, built: Built, request: ProbeRequest, progress: Progress) -> bytes:
        super().probe(built, request, progress)
        gpus = [card for card in self.cards if not request.gpus or card["uuid"] in request.gpus]
        document = json.loads(report({**H100, "gpus": gpus}, **self.outcomes))
        words = list(request.arguments)
        if "--challenge" in words:
            document["challenge"] = words[words.index("--challenge") + 1]
        return json.dumps(document).encode()


@dataclasses.dataclass
class Bench:
    """A machine with a key. signed: its statements. asked: the cells for which it issued a challenge."""

    store: Store
    locks: Path
    signed: list[bytes] = dataclasses.field(default_factory=list)
    asked: list[str] = dataclasses.field(default_factory=list)
    events: list[Event] = dataclasses.field(default_factory=list)
    refusal: ValidatorError | None = None

    def sign(self, statement: bytes) -> str:
        if self.refusal:
            raise self.refusal
        self.signed.append(statement)
        return f"bundle {len(self.signed)}"

    def challenge(self, cell: str) -> str:
        self.asked.append(cell)
        return f"{len(self.asked):064x}"

    def run(
        self,
        engine: FakeEngine,
        *,
        signs: bool = True,
        challenges: Mapping[str, str] | None = None,
        **options: Any,
    ) -> list[Result]:
        runner = Runner(self.sign, self.challenge) if signs else None
        run = Run(
            engine, self.store, PackageSources(), LockDirectory(self.locks), (), Options(**options),
            self.events.append, runner=runner, challenges=challenges,
        )  # fmt: skip
        return build_matrix([SPEC], run)

    def record(self, engine: FakeEngine, **options: Any) -> Record:
        [result] = self.run(engine, **options)
        assert result.record is not None
        return result.record


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    write_lock(tmp_path / "locks", SPEC)
    with Store(str(tmp_path / "records.db")) as store:
        yield Bench(store, tmp_path / "locks")


def test_the_runner_signs_what_was_measured_and_what_the_host_saw(bench: Bench) -> None:
    record = bench.record(Answering())
    assert (record.verdict, record.measurement) == (Verdict.CERTIFIED, "bundle 1")
    assert list(bench.store.all()) == [record]
    [statement] = bench.signed
    measurement = measurement_of(statement)
    assert record.report is not None
    assert measurement.report_digest == report_digest(record.report)
    assert measurement.challenge == record.report["challenge"] == f"{1:064x}"
    assert bench.asked == [CELL] == [measurement.cell]
    assert measurement.outside == SEEN
    assert (measurement.image_digest, measurement.lock_digest) == (DIGEST, record.lock_digest)
    assert (measurement.finished, measurement.probe_version) == (record.finished, record.probe_version)
    assert record.started <= measurement.started <= measurement.finished
    assert (measurement.depth, measurement.fixture) == ("quick", False)


def test_a_failure_on_a_real_gpu_is_signed(bench: Bench) -> None:
    record = bench.record(Answering(outcomes={"gpu_compute": "fail"}))
    assert (record.verdict, record.measurement) == (Verdict.FAILED, "bundle 1")
    assert measurement_of(bench.signed[0]).cell == CELL


def test_a_probe_that_died_is_signed_for_the_host_class_that_the_host_names(bench: Bench) -> None:
    class Dying(Answering):
        def probe(self, built: Built, request: ProbeRequest, progress: Progress) -> bytes:
            raise ValidatorError("the probe was killed")

    record = bench.record(Dying())
    assert (record.verdict, record.cell, record.report) == (Verdict.FAILED, CELL, None)
    assert measurement_of(bench.signed[0]).report_digest is None


def test_an_image_that_does_not_repeat_the_challenge_is_unproven(bench: Bench) -> None:
    record = bench.record(FakeEngine(report(H100), seen=SEEN, digest=DIGEST))
    assert record.verdict is Verdict.UNPROVEN
    assert record.reason.endswith("the report does not repeat the challenge")


@pytest.mark.parametrize("seen", [*Unread, Outside(SEEN.driver, SEEN.kernel_driver, ())])
def test_without_a_gpu_that_the_host_sees_nothing_is_signed(bench: Bench, seen: Outside | Unread) -> None:
    record = bench.record(Answering(seen=seen))
    assert record.verdict is Verdict.UNPROVEN
    assert (record.measurement, bench.signed, bench.asked) == (None, [], [])


def test_what_runs_next_to_the_key_is_never_signed(bench: Bench) -> None:
    """An environment on this machine, unlike a container, can read the key."""
    record = bench.record(Answering(name="venv", isolates=False))
    assert record.verdict is Verdict.CERTIFIED
    assert (record.measurement, bench.signed, bench.asked) == (None, [], [])


def test_what_can_not_be_signed_is_kept_and_measured_again(bench: Bench) -> None:
    bench.refusal = MissingError("the program cosign is not installed")
    record = bench.record(Answering())
    assert (record.verdict, record.measurement) == (Verdict.CERTIFIED, None)
    details = [event.detail for event in bench.events if event.phase is Phase.PROBE]
    assert "not signed: the program cosign is not installed" in details
    bench.refusal = None
    [again] = bench.run(Answering())
    assert again.status is Status.MEASURED and again.record is not None and again.record.measurement
    [unchanged] = bench.run(Answering())
    assert unchanged.status is Status.UNCHANGED


def test_an_unsigned_record_is_enough_for_a_run_that_signs_nothing(bench: Bench) -> None:
    bench.run(Answering(), signs=False)
    assert [result.status for result in bench.run(Answering(), signs=False)] == [Status.UNCHANGED]


def test_two_models_are_measured_one_after_the_other(bench: Bench) -> None:
    engine = Answering(seen=BOTH, cards=(*H100["gpus"], T4))
    first, second = bench.run(engine)
    records = [result.record for result in (first, second)]
    assert [record.cell if record else None for record in records] == [CELL, f"{SPEC.identifier}@r580-t4"]
    assert [record.verdict if record else None for record in records] == [Verdict.CERTIFIED] * 2
    assert [request.gpus for request in engine.requests] == [("GPU-H100",), ("GPU-T4",)]
    assert engine.builds == [SPEC.identifier]
    assert (first.built, second.built) == (True, False)
    outsides = [measurement_of(statement).outside for statement in bench.signed]
    assert [outside.gpus for outside in outsides] == [(gpu,) for gpu in BOTH.gpus]
    assert len({measurement_of(statement).challenge for statement in bench.signed}) == 2
    again = bench.run(Answering(seen=BOTH))
    assert [result.status for result in again] == [Status.UNCHANGED] * 2
    assert [result.record for result in again] == records


def test_only_the_model_with_a_challenge_is_measured_and_always_anew(bench: Bench) -> None:
    engine = Answering(seen=BOTH, cards=(*H100["gpus"], T4))
    bench.run(engine)
    given = {f"{SPEC.identifier}@r580-t4": "ab" * 32}
    [result] = bench.run(engine, challenges=given)
    assert result.status is Status.MEASURED and result.record is not None
    assert result.record.host_class == "r580-t4"
    assert measurement_of(bench.signed[-1]).challenge == "ab" * 32
    assert len(bench.asked) == 2, "the third challenge came from somebody else"


def test_a_machine_that_nobody_asked_builds_and_records_nothing(bench: Bench) -> None:
    engine = Answering()
    [result] = bench.run(engine, challenges={f"{SPEC.identifier}@r580-a100": "ab" * 32})
    assert result.status is Status.MISSING
    assert "whose host class is r580-h100" in result.detail
    assert (engine.builds, list(bench.store.all())) == ([], [])


def test_another_gpu_or_driver_makes_a_new_measurement(bench: Bench) -> None:
    bench.run(Answering())
    other = Outside("570.26", "570.26", SEEN.gpus)
    [result] = bench.run(Answering(seen=other))
    assert result.status is Status.MEASURED and result.record is not None
    assert (result.record.verdict, result.record.host_class) == (Verdict.UNPROVEN, "r570-h100")


def test_a_gpu_that_went_away_before_the_probe_is_noticed(bench: Bench) -> None:
    class Failing(Answering):
        readings = 0

        def outside(self) -> Outside | Unread:
            self.readings += 1
            return SEEN if self.readings == 1 else Outside(SEEN.driver, SEEN.kernel_driver, ())

    record = bench.record(Failing())
    assert record.verdict is Verdict.UNPROVEN
    assert "but the host has no GPU" in record.reason
