"""Records that somebody made by hand, damaged, or sent in place of another: each attack is one test."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from validator import cli
from validator.errors import InputError
from validator.model.report import read_report
from validator.records.store import Store
from validator.reports.overview import junit

from ..corpus.reader import REPORTS
from ..laws import subjects_to_try
from ..records.values import bundle, lines, record

#: A report from a container without a GPU.
REPORT = REPORTS / "no-gpu-tf2.21.0-cuda12.5-cudnn9.3-py311.json"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> int:
    return cli.run(["records", *arguments, "--store", "records.db"])


def stored() -> set[str]:
    with Store("records.db") as store:
        return {found.id for found in store.all()}


def ahead(minutes: int) -> str:
    return (datetime.now(timezone.utc) + timedelta(minutes=minutes)).isoformat(timespec="seconds")


@pytest.mark.parametrize(
    "when",
    [lambda: "zzzz", lambda: "", lambda: "2999-01-01T00:00:00+00:00", lambda: ahead(1440), lambda: ahead(12)],
    ids=["not a time", "empty", "the next millennium", "tomorrow", "in 12 minutes"],
)
def test_a_record_from_the_future_is_not_imported(directory: Path, when: Callable[[], str]) -> None:
    """Protected: the newest record of a cell. One from next year would be the newest until then."""
    finished = when()
    (directory / "a.jsonl").write_bytes(lines(record(1), record(5, finished=finished)))
    with pytest.raises(InputError, match=r"a\.jsonl:2: record \w{32}: it") as caught:
        run("import", "a.jsonl")
    said = str(caught.value)
    assert finished in said
    assert re.search(r"this machine's clock says 20\d\d-\d\d-\d\dT\d\d:", said)
    assert not (directory / "records.db").exists()


def test_a_signed_time_in_the_future_counts_and_not_the_one_next_to_it(directory: Path) -> None:
    """Protected: the newest record of a cell, from a record whose unsigned time looks right."""
    (directory / "a.jsonl").write_bytes(lines(record(1, measurement=bundle("2999-01-01T00:00:00Z"))))
    with pytest.raises(InputError, match="it finished at 2999-01-01T00:00:00Z, which is in the future"):
        run("import", "a.jsonl")


def test_a_report_from_the_future_is_not_imported(directory: Path) -> None:
    """Protected: the newest record of a cell, from a report that was edited."""
    report = json.loads(REPORT.read_bytes()) | {"finished": ahead(60)}
    (directory / "report.json").write_text(json.dumps(report))
    with pytest.raises(InputError, match=r"report\.json: record .* in the future; this machine's clock says"):
        run("import", "--report", "report.json")


def test_clocks_that_differ_by_less_than_ten_minutes_are_accepted(directory: Path) -> None:
    early = record(1, finished=ahead(9))
    (directory / "a.jsonl").write_bytes(lines(early))
    assert run("import", "a.jsonl") == 0
    assert stored() == {early.id}


def test_a_stored_record_from_the_future_is_shown_and_blocks_nothing(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Protected: a cell whose store already has a record from the future; it was frozen on that one."""
    odd = record(5, finished="2999-01-01T00:00:00+00:00")
    (directory / "a.jsonl").write_bytes(lines(record(1), odd))
    assert run("import", "a.jsonl", "--any-time") == 0
    with Store("records.db") as store:
        assert store.latest() == {odd.cell: record(1)}
    capsys.readouterr()
    assert run("list") == 0
    shown = capsys.readouterr()
    assert odd.id[:12] in shown.out
    assert f"Does not count as the newest: record {odd.id}: it finished at 2999" in shown.err
    assert run("show", odd.id) == 0
    assert "Does not count as the newest of its cell: record" in capsys.readouterr().err
    (directory / "matrix.yaml").write_bytes((Path(__file__).parents[2] / "matrix.yaml").read_bytes())
    assert cli.run(["report", "--store", "records.db"]) == 0
    shown = capsys.readouterr()
    assert "1 record left out, because of a finish time that can't be right: see `records list`" in shown.err
    assert "2999" not in shown.out
    assert run("bisect", odd.cell) == 0
    assert odd.id[:12] not in capsys.readouterr().out
    with Store("records.db") as store:
        store.add(record(2, finished="zzzz"))
    with pytest.raises(InputError, match="all of its records have a finish time that can't be right"):
        run("bisect", record(2).cell)


def commands(log: str) -> list[str]:
    """Return the lines in which a GitHub runner finds a command, as its ActionCommand.cs does."""
    lines = re.split(r"\r\n|\n|\r", log)
    registered = (
        r"(error|warning|notice|debug|group|endgroup|add-mask|set-output|set-env|add-path|stop-commands)"
    )
    command = re.compile(rf"^\s*::{registered}|##\[{registered}", re.IGNORECASE)
    return [line for line in lines if command.search(line)]


