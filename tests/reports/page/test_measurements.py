from __future__ import annotations

import math
from typing import Any

import pytest

from validator.model.record import Layer, Record, Verdict
from validator.reports.page.layout import Chart, charts, layout
from validator.reports.page.measurements import gather, readable, speed_of, storage
from validator.reports.page.site import site

from .values import H100, IMAGES, NOW, T4, check, measured, sources, speedup

CELL = f"{IMAGES[0]}@r580-h100"


def test_the_newest_record_counts_and_the_older_ones_are_history() -> None:
    records = [
        measured(IMAGES[0], H100, Verdict.CERTIFIED, 1, lock_digest="sha256:01"),
        measured(IMAGES[0], H100, Verdict.FAILED, 2, lock_digest="sha256:02", host={"driver": "580.95.05"}),
    ]
    found = gather(records, NOW)
    assert found.latest[CELL].verdict is Verdict.FAILED
    before, after = found.history[CELL]
    assert (before.verdict, after.verdict) == ("certified", "failed")
    assert after.changed_since(before) == ("lock", "image", "driver")
    assert before.changed_since(before) == ()


@pytest.mark.parametrize("finished", ["2999-01-01T00:00:00+00:00", "zzzz"])
def test_a_record_whose_time_cannot_be_right_is_only_in_the_history(finished: str) -> None:
    good = measured(IMAGES[0], H100, Verdict.FAILED, 2)
    odd = measured(
        IMAGES[0], H100, Verdict.CERTIFIED, 3,
        finished=finished, checks=[speedup()], layers=(Layer("sha256:1", 5),),
    )  # fmt: skip
    for records in ([good, odd], [odd, good]):
        found = gather(records, NOW)
        assert found.latest == {CELL: good}
        assert [past.record for past in found.history[CELL]] == [odd.id, good.id]
        assert (found.speeds, found.layers) == ({}, {})
    page = dict(site(sources([odd, good])))
    assert b"No result has changed." in page["index.html"]
    assert any(finished.encode() in content for name, content in page.items() if name != "index.html")


def test_speed_comes_from_the_newest_record_that_measured_it() -> None:
    found = gather(
        [
            measured(IMAGES[0], H100, Verdict.CERTIFIED, 1, checks=[speedup(0.5)]),
            measured(IMAGES[0], H100, Verdict.CERTIFIED, 2, checks=[speedup(0.25)]),
            measured(IMAGES[0], H100, Verdict.CERTIFIED, 3),
        ],
        NOW,
    )
    speed = found.speeds[CELL]
    assert speed.speedup.median == 4
    assert (speed.speedup.q1, speed.speedup.q3) == pytest.approx((4 / 1.25, 4 / 0.8))
    assert speed.steps["graph"].median == 0.02
    assert (speed.device, speed.batch, speed.host) == ("GPU", 32, "r580-h100")


@pytest.mark.parametrize(
    "changes",
    [
        {"modes": [{"mode": "eager", "step_s": {"median": 1, "q1": 1, "q3": 1}}]},
        {"ratios": {"xla/graph": {"step_time": None}}},
        {"ratios": {"xla/graph": {"step_time": {"median": 0, "q1": 0, "q3": 0}}}},
        {"ratios": {"xla/graph": {"step_time": {"median": math.nan, "q1": 1, "q3": 1}}}},
    ],
)
def test_invalid_evidence_gives_no_speed(changes: dict[str, Any]) -> None:
    assert speed_of(measured(IMAGES[0], H100, Verdict.CERTIFIED, checks=[speedup(**changes)])) is None


def test_a_check_that_did_not_pass_gives_no_speed() -> None:
    failed = speedup() | {"outcome": "fail"}
    assert speed_of(measured(IMAGES[0], H100, Verdict.FAILED, checks=[failed])) is None
    assert speed_of(measured(IMAGES[0], H100, Verdict.FAILED, checks=[check("driver")])) is None


def draw(*records: Record) -> tuple[Chart, ...]:
    made = sources(records)
    return charts(layout(made.rows), made.measurements.speeds.values())


