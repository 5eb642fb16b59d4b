"""`build-matrix --on` after building, and `fleet`: with a scheduler of files, a store and a signer."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import validator.fleet
from tests import commands
from tests.documented import misfits
from tests.fleet.fake import CUT, FakeFleet
from tests.pipeline.fakes import H100, NO_GPU, FakeEngine, outside_of, report
from tests.pipeline.test_build_matrix import OTHER, SPEC, write_lock
from validator.cli.build_matrix import build_matrix_command
from validator.cli.fleet import CapacityDocument, RunDocument, UnitDocument, measure
from validator.errors import EXIT_FAILED, EXIT_INPUT, EXIT_MISSING, EXIT_OK, MissingError
from validator.fleet.protocol import Answer, Capacity, Fault
from validator.fleet.run_store import Runs
from validator.fleet.submitter import Submitter
from validator.locks.lock_files import LockDirectory
from validator.matrix.plan import Plan
from validator.model.prediction import PlannedCell
from validator.model.record import Outside, Record, Unread, Verdict, measurement_of
from validator.model.spec import Cell, HostClass, ImageSpec
from validator.pipeline.fleet import StoredHost
from validator.pipeline.run import Options, PublishedImage, Result, Run, Runner, Status
from validator.records.store import Store
from validator.system.package_sources import PackageSources
from validator.versions import ComputeCapability, DriverRelease

H100_CLASS = HostClass("r580-h100", DriverRelease.parse("580"), ComputeCapability.parse("9.0"), "h100")
T4_CLASS = HostClass("r535-t4", DriverRelease.parse("535"), ComputeCapability.parse("7.5"), "t4")
NODES = (Capacity("r580-h100", 2, 2, 1, "h100&r580"),)
CELL = f"{SPEC.identifier}@r580-h100"


def published(spec: ImageSpec) -> PublishedImage:
    digest = f"sha256:{'a' if spec == SPEC else 'b'}" + "0" * 63
    return PublishedImage("tag", f"registry.test/ours@{digest}", digest, True)


@dataclass
class Site:
    """A machine that submits, with its cluster.

    host: of the reports. isolates: the cluster runs containers. signed: the statements. broken: a report
    that can't be read, in the place of the report.
    """

    directory: Path
    store: Store
    fleet: FakeFleet
    host: dict[str, Any] = field(default_factory=lambda: H100)
    isolates: bool = True
    broken: bytes | None = None
    challenge: str | None = None
    outcomes: dict[str, str] = field(default_factory=dict)
    signed: list[bytes] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def answer(self, job: dict[str, Any]) -> Answer:
        document = json.loads(report(self.host, **self.outcomes))
        words = job["arguments"]
        if "--challenge" in words:
            document["challenge"] = self.challenge or words[words.index("--challenge") + 1]
        outside = outside_of(self.host) if self.host["gpus"] else Unread.NO_GPU_OFFERED
        content = json.dumps(document).encode() if self.broken is None else self.broken
        digest = job["image"] if self.isolates else None
        return Answer(outside, "podman", self.isolates, digest, "node1", content)

    def run(self, cells: list[Cell], *, signs: bool = True, as_json: bool = False, **options: Any) -> int:
        """Do what `build-matrix --on` does after building."""
        dry_run = options.pop("dry_run", False)
        images = options.pop("images", None)
        specs = list(dict.fromkeys(cell.image for cell in cells))
        if images is None:
            images = [Result(spec, Status.BUILT, published=published(spec)) for spec in specs]
        runner = Runner(self._sign, self._ask) if signs else None
        run = Run(
            FakeEngine(), self.store, PackageSources(), LockDirectory(self.directory / "locks"), (),
            Options(validate=False, **options), lambda _: None, runner=runner,
        )  # fmt: skip
        plan = Plan(tuple(PlannedCell(cell, None) for cell in cells), ())  # type: ignore[arg-type]
        return measure(plan, images, run, self.fleet, "registry.test/ours", dry_run, as_json)

    def records(self) -> list[Record]:
        return list(self.store.all())

    def _sign(self, statement: bytes) -> str:
        self.signed.append(statement)
        return f"bundle {len(self.signed)}"

    def _ask(self, cell: str) -> str:
        self.asked.append(cell)
        return f"{len(self.asked):064x}"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    hasty = functools.partial(Submitter, sleep=lambda _: None)
    monkeypatch.setattr("validator.fleet.submitter.Submitter", hasty)
    monkeypatch.setattr(sys, "argv", ["validator", "build-matrix", "--on", "fake"])
    (tmp_path / "jobs").mkdir()
    for spec in (SPEC, OTHER):
        write_lock(tmp_path / "locks", spec)
    with Store(str(tmp_path / "records.db")) as store:
        fleet = FakeFleet(tmp_path / "jobs", NODES)
        found = Site(tmp_path, store, fleet)
        fleet.answer = found.answer
        yield found


def test_an_answer_becomes_a_signed_record(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert site.run([Cell(SPEC, H100_CLASS)]) == EXIT_OK
    [record] = site.records()
    assert (record.cell, record.verdict, record.engine) == (CELL, Verdict.CERTIFIED, "fake/podman")
    assert record.image_digest == published(SPEC).digest
    assert record.started <= record.finished
    [statement] = site.signed
    measurement = measurement_of(statement)
    assert measurement.image_digest == published(SPEC).digest
    assert (measurement.cell, measurement.challenge) == (CELL, f"{1:064x}")
    assert isinstance(measurement.outside, Outside)
    assert record.measurement == "bundle 1"
    printed = capsys.readouterr()
    assert f"{CELL}  certified" in printed.out
    assert "1 measured" in printed.out


def test_an_unchanged_cell_is_not_measured_again(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    cells = [Cell(SPEC, H100_CLASS)]
    site.run(cells)
    assert site.run(cells) == EXIT_OK
    assert len(site.records()) == len(site.fleet.jobs()) == 1
    assert "1 unchanged" in capsys.readouterr().out
    assert site.run(cells, force=True) == EXIT_OK
    first, second = site.records()
    assert (first.key, len(site.fleet.jobs())) == (second.key, 2)
    assert site.asked == [CELL, CELL]


def test_an_image_that_was_made_again_is_measured_again(site: Site) -> None:
    cells = [Cell(SPEC, H100_CLASS)]
    site.run(cells)
    other = replace(published(SPEC), reference=published(OTHER).reference, digest=published(OTHER).digest)
    site.run(cells, images=[Result(SPEC, Status.BUILT, published=other)])
    assert [record.image_digest for record in site.records()] == [published(SPEC).digest, other.digest]


def test_a_cell_that_got_a_node_of_another_host_class_is_measured_again(site: Site) -> None:
    site.fleet.capacities = (*NODES, Capacity("r535-t4", 1, 1, 1))
    cells = [Cell(SPEC, T4_CLASS)]
    site.run(cells)
    site.run(cells)
    assert [record.host_class for record in site.records()] == ["r580-h100", "r580-h100"]


def test_a_record_without_a_gpu_is_unproven_and_belongs_to_its_cell(site: Site) -> None:
    site.host = NO_GPU
    assert site.run([Cell(SPEC, H100_CLASS)]) == EXIT_OK
    [record] = site.records()
    assert (record.cell, record.verdict, record.measurement) == (CELL, Verdict.UNPROVEN, None)


def test_a_node_with_another_gpu_gives_a_record_of_what_it_is(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.fleet.capacities = (Capacity("r535-t4", 1, 1, 1),)
    site.run([Cell(SPEC, T4_CLASS)])
    [record] = site.records()
    assert record.cell == CELL
    assert "(on r580-h100)" in capsys.readouterr().out


def test_what_no_container_isolated_is_neither_signed_nor_about_the_image(site: Site) -> None:
    site.isolates = False
    site.run([Cell(SPEC, H100_CLASS)])
    [record] = site.records()
    assert (record.measurement, record.image_digest, site.signed) == (None, None, [])


def test_a_report_with_the_challenge_of_another_submitter_is_no_record(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.challenge = "f" * 64
    assert site.run([Cell(SPEC, H100_CLASS)]) == EXIT_MISSING
    assert site.records() == []
    assert "its report is about another measurement" in capsys.readouterr().out


def test_a_report_that_cannot_be_read_is_a_verdict_only_on_a_node_of_the_cell(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.broken = b"{broken"
    site.fleet.capacities = (*NODES, Capacity("r535-t4", 1, 1, 1))
    assert site.run([Cell(SPEC, T4_CLASS)]) == EXIT_MISSING
    assert site.records() == []
    said = capsys.readouterr().out
    assert "the node is not of r535-t4, and its report can't be read" in said
    # On a node of the cell, it is the image's fault.
    assert site.run([Cell(SPEC, H100_CLASS)]) == EXIT_FAILED
    [record] = site.records()
    assert (record.cell, record.verdict) == (CELL, Verdict.FAILED)


def test_failed_lost_and_missing_cells_are_told_apart(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.outcomes = {"gpu_compute": "fail"}
    site.fleet.endings = {(OTHER.identifier, "r580-h100", attempt): CUT for attempt in (1, 2, 3)}
    cells = [Cell(SPEC, H100_CLASS), Cell(OTHER, H100_CLASS), Cell(SPEC, T4_CLASS)]
    broken = Result(replace(SPEC, tensorflow="2.19.0"), Status.MISSING, detail="the index is down")
    images = [Result(spec, Status.BUILT, published=published(spec)) for spec in (SPEC, OTHER)]
    assert site.run(cells, as_json=True, images=[*images, broken]) == EXIT_FAILED
    found = json.loads(capsys.readouterr().out)
    assert [(entry["cell"], entry["status"], entry["attempts"]) for entry in found] == [
        (f"{OTHER}@r580-h100", "lost", 3),
        (f"{SPEC}@r535-t4", "missing", 1),
        (CELL, "measured", 1),
        (None, "missing", 0),
    ]
    assert found[2]["record"]["verdict"] == "failed"
    assert found[1]["detail"] == "there is no node for r535-t4; `fleet inventory` lists the host classes"
    assert found[0]["detail"] == "its output is incomplete: the frame report has 3 of 5 bytes"


def test_a_dry_run_prints_what_would_be_submitted(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    images = [
        Result(SPEC, Status.BUILT, published=published(SPEC)),
        Result(OTHER, Status.MISSING, detail="it is not in the registry"),
    ]
    cells = [Cell(SPEC, H100_CLASS), Cell(OTHER, H100_CLASS)]
    assert site.run(cells, dry_run=True, images=images, signs=False) == EXIT_MISSING
    printed = capsys.readouterr()
    assert printed.out.startswith("submit tfm-") and printed.out.endswith(f"{CELL}\n")
    assert f"{OTHER}: not submitted: it is not in the registry" in printed.err
    assert "`build-matrix --push registry.test/ours --no-validate` builds and pushes" in printed.err
    assert site.run(cells[:1], dry_run=True, images=images[:1], signs=False) == EXIT_OK
    assert site.fleet.jobs() == {}
    with Runs() as runs:
        assert runs.all() == []


class Killed(BaseException):
    """Stands for the end of the process."""


def kill_at(site: Site, step: str) -> str:
    """End a run of both images at a step of the scheduler. Return the run's id."""

    def stop(name: str) -> None:
        if name == step:
            raise Killed

    site.fleet.step = stop
    with pytest.raises(Killed):
        site.run([Cell(SPEC, H100_CLASS), Cell(OTHER, H100_CLASS)])
    site.fleet.step = lambda _: None
    with Runs() as runs:
        return runs.all()[0].id


