"""The main job with a fake engine: what is recorded, kept and reported."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from validator.cli.progress import sentence, totals
from validator.compat.policies import requirements
from validator.engines.protocol import Built, Engine, ProbeRequest
from validator.errors import BuildError, MissingError, ValidatorError
from validator.locks import lock_files
from validator.model.record import Unread, Verdict
from validator.model.spec import Choice, HostClass, ImageSpec, Lock, Variant, Wheel
from validator.model.verdict import REQUIRED_ON_CPU
from validator.pipeline import build_matrix as build_matrix_module
from validator.pipeline.build_matrix import build_matrix
from validator.pipeline.run import Event, Options, Phase, Result, Run, Status
from validator.records.store import Store
from validator.system import processes
from validator.system.package_sources import PackageSources
from validator.system.pools import stuck_threads
from validator.system.processes import Progress
from validator.versions import ComputeCapability, DriverRelease

from .fakes import H100, NO_GPU, FakeEngine, outside_of, report

CUDA = (Choice("as-built", "12.5"), Choice("as-built", "9.3"))
SPEC = ImageSpec("2.21.0", "3.11", Variant.GPU, *CUDA)
OTHER = ImageSpec("2.20.0", "3.11", Variant.GPU, *CUDA)
R580_H100 = HostClass("r580-h100", DriverRelease.parse("580"), ComputeCapability(9, 0), "h100")


def write_lock(directory: Path, spec: ImageSpec, sha256: str = "0" * 64) -> Lock:
    asked = requirements(spec)
    pins = [requirement.split("==") for requirement in asked if "==" in requirement]
    wheels = [Wheel(name, version, sha256, "a-1-py3-none-any.whl") for name, version in pins]
    wheels.append(Wheel("pip", "26.3", "1" * 64, "pip-26.3-py3-none-any.whl"))
    lock = Lock(spec.identifier, spec.python, "x", asked, tuple(sorted(wheels, key=lambda each: each.name)))
    lock_files.write(directory, lock)
    return lock


@dataclasses.dataclass
class Bench:
    """A store and locks in a temporary directory, and the events of the runs that use them."""

    store: Store
    locks: Path
    events: list[Event] = dataclasses.field(default_factory=list)

    def run(
        self, engine: Engine, *specs: ImageSpec, hosts: tuple[HostClass, ...] = (), **options: Any
    ) -> list[Result]:
        settings = Run(
            engine, self.store, PackageSources(), lock_files.LockDirectory(self.locks), hosts,
            Options(**options), self.events.append,
        )  # fmt: skip
        return build_matrix(specs or (SPEC,), settings)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    for spec in (SPEC, OTHER):
        write_lock(tmp_path / "locks", spec)
    with Store(str(tmp_path / "records.db")) as store:
        yield Bench(store, tmp_path / "locks")


def test_without_a_gpu_the_verdict_is_unproven(bench: Bench) -> None:
    [result] = bench.run(FakeEngine(report()))
    assert result.record is not None
    assert (result.record.verdict, result.record.reason) == (Verdict.UNPROVEN, "no GPU")
    assert result.record.cell == f"{SPEC.identifier}@no-gpu"
    assert list(bench.store.all()) == [result.record]


def test_an_image_without_cuda_is_proven_on_a_machine_without_a_gpu(bench: Bench) -> None:
    cpu = ImageSpec("2.21.0", "3.11", Variant.CPU)
    write_lock(bench.locks, cpu)
    passed = dict.fromkeys(REQUIRED_ON_CPU, "pass")
    [result] = bench.run(FakeEngine(report(NO_GPU, **passed)), cpu)
    assert result.record is not None
    assert result.record.verdict is Verdict.WORKS_ON_CPU
    assert result.record.cell == "tf2.21.0-cpu-py311@no-gpu"
    assert (result.failed, sentence(result)) == (
        False,
        "works-on-cpu: all required checks passed on the CPU",
    )


def test_on_a_gpu_the_record_belongs_to_the_declared_host_class(bench: Bench) -> None:
    [result] = bench.run(FakeEngine(report(H100), seen=outside_of(H100)), hosts=(R580_H100,))
    assert result.record is not None
    assert result.record.verdict is Verdict.CERTIFIED
    assert result.record.cell == f"{SPEC.identifier}@r580-h100"
    assert result.record.image_digest == "sha256:image"


def test_a_host_that_fits_no_declared_class_is_named_in_the_same_way(bench: Bench) -> None:
    [result] = bench.run(FakeEngine(report(H100)))
    assert result.record is not None
    assert result.record.host_class == "r580-h100"


def test_a_failed_check_fails_the_cell_and_names_it(bench: Bench) -> None:
    [result] = bench.run(FakeEngine(report(cuda_libraries="fail")))
    assert result.failed
    assert result.record is not None
    assert result.record.reason == "cuda_libraries: about cuda_libraries"


def test_a_record_is_reused_only_for_its_own_depth(bench: Bench) -> None:
    engine = FakeEngine(report())
    statuses = [bench.run(engine, depth=depth)[0].status for depth in ("quick", "full", "full", "quick")]
    assert statuses == [Status.MEASURED, Status.MEASURED, Status.UNCHANGED, Status.UNCHANGED]
    assert [request.arguments[:2] for request in engine.requests] == [
        ("--depth", "quick"),
        ("--depth", "full"),
    ]
    quick, full = engine.requests
    assert quick.files.keys() == full.files.keys() == {"lock.txt"}
    # The probe stops by itself before the engine would end it.
    for request in engine.requests:
        limit_s = float(request.arguments[request.arguments.index("--time-limit") + 1])
        assert limit_s < request.timeout_s
    assert quick.timeout_s < full.timeout_s


def test_an_unchanged_image_is_neither_built_nor_validated(bench: Bench) -> None:
    engine = FakeEngine(report())
    first = bench.run(engine, SPEC, OTHER)
    second = bench.run(engine, SPEC, OTHER)
    assert totals(first) == "2 built, 2 validated, 0 unchanged"
    assert totals(second) == "0 built, 0 validated, 2 unchanged"
    assert len(engine.builds) == len(engine.probes) == 2
    assert [result.record for result in second] == [result.record for result in first]


def test_an_image_that_was_removed_from_the_engine_is_made_again(bench: Bench) -> None:
    engine = FakeEngine(report())
    first = bench.run(engine)
    engine.images.clear()
    again = bench.run(engine)
    assert totals(again) == "1 built, 0 validated, 1 unchanged"
    assert [result.record for result in again] == [result.record for result in first]
    assert len(engine.builds) == 2

    engine.images.clear()
    engine.digest = "sha256:another"
    other = bench.run(engine)
    assert totals(other) == "1 built, 1 validated, 0 unchanged"
    assert len(engine.probes) == 2


@pytest.mark.parametrize("change", ["lock", "probe", "host", "engine", "force"])
def test_an_image_is_measured_again_after_a_change(
    bench: Bench, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.run(FakeEngine(report()))
    engine = FakeEngine(report())
    if change == "lock":
        write_lock(bench.locks, SPEC, "1" * 64)
    elif change == "probe":
        monkeypatch.setattr("validator.pipeline.measuring.probe_version", lambda *_: "another")
    elif change == "host":
        engine.facts = {"kernel": "6.2"}
    elif change == "engine":
        engine.name = "venv"
    [result] = bench.run(engine, force=change == "force")
    assert result.status is Status.MEASURED
    assert engine.probes == [SPEC.identifier]


def test_an_unchanged_failure_still_fails_the_run(bench: Bench) -> None:
    engine = FakeEngine(report(lock_match="fail"))
    bench.run(engine)
    engine.answer = report()
    [result] = bench.run(engine)
    assert result.status is Status.UNCHANGED
    assert result.failed
    assert totals([result]) == "0 built, 0 validated, 1 unchanged, 1 failed"


def test_an_image_that_can_not_be_built_is_broken_and_tried_again(bench: Bench) -> None:
    [result] = bench.run(FakeEngine(build_error=BuildError("stage cudnn failed")))
    assert result.record is not None
    assert (result.record.verdict, result.record.reason) == (Verdict.BROKEN, "stage cudnn failed")
    [again] = bench.run(FakeEngine(report()))
    assert again.status is Status.MEASURED
    assert not again.failed


def test_a_missing_service_is_not_recorded(bench: Bench) -> None:
    [result] = bench.run(FakeEngine(build_error=MissingError("the index can't be reached")))
    assert result.status is Status.MISSING
    assert list(bench.store.all()) == []


def test_an_image_whose_python_is_missing_is_skipped(bench: Bench) -> None:
    engine = FakeEngine(report(), lacks="3.11")
    [result] = bench.run(engine)
    assert (result.status, result.detail) == (Status.SKIPPED, "Python 3.11 is not installed")
    assert engine.builds == []
    assert totals([result]) == "0 built, 0 validated, 0 unchanged, 1 skipped"


@pytest.mark.parametrize("answer", [b"not json", b"[]", b'{"format": 9}', b'{"format": 1, "probe": {}}'])
def test_an_unreadable_report_fails_the_cell(bench: Bench, answer: bytes) -> None:
    [result] = bench.run(FakeEngine(answer))
    assert result.failed
    assert result.record is not None
    assert "can't be read" in result.record.reason
    assert result.record.report is None


@pytest.mark.parametrize("change", [{"driver": "banana"}, {"driver": "1" * 5000}])
def test_a_report_of_an_impossible_host_fails_the_cell(bench: Bench, change: dict[str, str]) -> None:
    document = json.loads(report(H100))
    document["host"] |= change
    unread = next(iter(Unread))
    [result] = bench.run(FakeEngine(json.dumps(document).encode(), seen=unread))
    assert result.record is not None and result.record.verdict is Verdict.FAILED
    assert "the probe's report can't be read: host: " in result.record.reason
    assert result.record.host_class == "no-gpu"


def test_a_probe_without_a_report_fails_the_cell(bench: Bench) -> None:
    [result] = bench.run(FakeEngine(ValidatorError("the probe ran past its limit")))
    assert result.record is not None
    assert (result.record.verdict, result.record.reason) == (Verdict.FAILED, "the probe ran past its limit")


def test_no_validate_builds_but_records_nothing(bench: Bench) -> None:
    engine = FakeEngine(report())
    [result] = bench.run(engine, validate=False)
    assert (result.status, engine.probes) == (Status.BUILT, [])
    assert totals([result]) == "1 built, 0 validated, 0 unchanged"
    assert list(bench.store.all()) == []


def test_fail_fast_starts_no_further_image_and_keep_going_does(bench: Bench) -> None:
    failing = FakeEngine(report(driver="fail"))
    stopped = bench.run(failing, SPEC, OTHER, keep_going=False)
    assert [result.status for result in stopped] == [Status.MEASURED, Status.STOPPED]
    assert failing.builds == [SPEC.identifier]
    going = bench.run(FakeEngine(report(driver="fail")), SPEC, OTHER, force=True)
    assert [result.status for result in going] == [Status.MEASURED, Status.MEASURED]


def test_an_image_recorded_during_ctrl_c_counts_as_finished(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    probing, stopped = threading.Event(), threading.Event()
    monkeypatch.setattr(processes, "stop_all", stopped.set)

    class Engine(FakeEngine):
        def probe(self, built: Built, request: ProbeRequest, progress: Progress) -> bytes:
            if built.spec == OTHER:
                # It can no longer be stopped: it finishes and is recorded while the children are ended.
                probing.set()
                assert stopped.wait(20)
            return super().probe(built, request, progress)

    def on_event(event: Event) -> None:
        if event.phase is Phase.DONE:
            assert probing.wait(20)
            raise KeyboardInterrupt

    locks = lock_files.LockDirectory(bench.locks)
    run = Run(Engine(report()), bench.store, PackageSources(), locks, (), Options(jobs=1), on_event)
    third = ImageSpec("2.19.0", "3.11", Variant.GPU, *CUDA)
    results = build_matrix((SPEC, OTHER, third), run)
    assert [result.status for result in results] == [Status.MEASURED, Status.MEASURED, Status.STOPPED]


def test_an_engine_that_no_longer_answers_is_not_waited_for_after_ctrl_c(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "stop_all", lambda: None)
    monkeypatch.setattr(build_matrix_module, "_CLEAN_UP_S", 0.1)
    probing, over = threading.Event(), threading.Event()

    class Engine(FakeEngine):
        def probe(self, built: Built, request: ProbeRequest, progress: Progress) -> bytes:
            if built.spec == OTHER:
                probing.set()
                over.wait(20)
            return super().probe(built, request, progress)

    def on_event(event: Event) -> None:
        if event.phase is Phase.DONE:
            assert probing.wait(20)
            raise KeyboardInterrupt

    locks = lock_files.LockDirectory(bench.locks)
    run = Run(Engine(report()), bench.store, PackageSources(), locks, (), Options(jobs=1), on_event)
    results = build_matrix((SPEC, OTHER), run)
    assert [result.status for result in results] == [Status.MEASURED, Status.STOPPED]
    assert stuck_threads() == 1
    over.set()
    while stuck_threads():
        time.sleep(0.01)
    assert len(list(bench.store.all())) == 2


def test_images_are_built_in_parallel_but_probed_one_at_a_time(bench: Bench) -> None:
    both_built = threading.Barrier(2, timeout=20)
    nobody = threading.Event()

    class Engine(FakeEngine):
        def build(self, spec: ImageSpec, lock: Lock, progress: Progress) -> Built:
            both_built.wait()
            return super().build(spec, lock, progress)

    def answer() -> bytes:
        # Long enough for the other probe to start if nothing prevented it.
        nobody.wait(0.5)
        return report()

    engine = Engine(answer)
    results = bench.run(engine, SPEC, OTHER, jobs=2)
    assert [result.spec for result in results] == [SPEC, OTHER]
    assert engine.most_at_once == 1


def test_the_phases_are_reported_in_order(bench: Bench) -> None:
    bench.run(FakeEngine(report()))
    phases = list(dict.fromkeys(event.phase for event in bench.events))
    assert phases == [Phase.LOCK, Phase.BUILD, Phase.PROBE, Phase.DONE]


def test_an_edited_lock_makes_the_image_broken(bench: Bench) -> None:
    path = lock_files.path_of(bench.locks, SPEC.identifier)
    path.write_text(path.read_text().replace("0" * 64, "2" * 64))
    [result] = bench.run(FakeEngine(report()))
    assert result.record is not None
    assert result.record.verdict is Verdict.BROKEN
    assert "the file was edited by hand or is incomplete" in result.record.reason
