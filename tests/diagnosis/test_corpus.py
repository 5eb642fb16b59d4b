"""Every fault that was made beside a real TensorFlow is named first, from the lines that it printed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from validator.diagnosis import causes, diagnose_log

LOGS = Path(__file__).parents[1] / "data" / "logs"
ROWS = yaml.safe_load((LOGS / "index.yaml").read_text(encoding="utf-8"))
#: In the index for what claims no cause: lines that show no fault, and lines that tell too little.
NO_CAUSE = ("benign_only", "unknown")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["file"])
def test_the_cause_comes_first(row: dict[str, str]) -> None:
    found = diagnose_log((LOGS / row["file"]).read_text(encoding="utf-8"))
    codes = [cause.code for cause in found.causes]
    if row["cause"] in NO_CAUSE:
        assert codes == []
        assert bool(found.unknown) is (row["cause"] == "unknown")
    else:
        assert codes[:1] == [row["cause"]]


def test_every_cause_of_the_index_is_one_that_is_known() -> None:
    assert {row["cause"] for row in ROWS} <= {entry.code for entry in causes()} | set(NO_CAUSE)


def test_the_three_releases_have_the_faults_of_most_causes() -> None:
    """What needs silicon, several machines or time can't be made; the rest is, in each of the three."""
    made = {
        release: {row["cause"] for row in ROWS if row.get("tensorflow") == release}
        for release in ("2.15.1", "2.18.1", "2.21.0")
    }
    assert all(len(causes) >= 25 for causes in made.values()), {
        key: len(value) for key, value in made.items()
    }
