"""A unit of two tasks: two nodes of a real cluster that train together with a real TensorFlow."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.fleet.making import unit
from tests.probe.environments import AS_BUILT_2_21, tensorflow_environment
from validator.engines.protocol import ProbeRequest, probe_archive
from validator.fleet.protocol import Phase, State
from validator.fleet.settings import SlurmPlace, SlurmSection
from validator.fleet.slurm import SlurmFleet
from validator.fleet.slurm_job import Failed, Tasks
from validator.model.report import CheckOutcome, MultiWorker, read_report

from .cluster import Cluster, until
from .conftest import Site
from .requests import ended, submitted

LOCK = b"# python: 3.11\n# the environment of the tests\n"


def test_two_nodes_train_together(site: Site, cluster: Cluster) -> None:
    fleet = site("workers")
    # In place of the environment that a job would make.
    environment = fleet.directory / "images" / f"sha256-{hashlib.sha256(LOCK).hexdigest()}-venv"
    environment.parent.mkdir(parents=True)
    environment.symlink_to(tensorflow_environment(AS_BUILT_2_21).parents[1])
    request = ProbeRequest(probe_archive(), ("--only", "multi_worker"), {"lock.txt": LOCK}, 200.0)
    (handle,) = submitted(fleet, [(unit(0, tasks=2), request)])
    assert ended(fleet, [handle]) == [State(Phase.ENDED)]
    answer = fleet.collect(handle)
    assert answer.node == "node1" and answer.report is not None
    check = read_report(answer.report.decode()).check("multi_worker")
    assert check is not None and check.outcome is CheckOutcome.PASS, check and check.sentence
    assert isinstance(check.evidence, MultiWorker)
    assert (check.evidence.workers, check.evidence.rank) == (2, 0)
    assert [(other.rank, other.stage) for other in check.evidence.ranks] == [(1, "end")]

    def of_two() -> list[dict[str, str]]:
        return [run for run in cluster.finished() if run["NodeList"] == "node[1-2]"]

    # The result is there a moment before the job ends.
    until(of_two, "the end of the job")
    assert [(run["JobState"], run["NodeCnt"]) for run in of_two()] == [("COMPLETED", "2")]
    assert len(list(fleet.directory.glob("arrays/*/results/*"))) == 1
    assert "task 1 has ended" in fleet.logs(handle)


def test_the_script_of_several_tasks_starts_one_on_each_node(site: Site) -> None:
    request = ProbeRequest(b"", (), {"lock.txt": LOCK})
    one, two = unit(0), unit(0, tasks=2)
    shown = site().preview([two], {two.name: request})
    assert "--nodes=2 --ntasks-per-node=1" in shown
    assert "exec srun --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=0 " in shown
    assert "srun" not in site().preview([one], {one.name: request})


def test_the_fleet_file_says_where_a_cell_is_measured_on_two_nodes(tmp_path: Path) -> None:
    places = {"r580-h100": SlurmPlace(gres="gpu:h100:1", workers=2), "r580-l4": SlurmPlace(gres="gpu:l4:1")}
    fleet = SlurmFleet(SlurmSection(directory=str(tmp_path), host_classes=places))
    found = {
        (host, depth): fleet.limits(host).tasks(depth)
        for host in ("r580-h100", "r580-l4", "r535-t4")
        for depth in ("quick", "full")
    }
    assert [key for key, tasks in found.items() if tasks == 2] == [("r580-h100", "full")]
    assert set(found.values()) == {1, 2}


@pytest.mark.parametrize(("rank", "other"), [(0, ".1.fault"), (1, ".fault")])
def test_a_task_does_not_wait_for_one_that_could_not_begin(
    rank: int, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_PROCID", str(rank))
    tasks = Tasks(2, tmp_path, "0.7-0")
    assert not tasks.ended()
    fault = {"fault": "pull_failed", "detail": "no route to host", "node": "node2"}
    (tmp_path / f"0.8-0{other}").write_text(json.dumps(fault))
    assert not tasks.ended()
    (tmp_path / f"0.7-0{other}").write_text(json.dumps(fault))
    with pytest.raises(Failed, match="on node2: no route to host") as raised:
        tasks.ended()
    assert raised.value.code == "pull_failed"


def test_the_other_tasks_end_with_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in (0, 1):
        monkeypatch.setenv("SLURM_PROCID", str(rank))
        tasks = Tasks(2, tmp_path, "0.7-0")
        assert not tasks.ended()
        (tmp_path / "0.7-0.frames").touch()
        assert tasks.ended() == (rank == 1)
        (tmp_path / "0.7-0.frames").unlink()
