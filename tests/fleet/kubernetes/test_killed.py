"""The whole way of a run, with a submitter that is killed again and again."""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from validator.engines.protocol import ProbeRequest
from validator.fleet.kubernetes_objects import UNIT_LABEL
from validator.fleet.protocol import Unit
from validator.fleet.run_store import Runs, Work
from validator.fleet.submitter import Submitter

from ..fake import FakeCaller
from ..making import unit
from .cluster import Cluster
from .conftest import Open

CLASSES = ("r535-t4", "r550-a100", "r580-h100", "r580-l4")
UNITS = [unit(number, host_class) for number in range(5) for host_class in CLASSES]
KILLS = 20


def _submitter(open_fleet: Open, directory: Path) -> Callable[[], None]:
    """Return what the command does: continue the open run, or begin one."""

    def submit() -> None:
        with Runs(directory / "runs") as runs, runs.submitting("night"):
            run = runs.open_run("night", "kubernetes", ["build-matrix"], {})
            request = ProbeRequest(b"archive", (), {"lock.txt": b"numpy==2.0\n"}, timeout_s=60.0)
            runs.add(run, [Work(each, request, each.cell.encode()) for each in UNITS])
            caller = FakeCaller(directory / "records")
            Submitter(open_fleet(), runs, run, caller, poll_s=0.1).work()

    return submit


def _started(action: Callable[[], None]) -> int:
    """Run an action in a child and return its id. A process of its own would import everything 20 times."""
    with warnings.catch_warnings():
        # Python 3.12 warns of forks in a process with threads. The child needs none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return child
    try:
        action()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def test_a_submitter_killed_at_twenty_moments_leaves_one_record_of_each_cell(
    cluster: Cluster, open_fleet: Open, tmp_path: Path
) -> None:
    (tmp_path / "records").mkdir()
    submit = _submitter(open_fleet, tmp_path)
    chance = random.Random(20)
    killed = 0
    while killed < KILLS:
        child = _started(submit)
        time.sleep(chance.uniform(0.0, 0.8))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "it came to its end before it was killed"
        killed += 1
    child = _started(submit)
    assert os.waitpid(child, 0)[1] == 0
    assert FakeCaller(tmp_path / "records").records() == Counter(each.cell for each in UNITS)
    # The controller notes each pod that it makes: no unit ran twice.
    made = Counter(
        event["involvedObject"]["name"]
        for event in cluster.objects("events")
        if event["reason"] == "SuccessfulCreate" and event["involvedObject"]["kind"] == "Job"
        for _ in range(event["count"])
    )
    assert made == Counter(each.name for each in UNITS)
    assert cluster.objects("jobs") == [], "what is stored is removed from the cluster"


def test_a_lost_node_and_a_stopped_api_server_cost_no_record(
    cluster: Cluster, open_fleet: Open, tmp_path: Path
) -> None:
    (tmp_path / "records").mkdir()
    lost = unit(0, "r580-l4")
    cluster.behave(lost.name, seconds=None)
    cluster.behave(unit(1, "r580-h100").name, cut=True)
    child = _started(_submitter(open_fleet, tmp_path))
    _until(lambda: _phases(cluster, lost) == ["Running"])
    cluster.kill("r580-l4")
    cluster.kill("kube-apiserver")
    time.sleep(3)
    cluster.start(without=("r580-l4",))
    again = lost.next_attempt()
    assert again is not None
    # The next attempt waits for the node.
    _until(lambda: _phases(cluster, again) == ["Pending"], seconds=120)
    cluster.start()
    assert os.waitpid(child, 0)[1] == 0
    assert FakeCaller(tmp_path / "records").records() == Counter(each.cell for each in UNITS)


def _phases(cluster: Cluster, one: Unit) -> list[str]:
    return [pod["status"]["phase"] for pod in cluster.objects("pods", f"{UNIT_LABEL}={one.name}")]


def _until(done: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.3)
