"""A certifier accepts what `build-matrix` signs on a machine."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from validator.certify.acceptance import NotCertifiable, accepted
from validator.locks.lock_files import LockDirectory
from validator.model.codec import now_utc
from validator.pipeline.build_matrix import build_matrix
from validator.pipeline.run import Options, Run, Runner
from validator.records.store import Store
from validator.system.package_sources import PackageSources

from ..loop import tiers
from ..pipeline.test_build_matrix import SPEC, write_lock
from ..pipeline.test_measuring import Answering
from .measuring import Desk, make_runner


@pytest.fixture
@tiers.service
def desk(tmp_path: Path) -> Desk:
    return Desk((make_runner(tmp_path, "gpu-1", "*-h100", throw_away=False),))


@pytest.mark.parametrize("outcome", ["pass", "fail"])
def test_a_measurement_of_this_machine_is_accepted_once(desk: Desk, tmp_path: Path, outcome: str) -> None:
    write_lock(tmp_path / "locks", SPEC)
    runner = Runner(desk.runners[0].sign, lambda cell: desk.ask(cell, now_utc()).value)
    with Store(str(tmp_path / "records.db")) as store:
        run = Run(
            Answering(outcomes={"gpu_compute": outcome}), store, PackageSources(),
            LockDirectory(tmp_path / "locks"), (),
            Options(force=True), lambda _: None, runner=runner,
        )  # fmt: skip
        results = [build_matrix([SPEC], run)[0].record for _ in range(2)]
    first, second = results
    assert first is not None and second is not None
    for record in (first, second):
        measurement = accepted(record, desk.certifier, now_utc())
        assert (measurement.cell, measurement.finished) == (record.cell, record.finished)
    # The report of the first run can't be shown with the signature of the second.
    mixed = msgspec.structs.replace(first, measurement=second.measurement)
    with pytest.raises(NotCertifiable, match="it differs from what its runner signed"):
        accepted(mixed, desk.certifier, now_utc())
