"""Test the text of the issue about regressions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from validator import cli
from validator.errors import EXIT_FAILED
from validator.model.diagnosis import Diagnosis
from validator.model.record import Record, Verdict
from validator.records.history import Decline
from validator.records.store import Store
from validator.reports.changes import LIMIT, issue

from ..corpus.reader import REPORTS
from ..records.values import proven
from .test_diagnosis import cause, diagnosis, outside_of_code

#: A report of a container that was given no GPU.
NO_GPU = REPORTS / "no-gpu-tf2.21.0-cuda12.5-cudnn9.3-py311.json"
DIGEST = "sha256:" + "a" * 64


def decline(cell: str = "tf2.21.0-cuda12.5-cudnn9.3-py312@r580-h100", **changes: Any) -> Decline[Record]:
    """Make the decline of a certified cell as plain values."""
    image, _, host = cell.partition("@")
    fields: dict[str, Any] = {
        "cell": cell,
        "image": image,
        "host_class": host,
        "verdict": Verdict.CERTIFIED,
        "reason": "all required checks passed on NVIDIA H100",
        "engine": "docker",
        "lock_digest": "sha256:01",
        "image_digest": DIGEST,
        "probe_version": "1",
        "started": "2026-11-01T01:00:00+00:00",
        "finished": "2026-11-01T01:10:00+00:00",
        "key": "k",
        "host": {"driver": "580.65.06"},
    }
    later = {
        "verdict": Verdict.FAILED,
        "reason": "cudnn_load: it does not load",
        "finished": "2026-11-20T01:10:00+00:00",
        "host": {"driver": "580.82.07"},
    }
    bad = Record(**(fields | later | changes))
    return Decline(newest=bad, last_good=Record(**fields), first_bad=bad, between=0)


def diagnosing(found: Diagnosis | None) -> Callable[[Record], Diagnosis | None]:
    return lambda _: found


def test_the_cells_their_cause_and_the_last_good_image_are_named() -> None:
    text = issue([decline(), decline("b@r535-a100")], diagnosing(diagnosis(cause())))
    assert text.startswith("2 cells are worse than before.")
    row = f"| `b@r535-a100` | certified | failed | `2026-11-20T01:10` | `{DIGEST}` |"
    assert row in text.splitlines()
    assert "## `cause_1`\n\n`tf2.21.0-cuda12.5-cudnn9.3-py312@r580-h100`, `b@r535-a100`\n" in text
    assert "driver: 580.65.06 -> 580.82.07" in text
    assert "sudo modprobe nvidia" in text, "the remedy"
    assert text.count("It means") == 1, "one cause of two cells is told once"


def test_the_reason_is_shown_without_a_known_cause() -> None:
    text = issue([decline()], diagnosing(None))
    assert "## no known cause" in text
    assert "```text\ncudnn_load: it does not load\n```" in text


def test_a_cell_with_no_image_says_none() -> None:
    good = decline()
    never = Decline(good.newest, None, good.newest, 0)
    assert "| failed |" in issue([never], diagnosing(None))


MARKUP = "<img src=x> [a](b) @org/team #12 https://evil.example/x www.evil.example ``` | `` end"


@example(MARKUP)
@example(":/|/")
@example("``<0")
@given(st.text(st.characters(), max_size=60) | st.text("`~<>/@#|[]()!:w. \n", max_size=40))
def test_text_of_a_record_is_not_markup_a_mention_or_a_link(hostile: str) -> None:
    found = decline(
        f"x{hostile}@r580-h100",
        reason=hostile,
        image_digest=hostile,
        finished=hostile or "-",
        host={"driver": hostile},
    )
    text = issue([found], diagnosing(diagnosis(cause(title=f"seen: {hostile}"))))
    text.encode()
    # As CommonMark reads a line: what is escaped, or a span of code, whichever comes first.
    outside = re.sub(r"\\[^\n]|(`+)(?!`).*?(?<!`)\1(?!`)", " ", outside_of_code(text))
    outside = re.sub(r"<sub>Sources: .*</sub>|&#8203;", " ", outside)
    assert re.findall(r"[@#]\w", outside) == []
    assert "://" not in outside
    assert re.search(r"(?i)www\.", outside) is None
    assert re.findall(r"</?\w+", outside) == re.findall(r"</?(?:details|summary)", outside)
    assert "\x1b" not in text


def test_names_of_people_and_machines_are_removed() -> None:
    where = "/home/hildegardzq/venv is not there; ask hildegardzq"
    assert "hildegardzq" not in issue([decline(reason=where)], diagnosing(None))


@pytest.mark.parametrize("count", [1, 90, 300])
def test_it_fits_into_an_issue(count: int) -> None:
    codes = iter(range(10_000))
    found = [decline(f"tf{number}@r580-h100", reason="long " * 1000) for number in range(count)]
    text = issue(found, lambda _: diagnosis(cause(number=next(codes), means="word " * 400)))
    assert len(text) < LIMIT + 1000 < 65_536
    assert ("left out to save space" in text) is (count > 1)
    assert outside_of_code(text)


def test_the_command_writes_the_issue_from_a_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = json.loads(NO_GPU.read_text())
    found = decline(report=report, checks=[])
    arguments = ["records", "regressions", "--since", "2026-11-10", "--format", "issue", "--store"]
    with Store(str(tmp_path / "records.db")) as store:
        assert found.last_good is not None
        good = msgspec.structs.replace(
            found.last_good, verdict=Verdict.WORKS_ON_CPU, image="tf2.21.0-cpu-py312"
        )
        store.add(proven(good))
        store.add(found.newest)
    assert cli.run([*arguments, str(tmp_path / "records.db")]) == EXIT_FAILED
    text = capsys.readouterr().out
    assert text.startswith("1 cell is worse than before.")
    assert DIGEST in text
    assert "Mend" not in text and "lspci -d 10de:" in text, "the remedy of what the report shows"
    assert (
        cli.run([*arguments, str(tmp_path / "records.db"), "--measured-since", "2026-11-20"]) == EXIT_FAILED
    )
    assert cli.run([*arguments, str(tmp_path / "records.db"), "--measured-since", "2026-11-21"]) == 0
    Store(str(tmp_path / "empty.db")).close()
    assert cli.run([*arguments, str(tmp_path / "empty.db")]) == 0
