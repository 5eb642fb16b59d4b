from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest

from validator.model import codec
from validator.model.prediction import Limit
from validator.model.report import (
    CheckOutcome,
    Finding,
    ReportError,
    check_of,
    read_report,
    report_of,
)
from validator.problems import summary

from ..certify.fixtures import LIMIT, limited_check, with_limits
from ..certify.fixtures import record as measured
from ..certify.fixtures import report as found


def deep(levels: int) -> list[Any]:
    return [deep(levels - 1)] if levels else []


def document(**changes: Any) -> dict[str, Any]:
    base = {
        "format": 2,
        "probe": {"version": "1+abc"},
        "started": "2026-01-01T00:00:00Z",
        "finished": "2026-01-01T00:00:09Z",
        "host": {"gpus": []},
        "environment": {"python": "3.11.2"},
        "checks": [{"id": "driver", "outcome": "skip", "required": True}],
    }
    return base | changes


def test_a_report_is_read() -> None:
    report = report_of(document())
    check = report.check("driver")
    assert check is not None
    assert check.outcome is CheckOutcome.SKIP
    assert check.required
    assert report.check("xla_train_step") is None


def test_the_challenge_of_a_report_is_read_and_may_be_missing() -> None:
    assert report_of(document()).challenge is None
    assert report_of(document(challenge="ab" * 32)).challenge == "ab" * 32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"challenge": 7}, "challenge: expected `str | null`, got `int`"),
        ({"format": 3}, "the report has format 3; this version reads 2"),
        ({"format": 1}, "the report has format 1; this version reads 2"),
        ({"format": True}, "the report has format True"),
        ({"format": None}, "the report has format None"),
        ({"checks": {}}, "checks: expected `array`, got `object`"),
        ({"checks": [1]}, "checks[0]: expected `object`, got `int`"),
        (
            {"checks": [{"id": "a", "outcome": "fine"}]},
            "checks[0].outcome: invalid enum value",
        ),
        (
            {"checks": [{"id": "a", "outcome": "pass", "required": "yes"}]},
            "checks[0].required: expected `bool`, got `str`",
        ),
        (
            {"checks": [{"id": "a", "outcome": "pass", "duration_s": "1"}]},
            "checks[0].duration_s: expected `float`, got `str`",
        ),
        ({"checks": [{"outcome": "pass"}]}, "checks[0].id: missing"),
        (
            {"checks": [{"id": "a", "outcome": "pass", "evidence": []}]},
            "checks[0].evidence: expected `object`, got `array`",
        ),
        ({"probe": {}}, "probe.version: missing"),
        ({"host": None}, "host: expected `object`, got `null`"),
        ({"host": {"gpus": [{}, 7]}}, "host.gpus[1]: expected `object`, got `int`"),
        ({"environment": {"packages": {"keras": 3}}}, "environment.packages[...]: expected `str`, got `int`"),
        ({"host": {"memory_bytes": 10**400}}, "host.memory_bytes: the number is not finite or does not fit"),
        ({"logs": {"deep": deep(70)}}, "it is nested more than 64 levels deep"),
        ({"fixture": 1}, "fixture: expected `bool`, got `int`"),
    ],
)
def test_anything_but_a_report_is_rejected_with_the_place(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ReportError) as caught:
        report_of(document(**changes))
    assert message in str(caught.value)


def test_a_report_must_be_an_object() -> None:
    with pytest.raises(ReportError, match="the report: expected `object`, got `array`"):
        report_of([])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is not JSON: "),
        ("{", "it is not JSON: "),
        (b"\xff\xfe\x00", "it is not JSON: "),
        ("[" * 100_000, "it is nested more than 64 levels deep"),
        ("[" * 65 + "]" * 65, "it is nested more than 64 levels deep"),
        ('{"host": {"memory_bytes": 1' + "0" * 400 + "}}", "host.memory_bytes: the number is not finite"),
        ('{"host": {"memory_bytes": 1' + "0" * 9000 + "}}", "host.memory_bytes: the number is not finite"),
        ('{"checks": [{"evidence": {"loss": NaN}}]}', "checks[0].evidence.loss: the number is not finite"),
        ('{"checks": [{"evidence": {"loss": 1e400}}]}', "checks[0].evidence.loss: the number is not finite"),
        ('{"checks": [-Infinity]}', "checks[0]: the number is not finite"),
        ('{"a": 18446744073709551616}', "a: the number is not finite or does not fit in 64 bits"),
        ('{"a": -9223372036854775809}', "a: the number is not finite or does not fit in 64 bits"),
        (" " * (codec.LARGEST + 1), "it is larger than 64 MiB"),
    ],
)
def test_a_document_outside_the_limits_is_rejected(text: str | bytes, message: str) -> None:
    with pytest.raises(ReportError) as caught:
        read_report(text)
    assert message in str(caught.value)


def test_the_limits_themselves_are_accepted() -> None:
    assert codec.parse('{"a": 18446744073709551615, "b": -9223372036854775808}')
    assert codec.parse("[" * 64 + "]" * 64)


def test_only_mappings_are_encoded_as_objects() -> None:
    assert codec.encode({"a": MappingProxyType({"b": (1,)})}) == {"a": {"b": (1,)}}
    for other in (iter(()), (pair for pair in [("a", 1)]), object()):
        with pytest.raises(TypeError, match="can't be encoded"):
            codec.encode({"a": other})


def test_lone_surrogates_are_kept() -> None:
    written = json.dumps(document(environment={"variables": {"LD_PRELOAD": "/x\udcff.so", "\udc80": ""}}))
    assert read_report(written).environment.variables["LD_PRELOAD"] == "/x\udcff.so"


