from __future__ import annotations

import msgspec
import pytest

from validator.model.record import Layer, Record, Verdict, record_of

from ..support import said

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


def test_a_record_is_read_back_from_its_json() -> None:
    assert record_of(RECORD.document()) == RECORD


def test_the_json_has_the_documented_fields() -> None:
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
    assert wanted <= RECORD.document().keys()


def test_the_id_depends_on_the_content() -> None:
    assert msgspec.structs.replace(RECORD).id == RECORD.id
    assert msgspec.structs.replace(RECORD, reason="something else").id != RECORD.id


def test_one_result_is_read_as_all_are() -> None:
    checks = [
        {"id": name, "outcome": "skip", **said("not run", "skip"), "duration_s": 0.1}
        for name in ("first", "second")
    ]
    record = msgspec.structs.replace(RECORD, checks=checks)
    assert record.result("second") == record.results[1]
    assert record.result("third") is None


def test_an_altered_record_is_rejected() -> None:
    document = RECORD.document() | {"verdict": "certified"}
    with pytest.raises(ValueError, match="it was altered"):
        record_of(document)


@pytest.mark.parametrize("change", [{"verdict": "splendid"}, {"surplus": 1}, {"cell": None}])
def test_anything_but_a_record_is_rejected(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="record"):
        record_of(RECORD.document() | change)


def test_a_missing_field_is_rejected() -> None:
    document = RECORD.document()
    del document["cell"]
    with pytest.raises(ValueError, match="not a record"):
        record_of(document)


def test_a_record_older_than_layers_keeps_its_id() -> None:
    assert RECORD.id == "8ac1d1947dfd3f0ae62b3c2f02d16a88"
    assert "layers" not in RECORD.document()


def test_a_measurement_is_part_of_a_record_that_has_one() -> None:
    assert "measurement" not in RECORD.document()
    measured = msgspec.structs.replace(RECORD, measurement='{"mediaType":"application/vnd.dev"}')
    assert measured.id != RECORD.id
    assert record_of(measured.document()) == measured


def test_layers_are_part_of_a_record() -> None:
    layered = msgspec.structs.replace(RECORD, layers=(Layer("sha256:11", 7),))
    assert layered.id != RECORD.id
    assert record_of(layered.document()) == layered


@pytest.mark.parametrize(
    "layers", [7, ["sha256:11"], [{"digest": "sha256:11"}], [{"digest": "sha256:11", "size": "many"}], [{}]]
)
def test_malformed_layers_are_rejected(layers: object) -> None:
    with pytest.raises(ValueError, match="not a record"):
        record_of(RECORD.document() | {"layers": layers})
