"""One line about facts that are old, or that don't know a release that was seen on the index."""

from __future__ import annotations

import datetime

import pytest

from validator import supply
from validator.compat import facts
from validator.compat.policies import cuda_releases, cudnn_releases
from validator.compat.releases import newest

READ = facts.read_on()


def after(days: int) -> datetime.date:
    return READ + datetime.timedelta(days=days)


@pytest.mark.parametrize("days", [-1, 0, 60])
def test_young_facts_need_no_remark(days: int) -> None:
    assert supply.remark(after(days), {}) is None


def test_old_facts_are_named_with_their_age_and_what_to_do() -> None:
    found = supply.remark(after(61), {})
    assert found is not None and "\n" not in found
    assert f"61 days old: they were read on {READ}" in found
    assert "`validator refresh --check`" in found


@pytest.mark.parametrize(
    ("seen", "named"),
    [
        ({"TensorFlow": ["99.0.0"]}, "TensorFlow 99.0.0, which"),
        (
            {"TensorFlow": [newest().version, "99.0.0"], "CUDA": ["99.1.0"]},
            "TensorFlow 99.0.0 and 1 more, which",
        ),
        (
            {"TensorFlow wheels of": [f"{newest().version} for Python 3.99"]},
            f"TensorFlow wheels of {newest().version} for Python 3.99, which",
        ),
        ({"CUDA": ["99.1.0"]}, "CUDA 99.1.0, which"),
        ({"cuDNN": ["99.1.0.1 (cu12)"]}, "cuDNN 99.1.0.1 (cu12), which"),
    ],
)
@pytest.mark.parametrize("days", [0, 500])
def test_what_the_facts_do_not_know_is_named_first(seen: dict[str, list[str]], named: str, days: int) -> None:
    found = supply.remark(after(days), seen)
    assert found is not None and "\n" not in found
    assert f"These facts don't know {named}" in found


def test_what_was_seen_and_is_known_by_now_needs_no_remark() -> None:
    seen = {
        "TensorFlow": [newest().version],
        "TensorFlow wheels of": [f"{newest().version} for Python {newest().pythons[0]}"],
        "CUDA": [cuda_releases()[-1].version],
        "cuDNN": [f"{cudnn_releases('cu12')[-1]} (cu12)"],
        "a kind of a later version": ["1"],
    }
    assert supply.remark(after(0), seen) is None
