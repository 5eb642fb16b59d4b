from __future__ import annotations

import dataclasses

import pytest

from validator.model.record import Record, Verdict

RECORD = Record(
    cell="tf2.21.0-cpu-py311@no-gpu",
    image="tf2.21.0-cpu-py311",
    host_class="no-gpu",
    verdict=Verdict.UNPROVEN,
    reason="no GPU",
    engine="venv",
    lock_digest="sha256:00",
    image_digest=None,
    probe_version="1+abc",
    started="2026-01-01T00:00:00+00:00",
    finished="2026-01-01T00:01:00+00:00",
    key="k",
    host={"kernel": "6.1"},
)


def test_json_and_back() -> None:
    assert Record.from_json(RECORD.as_json()) == RECORD


def test_the_documented_fields_are_there() -> None:
    wanted = {
        "id",
        "cell",
        "verdict",
        "engine",
        "image_digest",
        "lock_digest",
        "host",
        "checks",
        "started",
        "finished",
    }
    assert wanted <= RECORD.as_json().keys()


def test_the_id_is_of_the_content() -> None:
    assert dataclasses.replace(RECORD).id == RECORD.id
    assert dataclasses.replace(RECORD, reason="something else").id != RECORD.id


def test_an_altered_record_is_refused() -> None:
    document = RECORD.as_json() | {"verdict": "certified"}
    with pytest.raises(ValueError, match="it was altered"):
        Record.from_json(document)


@pytest.mark.parametrize("change", [{"verdict": "splendid"}, {"surplus": 1}, {"cell": None}])
def test_what_is_no_record_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="record"):
        Record.from_json(RECORD.as_json() | change)


def test_a_missing_field_is_refused() -> None:
    document = RECORD.as_json()
    del document["cell"]
    with pytest.raises(ValueError, match="not a record"):
        Record.from_json(document)
