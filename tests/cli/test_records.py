"""Test `records import` with many files, and `compare`, `regressions` and `bisect`."""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import IO, Any

import pytest

from validator import cli
from validator.errors import InputError, ValidatorError
from validator.model.record import Record, Verdict, contents_of
from validator.records import record_files
from validator.records.store import Store
from validator.system.files import open_file

from ..corpus.reader import REPORTS
from ..postgresql import Server
from ..records.values import lines, record, report

#: A report from a container without a GPU.
NO_GPU = REPORTS / "no-gpu-tf2.21.0-cuda12.5-cudnn9.3-py311.json"
NOW = datetime.now(timezone.utc)


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stored(url: str = "records.db") -> set[str]:
    with Store(url) as store:
        return {found.id for found in store.all()}


def run(*arguments: str, store: str = "records.db") -> int:
    return cli.run(["records", *arguments, "--store", store])


def test_all_records_of_a_directory_are_imported(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (directory / "artifacts" / "a100").mkdir(parents=True)
    (directory / "artifacts" / "h100").mkdir()
    (directory / "artifacts" / "a100" / "records.jsonl").write_bytes(lines(record(1), record(2)))
    (directory / "artifacts" / "h100" / "records.jsonl.gz").write_bytes(
        gzip.compress(lines(record(2), record(3)))
    )
    (directory / "artifacts" / "h100" / "notes.txt").write_text("not records")
    (directory / "more").write_bytes(gzip.compress(lines(record(4))))
    assert run("import", "artifacts", "more") == 0
    assert capsys.readouterr().err == "4 records imported, 1 already present\n"
    assert stored() == {record(number).id for number in (1, 2, 3, 4)}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("b.jsonl", lines(record(2)) + b"{}\n", r"b\.jsonl:2: not a record"),
        (
            "b.jsonl.gz",
            gzip.compress(lines(record(2)))[:-9],
            r"b\.jsonl\.gz:\d+: the gzip file is incomplete",
        ),
        (
            "b.jsonl.gz",
            gzip.compress(lines(record(2)))[:-8] + b"\0" * 8,
            r"b\.jsonl\.gz:2: the gzip file is incomplete or damaged: CRC",
        ),
        (
            "b.jsonl.gz",
            b"\x1f\x8b\x08\0\0\0\0\0\0\0garbage",
            r"b\.jsonl\.gz:1: the gzip file is incomplete",
        ),
        ("b.jsonl", gzip.compress(b"{}"), r"b\.jsonl:1: not a record"),
    ],
    # The bytes of a gzip file hold the time, so they can't be in the name of a test.
    ids=["wrong line", "cut short", "wrong checksum", "no gzip file", "gzip under another name"],
)
def test_nothing_is_imported_if_one_file_is_wrong(
    directory: Path, name: str, content: bytes, message: str
) -> None:
    (directory / "artifacts").mkdir()
    (directory / "artifacts" / "a.jsonl").write_bytes(lines(record(1)))
    (directory / "artifacts" / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        run("import", "artifacts")
    assert not (directory / "records.db").exists()


def test_a_directory_without_records_is_an_error(directory: Path) -> None:
    (directory / "artifacts").mkdir()
    with pytest.raises(InputError, match=r"artifacts: this directory has no file whose name ends in \.jsonl"):
        run("import", "artifacts")
    with pytest.raises(InputError, match="nowhere: No such file"):
        run("import", "nowhere")


def night(ago: int, cell: str, verdict: Verdict, **changes: Any) -> Record:
    """Make a record that is this many nights old."""
    at = (NOW - timedelta(days=ago)).isoformat(timespec="seconds")
    image, _, host_class = cell.partition("@")
    values = {"image": image, "host_class": host_class, "started": at, "finished": at, "verdict": verdict}
    if verdict is Verdict.CERTIFIED:
        values |= contents_of(report())
    return record(1, cell=cell, **(values | changes))


#: The verdicts of the test records, which only go to throw-away stores.
C, F, U = Verdict.CERTIFIED, Verdict.FAILED, Verdict.UNPROVEN
LOST, KEPT, NEW = "tf2.21.0-x@r580-h100", "tf2.20.0-x@r580-h100", "tf2.22.0-x@r580-h100"


NIGHTS = (
    night(9, LOST, C, image_digest="sha256:good", host={"driver": "570.1"}),
    night(9, KEPT, C),
    night(2, LOST, F, reason="gpu_visible: none", host={"driver": "580.2"}, lock_digest="sha256:11"),
    night(1, LOST, F, reason="gpu_visible: still none", host={"driver": "580.2"}),
    night(1, KEPT, C),
    night(1, NEW, U),
)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service)])
def nights(request: pytest.FixtureRequest, directory: Path) -> Iterator[str]:
    """Make a store with a history."""
    with contextlib.ExitStack() as stack:
        url = str(directory / "nights.db")
        if request.param == "postgresql":
            postgresql: Server = request.getfixturevalue("postgresql")
            postgresql.sql("CREATE DATABASE nights")
            stack.callback(postgresql.sql, "DROP DATABASE nights WITH (FORCE)")
            url = postgresql.url("nights")
        with Store(url) as store:
            store.add_all(NIGHTS)
        yield url


