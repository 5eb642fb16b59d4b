"""Attacks by records that somebody typed: `certified` without anything that proves it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from validator.model.record import Origin, Record, Verdict, contents_of
from validator.model.report import report_of
from validator.records.store import Store

from ..commands import run
from ..records.values import bundle, document, lines, record
from ..records.values import report as passed

IMAGE = "tf2.21.0-cuda12.5-cudnn9.3-py311"


def typed(**changes: Any) -> Record:
    values: dict[str, Any] = {"cell": f"{IMAGE}@r580-h100", "image": IMAGE, "host_class": "r580-h100"}
    values |= {"verdict": Verdict.CERTIFIED, "reason": "typed", "engine": "docker"}
    return record(1, **(values | changes))


def old_probe() -> dict[str, Any]:
    return contents_of(report_of(document() | {"probe": {"version": "0.1"}}))


RECORDS: dict[str, Record] = {
    "no report": typed(report=None),
    "a report that is none": typed(report={"a": 1}),
    "no GPU": typed(**contents_of(passed([]))),
    "a failed check": typed(**contents_of(passed(gpu_compute="fail"))),
    "on the CPU": typed(**contents_of(passed(device="CPU"))),
    "an old probe": typed(**old_probe()),
    "perfect, unsigned": typed(**contents_of(passed())),
    "a signature that is none": typed(**contents_of(passed()), measurement=bundle("2026-01-01T00:00:00Z")),
    "a bundle that is none": typed(**contents_of(passed()), measurement="x"),
    "works-on-cpu without a report": typed(
        cell="tf2.21.0-cpu-py311@no-gpu", image="tf2.21.0-cpu-py311", host_class="no-gpu",
        verdict=Verdict.WORKS_ON_CPU, report=None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("made", RECORDS.values(), ids=RECORDS.keys())
@pytest.mark.parametrize("way", ["import", "merge"])
def test_a_typed_verdict_is_only_claimed(made: Record, way: str, tmp_path: Path) -> None:
    artifact = tmp_path / "in" / "records-x"
    artifact.mkdir(parents=True)
    (artifact / "a.jsonl").write_bytes(lines(made))
    assert run("records", way, tmp_path / "in", "--store", tmp_path / "s.db", cwd=tmp_path).returncode == 0
    [shown] = json.loads(run("records", "list", "--json", "--store", tmp_path / "s.db", cwd=tmp_path).stdout)
    assert shown["verdict"] == "unproven"
    assert shown["reason"].startswith("claimed, but not proven: ")
    assert shown["origin"] == Origin.ELSEWHERE.value
    with Store(str(tmp_path / "s.db")) as store:
        # It does not stand for a measurement, which would not be made then.
        assert store.measured(made.key) is None
        assert {entry.verdict for entry in store.entries()} == {Verdict.UNPROVEN}


@pytest.mark.parametrize("name", [name for name in RECORDS if name not in (
    "perfect, unsigned", "an old probe", "a signature that is none", "a bundle that is none")])  # fmt: skip
def test_a_verdict_in_a_store_is_judged_again(name: str, tmp_path: Path) -> None:
    """Another program may have written the store."""
    with Store(str(tmp_path / "s.db")) as store:
        store.add(RECORDS[name])
        [found] = store.all()
        assert found.verdict is Verdict.UNPROVEN
        assert {one.verdict for one in store.latest().values()} == {Verdict.UNPROVEN}


def test_importing_twice_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(RECORDS["perfect, unsigned"]))
    for _ in range(2):
        done = run("records", "import", tmp_path / "a.jsonl", "--store", tmp_path / "s.db", cwd=tmp_path)
        assert done.returncode == 0
    assert "0 records imported, 1 already present" in done.stderr
