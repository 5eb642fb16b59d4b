"""Attacks by records that somebody typed: `certified` without anything that proves it."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from validator.model.record import Origin, Record, Verdict, contents_of
from validator.model.report import report_of
from validator.model.verdict import as_judged
from validator.records.store import Store

from ..commands import ROOT, run
from ..records.values import bundle, document, lines, record
from ..records.values import report as passed

IMAGE = "tf2.21.0-cuda12.5-cudnn9.3-py311"
#: The part of the matrix that has this image.
PART = ("--matrix", str(ROOT / "matrix.yaml"), "--profile", "full", "--select", f"image={IMAGE}")


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
    "an imported report": typed(**contents_of(passed()), origin=Origin.ELSEWHERE),
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


def test_a_typed_verdict_in_a_store_hides_no_measurement(tmp_path: Path) -> None:
    measured = typed(verdict=Verdict.FAILED, report=None, finished="2025-12-01T00:00:00+00:00")
    with Store(str(tmp_path / "s.db")) as store:
        store.add_all([measured, RECORDS["no report"], RECORDS["no GPU"]])
        assert store.latest() == {measured.cell: measured}
        assert store.measured(measured.key) == measured


def test_importing_twice_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(RECORDS["perfect, unsigned"]))
    for _ in range(2):
        done = run("records", "import", tmp_path / "a.jsonl", "--store", tmp_path / "s.db", cwd=tmp_path)
        assert done.returncode == 0
    assert "0 records imported, 1 already present" in done.stderr


#: Every view of a store and every query about it. {} is a directory; {store} and {lines} have the records.
VIEWS: dict[str, tuple[str, ...]] = {
    "list": ("records", "list"),
    "list as JSON": ("records", "list", "--json"),
    "list one verdict": ("records", "list", "--json", "--verdict", "certified"),
    "show": ("records", "show", "{id}"),
    "show as JSON": ("records", "show", "{id}", "--json"),
    "export": ("records", "export"),
    "regressions": ("records", "regressions", "--since", "20000d", "--json"),
    "regressions as an issue": ("records", "regressions", "--since", "20000d", "--format", "issue"),
    "bisect": ("records", "bisect", f"{IMAGE}@r580-h100", "--json"),
    "compare with an earlier time": ("records", "compare", "2020-01-01", "0h", "--json"),
    "compare files": ("records", "compare", "2020-01-01", "{lines}", "--json"),
    "compare stores": ("records", "compare", "2020-01-01", "{store}"),
    "report": ("report", *PART),
    "report as Markdown": ("report", *PART, "--format", "markdown"),
    "report as JSON": ("report", *PART, "--json"),
    "page": ("report", *PART, "--html", "{}/page"),
    "data": ("data", "export", "{}/data", *PART, "--format", "json,csv"),
    "certify": ("certify", "--registry", "127.0.0.1:1/x", "--signing-key", "x.key", *PART[:2]),
}  # fmt: skip


def view_of(view: str, made: Record, place: Path) -> str:
    """Return all that a view says about a store with this record, and one that failed later."""
    place.mkdir()
    store, exported = place / "s.db", place / "a.jsonl"
    failed = typed(verdict=Verdict.FAILED, report=None, finished="2026-02-01T00:00:00+00:00")
    exported.write_bytes(lines(made, failed))
    with Store(str(store)) as opened:
        opened.add_all([made, failed])
        found, _ = opened.all()
    names = {"{id}": found.id, "{store}": store, "{lines}": exported}
    words = [str(names.get(word, word)).replace("{}", str(place)) for word in VIEWS[view]]
    done = run(*words, "--store", store, cwd=place)
    texts = [f"{done.returncode}", done.stdout, done.stderr]
    for path in sorted(place.rglob("*")):
        if path.is_file() and path.parent != place:
            texts.append(f"{path.relative_to(place)}: {path.read_text('utf-8', 'replace')}")
    return "\n".join(texts).replace(str(place), "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["no report", "an imported report"])
@pytest.mark.parametrize("view", VIEWS)
def test_no_view_of_a_store_counts_a_typed_verdict(view: str, name: str, tmp_path: Path) -> None:
    """Another program wrote the store. Its record counts as one that honestly says `unproven`."""
    honest = as_judged(RECORDS[name])
    assert honest.verdict is Verdict.UNPROVEN and honest.reason.startswith("claimed, but not proven: ")
    typed_view = view_of(view, RECORDS[name], tmp_path / "typed")
    assert typed_view == view_of(view, honest, tmp_path / "honest")


def foreign_row(path: Path, **changes: object) -> Record:
    """Write a store with one record, whose row another program changed."""
    made = typed(**contents_of(passed([])), verdict=Verdict.UNPROVEN)
    with Store(str(path)) as store:
        store.add(made)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TRIGGER records_no_update")
        for name, value in changes.items():
            connection.execute(f"UPDATE records SET {name} = ?", [value])
    return made


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "certified"}, {"verdict": "splendid"}, {"verdict": 5}, {"finished": b"\xff"},
        {"finished": 5},
        {"cell": "another"}, {"image": "another"}, {"key": b"x"}, {"id": "0" * 32}, {"id": 5},
        {"document": 5}, {"document": b"\xff\xfe"}, {"document": "[" * 100_000}, {"document": '{"id": 1}'},
        {"document": "9" * 5000},
    ],
    ids=str,
)  # fmt: skip
def test_a_row_of_another_program_is_refused_by_name(changes: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    made = foreign_row(path, **changes)
    for words in (
        ["list"], ["export"], ["regressions"], ["bisect", made.cell], ["compare", "2020-01-01", "0h"],
        ["show", str(changes.get("id", made.id))], ["compare", "2020-01-01", str(path)],
    ):  # fmt: skip
        done = run("records", *words, "--store", path, cwd=tmp_path)
        assert done.returncode in (0, 2) and "certified" not in done.stdout, (words, done)
        assert done.returncode == 2 or words[0] in ("regressions", "bisect") or "finished" in changes, words
        assert done.returncode == 0 or any(
            words in done.stderr for words in ("another program changed", "no record", "a finish time that")
        )