def answer(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_regressions_have_everything_that_an_issue_needs(
    nights: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("regressions", "--since", "7d", "--json", store=nights) == 1
    (found,) = answer(capsys)
    assert (found["cell"], found["image"], found["host_class"]) == (LOST, "tf2.21.0-x", "r580-h100")
    assert found["last_good"]["verdict"] == "certified"
    assert found["last_good"]["image_digest"] == "sha256:good"
    assert found["first_bad"]["record"] == NIGHTS[2].id
    assert found["newest"]["reason"] == "gpu_visible: still none"
    assert found["changes"] == [
        {"kind": "lock", "name": None, "before": "sha256:00", "after": "sha256:11"},
        {"kind": "driver", "name": None, "before": "570.1", "after": "580.2"},
    ]
    assert found["between"] == 0
    assert found["causes"] == []


def test_no_regressions_is_a_success(nights: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("regressions", "--since", "36h", "--json", store=nights) == 0
    assert answer(capsys) == []
    Store("empty.db").close()
    assert run("regressions", store="empty.db") == 0
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("0 of 0 cells worse than at or after ")


def test_regressions_and_bisect_as_text(nights: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("regressions", store=nights) == 1
    listed = capsys.readouterr().out
    assert run("bisect", LOST, store=nights) == 0
    shown = capsys.readouterr().out
    assert listed.strip() == shown.strip()
    assert f"{LOST}  certified -> failed" in shown
    assert f"last good   {NIGHTS[0].id[:12]}" in shown
    assert f"first bad   {NIGHTS[2].id[:12]}" in shown
    assert "driver 570.1 -> 580.2" in shown


def test_the_cause_comes_from_the_newest_report(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(NO_GPU.read_bytes())
    with Store("records.db") as store:
        store.add_all([night(3, LOST, C), night(1, LOST, F, report=report)])
    assert run("regressions", "--json") == 1
    (found,) = answer(capsys)
    cause = found["causes"][0]
    assert cause["code"] == "no_gpu_in_machine" and "no NVIDIA GPU" in cause["title"]
    assert run("bisect", LOST) == 0
    assert f"{cause['code']}: {cause['title']}" in capsys.readouterr().out


def test_bisect_explains_a_missing_good_or_bad_record(
    nights: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("bisect", KEPT, "--json", store=nights) == 0
    found = answer(capsys)
    assert found["first_bad"] is None and found["last_good"]["record"] == NIGHTS[4].id
    assert run("bisect", KEPT, store=nights) == 0
    assert "none: the newest record is as good as the best one" in capsys.readouterr().out
    with Store(nights) as store:
        store.add(night(0, "never@r580-h100", F))
    assert run("bisect", "never@r580-h100", store=nights) == 0
    assert "none: this cell was never good" in capsys.readouterr().out
    with pytest.raises(InputError, match="tf9@nowhere: there are no records of this cell"):
        run("bisect", "tf9@nowhere", store=nights)


def kinds(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, str | None, str | None]]:
    return {
        found["cell"]: (
            found["kind"],
            found["before"] and found["before"]["verdict"],
            found["after"] and found["after"]["verdict"],
        )
        for found in answer(capsys)
    }


def test_two_points_in_time_are_compared(nights: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = {LOST: ("worse", "certified", "failed"), NEW: ("appeared", None, "unproven")}
    assert run("compare", "7d", "0d", "--json", store=nights) == 0
    assert kinds(capsys) == expected
    week = (NOW - timedelta(days=7)).date().isoformat()
    assert run("compare", "0d", week, "--json", store=nights) == 0
    assert kinds(capsys) == {LOST: ("better", "failed", "certified"), NEW: ("vanished", "unproven", None)}
    assert run("compare", "7d", "0d", store=nights) == 0
    captured = capsys.readouterr()
    assert captured.err == "2 cells in A, 3 in B, 2 different\n"
    assert "lock sha256:00 -> sha256:11; driver 570.1 -> 580.2" not in captured.out
    assert "certified  failed" in captured.out and "driver 570.1 -> 580.2" in captured.out


def test_stores_and_files_are_compared(
    nights: str, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "a.jsonl").write_bytes(lines(NIGHTS[0], NIGHTS[1]))
    (directory / "artifacts").mkdir()
    (directory / "artifacts" / "a.jsonl.gz").write_bytes(gzip.compress(lines(NIGHTS[0])))
    (directory / "artifacts" / "b.jsonl").write_bytes(lines(NIGHTS[1]))
    # Nobody signed the records in the files, so that their verdicts are only claimed.
    expected = {
        LOST: ("worse", "unproven", "failed"),
        KEPT: ("better", "unproven", "certified"),
        NEW: ("appeared", None, "unproven"),
    }
    for before in ("a.jsonl", "artifacts"):
        assert run("compare", before, nights, "--json", store="none.db") == 0
        assert kinds(capsys) == expected
    assert run("compare", "a.jsonl", "artifacts", "--json") == 0
    assert kinds(capsys) == {}
    assert not (directory / "none.db").exists() and not (directory / "records.db").exists()


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ("last week", "last week: not a file, a store's URL or a time"),
        ("sqlite:///none.db", "there is no store at none.db"),
        ("7d", r"there is no store at .*records\.db"),
        ("empty", "empty: this directory has no file whose name ends in"),
    ],
)
def test_points_that_cannot_be_compared_are_rejected(directory: Path, point: str, message: str) -> None:
    (directory / "empty").mkdir()
    (directory / "a.jsonl").write_bytes(lines(record(1)))
    for points in (("a.jsonl", point), (point, "a.jsonl")):
        with pytest.raises(ValidatorError, match=message):
            run("compare", *points)
    assert sorted(path.name for path in directory.iterdir()) == ["a.jsonl", "empty"]


def test_a_url_with_a_password_is_never_opened_as_a_file(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "a.jsonl").write_bytes(lines(record(1)))
    opened: list[Path] = []

    def noted(path: Path, largest: int) -> IO[bytes]:
        opened.append(path)
        return open_file(path, largest)

    monkeypatch.setattr(record_files, "open_file", noted)
    with pytest.raises(InputError, match="nosuchdatabase is not a supported kind of database"):
        run("compare", "a.jsonl", "nosuchdatabase://someone:secret@host.example/records")
    assert opened == [Path("a.jsonl")]


@pytest.mark.parametrize("since", ["tomorrow", "2999-01-01", ""])
def test_since_must_be_a_time_in_the_past(since: str) -> None:
    with pytest.raises(InputError, match=r"not a time|this time is in the future"):
        run("regressions", "--since", since)
