"""Files made to break a reader: either YAML parser handles each within the stated limits.

A limit that is not kept shows itself by the test running out of memory, stack or patience; nothing is timed.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from validator.matrix import document
from validator.matrix.document import MAX_DEPTH, MAX_VALUES, MatrixError
from validator.matrix.load import parse_matrix

from .support import FILE, GOOD, problems


@pytest.fixture(params=["C", "Python"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both parsers: installations without libyaml have only the second."""
    loader = yaml.CSafeLoader if request.param == "C" else yaml.SafeLoader
    monkeypatch.setattr(document, "_LOADER", loader)
    yield


def laughs(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]")
    return "\n".join(lines) + "\n"


def ladder(levels: int) -> str:
    """No line is nested deeply, but each anchor contains the one before it."""
    return "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, levels))


TOO_DEEP = f"nests deeper than {MAX_DEPTH} levels"

HOSTILE = {
    "billion laughs": (laughs(30), f"m.yaml:5:5: a4: its aliases expand to more than {MAX_VALUES:,} values"),
    "quadratic laughs": (
        f"a: &a [{', '.join(['x'] * 5000)}]\nb: [{', '.join(['*a'] * 5000)}]\n",
        f"m.yaml:2:4: b: its aliases expand to more than {MAX_VALUES:,} values",
    ),
    "ladder of anchors": (
        ladder(20_000),
        f"m.yaml:{MAX_DEPTH}:12: a{MAX_DEPTH - 1}[0]: {TOO_DEEP} with its aliases expanded",
    ),
    "flow sequences": ("[" * 500_000, f"m.yaml:1:{MAX_DEPTH + 2}: {TOO_DEEP}"),
    "flow mappings": ("{a: " * 200_000, f"m.yaml:1:{4 * MAX_DEPTH + 2}: {TOO_DEEP}"),
    "block sequences": ("- " * 300_000, f"m.yaml:1:{2 * (MAX_DEPTH + 1) + 1}: {TOO_DEEP}"),
    "complex keys": ("? " * 300_000, f"m.yaml:1:{2 * (MAX_DEPTH + 1) + 1}: {TOO_DEEP}"),
    "many values": (
        "[" + "a," * (MAX_VALUES + 1) + "]",
        f"m.yaml:1:{2 * MAX_VALUES}: the file contains more than {MAX_VALUES:,} values",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("text", "expected"), HOSTILE.values(), ids=HOSTILE.keys())
def test_bomb(text: str, expected: str) -> None:
    assert problems(text) == [expected]


def test_aliases_may_be_used_within_the_limits() -> None:
    text = GOOD.replace('["3.12"]', '&pythons ["3.12", "3.11"]').replace(
        "hosts:", "    variant: &v [gpu]\nhosts:"
    )
    text = text.replace("hosts:", '  - {tensorflow: "2.20.0", python: *pythons, variant: *v}\nhosts:')
    found = parse_matrix(text.encode())
    assert [image.identifier for image in found.images] == [
        "tf2.21.0-cuda12.5-cudnn9.3-py311",
        "tf2.21.0-cuda12.5-cudnn9.3-py312",
        "tf2.20.0-cuda12.5-cudnn9.3-py311",
        "tf2.20.0-cuda12.5-cudnn9.3-py312",
    ]


def test_too_large_products_are_not_computed() -> None:
    bases = ", ".join(f"base-{number}" for number in range(200))
    images = f'  - {{tensorflow: ">=2.12", python: all, base: [{bases}], variant: [gpu, cpu]}}\n'
    assert problems(GOOD.replace("images:\n", "images:\n" + images))[0].endswith(
        "images[0]: with the entries before it, asks for more than 20,000 images"
    )
    drivers = ", ".join(f'"{branch}"' for branch in range(400, 600))
    hosts = f"  - {{driver: [{drivers}], gpu: [t4, a100, h100, l4, a10, v100, p100, a30, a40, l40, h200]}}\n"
    assert problems(GOOD.replace("hosts:\n", "hosts:\n" + hosts)) == [
        "m.yaml:5:5: hosts[0]: with the entries before it, asks for more than 2,000 host classes"
    ]


def test_too_many_cells_are_an_error() -> None:
    bases = ", ".join(f"base-{number}" for number in range(20))
    drivers = ", ".join(f'"{branch}"' for branch in range(400, 580))
    text = f"""\
images: [{{tensorflow: ">=2.14", python: all, base: [{bases}]}}]
hosts: [{{driver: [{drivers}], gpu: [t4, a100, h100, l4, a10]}}]
profiles: {{all: {{description: All.}}}}
"""
    [found] = problems(text)
    assert found.endswith("images on 900 host classes are more than 1,000,000 cells")


@pytest.mark.slow
def test_reading_a_list_of_wrong_values_ends_early() -> None:
    pins = ", ".join(f'"{number}.99"' for number in range(300))
    found = problems(GOOD.replace("hosts:", f"    cudnn: [{pins}]\nhosts:"))
    assert found[0] == "m.yaml:4:12: images[0].cudnn: is longer than 200 values"
    many = "".join(f"  - {{tensorflow: 9.{number}.0, pyton: all}}\n" for number in range(2000))
    assert problems(GOOD.replace("images:\n", "images:\n" + many))[-1] == "m.yaml: and 900 more problems"


def mangled() -> st.SearchStrategy[str]:
    """Return the repository's own matrix with pieces cut out, doubled and replaced."""
    text = FILE.read_text(encoding="utf-8")
    place = st.integers(0, len(text))
    junk = st.one_of(
        st.text(max_size=5),
        st.sampled_from(
            ["\n", "  ", "- ", ": ", "[", "]", "{", "}", '"', "'", "&a ", "*a", "!!str ", "#", "|", "<<: "]
        ),
    )

    def cut(changes: list[tuple[int, int, str]]) -> str:
        found = text
        for start, length, new in changes:
            found = found[:start] + new + found[start + length :]
        return found

    return st.lists(st.tuples(place, st.integers(0, 40), junk), min_size=1, max_size=4).map(cut)


@given(st.one_of(mangled(), st.text(), st.binary()))
@example("a: 1\r\nb: [\r\n")
@example('"\\ud800": 1')
@example("%YAML 9.9\n---\na\n")
@example("--- |\n")
@example("? a\n? b\n")
@example("&a *a")
def test_any_text_is_a_matrix_or_a_matrix_error(text: str | bytes) -> None:
    content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    try:
        parse_matrix(content, "m.yaml")
    except MatrixError as error:
        assert error.problems
        size = len(content) + 2
        for problem in error.problems:
            assert problem.message
            assert 0 <= problem.line <= size
            assert 0 <= problem.column <= size
            assert str(problem).isprintable()


@pytest.mark.slow
def test_the_bombs_fit_in_little_memory() -> None:
    """All of them run one after another, in a process that is limited to 1 GB."""
    script = """
import sys
from tests.matrix.support import problems
from tests.matrix.test_hostile_yaml import HOSTILE
for text, expected in HOSTILE.values():
    assert problems(text) == [expected]
"""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    subprocess.run([sys.executable, "-c", script], check=True, preexec_fn=limit, cwd=FILE.parent)
