"""Expansion: the cells of a matrix, compared with a simple model of the file."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.compat import policies, releases
from validator.errors import InputError
from validator.matrix.load import load_matrix, parse_selectors
from validator.matrix.plan import expand
from validator.model.spec import AS_BUILT, LATEST, Choice, ImageSpec, Variant

from .support import FILE, matrix

RELEASES = ["2.21.0", "2.20.0", "2.19.1", "2.18.0", "2.16.1", "2.15.1", "2.15.0.post1", "2.14.1", "2.13.1"]
WITH_EXTRA = [release for release in RELEASES if not release.startswith("2.13")]
PYTHONS = ["3.9", "3.10", "3.11", "3.12", "3.13"]
MODELS = ["t4", "a100", "h100", "rtx-4090", "b200"]
DRIVERS = ["470", "525", "535", "535.183.01", "580"]


@dataclass(frozen=True)
class Entry:
    """A generated image entry. There is one per release, so that no two request the same image."""

    tensorflow: str
    policies: tuple[str, ...]
    variants: tuple[str, ...]
    bases: tuple[str, ...]

    def yaml(self, shuffled: random.Random) -> str:
        keys = [
            f'tensorflow: "{self.tensorflow}"',
            "python: all",
            f"variant: [{', '.join(shuffled.sample(self.variants, len(self.variants)))}]",
            f"base: [{', '.join(shuffled.sample(self.bases, len(self.bases)))}]",
        ]
        if "gpu" in self.variants:
            keys.append(f"policy: [{', '.join(shuffled.sample(self.policies, len(self.policies)))}]")
        shuffled.shuffle(keys)
        return "  - {" + ", ".join(keys) + "}"

    def identifiers(self) -> set[str]:
        """Return every image of the entry; policies with the same image yield it once."""
        found = set()
        for base, python in itertools.product(self.bases, releases.release(self.tensorflow).pythons):
            tail = f"py{python.replace('.', '')}" + ("" if base == "default" else f"-{base}")
            if "cpu" in self.variants:
                found.add(f"tf{self.tensorflow}-cpu-{tail}")
            for policy in self.policies if "gpu" in self.variants else ():
                cuda, cudnn = policies.choose(releases.release(self.tensorflow), policy, policy)
                found.add(f"tf{self.tensorflow}-cuda{cuda.label}-cudnn{cudnn.label}-{tail}")
        return found


def some(values: list[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), min_size=1, unique=True).map(tuple)


def entry(release: str) -> st.SearchStrategy[Entry]:
    return st.builds(
        Entry,
        st.just(release),
        some([AS_BUILT, LATEST] if release in WITH_EXTRA else [AS_BUILT]),
        some(["gpu", "cpu"]),
        some(["default", "one", "two"]),
    )


ENTRIES = st.lists(st.sampled_from(RELEASES), min_size=1, max_size=5, unique=True).flatmap(
    lambda chosen: st.tuples(*(entry(release) for release in chosen))
)


def host_yaml(drivers: tuple[str, ...], models: tuple[str, ...]) -> str:
    quoted = ", ".join(f'"{driver}"' for driver in drivers)
    return f"  - {{gpu: [{', '.join(models)}], driver: [{quoted}]}}"


@given(ENTRIES, some(DRIVERS), some(MODELS), st.randoms(use_true_random=False))
def test_the_cells_are_the_product_of_the_axes(
    entries: tuple[Entry, ...], drivers: tuple[str, ...], models: tuple[str, ...], shuffled: random.Random
) -> None:
    text = "\n".join(entry.yaml(shuffled) for entry in entries)
    cells = expand(matrix(text, host_yaml(drivers, models)), None).cells
    images = set().union(*(entry.identifiers() for entry in entries))
    hosts = {f"r{driver}-{model}" for driver in drivers for model in models}
    expected = {f"{image}@{host}" for image in images for host in (["no-gpu"] if "-cpu-" in image else hosts)}
    assert {cell.identifier for cell in cells} == expected
    assert len(cells) == len(expected), "every cell once"


@pytest.mark.slow
@given(ENTRIES, some(DRIVERS), some(MODELS), st.randoms(use_true_random=False))
def test_the_order_of_the_file_does_not_matter(
    entries: tuple[Entry, ...], drivers: tuple[str, ...], models: tuple[str, ...], shuffled: random.Random
) -> None:
    def cells() -> tuple[str, ...]:
        text = "\n".join(entry.yaml(shuffled) for entry in shuffled.sample(entries, len(entries)))
        hosts = host_yaml(
            tuple(shuffled.sample(drivers, len(drivers))), tuple(shuffled.sample(models, len(models)))
        )
        return tuple(cell.identifier for cell in expand(matrix(text, hosts), None).cells)

    assert cells() == cells()


EXCLUDES: dict[str, Callable[[ImageSpec, str], bool]] = {
    "tensorflow=2.20": lambda image, host: image.tensorflow == "2.20.0",
    "python=3.10": lambda image, host: image.python == "3.10",
    "variant=cpu": lambda image, host: image.variant is Variant.CPU,
    "gpu=h100": lambda image, host: host.endswith("-h100"),
    "driver<530": lambda image, host: host.startswith(("r470-", "r525-")),
    "[python=3.11, driver=535]": lambda image, host: image.python == "3.11" and host.startswith("r535"),
}


@given(ENTRIES, st.lists(st.sampled_from(sorted(EXCLUDES)), unique=True))
def test_excluded_cells_are_listed_separately_with_their_reason(
    entries: tuple[Entry, ...], excludes: list[str]
) -> None:
    text = "\n".join(entry.yaml(random.Random(0)) for entry in entries)
    rest = "exclude:\n" + "".join(f'  - {{select: "{s}", reason: "{s}"}}\n' for s in excludes)
    rest = rest.replace('select: "[', "select: [").replace(']", reason', "], reason")
    hosts = host_yaml(tuple(DRIVERS), tuple(MODELS))
    whole = expand(matrix(text, hosts), None)
    found = expand(matrix(text, hosts, rest if excludes else ""), None)

    def first_reason(image: ImageSpec, host: str) -> str | None:
        return next((text for text in excludes if EXCLUDES[text](image, host)), None)

    assert whole.excluded == ()
    assert found.cells == tuple(
        cell for cell in whole.cells if first_reason(cell.image, cell.host.identifier) is None
    )
    assert {one.cell: one.reason for one in found.excluded} == {
        cell: reason
        for cell in whole.cells
        if (reason := first_reason(cell.image, cell.host.identifier)) is not None
    }


def test_the_newest_tensorflow_comes_first_and_floating_choices_last() -> None:
    text = '  - {tensorflow: ["2.18.1", "2.21.0"], python: ["3.11", "3.10"], policy: [latest, as-built]}'
    hosts = '  - {driver: ["580", "535.54.03", "535"], gpu: [h100, t4]}'
    cells = expand(matrix(text, hosts), None).cells
    assert list(dict.fromkeys(cell.image.identifier for cell in cells)) == [
        "tf2.21.0-cuda12.5-cudnn9.3-py310",
        "tf2.21.0-cuda12.5-cudnn9.3-py311",
        "tf2.21.0-cudalatest-cudnnlatest-py310",
        "tf2.21.0-cudalatest-cudnnlatest-py311",
        "tf2.18.1-cuda12.5-cudnn9.3-py310",
        "tf2.18.1-cuda12.5-cudnn9.3-py311",
    ]
    assert [cell.host.identifier for cell in cells[:6]] == [
        "r535.54.03-t4",
        "r535.54.03-h100",
        "r535-t4",
        "r535-h100",
        "r580-t4",
        "r580-h100",
    ]


def test_an_image_that_two_policies_give_is_named_as_built() -> None:
    for order in ("as-built, latest", "latest, as-built"):
        text = f'  - {{tensorflow: "2.18.1", python: "3.12", policy: [{order}]}}'
        [image] = matrix(text).images
        assert image.cuda is not None
        assert image.cuda.policy == AS_BUILT


def test_a_pin_of_the_built_version_is_the_same_image() -> None:
    text = '  - {tensorflow: "2.21.0", python: "3.12", cuda: ["12.5", as-built], cudnn: [as-built, "9.3"]}'
    [image] = matrix(text).images
    assert image.identifier == "tf2.21.0-cuda12.5-cudnn9.3-py312"
    assert (image.cuda, image.cudnn) == (Choice(AS_BUILT, "12.5"), Choice(AS_BUILT, "9.3"))


def test_a_minor_means_every_patch_and_a_range_has_no_prereleases() -> None:
    text = '  - {tensorflow: ["2.15", ">=2.20"], python: "3.11"}'
    assert [image.tensorflow for image in matrix(text).images] == [
        "2.21.0",
        "2.20.0",
        "2.15.1",
        "2.15.0.post1",
        "2.15.0",
    ]


def test_host_classes_are_named_after_driver_and_gpu() -> None:
    hosts = """\
  - driver: ["535", "535.183.01"]
    gpu: [RTX 4090, H100]
    compat: [none, "12.9"]
    runner: ["x", "{host}", "{gpu}"]
  - {driver: "R550", compute_capability: ["sm_90", "10.0"], runner: "d-{driver}"}
