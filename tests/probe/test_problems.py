"""The catalogue of codes, and the sentences made from it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from validator import probe, problems
from validator.problems import ADVISORY, CATALOGUE, EITHER, FAULT, LIMIT, TYPES, VOCABULARIES

#: Formats with the name of an identifier.
FORMATS = {*VOCABULARIES, "and", "q", "g", "MiB", "spread"}
#: A value for each type of field.
SAMPLES: dict[str, Any] = {
    "text": "x.y",
    "quoted": "cannot open shared object file",
    "integer": 3,
    "number": 0.25,
    "flag": True,
    "texts": ["first", "second"],
    "object": {"median": 0.7, "q1": 0.6, "q3": 0.8},
    "objects": [
        dict.fromkeys(
            ("name", "version", "value", "path", "soname", "found_by", "compute_capability", "rank"), "x.y"
        )
    ],
}
#: For fields whose objects a function reads.
OBJECTS: dict[str, Any] = {
    "step_ran_on_gpu": {"code": "profiler_saw_nothing"},
    "kernels_run": [
        {"name": "NVIDIA L4", "compute_capability": "8.9", "kernels": "jit", "units": 9, "compiled": 2,
         "without": 1, "isa": "8.4", "certain": False},
    ],
    "policies_train": [{"type": "float16", "speedup": SAMPLES["object"], "tensor_cores": True}],
}  # fmt: skip


def sample(code: str, empty: bool = False) -> dict[str, Any]:
    """Return an entry with a value for every field; empty: null for those that may be null."""
    kind = CATALOGUE[code]
    fields = {
        name: None if empty and type_.endswith("?") else SAMPLES[type_.rstrip("?")]
        for name, type_ in kind.fields.items()
    }
    if code in OBJECTS:
        fields.update(
            {name: OBJECTS[code] for name, type_ in kind.fields.items() if type_.startswith("object")}
        )
    if code == "clusters_made":
        # On a CPU there are both of its nullable fields, on a GPU neither.
        fields["device_type"] = "GPU" if empty else "CPU"
    return {"code": code, "severity": FAULT, **fields}


def broken_laws(code: str) -> Iterator[str]:
    """Yield the laws of the catalogue that a row breaks."""
    kind = CATALOGUE[code]
    templates = [kind.about, re.sub(r"[\[\]]", "", kind.template or "")]
    parsed = [part for template in templates for part in Formatter().parse(template)]
    if not re.fullmatch(r"[a-z][a-z0-9_]*", code):
        yield "the code is not an identifier"
    if kind.severity not in (FAULT, ADVISORY, LIMIT, EITHER, None):
        yield f"there is no severity {kind.severity}"
    if not {type_.rstrip("?") for type_ in kind.fields.values()} <= set(TYPES):
        yield "a field has an unknown type"
    if {"code", "severity"} & kind.fields.keys():
        yield "a field has a reserved name"
    if not {name for _, name, _, _ in parsed if name} <= kind.fields.keys():
        yield "a template names a field that the row doesn't have"
    # Vocabularies are named like formats; a misspelt one would be taken for a number's format.
    if not {spec for _, _, spec, _ in parsed if spec and spec.isidentifier()} <= FORMATS:
        yield "a template names an unknown format"
    for entry in (sample(code), sample(code, empty=True)):
        said = problems.sentence(entry)
        if said.startswith(code.replace("_", " ") + " ("):
            yield f"the sentence can't be made: {said}"
        if re.search(r"[\[\]{}$]|\.$|  |^\s|\s$|None| [;,]", said):
            yield f"the sentence is not well formed: {said}"


def test_every_row_obeys_the_laws_of_the_catalogue() -> None:
    assert len(CATALOGUE) > 200
    assert [f"{code}: {law}" for code in CATALOGUE for law in broken_laws(code)] == []


def test_an_unknown_code_gives_a_readable_text() -> None:
    entry = {"code": "gpu_on_fire", "severity": FAULT, "gpu": "NVIDIA L4", "kelvin": 900}
    assert problems.sentence(entry) == "gpu on fire (gpu: NVIDIA L4, kelvin: 900)"
    assert problems.sentence({}) == "unknown problem"


def test_a_known_code_without_its_fields_gives_a_readable_text() -> None:
    assert problems.sentence({"code": "device_file_missing"}) == "device file missing"
    assert problems.sentence({"code": "kernels_run", "gpus": [{}]}) == "kernels run (gpus: [{}])"
    wrong_type = {"code": "driver_answers", "driver": "535", "cuda": "12.2", "gpus": None}
    assert problems.sentence(wrong_type) == "the driver answers: release 535, CUDA 12.2, None GPUs"


def test_a_sentence_about_a_variable_names_it_and_its_clause_does_not() -> None:
    entry = problems.problem(
        "visible_devices_hides_all_gpus", FAULT, variable="CUDA_VISIBLE_DEVICES", value="-1", entry="-1"
    )
    assert problems.clause(entry) == "'-1' names no GPU, so CUDA hides every GPU"
    assert problems.sentence(entry) == f"CUDA_VISIBLE_DEVICES='-1': {problems.clause(entry)}"
    assert problems.clause({**entry, "value": "", "entry": None}) == "CUDA hides every GPU"


def test_a_long_value_is_cut_where_it_is_quoted() -> None:
    said = problems.sentence({**sample("keras_backend_unknown"), "value": "x" * 500})
    assert len(said) < 200
    assert "...'" in said


def test_the_severity_of_a_problem_is_that_of_the_catalogue() -> None:
    assert problems.problem("device_file_missing", path="/dev/nvidia0")["severity"] == FAULT
    assert problems.problem("tf32_off", variable="x", value="0")["severity"] == ADVISORY


def test_a_summary_puts_the_faults_before_the_advisories() -> None:
    missing = problems.problem("device_file_missing", path="/dev/nvidia0")
    small = problems.problem("shared_memory_small", bytes=64 << 20)
    passed = {
        "outcome": "pass",
        "statement": {"code": "gpus_agree", "devices": "2 GPUs"},
        "problems": [small],
    }
    assert problems.summary({"problems": [small, missing], "statement": None}) == (
        "/dev/nvidia0 is missing; note: /dev/shm is too small or missing: 64 MiB; NCCL may need more"
        " (docker run --shm-size=1g)"
    )
    assert problems.summary(passed).startswith(
        "NCCL's sums are right, and MirroredStrategy on 2 GPUs gives the same step as"
    )
    assert problems.summary({}) == ""


def test_a_summary_repeats_nothing_and_is_cut() -> None:
    entries = [
        problems.problem("device_file_missing", path=f"/dev/nvidia{n}") for n in (0, 0, 1, 2, 3, 4, 5, 6)
    ]
    assert problems.summary({"problems": entries}).count("missing") == 5
    assert problems.summary({"problems": entries}).endswith("; and 2 more")


@pytest.mark.parametrize(
    ("template", "entry", "said"),
    [
        ("{count:count GPU}", {"count": 1}, "1 GPU"),
        ("{count:count GPU}", {"count": 2}, "2 GPUs"),
        ("{count:count sub-library}", {"count": 1}, "1 sub-library"),
        ("{count:count sub-library}", {"count": 8}, "8 sub-libraries"),
        ("{files:each $path ($why)}", {"files": [{"path": "a", "why": "b"}, {"path": "c", "why": "d"}]},
         "a (b), c (d)"),
        ("{files:and $path}", {"files": [{"path": "a"}, {"path": "c"}]}, "a and c"),
        ("{names}", {"names": ["a", "b"]}, "a, b"),
        ("{ratio:spread}", {"ratio": {"median": 0.5, "q1": 0.5, "q3": 0.75}}, "0.50 (0.50 to 0.75)"),
        ("{ratio:spread}", {"ratio": None}, "unknown"),
        ("{names:and}", {"names": ["a", "b"]}, "a and b"),
        ("{size:MiB}", {"size": 3 << 20}, "3 MiB"),
        ("{share:.0%}[ of {whole}]", {"share": 0.5, "whole": None}, "50%"),
        ("{difference:.1e}", {"difference": "inf"}, "inf"),
        ("{phase:phase}", {"phase": "import"}, ", while TensorFlow was being imported"),
        ("{phase:phase}", {"phase": "later"}, "later"),
    ],
)  # fmt: skip
def test_formats(template: str, entry: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOGUE, "tried", problems.Kind(template, None, "", {}, ""))
    assert problems.sentence({"code": "tried", **entry}) == said


PROBE = Path(probe.__file__).parent


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    """Yield every call of `problem` and `statement` in the probe, with its place."""
    for path in sorted(PROBE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            function = node.func if isinstance(node, ast.Call) else None
            if isinstance(function, ast.Name) and function.id in ("problem", "statement"):
                assert isinstance(node, ast.Call)
                yield f"{path.name}:{node.lineno}", function.id, node


def wrong_call(function: str, call: ast.Call) -> str | None:
    """Return what is wrong with a call according to the catalogue, or None."""
    code = call.args[0]
    assert isinstance(code, ast.Constant) and isinstance(code.value, str)
    kind = CATALOGUE.get(code.value)
    if kind is None:
        return f"unknown code {code.value}"
    if (kind.severity is None) != (function == "statement"):
        return f"{code.value} is not a {function}"
    if (kind.severity == EITHER) != (len(call.args) > 1):
        return f"{code.value}: the severity is passed exactly where the catalogue leaves it open"
    given = {keyword.arg for keyword in call.keywords}
    # The check `environment` adds these two to every problem of a variable.
    wanted = kind.fields.keys() - ({"variable", "value"} if kind.group == "environment" else set())
    if None in given:  # **fields
        return None if given - {None} <= wanted else f"{code.value}: {given - wanted}"
    return None if given == wanted else f"{code.value}: {given} instead of {set(wanted)}"


def test_the_checks_only_report_codes_of_the_catalogue() -> None:
    named = [
        (place, function, call) for place, function, call in calls() if isinstance(call.args[0], ast.Constant)
    ]
    wrong = {place: wrong_call(function, call) for place, function, call in named}
    assert {place: what for place, what in wrong.items() if what} == {}
    assert len(named) > 150


def test_every_code_of_the_catalogue_is_reported_by_a_check() -> None:
    sources = "".join(
        path.read_text(encoding="utf-8") for path in [*PROBE.rglob("*.py"), *(PROBE / "data").glob("*.json")]
    )
    assert [code for code in CATALOGUE if f'"{code}"' not in sources] == []
