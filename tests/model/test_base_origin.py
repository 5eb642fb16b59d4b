"""The origins of bases, as text and in parts."""

from __future__ import annotations

import pytest

from validator.model.record import BaseOrigin, digest_of_packages

DIGEST, OTHER = "sha256:" + "1" * 64, "sha256:" + "2" * 64
GIT = "git:amd64=1:2.39.5-0+deb12u2"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (f"registry:python:3.12@{DIGEST}", BaseOrigin("registry", "python:3.12", DIGEST)),
        ("registry:localhost:5000/ours:1", BaseOrigin("registry", "localhost:5000/ours:1", None)),
        (f"bootstrap:bookworm@{DIGEST}", BaseOrigin("bootstrap", "bookworm", DIGEST)),
        (
            f"registry:python:3.12@{DIGEST}+packages:git,libstdc++6@{OTHER}",
            BaseOrigin("registry", "python:3.12", DIGEST, ("git", "libstdc++6"), OTHER),
        ),
        (
            f"registry:ours:1+packages:git@{OTHER}",
            BaseOrigin("registry", "ours:1", None, ("git",), OTHER),
        ),
    ],
)
def test_an_origin_is_read_and_written(text: str, parts: BaseOrigin) -> None:
    assert BaseOrigin.parse(text) == parts
    assert str(parts) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "python:3.12", "registry:", f"registry:python@{DIGEST[:-1]}", f"registry:a b@{DIGEST}",
        f"registry:python@{DIGEST}+packages:git", f"registry:python@{DIGEST}+packages:",
        f"registry:python@{DIGEST}+packages:git@{OTHER}@{OTHER}", f"registry:python@{DIGEST}\n",
    ],
)  # fmt: skip
def test_anything_else_is_not_an_origin(text: str) -> None:
    assert BaseOrigin.parse(text) is None


def test_packages_that_were_added_are_part_of_the_origin() -> None:
    plain = BaseOrigin("registry", "python:3.12", DIGEST)
    added = plain.with_packages(["tini", "git"], [GIT, "tini:amd64=0.19.0-1"])
    assert added == plain.with_packages(["git", "tini"], ["tini:amd64=0.19.0-1", GIT])
    assert added.asked == ("git", "tini") and added.plain == f"python:3.12@{DIGEST}"
    newer = plain.with_packages(["tini", "git"], [GIT, "tini:amd64=0.19.0-2"])
    assert newer.asked == added.asked and newer != added


def test_the_digest_of_packages_can_be_computed_without_this_tool() -> None:
    # printf 'git:amd64=1\ntini:amd64=2\n' | sha256sum
    expected = "9b8daaa8fe66ed0efd0d6bcef1667514375727a544e6295f5b6ca8af20b38c55"
    assert digest_of_packages(["tini:amd64=2", "git:amd64=1"]) == f"sha256:{expected}"