#: What a machine may put where text is expected, so that a runner obeys it.
INJECTIONS = (
    "::error::x", "\n::error::x", "\r::error::x", "a\r\n  ::set-output name=x::y", "\u2028::error::x",
    "\u0085::error::x", "\x0b::error::x", "%0A::error::x", "\n\u00a0::stop-commands::x", "##[error]x",
    "a ###[add-mask]x", "\n##[set-env name=PATH]x", "\u2029##[group]",
)  # fmt: skip


def artifact(name: str, content: bytes, file: str = "records.jsonl") -> None:
    directory = Path("tonight") / name
    directory.mkdir(parents=True)
    (directory / file).write_bytes(content)


def merge(*arguments: str) -> list[dict[str, str]]:
    """Merge the artifacts, and return what was refused."""
    assert run("merge", "tonight", "--refused", "refused.json", "--summary", "summary.md", *arguments) == 0
    refused: list[dict[str, str]] = json.loads(Path("refused.json").read_text())
    return refused


def document(**changes: object) -> bytes:
    return json.dumps(record(2).document() | changes).encode()


def with_number(number: str) -> bytes:
    return document(report={"x": "@"}).replace(b'"@"', number.encode())


BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "a gzip bomb": (lambda: gzip.compress(b" " * (65 << 20)), "it unpacks to more than 64 MiB"),
    "a bomb of many lines": (lambda: gzip.compress(b"\n" * 20_000), "there are more than 10000 lines"),
    "a gzip file cut short": (lambda: gzip.compress(lines(record(2)))[:-9], "incomplete or damaged"),
    "10^400": (lambda: with_number("1" + "0" * 400), "not finite or does not fit in 64 bits"),
    "10^5000": (lambda: with_number("1" + "0" * 5000), "not finite or does not fit in 64 bits"),
    "1e400": (lambda: with_number("1e400"), "not finite or does not fit in 64 bits"),
    "2^64": (lambda: with_number(str(2**64)), "not finite or does not fit in 64 bits"),
    "NaN": (lambda: with_number("NaN"), "not finite or does not fit in 64 bits"),
    "-Infinity": (lambda: with_number("-Infinity"), "not finite or does not fit in 64 bits"),
    "nesting": (lambda: with_number("[" * 70 + "]" * 70), "nested more than 64 levels deep"),
    "deep nesting": (lambda: with_number("[" * 100_000), "nested more than 64 levels deep"),
    "many values": (lambda: with_number("[" + "0," * 2_000_000 + "0]"), "more than 1000000 values"),
    "wrong types": (lambda: document(checks="none"), "not a record: checks: expected `array`, got `str`"),
    "another type": (lambda: b"[1]", "the record: expected `object`, got `array`"),
    "no text": (lambda: b"\xff\xfe\x00", "it is not JSON"),
    "an altered record": (lambda: document(verdict="certified"), "it was altered"),
    "a time in the future": (lambda: lines(record(2, finished="2999-01-01")), "which is in the future"),
    "too many records": (lambda: b"{}\n" * 10_001, "not a record"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD)
def test_a_bad_artifact_is_refused_by_name_and_the_others_are_merged(directory: Path, name: str) -> None:
    """Protected: the night, which one runner could stop, and the memory of the machine that merges."""
    content, reason = BAD[name]
    artifact("records-a", lines(record(1)))
    artifact("records-b", content())
    artifact("records-c", lines(record(3)))
    [refused] = merge()
    assert refused["artifact"] == "records-b" and reason in refused["reason"]
    assert "| `records-b` | `records-b/records.jsonl" in Path("summary.md").read_text()
    assert stored() == {record(1).id, record(3).id}


def test_an_artifact_is_merged_completely_or_not_at_all(directory: Path) -> None:
    """Protected: a machine's records, of which a part would look like all of them."""
    artifact("records-a", lines(record(1)) + b"{}\n", "a.jsonl")
    artifact("records-b", lines(record(1)), "a.jsonl")
    Path("tonight/records-b/b.jsonl.gz").write_bytes(gzip.compress(lines(record(3)))[:-9])
    assert [each["artifact"] for each in merge()] == ["records-a", "records-b"]
    assert stored() == set()


@pytest.mark.slow
def test_a_bomb_needs_little_memory(directory: Path) -> None:
    """Protected: the memory of the machine that merges."""
    artifact("records-a", gzip.compress(b"x" * (200 << 20)), "records.jsonl.gz")
    tracemalloc.start()
    [refused] = merge()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "more than 64 MiB" in refused["reason"]
    assert peak < 200 << 20


