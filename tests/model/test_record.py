from __future__ import annotations

import dataclasses

import pytest

from validator.model.record import Layer, Record, Verdict

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


def test_a_record_from_before_there_were_layers_keeps_its_id() -> None:
    assert RECORD.id == "8ac1d1947dfd3f0ae62b3c2f02d16a88"
    assert "layers" not in RECORD.as_json()


def test_layers_are_part_of_a_record() -> None:
    layered = dataclasses.replace(RECORD, layers=[Layer("sha256:11", 7).as_json()])
    assert layered.id != RECORD.id
    assert Record.from_json(layered.as_json()) == layered


@pytest.mark.parametrize(
    "layers", [7, ["sha256:11"], [{"digest": "sha256:11"}], [{"digest": "sha256:11", "size": "many"}], [{}]]
)
def test_layers_that_are_none_are_refused(layers: object) -> None:
    with pytest.raises(ValueError, match="not a record"):
        Record.from_json(RECORD.as_json() | {"layers": layers})
