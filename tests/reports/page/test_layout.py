from __future__ import annotations

from validator.model.prediction import Outcome
from validator.model.record import Record, Verdict
from validator.model.spec import Choice, ImageSpec, Variant
from validator.reports.overview import overview
from validator.reports.page.layout import Layout, Place, layout

from .values import H100, IMAGES, NO_GPU, T4, image, measured, planned, sources


def lay_out(*records: Record) -> Layout:
    return layout(sources(records).rows)


def place(found: Layout, host: str, release: str) -> Place:
    row = [each.identifier for each in found.hosts].index(host)
    column = [each.tensorflow for each in found.columns].index(release)
    wanted = found.places[row][column]
    assert wanted is not None
    return wanted


def test_pythons_share_the_place_of_their_release_and_host() -> None:
    found = lay_out()
    assert [host.identifier for host in found.hosts] == ["r535-t4", "r580-h100"]
    assert [(column.tensorflow, column.detail) for column in found.columns] == [
        ("2.21.0", "12.5/9.3"),
        ("2.20.0", "12.5/9.3"),
        ("2.18.1", "12.5/9.3"),
    ]
    both = place(found, "r580-h100", "2.21.0")
    assert [found.rows[number].cell for number in both.cells] == [
        "tf2.21.0-cuda12.5-cudnn9.3-py311@r580-h100",
        "tf2.21.0-cuda12.5-cudnn9.3-py312@r580-h100",
    ]
    assert (both.predicted, both.measured, both.counted) == ("works", None, 0)


def test_a_place_where_only_xla_fails_is_better_than_one_where_all_fails() -> None:
    only_xla = planned(IMAGES[:1], outcome=Outcome.FAILS, mode="xla")
    for other, shown in ((Outcome.WORKS, "eager-only"), (Outcome.FAILS, "fails")):
        rows = overview(only_xla + planned(IMAGES[1:2], outcome=other), {})
        assert place(layout(rows), "r580-h100", "2.21.0").predicted == shown


def test_the_worst_measured_cell_is_shown_and_opened_first() -> None:
    found = lay_out(measured(IMAGES[0], H100, Verdict.CERTIFIED), measured(IMAGES[1], H100, Verdict.FAILED))
    both = place(found, "r580-h100", "2.21.0")
    assert (both.measured, both.counted) == ("failed", 2)
    assert found.rows[both.first].image == IMAGES[1].identifier


def test_measured_cells_are_opened_before_predicted_ones() -> None:
    cells = planned(IMAGES[:1], outcome=Outcome.FAILS) + planned(IMAGES[1:2])
    rows = overview(cells, {(found := measured(IMAGES[1], H100, Verdict.CERTIFIED)).cell: found})
    both = place(layout(rows), "r580-h100", "2.21.0")
    assert (both.predicted, both.measured, both.counted) == ("fails", "certified", 1)
    assert layout(rows).rows[both.first].image == IMAGES[1].identifier


def test_a_machine_that_is_not_planned_has_its_own_facts() -> None:
    found = lay_out(measured(IMAGES[0], "r999-strange", Verdict.UNPROVEN))
    host = found.hosts[0]
    assert host.name == "NVIDIA H100, driver 580.65.06"
    assert (host.identifier, host.driver, host.gpu) == ("r999-strange", "580.65.06", "NVIDIA H100 PCIe")
    assert place(found, "r999-strange", "2.21.0").predicted is None
    assert found.places[0][1] is None


def test_host_facts_of_any_shape_are_accepted() -> None:
    odd = measured(IMAGES[0], "odd", Verdict.UNPROVEN, host={"driver": 7, "gpus": ["x", {"name": None}]})
    assert (lay_out(odd).hosts[0].driver, lay_out(odd).hosts[0].gpu) == ("none", "none")


def test_measured_machines_come_first_and_those_with_a_gpu_before_the_others() -> None:
    without = measured(IMAGES[0], "no-gpu", Verdict.UNPROVEN, host={"gpus": []})
    found = lay_out(without, measured(IMAGES[0], H100, Verdict.CERTIFIED))
    assert [host.identifier for host in found.hosts] == ["r580-h100", "no-gpu", "r535-t4"]
    assert found.measured_hosts == 2
    assert [host.name for host in found.hosts] == [
        "NVIDIA H100, driver 580",
        "a machine without a GPU",
        "NVIDIA T4, driver 535",
    ]
    assert lay_out().measured_hosts == 0


def test_a_column_is_named_and_explained() -> None:
    newest = ImageSpec(
        "2.21.0", "3.12", Variant.GPU, Choice("latest", "12.9", True), Choice("latest", "9.20", True)
    )
    pinned = ImageSpec("2.21.0", "3.12", Variant.GPU, Choice("12.8", "12.8"), Choice("9.10", "9.10"))
    cpu = ImageSpec("2.21.0", "3.12", Variant.CPU)
    heads = layout(overview(planned([*IMAGES[:2], newest, pinned, cpu]), {})).heads
    assert [head.lines for head in heads] == [
        ("CUDA 12.5", "cuDNN 9.3"),
        ("newest CUDA", "newest cuDNN"),
        ("CUDA 12.8", "cuDNN 9.10"),
        ("without CUDA",),
    ]
    assert heads[0].name == "TensorFlow 2.21.0, CUDA 12.5, cuDNN 9.3"
    assert heads[0].meaning.endswith("this release was built with. Python 3.11, 3.12.")
    assert heads[1].name == "TensorFlow 2.21.0, newest CUDA (12.9), newest cuDNN (9.20)"
    assert "newest that pip installs" in heads[1].meaning
    assert "were chosen" in heads[2].meaning
    assert "uses no GPU" in heads[3].meaning


def test_the_values_of_the_filters() -> None:
    cpu = ImageSpec("2.21.0", "3.9", Variant.CPU)
    rows = overview([*planned([image(cuda="9.2"), *IMAGES]), *planned([cpu], [NO_GPU])], {})
    assert layout(rows).filters() == {
        "tensorflow": ["2.21.0", "2.20.0", "2.18.1"],
        "python": ["3.9", "3.11", "3.12"],
        "cuda": ["9.2", "12.5", "none"],
        "cudnn": ["9.3", "none"],
        "driver": ["535", "580", "none"],
        "gpu": ["h100", "t4", "none"],
    }


def test_an_empty_plan_is_an_empty_grid() -> None:
    found = layout([])
    assert (found.hosts, found.columns, found.places) == ((), (), ())


def test_each_row_knows_its_image_and_host() -> None:
    found = lay_out()
    assert [found.images[number].identifier for number in found.image_of] == [row.image for row in found.rows]
    assert [found.hosts[number].identifier for number in found.host_of] == [row.host for row in found.rows]
    assert {T4.identifier, H100.identifier} == {row.host for row in found.rows}