def test_links_pipes_and_devices_in_an_artifact_are_not_opened(directory: Path) -> None:
    """Protected: files of the machine that merges, and its time: a pipe would never end."""
    (directory / "secret.jsonl").write_bytes(lines(record(1)))
    for name in ("link", "pipe", "file", "empty"):
        (directory / "tonight" / name).mkdir(parents=True)
    Path("tonight/link/records.jsonl").symlink_to(directory / "secret.jsonl")
    os.mkfifo("tonight/pipe/records.jsonl")
    Path("tonight/file/records.jsonl").mkdir()
    Path("tonight/elsewhere").symlink_to(directory)
    Path("tonight/not-a-directory").write_text("")
    refused = {each["artifact"]: each["reason"] for each in merge()}
    assert set(refused) == {"link", "pipe", "elsewhere", "not-a-directory"}
    assert "it is not a file of at most 64 MiB" in refused["pipe"]
    assert stored() == set()


def test_a_runner_speaks_only_for_the_cell_that_it_was_asked_for(directory: Path) -> None:
    """Protected: the records of other cells, such as those of another GPU."""
    cell, other = record(1).cell, record(2).cell
    artifact(f"records-{cell}", lines(record(1), record(2)))
    artifact(f"records-{other}", lines(record(6)))
    artifact("records-build-tf1", lines(record(3)))
    refused = {each["artifact"]: each["reason"] for each in merge("--cells", plan(cell, other))}
    assert set(refused) == {f"records-{cell}", "records-build-tf1"}
    assert f"a record is of the cell {other}, but the job had to measure {cell}" in refused[f"records-{cell}"]
    assert stored() == {record(6).id}
    summary = Path("summary.md").read_text()
    assert f"- `{cell}`" in summary and f"- `{other}`" not in summary


def plan(*cells: str) -> str:
    """Write a plan with one matrix for each cell, and return its file."""
    Path("cells.json").write_text("".join(f"{json.dumps({'include': [{'id': cell}]})}\n" for cell in cells))
    return "cells.json"


@pytest.mark.parametrize("cells", ["", "[]", "{}", '{"include": [{}]}', "[" * 100_000, '{"include": 1e400}'])
def test_a_wrong_list_of_cells_is_an_error(directory: Path, cells: str) -> None:
    artifact("records-a", lines(record(1)))
    Path("cells.json").write_text(cells)
    with pytest.raises(InputError, match=r"cells\.json: .*"):
        merge("--cells", "cells.json")


