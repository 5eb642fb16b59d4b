"""The rules that say which image an alias points at."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from validator.certify.verify import ImageStanding, Move, best_for_aliases, plan_moves
from validator.model.record import Certificate, Failure, GpuFacts

from .fixtures import LIMIT

BASE = Certificate(
    image_digest="a", image="tf2.21.0-cuda12.5-cudnn9.3-py312", host_class="r580-h100", driver="580.65.06",
    gpus=(GpuFacts("NVIDIA H100", "9.0"),), lock_digest="l", probe_version="1", tensorflow="2.21.0",
    python="3.12.7", cuda="12.5.82", cudnn="9.3.0", passed=(), skipped=(), failed=(), record_id="r",
    measured="2026-11-20T01:00:00+00:00", issued="2026-11-20T02:00:00+00:00",
    expires="2026-12-04T01:00:00+00:00", signer="key",
)  # fmt: skip


def certificate(digest: str, **changes: Any) -> Certificate:
    return msgspec.structs.replace(BASE, image_digest=digest, **changes)


def failure(digest: str, host_class: str = "r580-h100") -> Failure:
    return Failure(
        digest, BASE.image, host_class, "580.65.06", BASE.gpus, ("gpu_compute",), "f",
        "2026-11-21T01:00:00+00:00", "2026-11-21T02:00:00+00:00", "key",
    )  # fmt: skip


def standings(*statements: Certificate | Failure) -> dict[str, ImageStanding]:
    digests = dict.fromkeys(entry.image_digest for entry in statements)
    return {
        digest: ImageStanding(
            tuple(e for e in statements if isinstance(e, Certificate) and e.image_digest == digest),
            tuple(e for e in statements if isinstance(e, Failure) and e.image_digest == digest),
            f"{digest} is bad",
        )
        for digest in digests
    }


def goals(*statements: Certificate | Failure) -> dict[str, str]:
    return {alias: entry.image_digest for alias, entry in best_for_aliases(standings(*statements)).items()}


def test_each_alias_goes_to_the_image_certified_for_it() -> None:
    assert goals(
        certificate("new", tensorflow="2.21.0"),
        certificate("old", tensorflow="2.20.0", driver="535.183.01"),
        certificate("new", tensorflow="2.21.0", driver="570.10"),
    ) == {
        "latest": "new", "2.21": "new", "2.21-driver580": "new", "2.21-driver570": "new",
        "2.20": "old", "2.20-driver535": "old",
    }  # fmt: skip


def test_a_driver_alias_goes_only_to_images_measured_on_that_branch() -> None:
    found = goals(certificate("patched", tensorflow="2.21.1"), certificate("first", driver="535.183.01"))
    assert found["2.21"] == "patched"
    assert found["2.21-driver535"] == "first"


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"tensorflow": "2.21.1"}, {"tensorflow": "2.21.0"}),
        ({"tensorflow": "2.21.0"}, {"tensorflow": "2.9.3"}),
        ({}, {"image": "tf2.21.0-cuda12.5-cudnn9.3-py312-debian-trixie", "python": "3.13.1"}),
        ({}, {"image": "tf2.21.0-cudalatest-cudnnlatest-py312", "cuda": "12.9.1"}),
        ({}, {"image": "tf2.21.0-cuda12.5-cudnnlatest-py312", "cudnn": "9.10.2"}),
        ({"python": "3.13.1"}, {"python": "3.9.20"}),
        ({"cuda": "12.10"}, {"cuda": "12.9"}),
        ({"cudnn": "9.10.2"}, {"cudnn": "9.3.0"}),
        ({"measured": "2026-11-20T02:00:00+00:00"}, {"measured": "2026-11-20T02:30:00+01:00"}),
        ({}, {"cuda": "unknown"}),
        ({}, {"cudnn": "9.24.0", "limits": (LIMIT,)}),
        ({"python": "3.13.1", "limits": (LIMIT,)}, {}),
    ],
)
def test_the_better_image_gets_the_alias(better: dict[str, Any], worse: dict[str, Any]) -> None:
    pair = certificate("better", **better), certificate("worse", **worse)
    assert goals(*pair)["latest"] == goals(*reversed(pair))["latest"] == "better"


def test_a_limit_counts_for_the_aliases_of_the_hosts_that_have_it() -> None:
    """The limited image is the better one but for its limit on R580."""
    found = goals(
        certificate("limited", cudnn="9.24.0", limits=(LIMIT,)),
        certificate("limited", cudnn="9.24.0", driver="570.10", host_class="r570-h100"),
        certificate("free"),
        certificate("free", driver="570.10", host_class="r570-h100"),
    )
    assert (found["latest"], found["2.21-driver580"], found["2.21-driver570"]) == ("free", "free", "limited")


def test_the_patch_version_of_python_does_not_matter() -> None:
    newer = certificate("newer", python="3.12.1", measured="2026-11-21T01:00:00+00:00")
    assert goals(certificate("older", python="3.12.9"), newer)["latest"] == "newer"


def test_pre_releases_get_no_alias() -> None:
    assert goals(certificate("rc", tensorflow="2.22.0rc1")) == {}


def test_an_image_that_fails_where_another_works_is_second() -> None:
    good = certificate("good", tensorflow="2.20.0")
    others = certificate("bad", host_class="r535-a100", driver="535.183.01"), failure("bad")
    assert goals(good, *others)["latest"] == "good"
    # On its own branch it did not fail.
    assert goals(good, *others)["2.21-driver535"] == "bad"
    # Nobody else has this release.
    assert goals(good, *others)["2.21"] == "bad"


def test_a_failure_where_nothing_works_does_not_count_against_an_image() -> None:
    """Otherwise one old GPU, which no image supports, would keep the newest image back."""
    newest = certificate("newest"), failure("newest", "r470-k80")
    assert goals(certificate("older", tensorflow="2.20.0"), *newest)["latest"] == "newest"


def test_a_driver_alias_leaves_an_image_that_failed_on_its_branch() -> None:
    t4 = {"host_class": "r580-t4"}
    both = certificate("a", **t4), failure("a"), certificate("b", python="3.11.9")
    assert goals(*both)["2.21-driver580"] == "b"
    assert goals(both[0], certificate("b", python="3.11.9"))["2.21-driver580"] == "a"


def test_a_new_alias_moves_and_a_correct_one_stays() -> None:
    found = plan_moves({"latest": "a"}, standings(BASE))
    assert found == [
        Move("latest", "a", "a", BASE.image, False),
        Move("2.21", None, "a", BASE.image, True),
        Move("2.21-driver580", None, "a", BASE.image, True),
    ]


def test_an_alias_without_a_certified_image_stays_and_says_so() -> None:
    (move,) = plan_moves({"2.19": "x"}, {"x": ImageStanding((), against="it expired")})
    assert (move.moves, move.now) == (False, None)
    assert move.why == "no image with a valid certificate fits it, and its own image has none: it expired"


def test_the_reason_is_given_only_if_the_image_is_no_longer_good() -> None:
    better = certificate("better", python="3.13.1")

    def lost(*statements: Certificate | Failure) -> str:
        return plan_moves({"latest": "a"}, standings(better, *statements))[0].lost

    assert lost(BASE) == ""
    assert lost(failure("a")) == "a is bad"
    assert lost(certificate("a", host_class="r535-a100"), failure("a")).startswith("it failed on r580-h100")


def test_an_alias_goes_back_to_an_older_tensorflow_if_its_image_is_no_longer_good() -> None:
    found = plan_moves({"latest": "new"}, standings(BASE, failure("new")))
    assert found[0] == Move("latest", "new", "a", BASE.image, True, lost="new is bad")
