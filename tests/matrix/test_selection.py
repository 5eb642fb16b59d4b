"""Selectors: what each one matches, their laws, and the errors for wrong ones."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.errors import EXIT_INPUT
from validator.matrix.load import Matrix, SelectorError, load_matrix, parse_selector, parse_selectors
from validator.matrix.plan import expand
from validator.model.prediction import Outcome, Reason, decide

from .support import FILE, matrix

MATRIX = """\
  - tensorflow: ["2.21.0", "2.15.0", "2.15.0.post1", "2.15.1"]
    python: ["3.10", "3.11"]
    policy: [as-built, latest]
  - {tensorflow: "2.21.0", python: ["3.10", "3.11"], cudnn: "9.10", base: [default, "debian:13"]}
  - {tensorflow: "2.21.0", python: ["3.10", "3.11"], variant: cpu}
"""
HOSTS = """\
  - {driver: ["470", "535", "535.54.03", "580"], gpu: [t4, rtx-4090], compat: [none, "12.9"]}
  - {driver: "580", compute_capability: "9.0"}
"""


@functools.cache
def small() -> Matrix:
    return matrix(MATRIX, HOSTS)


@functools.cache
def selected(*texts: str) -> frozenset[str]:
    cells = expand(small(), None, select=parse_selectors(texts)).cells
    return frozenset(cell.identifier for cell in cells)


def images(*texts: str) -> list[str]:
    cells = expand(small(), None, select=parse_selectors(texts)).cells
    return list(dict.fromkeys(cell.image.identifier for cell in cells))


def hosts(*texts: str) -> list[str]:
    cells = expand(small(), None, select=parse_selectors(texts)).cells
    return list(dict.fromkeys(cell.host.identifier for cell in cells))


@pytest.mark.parametrize(
    ("selector", "releases"),
    [
        ("tensorflow=2.21", {"2.21.0"}),
        ("tensorflow=2", {"2.21.0", "2.15.1", "2.15.0.post1", "2.15.0"}),
        ("tensorflow=2.1", set()),
        ("tensorflow=2.15.0", {"2.15.0"}),
        ("tensorflow=2.15.0.post1", {"2.15.0.post1"}),
        ("tensorflow=2.15.0,2.21", {"2.15.0", "2.21.0"}),
        ("tensorflow==2.15", {"2.15.1", "2.15.0.post1", "2.15.0"}),
        ("tensorflow>2.15", {"2.21.0"}),
        ("tensorflow>=2.15.1", {"2.15.1", "2.21.0"}),
        ("tensorflow<=2.15", {"2.15.1", "2.15.0.post1", "2.15.0"}),
        ("tensorflow<2.15.0.post1", {"2.15.0"}),
        ("tensorflow != 2.15", {"2.21.0"}),
        ("tensorflow=newest", {"2.21.0"}),
        ("tensorflow=newest-patch", {"2.21.0", "2.15.1"}),
        ("tensorflow!=newest-patch", {"2.15.0", "2.15.0.post1"}),
    ],
)
def test_tensorflow(selector: str, releases: set[str]) -> None:
    assert {text.split("-")[0].removeprefix("tf") for text in images(selector)} == releases


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("python=3.10", {"py310"}),
        ("python=3.1", set()),
        ("python=3", {"py310", "py311"}),
        ("python=3.9,3.11", {"py311"}),
        ("python>3.9", {"py310", "py311"}),
        ("python<3.11", {"py310"}),
    ],
)
def test_python(selector: str, expected: set[str]) -> None:
    found = images(selector, "base=default")
    assert {text.rpartition("-")[2] for text in found} == expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("variant=cpu", ["tf2.21.0-cpu-py310"]),
        ("cuda=12.5", ["tf2.21.0-cuda12.5-cudnn9.3-py310", "tf2.21.0-cuda12.5-cudnn9.10-py310"]),
        ("cuda>=12.6", ["tf2.21.0-cudalatest-cudnnlatest-py310"]),
        ("cudnn<9.10", ["tf2.21.0-cuda12.5-cudnn9.3-py310"]),
        ("cudnn<9.11", ["tf2.21.0-cuda12.5-cudnn9.3-py310", "tf2.21.0-cuda12.5-cudnn9.10-py310"]),
        ("cudnn=9.1", []),
        ("cudnn!=9.3,9.10", ["tf2.21.0-cudalatest-cudnnlatest-py310", "tf2.21.0-cpu-py310"]),
        ("policy=as-built", ["tf2.21.0-cuda12.5-cudnn9.3-py310"]),
        ("policy=latest", ["tf2.21.0-cudalatest-cudnnlatest-py310"]),
        ("image=*cudnn9.3*", ["tf2.21.0-cuda12.5-cudnn9.3-py310"]),
        ("image=TF2.21.0-CPU-*", ["tf2.21.0-cpu-py310"]),
    ],
)
def test_image_axes(selector: str, expected: list[str]) -> None:
    assert images(selector, "tensorflow=2.21", "python=3.10", "base=default") == expected


def test_an_image_of_two_policies_matches_both() -> None:
    assert images("tensorflow=2.15.1", "policy=latest") == images("tensorflow=2.15.1", "policy=as-built")
    assert images("tensorflow=2.15.0", "policy=latest") == [
        "tf2.15.0-cudalatest-cudnnlatest-py310",
        "tf2.15.0-cudalatest-cudnnlatest-py311",
    ]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("driver=535", {"r535", "r535.54.03"}),
        ("driver>535", {"r580"}),
        ("driver>=535.183.01", {"r535", "r580"}),
        ("driver<535.183.01", {"r470", "r535.54.03"}),
        ("driver=535.54.03", {"r535.54.03"}),
        ("driver=R580", {"r580"}),
        ("driver!=535,580", {"r470", "no"}),
        ("gpu=t4", {"r470", "r535.54.03", "r535", "r580"}),
        ("host=r535-*", {"r535"}),
        ("compute_capability>=8.9", {"r470", "r535.54.03", "r535", "r580"}),
        ("compute_capability=9.0", {"r580"}),
    ],
)
def test_host_axes(selector: str, expected: set[str]) -> None:
    assert {text.split("-")[0] for text in hosts(selector)} == expected


def test_a_gpu_can_be_selected_by_any_of_its_names() -> None:
    assert hosts("gpu=rtx-4090") == hosts("gpu=NVIDIA GeForce RTX 4090") == hosts("gpu=rtx*") != []


def test_items_without_the_axis_are_unequal_and_have_no_order() -> None:
    assert "no-gpu" not in hosts("driver<9999")
    assert "no-gpu" in hosts("driver!=535")
    assert "r580-sm90" not in hosts("gpu=*")
    assert "r580-sm90" in hosts("gpu!=*")
    assert hosts("compat!=12.9", "compat=12.9") == []
    assert not any("cpu" in text for text in images("cuda>=0"))


def test_prediction() -> None:
    selector = parse_selector("prediction=works,unknown")
    found = [decide([Reason(outcome, "", "", "")]) for outcome in Outcome]
    assert [selector.holds(prediction) for prediction in found] == [True, False, True]
    works, xla_fails = Reason(Outcome.WORKS, "", "", ""), Reason(Outcome.FAILS, "", "", "", mode="xla")
    eager_only = decide([works, xla_fails])
    assert parse_selector("prediction=eager-only").holds(eager_only)
    assert not parse_selector("prediction=fails").holds(eager_only)


OPERATORS = ["=", "!=", "<", "<=", ">", ">="]
VERSIONS = {
    "tensorflow": ["2", "2.15", "2.21", "2.15.0", "2.15.1", "2.3"],
    "python": ["3", "3.1", "3.11"],
    "driver": ["470", "535", "535.54", "535.54.03", "535.183", "600"],
    "cudnn": ["8.9", "9", "9.10"],
}
WORDS = [
    "variant=cpu",
    "policy=latest",
    "gpu=t4",
    "gpu!=t4,rtx-4090",
    "host=r5*",
    "image=*py310",
    "base=debian*",
    "compat=12.9",
    "compute_capability>8",
]
TEXTS = [key + operator + version for key in VERSIONS for operator in OPERATORS for version in VERSIONS[key]]
AXES = st.sampled_from(TEXTS + WORDS)
EQUALS = st.sampled_from([text for text in TEXTS + WORDS if not any(char in text for char in "!<>")])


@given(AXES, AXES)
def test_two_selectors_are_the_same_as_one_after_the_other(one: str, other: str) -> None:
    assert selected(one, other) == selected(other, one) == selected(one) & selected(other)


@given(AXES)
def test_the_same_selector_twice_changes_nothing(one: str) -> None:
    assert selected(one, one) == selected(one) <= selected()


@given(EQUALS)
def test_unequal_matches_exactly_what_equal_does_not(one: str) -> None:
    other = one.replace("=", "!=")
    assert selected(one) | selected(other) == selected()
    assert selected(one) & selected(other) == set()


@given(
    st.sampled_from(["tensorflow", "driver", "cudnn", "compute_capability", "python"]),
    st.sampled_from(["2", "2.15", "2.15.0", "3.11", "9", "8.9", "9.3", "535", "535.54.03", "600"]),
)
def test_less_equal_and_greater_partition_the_items_with_the_axis(key: str, version: str) -> None:
    try:
        less, equal, greater = (selected(f"{key}{operator}{version}") for operator in ("<", "=", ">"))
    except SelectorError:
        return  # a version that this axis can't have
    assert len(less | equal | greater) == len(less) + len(equal) + len(greater)
    assert selected(f"{key}<={version}") == less | equal
    assert selected(f"{key}>={version}") == greater | equal
    assert selected(f"{key}!={version}") >= less | greater


@given(st.lists(st.sampled_from(["3.10", "3.11", "3.12"]), min_size=1))
def test_a_comma_means_or(versions: list[str]) -> None:
    either = selected(f"python={','.join(versions)}")
    assert either == set().union(*(selected(f"python={version}") for version in versions))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("python", "it has no operator (expected something like python=3.12)"),
        ("", "it has no operator (expected something like python=3.12)"),
        ("pyhton=3.12", 'the key "pyhton" is not known; the nearest are python and prediction'),
        ("=3.12", 'the key "" is not known'),
        ("python=>3.12", '"=>" is not an operator; use =, ==, !=, >=, <=, > and <'),
        ("python~=3.12", '"~=" is not an operator'),
        ("python=", "a value is missing"),
        ("python=3.11,", "a value is missing"),
        ("python=three", "it is not a version (expected something like 12.5)"),
        ("python=3.12.1", "it has more than 2 parts (write 3.12)"),
        ("python=٣", "it is not a version"),
        ("cudnn=9.10.2", "it has more than 2 parts (write 9.10)"),
        ("tensorflow>newest", "it is not a version (expected something like 2.21 or 2.21.0)"),
        ("tensorflow>=2.14,2.20", ">= takes one value; write a selector for each"),
        ("tensorflow=newst", "it is not a version"),
        ("driver>old", '"old" is not a driver release'),
        ("gpu=h1000", 'GPU "h1000" is not known; the nearest are H100, T1000'),
        ("gpu>t4", "gpu can't be compared by size; use = or !="),
        ("variant=tpu", '"tpu" is not known; the nearest are gpu and cpu'),
        ("policy=newest", '"newest" is not known; the nearest is latest'),
        ("prediction=yes", '"yes" is not known; choose from works, eager-only, fails and unknown'),
    ],
)
def test_a_wrong_selector_is_named(text: str, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_selector(text)
    assert str(caught.value).startswith(f'the selector "{text}": {message}')
    assert caught.value.exit_code == EXIT_INPUT


@given(st.text())
def test_any_text_is_a_selector_or_a_selector_error(text: str) -> None:
    try:
        selector = parse_selector(text)
    except SelectorError as error:
        assert str(error).isprintable()
    else:
        assert selector.text == text


@given(st.sampled_from(["tensorflow", "python", "cuda", "driver", "gpu", "image", "compat"]),
       st.sampled_from(["=", "<", "!="]), st.text(max_size=30))  # fmt: skip
def test_any_value_can_be_compared_with_the_matrix(key: str, operator: str, value: str) -> None:
    try:
        selector = parse_selector(f"{key}{operator}{value}")
    except SelectorError:
        return
    expand(small(), None, select=(selector,))


def test_the_selectors_of_the_readme_select_something() -> None:
    found = load_matrix(FILE)
    for text in ("tensorflow>=2.20", "python=3.12", "gpu=h100", "driver>=535", "cuda=12.5", "cudnn<9.11"):
        assert expand(found, "nightly", select=[parse_selector(text)]).cells, text