@pytest.mark.slow
def test_nothing_in_a_record_is_a_command_in_the_log_of_a_workflow(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protected: the runner that reads the log, which would obey: mask text, end groups, set outputs."""
    places = {}
    texts = subjects_to_try(INJECTIONS)
    for number, text in enumerate(texts):
        place = directory / str(number)
        place.mkdir()
        monkeypatch.chdir(place)
        places[place] = with_records_that_say(text)
    logs = dict(zip(texts, shells(places), strict=True))
    for (text, log), place in zip(logs.items(), places, strict=True):
        assert log.count("records-id") >= 2, "the names of refused artifacts are told"
        assert commands(log) == [], repr(text)
        assert commands((place / "summary.md").read_text()) == [], repr(text)
    assert commands("a\r##[group]b\n \u3000::Error::c") == ["##[group]b", " \u3000::Error::c"]


def with_records_that_say(text: str) -> tuple[str, ...]:
    """Write artifacts that say a text wherever they can, and return commands that read them."""
    bad = record(
        1, cell=text, image=text, reason=text, engine=text, host_class=text, key="", report={text: text}
    )
    artifact("records-good", lines(bad))
    # Its own id is quoted where the record is refused.
    artifact("records-id", document(id=text))
    artifact("records-type", document(verdict=text))
    artifact("records-key", document(**{text: 1}))
    artifact("records-time", lines(record(2, finished=text)))
    named = Path(os.fsdecode(b"tonight/records-" + text.encode()))
    named.mkdir()
    (named / f"{text.replace('/', '')[:20]}.jsonl").write_bytes(b"{}")
    return (
        "records merge tonight --summary summary.md",
        "records merge tonight --summary summary.md -v",
        "records list", "records list --json", "records export", f"records show {bad.id}",
        f"records show {bad.id} --json", f"records bisect {shlex.quote(text)}",
        f"records bisect {shlex.quote(text)} --json", "records regressions --format issue",
        *(f"records import tonight/records-{name}/records.jsonl" for name in ("id", "type", "key", "time")),
        "records compare records.db tonight/records-good", "report", "report --format markdown",
        "report --format json",
    )  # fmt: skip


@pytest.mark.slow
def test_nothing_in_a_report_or_a_log_is_a_command_in_the_log_of_a_workflow(directory: Path) -> None:
    """Protected: the same runner, from what a program printed while it was measured."""
    report = json.loads(REPORT.read_bytes())
    for check in report["checks"]:
        check["evidence"] |= {"last_lines": [*INJECTIONS, *(f"{FAULT}{text}" for text in INJECTIONS)]}
        check["evidence"] |= dict.fromkeys(INJECTIONS, 1)
    printed = "\n".join(f"{text}\n{FAULT}\n{text} {FAULT}\nError: {text}" for text in INJECTIONS)
    report["logs"] = {"tensorflow_stderr": printed}
    report["environment"]["variables"] = {text: text for text in INJECTIONS}
    (directory / "report.json").write_text(json.dumps(report))
    (directory / "train.log").write_text(printed)
    log = shell(
        *(
            f"doctor {source} {way}"
            for source in ("--report report.json", "train.log")
            for way in ("", "--markdown", "--json")
        ),
        "records import --report report.json", "records list", "records list --json",
    )  # fmt: skip
    assert "driver_library_mismatch" in log
    assert commands(log) == []
    assert commands(junit(read_report(json.dumps(report)))) == []


#: A line that `doctor` knows.
FAULT = "failed call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported display driver"


def shell(*lines: str) -> str:
    """Run commands here, and return what they print, with all its line ends as they are."""
    [printed] = shells({Path.cwd(): lines})
    return printed


def shells(places: Mapping[Path, Sequence[str]]) -> list[str]:
    """Run the commands of each directory in it, all in one process, and return what those of each print."""
    program = (
        "import json, os, shlex, sys\nfrom validator import __main__\n"
        "for place, lines in json.loads(sys.argv[1]):\n"
        "    os.chdir(place)\n"
        "    for line in lines:\n"
        "        sys.argv = ['validator', *shlex.split(line)]\n"
        "        try:\n            __main__.main()\n        except SystemExit as stop:\n"
        "            assert stop.code in (0, 1, 2, 3), stop.code\n"
        "    os.write(1, b'\\0')\n"
    )
    environment = {**os.environ, "VALIDATOR_STORE": "records.db", "PYTHONIOENCODING": "utf-8"}
    matrix = (Path(__file__).parents[2] / "matrix.yaml").read_bytes()
    for place in places:
        (place / "matrix.yaml").write_bytes(matrix)
    done = subprocess.run(
        [sys.executable, "-u", "-c", program, json.dumps([(str(place), places[place]) for place in places])],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120,
    )  # fmt: skip
    printed = done.stdout.decode()
    assert done.returncode == 0, printed
    *found, rest = printed.split("\0")
    assert rest == ""
    return found


def test_the_good_records_come_out_of_a_damaged_store(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Protected: the other records of a store in which somebody overwrote a page."""
    good = [record(number, report={"text": "x" * 9000}) for number in range(40)]
    with Store("records.db") as store:
        store.add_all(good)
    assert run("salvage", "--output", "good.jsonl") == 0
    assert capsys.readouterr().err == "40 records written to good.jsonl, 0 lost\n"
    content = bytearray(Path("records.db").read_bytes())
    content[:100] = bytes(100)
    content[50 * 4096 : 51 * 4096] = b"x" * 4096
    Path("records.db").write_bytes(content)
    with pytest.raises(InputError, match="not a store of records") as caught:
        run("list")
    assert "`records salvage` gets the records out" in (caught.value.hint or "")
    assert run("salvage", "--output", "good.jsonl") == 1
    assert capsys.readouterr().err == "39 records written to good.jsonl, 1 lost\n"
    assert Path("records.db").read_bytes() == content, "the damaged store stays as it is"
    Path("records.db").unlink()
    assert run("import", "good.jsonl") == 0
    assert stored() < {each.id for each in good} and len(stored()) == 39


def test_nothing_is_written_for_a_file_without_records(directory: Path) -> None:
    (directory / "records.db").write_bytes(os.urandom(100_000))
    with pytest.raises(InputError, match=r"records\.db: it contains no intact record"):
        run("salvage", "--output", "good.jsonl")
    assert not (directory / "good.jsonl").exists()
    with pytest.raises(InputError, match="only SQLite files can be salvaged"):
        cli.run(["records", "salvage", "--store", "postgresql://host/x", "--output", "good.jsonl"])