def test_one_chart_for_each_machine_and_device_gpus_first() -> None:
    found = draw(
        measured(IMAGES[0], T4, Verdict.CERTIFIED, 1, checks=[speedup(device="CPU")]),
        measured(IMAGES[2], H100, Verdict.CERTIFIED, 2, checks=[speedup(0.8)]),
        measured(IMAGES[0], H100, Verdict.CERTIFIED, 3, checks=[speedup(0.5)]),
        measured(IMAGES[3], H100, Verdict.CERTIFIED, 4, checks=[speedup(1.25)]),
    )
    assert [chart.identifier for chart in found] == ["r580-h100/GPU", "r535-t4/CPU"]
    chart = found[0]
    # From the oldest release to the newest, left to right.
    assert [point.column.tensorflow for point in chart.points] == ["2.18.1", "2.20.0", "2.21.0"]
    assert [point.x for point in chart.points] == sorted(point.x for point in chart.points)
    marks = chart.panels[0].marks
    # Larger is higher, and higher is a smaller y.
    assert [mark.y for mark in marks] == sorted((mark.y for mark in marks), reverse=True)
    assert all(mark.top < mark.y < mark.bottom for panel in chart.panels for mark in panel.marks)
    assert marks[
        -1
    ].text == "TensorFlow 2.21.0, CUDA 12.5, cuDNN 9.3, speedup: 2.00 times (1.60 to 2.50)".replace(
        "1.60 to 2.50", "1.60 times to 2.50 times"
    )
    assert "between 0.80 times (TensorFlow 2.18.1) and 2.00 times (TensorFlow 2.21.0)" in chart.summary()


def test_everything_is_drawn_inside_its_panel() -> None:
    for share in (0.001, 0.3, 1.0, 3.0, 1000.0):
        [chart] = draw(measured(IMAGES[0], H100, Verdict.CERTIFIED, checks=[speedup(share, 1e-6 / share)]))
        for panel in chart.panels:
            ys = [y for mark in panel.marks for y in (mark.top, mark.y, mark.bottom)]
            ys += [tick.y for tick in panel.ticks]
            assert min(ys) >= panel.top - 0.01
            assert max(ys) <= panel.bottom + 0.01
            assert 2 <= len(panel.ticks) <= 8
        assert sum(tick.reference for tick in chart.panels[0].ticks) == 1


def test_the_newest_python_of_a_release_is_draw() -> None:
    [chart] = draw(
        measured(IMAGES[1], H100, Verdict.CERTIFIED, 9, checks=[speedup(0.5)]),
        measured(IMAGES[0], H100, Verdict.CERTIFIED, 3, checks=[speedup(0.1)]),
    )
    assert [point.speed.image for point in chart.points] == [IMAGES[1].identifier]


def test_shared_layers_are_counted_once() -> None:
    layers = {
        "a": (Layer("base", 100), Layer("cuda", 1000), Layer("x", 7), Layer("x", 7)),
        "b": (Layer("base", 100), Layer("cuda", 1000), Layer("y", 5)),
        "c": (Layer("base", 100), Layer("z", 3)),
        "elsewhere": (Layer("z", 3),),
    }
    found = storage(layers, ["c", "a", "b", "unknown"])
    assert [(size.image, size.size, size.shared, size.own) for size in found.images] == [
        ("c", 103, 100, 3),
        ("a", 1107, 1100, 7),
        ("b", 1105, 1100, 5),
    ]
    assert (found.together, found.stored) == (103 + 1107 + 1105, 100 + 1000 + 7 + 5 + 3)


def test_layers_come_from_the_newest_record_that_has_them() -> None:
    old = measured(IMAGES[0], H100, Verdict.CERTIFIED, 1, layers=(Layer("sha256:1", 5),))
    new = measured(IMAGES[0], H100, Verdict.CERTIFIED, 2)
    assert gather([old, new], NOW).layers == {IMAGES[0].identifier: (Layer("sha256:1", 5),)}


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (885_817_344, "885.8 MB"), (8_120_000_000, "8.1 GB")],
)
def test_sizes_are_readable(size: int, text: str) -> None:
    assert readable(size) == text
