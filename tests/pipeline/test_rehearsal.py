"""A run that rehearses: whatever the engine says, nothing that it makes can count."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.certify.acceptance import NotCertifiable, check_record
from validator.errors import BuildError
from validator.locks.lock_files import LockDirectory
from validator.model.record import Origin, Record, Unread, Verdict
from validator.model.verdict import REQUIRED_CHECKS
from validator.pipeline.build_matrix import build_matrix
from validator.pipeline.run import Options, Run, Runner
from validator.records.store import Store
from validator.system.package_sources import PackageSources

from .fakes import H100, NO_GPU, FakeEngine, outside_of, report
from .test_build_matrix import SPEC, write_lock
from .test_publisher import TAG, Bench, bench

__all__ = ["bench"]

REHEARSING = Options(rehearsal=True)


def recorded(tmp_path: Path, engine: FakeEngine, options: Options = REHEARSING) -> Record:
    write_lock(tmp_path, SPEC)
    with Store(str(tmp_path / "records.db")) as store:
        run = Run(
            engine, store, PackageSources(), LockDirectory(tmp_path), (), options, lambda event: None
        )  # fmt: skip
        build_matrix([SPEC], run)
        (found,) = store.latest().values()
    return found


def test_a_perfect_report_of_a_real_gpu_is_unproven(tmp_path: Path) -> None:
    """The same machine without the option is certified, so it is the option that decides."""
    seen = FakeEngine(answer=report(H100), seen=outside_of(H100))
    assert recorded(tmp_path / "real", seen, Options()).verdict is Verdict.CERTIFIED
    found = recorded(tmp_path / "rehearsed", seen)
    assert (found.verdict, found.origin) == (Verdict.UNPROVEN, Origin.REHEARSAL)
    assert found.reason.startswith("REHEARSAL: all required checks passed on NVIDIA H100")
    assert found.measurement is None


@pytest.mark.slow
@pytest.mark.parametrize("outcome", ["pass", "fail", "skip", "crash"])
@pytest.mark.parametrize("host", [H100, NO_GPU])
def test_no_outcome_of_a_check_gives_a_record_that_counts(
    tmp_path: Path, outcome: str, host: dict[str, object]
) -> None:
    answer = report(host, **dict.fromkeys(REQUIRED_CHECKS[:3], outcome))
    found = recorded(tmp_path, FakeEngine(answer=answer, seen=outside_of(host)))
    assert found.verdict is not Verdict.CERTIFIED
    assert found.origin is Origin.REHEARSAL and found.reason.startswith("REHEARSAL: ")
    with pytest.raises(NotCertifiable, match="made by a REHEARSAL"):
        check_record(found)


def test_a_report_that_can_not_be_read_and_an_image_that_does_not_build(tmp_path: Path) -> None:
    for name, engine in (
        ("unread", FakeEngine(answer=b"nonsense", seen=Unread.NO_GPU_OFFERED)),
        ("broken", FakeEngine(build_error=BuildError("no wheel"))),
    ):
        found = recorded(tmp_path / name, engine)
        assert found.origin is Origin.REHEARSAL and found.reason.startswith("REHEARSAL: ")
        assert found.verdict in (Verdict.FAILED, Verdict.BROKEN)


def test_it_signs_no_measurement(tmp_path: Path) -> None:
    runner = Runner(lambda statement: "signed", lambda cell: "0" * 64)
    with pytest.raises(ValueError, match="a REHEARSAL signs no measurements"):
        Run(
            FakeEngine(), None, PackageSources(), LockDirectory(tmp_path), (), REHEARSING,  # type: ignore[arg-type]
            lambda event: None, runner=runner,
        )  # fmt: skip


def test_its_tag_is_not_one_that_an_image_is_pulled_by(bench: Bench) -> None:
    bench.engine.answer = report(H100)
    bench.rehearsal = True
    result = bench.run(rehearsal=True)
    assert result.published is not None and result.published.tag == f"REHEARSAL-{TAG}"
    assert set(bench.registry.held) == {f"REHEARSAL-{TAG}"}
