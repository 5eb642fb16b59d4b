"""Figures with their spread."""

from __future__ import annotations

from validator.probe.checks.speed import ratios, spread


def test_the_spread_of_samples() -> None:
    figure = spread([4.0, 1.0, 3.0, 2.0, 100.0])
    assert figure == {"median": 3.0, "q1": 2.0, "q3": 4.0, "min": 1.0, "max": 100.0, "samples": 5}


def test_one_sample_has_no_spread_and_no_samples_give_no_figure() -> None:
    assert spread([2.0]) == {"median": 2.0, "q1": 2.0, "q3": 2.0, "min": 2.0, "max": 2.0, "samples": 1}
    assert spread([]) is None


def test_ratios_are_taken_pair_by_pair() -> None:
    """A disturbance that slows both samples of a round leaves the ratio as it is."""
    figure = ratios([1.0, 50.0, 2.0], [2.0, 100.0, 4.0])
    assert figure is not None
    assert figure["min"] == figure["max"] == 0.5


def test_a_ratio_to_zero_is_left_out() -> None:
    assert ratios([1.0], [0.0]) is None