@pytest.fixture
def scheduler(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Return the same cluster, as commands find it by its name."""
    modules = site.directory / "modules"
    modules.mkdir()
    (modules / "fake.py").write_text("")
    monkeypatch.setattr(validator.fleet, "__path__", [*validator.fleet.__path__, str(modules)])
    module = __import__("validator.fleet.fake", fromlist=["fake"])
    monkeypatch.setattr(module, "open_fleet", lambda settings: site.fleet, raising=False)
    monkeypatch.setattr("validator.cli.building.fleet_runner_of", lambda *_, **__: None)
    return site


def fleet(site: Site, *words: str) -> commands.Done:
    return commands.run("fleet", *words, cwd=site.directory)


def test_a_killed_run_is_resumed(scheduler: Site) -> None:
    run = kill_at(scheduler, "polled")
    status = fleet(scheduler, "status")
    assert run in status.stderr and f"run `fleet resume {run}`." in status.stderr
    assert "waiting" in status.stdout
    done = fleet(scheduler, "resume", run, "--store", str(scheduler.directory / "records.db"))
    assert done.returncode == EXIT_OK, done.stderr
    assert "2 measured" in done.stdout
    assert len(scheduler.records()) == len(scheduler.fleet.jobs()) == 2
    again = fleet(scheduler, "resume", run, "--store", str(scheduler.directory / "records.db"))
    assert (again.returncode, "there is nothing to resume" in again.stderr) == (EXIT_INPUT, True)
    assert "No run is open. `build-matrix --on slurm`" in fleet(scheduler, "status").stderr
    [listed] = json.loads(fleet(scheduler, "status", "--json").stdout)
    assert list(misfits(listed, RunDocument)) == []
    assert (listed["run"], listed["cells"]) == (run, {"r580-h100": {"done": 2}})


def test_the_same_command_resumes_it_too(site: Site) -> None:
    kill_at(site, "polled")
    assert site.run([Cell(SPEC, H100_CLASS), Cell(OTHER, H100_CLASS)]) == EXIT_OK
    assert len(site.records()) == len(site.fleet.jobs()) == 2
    # The jobs went on with the challenges that they had.
    assert len(site.asked) == 2


def test_another_store_is_refused(scheduler: Site) -> None:
    run = kill_at(scheduler, "polled")
    done = fleet(scheduler, "resume", run, "--store", str(scheduler.directory / "other.db"))
    assert done.returncode == EXIT_INPUT
    assert "writes its records to" in done.stderr


def test_a_run_is_cancelled(scheduler: Site) -> None:
    run = kill_at(scheduler, "polled")
    done = fleet(scheduler, "cancel", run, "--store", str(scheduler.directory / "records.db"))
    assert done.returncode == EXIT_OK, done.stderr
    assert f"Cancelled {run}: 2 cancelled." in done.stderr
    assert {job["ending"] for job in scheduler.fleet.jobs().values()} == {Fault.CANCELLED}
    assert scheduler.records() == []


def test_the_log_of_a_cell(scheduler: Site) -> None:
    kill_at(scheduler, "polled")
    assert fleet(scheduler, "logs", CELL).stdout.startswith("the log of job-tfm-")
    unknown = fleet(scheduler, "logs", "tf2.0.0@nowhere")
    assert (unknown.returncode, "no run has the cell" in unknown.stderr) == (EXIT_INPUT, True)


def test_a_cell_that_left_no_log_is_said_to_have_none(scheduler: Site) -> None:
    run = kill_at(scheduler, "polled")
    fleet(scheduler, "cancel", run, "--store", str(scheduler.directory / "records.db"))
    scheduler.fleet.log = ""
    done = fleet(scheduler, "logs", CELL)
    assert (done.returncode, done.stdout) == (EXIT_MISSING, "")
    assert "has no log on fake: the run was cancelled" in done.stderr


def test_the_cells_of_a_run(scheduler: Site) -> None:
    run = kill_at(scheduler, "polled")
    rows = json.loads(fleet(scheduler, "status", run, "--json").stdout)
    assert [row["state"] for row in rows] == ["waiting", "waiting"]
    assert list(misfits(rows, list[UnitDocument])) == []
    assert CELL in fleet(scheduler, "status", run[:8]).stdout


def test_the_inventory_names_host_classes_without_nodes(scheduler: Site) -> None:
    done = fleet(scheduler, "inventory", "--on", "fake", "--profile", "nightly", "--json")
    by_name = {entry["host_class"]: entry for entry in json.loads(done.stdout)}
    assert list(misfits(list(by_name.values()), list[CapacityDocument])) == []
    assert by_name["r580-h100"]["nodes"] == 2
    assert any(entry["nodes"] == 0 and entry["cells"] for entry in by_name.values())


def test_an_unknown_scheduler_is_refused(site: Site) -> None:
    done = fleet(site, "inventory", "--on", "nomad")
    assert (done.returncode, "there is no fleet engine 'nomad'" in done.stderr) == (EXIT_INPUT, True)


def test_a_second_process_is_told_about_the_first(site: Site) -> None:
    kill_at(site, "polled")
    with Runs() as runs:
        key = runs.all()[0].key
        with runs.submitting(key), pytest.raises(MissingError, match="another process does this already"):
            site.run([Cell(SPEC, H100_CLASS), Cell(OTHER, H100_CLASS)])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--on", "slurm"], "--on slurm needs --push or --pull-from"),
        (
            ["--on", "slurm", "--push", "localhost:5000/a", "--no-validate"],
            "can't be combined with --on slurm",
        ),
        (["--on", "slurm", "--oci", "images"], "can't be combined with --on slurm"),
        (["--dry-run"], "has no effect with --on local"),
        (["--fleet", "fleet.yaml"], "has no effect with --on local"),
        (["--rehearse", "--on", "slurm"], "can't be combined with --rehearse"),
    ],
)
def test_contradicting_options_change_nothing(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(build_matrix_command, arguments)
    assert result.exit_code == EXIT_INPUT
    assert says in result.output


@pytest.mark.parametrize("host", [H100_CLASS, T4_CLASS, HostClass.without_gpu()])
def test_the_run_store_keeps_what_a_host_class_is(host: HostClass) -> None:
    assert StoredHost.of(host).host_class() == host
