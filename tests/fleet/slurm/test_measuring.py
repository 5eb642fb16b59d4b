"""Units are measured on the nodes of a real cluster, and their results come back."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fleet.making import unit
from tests.registry.server import RunningRegistry
from tests.support import mount_place
from validator.engines.protocol import ProbeRequest, probe_request
from validator.errors import InputError
from validator.fleet.protocol import Capacity, Fault, Phase, Refused, State, Unit, array_name
from validator.fleet.settings import SlurmPlace
from validator.model.record import Unread, Verdict
from validator.model.report import read_report
from validator.model.verdict import judge

from .cluster import Cluster, until
from .conftest import Site
from .python_image import push_python
from .requests import LOCK, REPORT, ended, fake, prepare, submitted

#: What a probe on a node must not find: the environment of whoever submitted, and results of others.
SPY = """
import json
found = {"environment": dict(os.environ), "root": os.listdir("/"), "place": sorted(os.listdir("."))}
print(json.dumps({"spy": found}))
raise SystemExit
"""


@pytest.fixture(scope="module")
def image(server: RunningRegistry) -> str:
    """Return a reference of an image with Python."""
    return push_python(server, "slurm/python")


@pytest.fixture(scope="module")
def podman(server: RunningRegistry) -> Iterator[str]:
    """Yield shell commands that give podman a storage of its own, and the registry of the tests."""
    with mount_place() as place:
        (place / "registries.conf").write_text(
            f'[[registry]]\nlocation = "{server.address}"\ninsecure = true\n', encoding="utf-8"
        )
        (place / "storage.conf").write_text(
            f'[storage]\ndriver = "vfs"\ngraphroot = "{place}/graph"\nrunroot = "{place}/run"\n',
            encoding="utf-8",
        )
        yield (
            f"export CONTAINERS_REGISTRIES_CONF={place}/registries.conf\n"
            f"export CONTAINERS_STORAGE_CONF={place}/storage.conf\n"
        )


def of_image(number: int, reference: str) -> Unit:
    return unit(number, reference=reference, image_digest=reference.partition("@")[2])


def test_the_inventory_says_what_fits_and_what_is_usable(site: Site, cluster: Cluster) -> None:
    cluster.operator("scontrol", "update", "nodename=node1", "state=drain", "reason=test")
    try:
        found = {capacity.host_class: capacity for capacity in site().inventory()}
    finally:
        cluster.operator("scontrol", "update", "nodename=node1", "state=resume")
    # It is draining while a job of an earlier test ends.
    drained = [Capacity("r580-h100", 2, 1, 4, f"node1 is {state}") for state in ("drained", "draining")]
    assert found["r580-h100"] in drained
    assert found["r535-t4"] == Capacity("r535-t4", 1, 1, 4, "r535&t4 gpu:t4:1")
    assert found["r999-h100"] == Capacity("r999-h100", 0, 0, 0, "no node has r999&h100 gpu:h100:1")


def test_a_constraint_that_no_node_meets_is_refused(site: Site) -> None:
    one = unit(0, "r999-h100")
    assert site().submit([one], {one.name: fake()}) == {one.name: Refused("Invalid feature specification")}


def test_a_partition_that_is_not_there_is_the_fault_of_the_settings(site: Site) -> None:
    fleet = site("wrong", **{"r580-h100": SlurmPlace(gres="gpu:h100:1", partition="none")})
    with pytest.raises(InputError, match=r"refuses the jobs of r580-h100: Invalid partition"):
        fleet.submit([unit(0)], {unit(0).name: fake()})


def test_submitting_again_adopts_what_is_there(site: Site, cluster: Cluster) -> None:
    fleet = site()
    prepare(fleet)
    units = [(unit(number), fake()) for number in range(10, 14)]
    handles = submitted(fleet, units)
    # The same submitter after a crash; another one with more units; one that comes when all is over.
    assert submitted(fleet, units) == handles
    assert submitted(site(), [*units, (unit(14), fake())])[:4] == handles
    assert ended(fleet, handles) == [State(Phase.ENDED)] * 4
    assert submitted(fleet, units) == handles
    assert [fleet.collect(handle).report for handle in handles] == [REPORT + b"\n"] * 4
    name = array_name(one for one, _ in units)
    # A result is there a moment before its job ends.
    until(lambda: len(cluster.runs(name)) >= 4, "the end of the jobs")
    assert sorted(run["ArrayTaskId"] for run in cluster.runs(name)) == ["0", "1", "2", "3"]


def test_cancelling_a_unit_leaves_the_others_of_its_array(site: Site, cluster: Cluster) -> None:
    fleet = site("cancelled")
    cluster.operator("scontrol", "update", "nodename=node4", "state=drain", "reason=test")
    try:
        handles = submitted(fleet, [(unit(number, "r535-t4"), fake()) for number in range(16, 19)])
        fleet.cancel(handles[:1])
        (first,) = ended(fleet, handles[:1])
        assert first is not None and first.fault is Fault.CANCELLED
        assert [fleet.poll(handles)[handle].phase for handle in handles[1:]] == [Phase.WAITING] * 2
        fleet.cancel(handles)
        states = ended(fleet, handles)
        assert all(state is None or state.fault is Fault.CANCELLED for state in states)
    finally:
        cluster.operator("scontrol", "update", "nodename=node4", "state=resume")


def test_two_submitters_at_once_submit_each_unit_once(site: Site, cluster: Cluster) -> None:
    units = [(unit(number), fake()) for number in range(20, 24)]
    fleets = [site("twice"), site("twice")]
    prepare(fleets[0])
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda fleet: submitted(fleet, units), fleets)
    assert first == second
    ended(fleets[0], first)
    assert all(fleets[1].collect(handle).report for handle in second)
    name = array_name(one for one, _ in units)
    until(lambda: len(cluster.runs(name)) >= 4 and name not in cluster.operator("squeue", "--format=%j"), "")
    assert len(cluster.runs(name)) == 4


def test_a_node_without_containers_measures_in_an_environment_that_proves_nothing(site: Site) -> None:
    fleet = site()
    prepare(fleet)
    os.environ["SUBMITTER_SECRET"] = "s3cret"
    try:
        (handle,) = submitted(fleet, [(unit(30), fake(program=SPY))])
    finally:
        del os.environ["SUBMITTER_SECRET"]
    ended(fleet, [handle])
    answer = fleet.collect(handle)
    assert (answer.engine, answer.isolates, answer.outside) == ("venv", False, Unread.NOT_ASKED)
    spied = json.loads(answer.report or b"")["spy"]
    assert "s3cret" not in str(spied)
    assert not [name for name in spied["environment"] if name.startswith(("SLURM", "TFM"))]


@pytest.mark.skipif(os.getuid() != 0, reason="the storage of Podman in a directory of a test needs root")
def test_the_real_probe_reports_from_a_container_and_is_unproven(
    site: Site, podman: str, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBMITTER_SECRET", "s3cret")
    fleet = site("containers", setup=podman, container="podman")
    challenge = "ab" * 32
    pins = LOCK + b"tensorflow==2.20.0 --hash=sha256:" + b"0" * 64 + b"\n"
    real = probe_request("quick", pins, challenge=challenge)
    absent = f"{image.partition('@')[0]}@sha256:{'0' * 64}"
    units = [
        (of_image(40, image), real),
        (of_image(41, image), fake(program=SPY)),
        (of_image(42, absent), fake()),
        (of_image(43, image), fake(program="sys.exit(3)")),
        (of_image(44, image), fake(seconds=600, timeout_s=2)),
    ]
    handles = submitted(fleet, units)
    states = ended(fleet, handles)
    assert [state.phase if state else None for state in states] == [
        Phase.ENDED, Phase.ENDED, Phase.LOST, Phase.ENDED, Phase.ENDED,
    ]  # fmt: skip
    missing = states[2]
    assert (
        missing is not None and missing.fault is Fault.IMAGE_MISSING and "manifest unknown" in missing.detail
    )

    answer = fleet.collect(handles[0])
    assert (answer.engine, answer.isolates, answer.outside) == ("podman", True, Unread.NVML_SILENT)
    assert answer.image_digest == image.partition("@")[2]
    assert answer.failure == ""
    report = read_report(answer.report or b"")
    assert report.challenge == challenge
    judgement = judge(report, outside=answer.outside, challenge=challenge)
    assert judgement.verdict in (Verdict.FAILED, Verdict.UNPROVEN)

    spied = json.loads(fleet.collect(handles[1]).report or b"")["spy"]
    assert "s3cret" not in str(spied) and str(fleet.directory) not in str(spied)
    assert spied["place"] == ["inside.py", "lock.txt", "probe.pyz"]
    assert "root" not in spied["root"] and "home" not in spied["root"]

    # A probe that ends without a report, or never, is a verdict about the image.
    assert fleet.collect(handles[3]).failure == "the probe exited with status 3 without a report: no message"
    assert fleet.collect(handles[4]).failure == "the probe exceeded its time limit of 2 s and was stopped"


def test_an_image_is_converted_once_and_kept(site: Site, tmp_path: Path) -> None:
    """Apptainer itself is not there, so that a script stands for it: it notes its arguments."""
    program = tmp_path / "apptainer"
    program.write_text(
        f'#!/bin/bash\necho "$@" >>{tmp_path}/calls\n'
        'if [[ $1 == pull ]]; then sleep 0.5; echo image >"$3"; exit; fi\n'
        'while [[ $1 != --bind ]]; do shift; done; cd "${2%%:*}"; shift 3\n'
        'exec "${@//\\/tfm\\//}"\n',
        encoding="utf-8",
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    fleet = site("converted", setup=f"export PATH={tmp_path}:$PATH\n", container="auto")
    same = unit(0).reference
    units: list[tuple[Unit, ProbeRequest]] = [(of_image(number, same), fake()) for number in (50, 51)]
    handles = submitted(fleet, units)
    assert ended(fleet, handles) == [State(Phase.ENDED)] * 2
    answers = [fleet.collect(handle) for handle in handles]
    assert [(answer.engine, answer.isolates) for answer in answers] == [("apptainer", True)] * 2
    # Where an environment may run next to them, no result of the cluster is signed.
    unsigned = site("converted", setup=f"export PATH={tmp_path}:$PATH\n", container="auto-or-venv")
    assert not any(unsigned.collect(handle).isolates for handle in handles)
    calls = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert [call.split()[0] for call in calls].count("pull") == 1
    runs = [call for call in calls if call.startswith("exec ")]
    assert len(runs) == 2
    assert all("--containall --cleanenv --no-home" in call and ".sif python3" in call for call in runs)
    assert all(" --no-eval " in call for call in runs), "the image's variables are taken as they are"
    (kept,) = (fleet.directory / "images").glob("*.sif")
    assert kept.name == f"sha256-{same.rpartition(':')[2]}.sif"
