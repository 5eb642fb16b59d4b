"""A CUDA error has its code and one name, whatever of them the text has."""

from __future__ import annotations

import pytest

from validator.diagnosis import causes, diagnose_log, observe, text
from validator.diagnosis.catalogue import CUDA_ERROR, catalogue, completed, section

ERRORS = section("cuda_errors")


@pytest.mark.parametrize("row", ERRORS, ids=lambda row: row["code"])
def test_the_code_and_either_name_give_the_same(row: dict[str, str]) -> None:
    whole = {"code": row["code"], "name": row["name"]}
    for known in ({"code": row["code"]}, {"name": row["name"]}, {"name": row["runtime"]}):
        assert completed(CUDA_ERROR, {**known, "place": "init"}) == {**whole, "place": "init"}
        assert completed("xid", known) == known


def test_an_unknown_error_stays_as_it_is() -> None:
    assert completed(CUDA_ERROR, {"code": "-1"}) == {"code": "-1"}
    assert completed(CUDA_ERROR, {"name": "CUDA_ERROR_NEW"}) == {"name": "CUDA_ERROR_NEW"}
    assert completed(CUDA_ERROR, {"name": "UNKNOWN ERROR (303)", "code": "303"})["name"] == (
        "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED"
    )


def test_every_code_and_name_is_unique() -> None:
    for field in ("code", "name", "runtime"):
        values = [row[field] for row in ERRORS]
        assert len(set(values)) == len(values), field


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("failed call to cuInit: UNKNOWN ERROR (303)", {"code": "303", "place": "cuinit"}),
        ("failed call to cuInit: CUDA_ERROR_NO_DEVICE: none", {"code": "100", "place": "cuinit"}),
        ("cuInit(0) returned 100", {"name": "CUDA_ERROR_NO_DEVICE", "place": "cuinit"}),
        ("CUDA initialization: Error 802: system not yet initialized", {"code": "802", "place": "init"}),
        ("[[ Forward compatibility (error 804) ]]", {"code": "804", "place": "image"}),
        ("RuntimeError: CUDA error: misaligned address", {"code": "716"}),
    ],
)
def test_a_line_shows_the_code_the_name_and_the_place(line: str, expected: dict[str, str]) -> None:
    found = observe.observe(text.read_text(line), catalogue()).of(CUDA_ERROR)
    assert any(
        expected.items() <= one.values.items() and {"code", "name"} <= set(one.values) for one in found
    )


def test_every_error_in_a_condition_is_in_the_table() -> None:
    known = {field: {row[field] for row in ERRORS} for field in ("code", "name")}
    asked = [
        (field, wanted.text)
        for entry in causes()
        for sign in entry.signs
        for one in sign.when.comparisons()
        if one.kind == CUDA_ERROR
        for field in known
        for wanted in one.values.get(field, ())
    ]
    assert len(asked) > 20
    assert [one for one in asked if one[1] not in known[one[0]]] == []


@pytest.mark.parametrize(
    ("printed", "code"),
    [
        ("failed call to cuInit: UNKNOWN ERROR (803)", "driver_library_mismatch"),
        ("failed call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "driver_library_mismatch"),
        ("CUDA initialization: Error 803: system has unsupported display driver", "driver_library_mismatch"),
        ("cuInit(0) failed with error code: 999", "driver_state_needs_reload"),
        ("failed call to cuInit: CUDA_ERROR_UNKNOWN: unknown error", "driver_state_needs_reload"),
        ("failed call to cuInit: UNKNOWN ERROR (100)", "visible_devices_misset"),
        ("failed call to cuInit: CUDA_ERROR_NO_DEVICE", "visible_devices_misset"),
        ("cudaErrorDevicesUnavailable", "gpu_memory_held_by_other_process"),
        ("failed call to cuInit: UNKNOWN ERROR (46)", "gpu_memory_held_by_other_process"),
    ],
)
def test_the_form_of_an_error_does_not_change_the_cause(printed: str, code: str) -> None:
    assert [cause.code for cause in diagnose_log(printed).causes][:1] == [code]