"""
    found = {host.identifier: host for host in matrix("  - {tensorflow: newest, python: all}", hosts).hosts}
    assert list(found) == [
        "r535.183.01-rtx-4090",
        "r535.183.01-rtx-4090-compat12.9",
        "r535.183.01-h100",
        "r535.183.01-h100-compat12.9",
        "r535-rtx-4090",
        "r535-rtx-4090-compat12.9",
        "r535-h100",
        "r535-h100-compat12.9",
        "r550-sm90",
        "r550-sm100",
        "no-gpu",
    ]
    assert found["r535-h100-compat12.9"].runner == ("x", "r535-h100-compat12.9", "h100")
    assert found["r550-sm90"].runner == ("d-550",)
    assert found["r550-sm90"].gpu is None
    assert found["no-gpu"].has_gpu is False


FIRST = """\
  first:
    select: tensorflow>=2.15
    first_available_python: ["3.12", "3.11", "3.13"]
"""


def first_available(available: set[str] | None, select: tuple[str, ...] = (), rest: str = "") -> list[str]:
    text = '  - {tensorflow: ["2.21.0", "2.15.1"], python: all}'
    found = expand(
        matrix(text, '  - {driver: "580", gpu: t4}', FIRST + rest),
        "first",
        select=parse_selectors(select),
        available=None if available is None else lambda python: python if python in available else None,
    )
    return [f"{cell.image.tensorflow} {cell.image.python}" for cell in found.cells]


def test_the_first_python_that_can_be_provided_is_used() -> None:
    assert first_available(None) == ["2.21.0 3.12", "2.15.1 3.11"]
    assert first_available({"3.11", "3.13"}) == ["2.21.0 3.11", "2.15.1 3.11"]
    assert first_available({"3.13"}) == ["2.21.0 3.13", "2.15.1 3.11"], (
        "none for 2.15.1: the first, to be told"
    )
    assert first_available(set()) == ["2.21.0 3.12", "2.15.1 3.11"]


def test_the_first_python_is_chosen_among_the_selected_ones() -> None:
    assert first_available(None, ("python=3.13",)) == ["2.21.0 3.13"]
    assert first_available(None, ("python=3.10",)) == [], "not in the profile's list"


def test_an_excluded_python_is_not_used() -> None:
    excluded = "exclude:\n  - {select: [python=3.12], reason: Broken.}\n"
    assert first_available(None, rest=excluded) == ["2.21.0 3.11", "2.15.1 3.11"]
    on_host = "exclude:\n  - {select: [python=3.12, gpu=a100], reason: Broken there.}\n"
    assert first_available(None, rest=on_host) == ["2.21.0 3.12", "2.15.1 3.11"]


def test_an_unknown_profile_names_the_known_ones() -> None:
    found = load_matrix(FILE)
    with pytest.raises(InputError, match='the profile "nighly" is not known; the nearest is nightly'):
        expand(found, "nighly")
