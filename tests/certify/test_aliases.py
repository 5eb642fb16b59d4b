"""The rules that say which image an alias points at."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from validator.certify.promote import AliasTarget, Move, best_for_aliases, plan_moves
from validator.model.certificate import Certificate, GpuFacts

BASE = Certificate(
    image_digest="a", image="tf2.21.0-cuda12.5-cudnn9.3-py312", host_class="r580-h100", driver="580.65.06",
    gpus=(GpuFacts("NVIDIA H100", "9.0"),), lock_digest="l", probe_version="1", tensorflow="2.21.0",
    python="3.12.7", cuda="12.5.82", cudnn="9.3.0", passed=(), skipped=(), failed=(), record_id="r",
    measured="2026-11-20T01:00:00+00:00", issued="2026-11-20T02:00:00+00:00", signer="key",
)  # fmt: skip


def certificate(digest: str, **changes: Any) -> Certificate:
    return msgspec.structs.replace(BASE, image_digest=digest, **changes)


def goals(*certificates: Certificate) -> dict[str, str]:
    return {alias: entry.image_digest for alias, entry in best_for_aliases(certificates).items()}


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
    ],
)
def test_the_better_image_gets_the_alias(better: dict[str, Any], worse: dict[str, Any]) -> None:
    pair = certificate("better", **better), certificate("worse", **worse)
    assert goals(*pair)["latest"] == goals(*reversed(pair))["latest"] == "better"


def test_the_patch_version_of_python_does_not_matter() -> None:
    newer = certificate("newer", python="3.12.1", measured="2026-11-21T01:00:00+00:00")
    assert goals(certificate("older", python="3.12.9"), newer)["latest"] == "newer"


def test_pre_releases_get_no_alias() -> None:
    assert goals(certificate("rc", tensorflow="2.22.0rc1")) == {}


def test_a_new_alias_moves_and_a_correct_one_stays() -> None:
    found = plan_moves({"latest": AliasTarget("a")}, [BASE])
    assert found == [
        Move("latest", "a", "a", BASE.image, False),
        Move("2.21", None, "a", BASE.image, True),
        Move("2.21-driver580", None, "a", BASE.image, True),
    ]


def test_an_alias_without_a_certified_image_stays_and_says_so() -> None:
    (move,) = plan_moves({"2.19": AliasTarget("x", "2.19.0")}, [])
    assert (move.moves, move.now) == (False, None)
    assert "no image with a valid certificate" in move.why


@pytest.mark.parametrize(
    ("release", "allow", "goes"),
    [
        ("2.22.0", False, False), ("2.22.0", True, True), ("2.21.0", False, True), ("2.20.0", False, True),
        (None, False, True),
    ],
)  # fmt: skip
def test_an_alias_goes_back_to_an_older_tensorflow_only_on_request(
    release: str | None, allow: bool, goes: bool
) -> None:
    (latest, *_) = plan_moves({"latest": AliasTarget("x", release)}, [BASE], allow_older=allow)
    assert latest.moves is goes
    assert bool(latest.why) is not goes
