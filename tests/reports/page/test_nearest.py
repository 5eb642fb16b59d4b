"""Test what is offered in place of a combination that does not work."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from validator.compat.offers import export_library_path
from validator.model.prediction import Outcome, PlannedCell
from validator.model.record import Record, Verdict
from validator.model.spec import Cell, HostClass, ImageSpec, Variant
from validator.reports.overview import overview
from validator.reports.page.layout import nearest
from validator.reports.page.site import advice_data
from validator.versions import ComputeCapability, DriverRelease

from .values import H100, IMAGES, T4, image, measured, planned


def host(driver: str) -> HostClass:
    return HostClass(f"r{driver}-h100", DriverRelease.parse(driver), ComputeCapability(9, 0), "h100")


def offered(cells: Iterable[PlannedCell], *records: Record) -> dict[str, str]:
    """Return the identifier of what is offered by that of the combination that fails."""
    found = list(cells)
    specs = {each.cell.image.identifier: each.cell.image for each in found}
    rows = overview(found, {record.cell: record for record in records})
    near = nearest(rows, [specs[row.image] for row in rows])
    return {rows[failing].cell: rows[works].cell for failing, works in near.items()}


def cell(spec: ImageSpec, where: HostClass) -> str:
    return Cell(spec, where).identifier


def test_it_is_the_newest_release_on_the_same_machine_with_the_same_python() -> None:
    bad = planned([IMAGES[1]], [H100], Outcome.FAILS)
    good = planned(
        [image("2.18.1"), image("2.20.0", "3.11"), image("2.20.0"), image("2.20.0", "3.13")], [H100, T4]
    )
    assert offered([*bad, *good]) == {cell(IMAGES[1], H100): cell(image("2.20.0"), H100)}


def test_what_was_measured_to_work_comes_before_predictions_and_newer_releases() -> None:
    bad = planned([IMAGES[1]], [H100], Outcome.FAILS)
    good = planned([image("2.18.1"), image("2.20.0")], [H100])
    proven = measured(image("2.18.1"), H100, Verdict.CERTIFIED)
    assert offered([*bad, *good], proven) == {cell(IMAGES[1], H100): proven.cell}


def test_a_measured_failure_is_never_offered_and_a_measured_success_needs_nothing() -> None:
    cells = planned([IMAGES[1], image("2.20.0")], [H100])
    failed = measured(image("2.20.0"), H100, Verdict.FAILED)
    assert offered(cells, failed) == {failed.cell: cell(IMAGES[1], H100)}
    bad = planned([IMAGES[1]], [H100], Outcome.FAILS)
    assert offered([*bad, *cells[1:]], measured(IMAGES[1], H100, Verdict.CERTIFIED)) == {}


def test_candidates_of_releases_come_last() -> None:
    bad = planned([IMAGES[1]], [H100], Outcome.FAILS)
    good = planned([image("2.22.0rc0"), image("2.18.1")], [H100])
    assert offered([*bad, *good]) == {cell(IMAGES[1], H100): cell(image("2.18.1"), H100)}


@pytest.mark.parametrize(
    ("working", "expected"), [(("525", "580", "595"), "580"), (("470", "525"), "525"), ((), None)]
)
def test_without_any_it_is_the_nearest_driver(working: tuple[str, ...], expected: str | None) -> None:
    cells = planned([IMAGES[1]], [host("535")], Outcome.FAILS)
    cells += planned([IMAGES[1]], [host(driver) for driver in working])
    cells += planned([IMAGES[1]], [T4])
    wanted = {} if expected is None else {cell(IMAGES[1], host("535")): cell(IMAGES[1], host(expected))}
    assert offered(cells) == wanted


def test_an_image_for_the_cpu_is_not_offered_for_a_gpu() -> None:
    cpu = ImageSpec("2.21.0", "3.12", Variant.CPU)
    cells = [*planned([IMAGES[1]], [H100], Outcome.FAILS), *planned([cpu], [H100])]
    assert offered(cells) == {}


def test_a_machine_that_is_not_planned_gets_only_what_was_measured_there() -> None:
    failed = measured(IMAGES[0], "elsewhere", Verdict.FAILED)
    works = measured(IMAGES[1], "elsewhere", Verdict.CERTIFIED)
    assert offered(planned(), failed) == {}
    assert offered(planned(), failed, works) == {failed.cell: works.cell}


def test_advice_is_what_pip_installs_on_the_machine() -> None:
    t4 = HostClass("r535-t4", DriverRelease.parse("535"), ComputeCapability(7, 5), "t4")
    assert '"tensorflow[and-cuda]==2.' in advice_data(t4)["commands"][0]
    blackwell = advice_data(HostClass("x", DriverRelease.parse("525"), ComputeCapability(10, 0), "b200"))
    assert list(blackwell) == ["reason"]
    assert "older than the GPU" in blackwell["reason"]


def test_a_release_that_needs_the_library_path_comes_with_the_command_that_sets_it() -> None:
    rtx_5090 = HostClass("r570-rtx-5090", DriverRelease.parse("570"), ComputeCapability(12, 0), "rtx 5090")
    install, export = advice_data(rtx_5090)["commands"]
    assert install.startswith("python3.") and install.endswith(
        '-m pip install "tensorflow[and-cuda]==2.21.0"'
    )
    # Both run the same Python.
    python = install.partition(" -m pip")[0]
    assert re.fullmatch(r"python3\.\d+", python) and export == export_library_path(python)
    t4 = HostClass("r535-t4", DriverRelease.parse("535"), ComputeCapability(7, 5), "t4")
    assert len(advice_data(t4)["commands"]) == 1