STATEMENT = {"code": "driver_answers", "driver": "580.65.06", "cuda": "13.0", "gpus": 2}
FAULT = {"code": "cuda_library_is_stub", "severity": "fault", "path": "/x/libcuda.so.1"}
UNKNOWN = {"code": "of_a_newer_probe", "severity": "advisory", "what": "it"}


def with_codes(**changes: Any) -> dict[str, Any]:
    check = {"id": "xla_train_step", "outcome": "fail", "problems": [], "evidence": {"device_type": "GPU"}}
    return document(checks=[check | changes])


def test_a_check_has_codes_from_which_the_sentence_is_made() -> None:
    (check,) = report_of(with_codes(statement=STATEMENT, problems=[FAULT, UNKNOWN])).checks
    assert check.statement == Finding("driver_answers", None, STATEMENT)
    assert [(found.code, found.severity) for found in check.problems] == [
        ("cuda_library_is_stub", "fault"),
        ("of_a_newer_probe", "advisory"),
    ]
    assert check.sentence == summary({"statement": STATEMENT, "problems": [FAULT, UNKNOWN]})
    assert "the toolkit's stub" in check.sentence
    assert "of a newer probe (what: it)" in check.sentence


def test_a_record_keeps_codes_and_not_the_sentence() -> None:
    (check,) = report_of(with_codes(statement=STATEMENT, problems=[FAULT], summary="a lie")).checks
    recorded = check.recorded()
    assert recorded == {
        "id": "xla_train_step",
        "outcome": "fail",
        "statement": STATEMENT,
        "problems": [FAULT],
        "required": False,
        "evidence": {"device_type": "GPU"},
        "duration_s": 0.0,
    }
    again = check_of(json.loads(json.dumps(recorded)))
    assert again.recorded() == recorded
    assert (again.sentence, again.evidence) == (check.sentence, check.evidence)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"evidence": {"device_type": 7}},
            "checks[0].evidence.device_type: expected `str | null`, got `int`",
        ),
        ({"problems": {}}, "checks[0].problems: expected `array`, got `object`"),
        ({"problems": ["a sentence"]}, "checks[0].problems[0]: expected `object`, got `str`"),
        ({"problems": [{"severity": "fault"}]}, "checks[0].problems[0].code: missing"),
        ({"statement": "a sentence"}, "checks[0].statement: expected `object`, got `str`"),
        ({"statement": {"code": 5}}, "checks[0].statement.code: expected `str`, got `int`"),
    ],
)
def test_codes_and_evidence_are_typed(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ReportError) as caught:
        report_of(with_codes(**changes))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workers": "2"}, "workers: expected `int | null`, got `str`"),
        ({"ranks": {"rank": 1}}, "ranks: expected `array`, got `object`"),
        ({"ranks": [{"rank": "1"}]}, "ranks[0].rank: expected `int | null`, got `str`"),
        ({"step": [1]}, "step: expected `object | null`, got `array`"),
        ({"seconds": {"join": "soon"}}, "expected `float | null`, got `str`"),
    ],
)
def test_the_evidence_of_several_workers_is_typed(changes: dict[str, Any], message: str) -> None:
    right = {
        "device_type": "GPU",
        "workers": 2,
        "rank": 0,
        "ranks": [{"rank": 1, "address": "node2:1", "stage": "end", "newer": [1]}],
        "communication": "NCCL",
        "step": {"replicas": 2, "losses": [1.0, 0.5]},
        "seconds": {"join": 0.5, "train": None},
    }
    check = {"id": "multi_worker", "outcome": "pass", "evidence": right}
    assert report_of(document(checks=[check])).checks[0].evidence.raw == right
    with pytest.raises(ReportError) as caught:
        report_of(document(checks=[check | {"evidence": right | changes}]))
    assert message in str(caught.value)


def test_fields_of_a_newer_probe_are_kept() -> None:
    made = with_codes(evidence={"device_type": "GPU", "newer": [1]}, newer=1) | {"newer": {"of": "it"}}
    report = report_of(made)
    assert report.raw == made
    assert report.checks[0].evidence.raw == {"device_type": "GPU", "newer": [1]}


@pytest.mark.parametrize("outcome", list(CheckOutcome))
def test_only_a_check_that_passed_has_limits(outcome: CheckOutcome) -> None:
    limited = with_limits(found(), LIMIT, LIMIT)
    check = next(check for check in limited["checks"] if check["id"] == "xla_convolution")
    check["outcome"] = outcome.value
    check["problems"].append({**UNKNOWN, "gpu": "x", "error": "y"})
    expected = (LIMIT, LIMIT) if outcome is CheckOutcome.PASS else ()
    assert check_of(check).limits == report_of(limited).limits == expected
    assert measured("sha256:" + "1" * 64, found=limited).limits == expected


def test_a_limit_is_one_line_that_names_what_fails() -> None:
    assert check_of(limited_check(LIMIT)).limits[0].sentence == (
        "xla_convolution_float32: a convolution with bias and activation, compiled by XLA, fails only in full"
        " float32 (TensorFloat-32 off) on NVIDIA H100 80GB HBM3: no algorithm worked"
    )
    endless = Limit("of_a_newer_probe", "NVIDIA\nH200", "no\n\talgorithm" + "." * 1000)
    assert endless.sentence.startswith("of_a_newer_probe: of a newer probe (gpu: NVIDIA H200, error: no")
    assert len(endless.sentence.splitlines()) == 1 and len(endless.sentence) < 300
