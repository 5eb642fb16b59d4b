"""The view of the client when nodes, jobs, disks and the controller of a real cluster fail.

The faults that take Slurm half a minute to notice happen all at once, to one unit each. The controller's own
log of finished jobs says what really ran; the client never reads it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from tests.fleet.making import unit
from tests.support import small_disk
from validator.engines.protocol import ProbeRequest
from validator.fleet.protocol import CutError, Fault, FleetDown, Handle, Phase, State, Unit, array_name
from validator.fleet.settings import SlurmPlace
from validator.fleet.slurm import SlurmFleet

from .cluster import Cluster, until
from .conftest import Site
from .requests import REPORT, ended, fake, prepare, state, submitted

LONG_S = 900


@dataclass
class Scene:
    """A fault of one unit. act: called with the job's id when it runs. seen: the unit's states in order."""

    unit: Unit
    request: ProbeRequest
    act: Callable[[str], object]
    fleet: SlurmFleet
    handle: Handle = ""
    seen: list[State | None] = field(default_factory=list)

    @property
    def over(self) -> bool:
        return bool(self.seen) and (self.seen[-1] is None or self.seen[-1].phase in (Phase.ENDED, Phase.LOST))

    @property
    def fault(self) -> Fault | None:
        last = self.seen[-1]
        return last.fault if last else None


def listed(cluster: Cluster) -> list[str]:
    """Return the name of each waiting or running job; a name can occur more than once."""
    states = "--states=pending,configuring,running"
    return cluster.operator("squeue", "--noheader", "--array", states, "--format=%j").split()


def job_of(cluster: Cluster, handle: Handle) -> str:
    array, index, _ = handle.split("/")
    listed = cluster.operator("squeue", "--noheader", "--array", f"--name={array}", "--format=%K %i")
    return dict(line.split() for line in listed.splitlines())[index]


@pytest.fixture(scope="module")
def night(cluster: Cluster, site: Site) -> dict[str, Scene]:
    """Let every slow fault happen, each to a unit of its own, and return what the client saw."""
    fleet = site("night")
    prepare(fleet)
    whole = site("night", **{"r580-l4": SlurmPlace(constraint="r580&l4", gres="gpu:l4:4", time_limit=5)})
    short = site(
        "night", **{"r580-h100": SlurmPlace(constraint="r580&h100", gres="gpu:h100:1", time_limit=1)}
    )
    (fleet.directory / "bad").mkdir()
    broken = site("night", setup="exec false\n")
    urgent = ["sbatch", "--partition=urgent", "--constraint=l4", "--gres=gpu:l4:4", "--output=/dev/null"]

    def requeue(job: str) -> None:
        # `--no-requeue` means that an operator can't run it again under the same name either.
        with pytest.raises(AssertionError, match="disabled"):
            cluster.operator("scontrol", "requeue", job)
        (fleet.directory / "go").touch()

    waiting = f"while not os.path.exists({str(fleet.directory / 'go')!r}): time.sleep(0.1)"
    scenes = {
        "node lost": Scene(unit(0, "r535-t4"), fake(LONG_S), lambda _: cluster.lose_node("node4"), fleet),
        "preempted": Scene(
            unit(1, "r580-l4"), fake(LONG_S), lambda _: cluster.operator(*urgent, "--wrap=sleep 1"), whole
        ),
        "cancelled": Scene(unit(2), fake(LONG_S), lambda job: cluster.operator("scancel", job), fleet),
        "requeued": Scene(unit(3), fake(program=waiting), requeue, fleet),
        "deadline": Scene(unit(4), fake(LONG_S, timeout_s=LONG_S), lambda _: None, short),
        "not started": Scene(unit(5), fake(), lambda _: None, broken),
    }
    for scene in scenes.values():
        (scene.handle,) = submitted(scene.fleet, [(scene.unit, scene.request)])
    acted = set()

    def step() -> bool:
        for name, scene in scenes.items():
            if scene.over:
                continue
            found = state(scene.fleet, scene.handle)
            if not scene.seen or found != scene.seen[-1]:
                scene.seen.append(found)
            if found is not None and found.phase is Phase.RUNNING and name not in acted:
                acted.add(name)
                # A unit can end between the two questions.
                with contextlib.suppress(KeyError):
                    scene.act(job_of(cluster, scene.handle))
        return all(scene.over for scene in scenes.values())

    try:
        until(step, "the end of the night", 90)
    finally:
        cluster.start()
    return scenes


def test_a_lost_node_is_noticed(night: dict[str, Scene], cluster: Cluster) -> None:
    scene = night["node lost"]
    assert scene.fault is Fault.NODE_LOST
    name = array_name([scene.unit])
    until(lambda: cluster.runs(name), "the end of the job")
    assert [run["JobState"] for run in cluster.runs(name)] == ["NODE_FAIL"]


def test_a_preempted_job_does_not_run_again_by_itself(night: dict[str, Scene], cluster: Cluster) -> None:
    scene = night["preempted"]
    assert scene.fault is Fault.PREEMPTED
    name = array_name([scene.unit])
    until(lambda: cluster.runs(name), "the end of the job")
    assert [run["JobState"] for run in cluster.runs(name)] == ["PREEMPTED"]


def test_a_job_that_an_operator_cancels_is_not_tried_again(night: dict[str, Scene]) -> None:
    fault = night["cancelled"].fault
    assert fault is Fault.CANCELLED
    assert not fault.is_retried


def test_a_job_that_an_operator_requeues_runs_once(night: dict[str, Scene], cluster: Cluster) -> None:
    scene = night["requeued"]
    assert scene.seen[-1] == State(Phase.ENDED)
    assert scene.fleet.collect(scene.handle).report == REPORT + b"\n"
    name = array_name([scene.unit])
    until(lambda: cluster.runs(name), "the end of the job")
    assert [run["JobState"] for run in cluster.runs(name)] == ["COMPLETED"]


def test_the_deadline_of_a_job_is_no_verdict(night: dict[str, Scene]) -> None:
    last = night["deadline"].seen[-1]
    assert last is not None
    assert (last.fault, last.detail) == (Fault.DEADLINE, "the 1 minutes of this job are over")


def test_a_job_that_ends_without_a_result_says_what_it_printed(night: dict[str, Scene]) -> None:
    last = night["not started"].seen[-1]
    assert last is not None
    assert last.fault is Fault.NOT_STARTED
    assert last.detail == "FAILED NonZeroExitCode, without a result: it printed nothing"


def test_a_result_outlives_the_job(night: dict[str, Scene], cluster: Cluster) -> None:
    scene = night["requeued"]
    until(
        lambda: array_name([scene.unit]) not in cluster.operator("squeue", "--states=all", "--format=%j"),
        "",
        60,
    )
    assert state(scene.fleet, scene.handle) == State(Phase.ENDED)
    # A job of which nothing is left is gone, and a unit that ended with a fault keeps it.
    assert state(scene.fleet, night["deadline"].handle) == night["deadline"].seen[-1]


def test_a_result_that_was_cut_is_refused_and_a_whole_one_counts(site: Site) -> None:
    fleet = site("cut")
    prepare(fleet)
    (handle,) = submitted(fleet, [(unit(60), fake())])
    ended(fleet, [handle])
    (path,) = (fleet.directory / "arrays" / array_name([unit(60)]) / "results").glob("*.frames")
    content = path.read_bytes()
    for length in (0, 1, len(content) // 2, len(content) - 2):
        path.write_bytes(content[:length])
        with pytest.raises(CutError):
            fleet.collect(handle)
    # The same job ran twice, and its other run is whole.
    path.with_name("0.999-1.frames").write_bytes(content)
    assert fleet.collect(handle).report == REPORT + b"\n"
    # The result of another unit is not that of this one.
    (other,) = submitted(fleet, [(unit(61), fake())])
    ended(fleet, [other])
    (theirs,) = (fleet.directory / "arrays" / array_name([unit(61)]) / "results").glob("*.frames")
    theirs.write_bytes(content)
    with pytest.raises(CutError, match=f"the result is for {unit(60).name}"):
        fleet.collect(other)


def test_a_node_whose_disk_is_full_is_no_verdict(site: Site) -> None:
    with small_disk("64k") as small:
        fleet = site("full", setup=f"export TMPDIR={small}\n")
        prepare(fleet)
        (handle,) = submitted(fleet, [(unit(62), fake(program="#" * 200_000))])
        (last,) = ended(fleet, [handle])
    assert last is not None and last.fault is Fault.DISK_FULL
    assert "No space left on device" in last.detail


@pytest.fixture
def restarted(cluster: Cluster) -> Iterator[None]:
    """Let the cluster answer again after a test that stops its controller."""
    yield
    with contextlib.suppress(ProcessLookupError, KeyError):
        os.kill(cluster.pids["slurmctld"], signal.SIGCONT)
    cluster.start()


@pytest.mark.usefixtures("restarted")
def test_an_empty_list_of_a_controller_that_is_down_is_not_believed(cluster: Cluster, site: Site) -> None:
    fleet = site("down")
    prepare(fleet)
    units = [(unit(number), fake(3)) for number in (70, 71)]
    handles = submitted(fleet, units)
    until(lambda: all(of.phase is Phase.RUNNING for of in fleet.poll(handles).values()), "the jobs")
    cluster.stop_daemon("slurmctld")
    answer = json.loads(cluster.operator("squeue", "--json"))
    assert answer["jobs"] == [] and answer["errors"]
    with pytest.raises(FleetDown, match="Unable to contact slurm controller"):
        fleet.poll(handles)
    # The jobs go on without it.
    cluster.start()
    assert ended(fleet, handles) == [State(Phase.ENDED)] * 2
    assert [fleet.collect(handle).report for handle in handles] == [REPORT + b"\n"] * 2


@pytest.mark.usefixtures("restarted")
def test_a_job_that_the_controller_forgot_is_not_taken_for_the_next_one(cluster: Cluster, site: Site) -> None:
    """The controller saves its state every few seconds; after a crash it gives the same id again."""
    fleet = site("forgotten")
    prepare(fleet)
    (handle,) = submitted(fleet, [(unit(80), fake(LONG_S))])
    job = job_of(cluster, handle).partition("_")[0]
    cluster.lose_daemon("slurmctld")
    cluster.start()
    # A node refuses a job while another one with its id still runs there.
    name = array_name([unit(80)])
    until(lambda: name in listed(cluster) or not cluster.processes_of(job), "the end of a forgotten job")
    (next_handle,) = submitted(fleet, [(unit(81), fake(LONG_S))])
    next_job = job_of(cluster, next_handle).partition("_")[0]
    forgotten = state(fleet, handle) is None or job == next_job
    if forgotten:
        until(lambda: state(fleet, handle) is None, "the end of the grace", 20)
        # The same command as before submits it again, and the other one only once.
        assert submitted(fleet, [(unit(80), fake(LONG_S))]) == [handle]
    until(lambda: state(fleet, handle) not in (None, State(Phase.WAITING)), "the job")
    assert [listed(cluster).count(array_name([unit(number)])) for number in (80, 81)] == [1, 1]
    fleet.cancel([handle, next_handle])
    until(
        lambda: all(of is None or of.fault for of in (state(fleet, h) for h in (handle, next_handle))),
        "the end of both",
    )


@pytest.mark.usefixtures("restarted")
def test_a_submission_that_timed_out_is_looked_up_before_it_is_repeated(cluster: Cluster, site: Site) -> None:
    fleet = site("hung")
    prepare(fleet)
    units = [(unit(90), fake())]
    requests = {one.name: request for one, request in units}
    os.kill(cluster.pids["slurmctld"], signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(FleetDown, match="timed out"):
        fleet.submit([unit(90)], requests)
    assert time.monotonic() - began < 60
    os.kill(cluster.pids["slurmctld"], signal.SIGCONT)
    (handle,) = submitted(fleet, units)
    assert ended(fleet, [handle]) == [State(Phase.ENDED)]
    assert fleet.collect(handle).report == REPORT + b"\n"
