"""Provenance is read back as it was written, and nothing else is accepted. Nothing is signed here."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from validator.certify.provenance import (
    BUILD_TYPE,
    Inputs,
    NoProvenance,
    Provenance,
    builder_id,
    read_provenance,
    statement,
)
from validator.certify.trust import Party, Signatory
from validator.errors import InputError, ValidatorError
from validator.model.record import BaseOrigin

from .building import INPUTS

ADDED = ("git:amd64=1:2.39.5-0+deb12u2", "libc-l10n:all=2.36-9")
WITH_PACKAGES = replace(
    INPUTS,
    base=BaseOrigin("registry", "python:3.12", f"sha256:{'7' * 64}").with_packages(["git"], ADDED),
    added=ADDED,
)
DIGEST = "sha256:" + "d" * 64
WORKFLOW = "https://github.com/team/tf/.github/workflows/nightly.yml@refs/heads/main"
BUILDER = Party(
    "ci",
    Signatory(identity=WORKFLOW, issuer="https://token.actions.githubusercontent.com"),
    datetime(2030, 1, 1, tzinfo=timezone.utc),
)
FINISHED = "2026-11-20T01:05:00+00:00"


def payload(inputs: Inputs = INPUTS) -> bytes:
    return statement(DIGEST, inputs, "registry.example/tf", BUILDER.signatory, finished=FINISHED)


def test_it_is_slsa_provenance() -> None:
    document = json.loads(payload())
    assert document["_type"] == "https://in-toto.io/Statement/v1"
    assert document["predicateType"] == "https://slsa.dev/provenance/v1"
    assert document["subject"] == [{"name": "registry.example/tf", "digest": {"sha256": "d" * 64}}]
    definition = document["predicate"]["buildDefinition"]
    assert definition["buildType"] == BUILD_TYPE
    assert definition["externalParameters"] == {"image": "tf2.21.0-cuda12.5-cudnn9.3-py312"}
    digests = {entry["name"]: entry["digest"] for entry in definition["resolvedDependencies"]}
    assert digests == {
        "lock": {"sha256": "5" * 64},
        "recipe": {"sha256": "6" * 64},
        "base": {"sha256": "7" * 64},
        "source": {"gitCommit": "8" * 40},
    }
    assert document["predicate"]["runDetails"]["builder"]["id"] == WORKFLOW
    assert document["predicate"]["runDetails"]["metadata"] == {"finishedOn": FINISHED}


def test_a_builder_with_a_key_is_named_by_its_fingerprint() -> None:
    key = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"
    assert builder_id(Signatory(key=key)).startswith(
        "https://tensorflow-gpu-matrix.github.io/builder#sha256:"
    )


@pytest.mark.parametrize(
    "inputs",
    [
        INPUTS,
        replace(INPUTS, source_commit=None),
        replace(INPUTS, base=BaseOrigin("bootstrap", "bookworm", f"sha256:{'7' * 64}")),
        replace(INPUTS, base=BaseOrigin("registry", "localhost:5000/team/base:1", f"sha256:{'7' * 64}")),
        WITH_PACKAGES,
    ],
)
def test_it_is_read_back_as_it_was_written(inputs: Inputs) -> None:
    assert read_provenance(payload(inputs), DIGEST, BUILDER) == Provenance(
        DIGEST, inputs, "ci", FINISHED, fixture=False
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda one: one["annotations"]["installed"].pop(), "does not have the digest that it names"),
        (lambda one: one["annotations"].update(installed=["curl"]), "does not have the digest"),
        (lambda one: one.update(digest={"sha256": "0" * 64}), "its packages are not those of its base"),
        (lambda one: one.pop("annotations"), "its packages has annotations that"),
        (lambda one: one.update(name="tools"), "instead of its lock, recipe, base"),
    ],
)
def test_packages_that_are_not_those_of_the_base_are_rejected(
    change: Callable[[dict[str, Any]], object], why: str
) -> None:
    document = json.loads(payload(WITH_PACKAGES))
    change(dependency(document, "packages"))
    with pytest.raises(NoProvenance) as caught:
        read_provenance(json.dumps(document).encode(), DIGEST, BUILDER)
    assert why in str(caught.value)


def test_a_base_to_which_nothing_was_added_has_no_packages() -> None:
    document = json.loads(payload())
    definition(document)["resolvedDependencies"].append(
        dependency(json.loads(payload(WITH_PACKAGES)), "packages")
    )
    with pytest.raises(NoProvenance, match="its packages are not those of its base"):
        read_provenance(json.dumps(document).encode(), DIGEST, BUILDER)


def test_a_base_without_a_digest_gets_no_provenance() -> None:
    with pytest.raises(ValidatorError, match="its base registry:mine:latest has no digest"):
        payload(replace(INPUTS, base=BaseOrigin("registry", "mine:latest", None)))
    with pytest.raises(InputError, match="not a valid digest"):
        payload(replace(INPUTS, lock_digest="sha256:abc"))


def definition(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["predicate"]["buildDefinition"]
    return found


def dependency(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(
        entry for entry in definition(document)["resolvedDependencies"] if entry["name"] == name
    )
    return found


def run(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["predicate"]["runDetails"]
    return found


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda d: d.update(_type="https://in-toto.io/Statement/v0.1"), "not SLSA provenance v1"),
        (lambda d: d.update(predicateType="https://slsa.dev/provenance/v0.2"), "not SLSA provenance v1"),
        (lambda d: d["subject"][0]["digest"].update(sha256="e" * 64), "it is about another image"),
        (lambda d: d["subject"].append(d["subject"][0]), "it is about another image"),
        (lambda d: d.update(subject=[]), "it is about another image"),
        (lambda d: definition(d).update(buildType="https://example.org/make"), "its build type is"),
        (lambda d: definition(d)["externalParameters"].update(command="curl"), "unknown field `command`"),
        (lambda d: definition(d)["internalParameters"].update(a=1), "unknown field `a`"),
        (lambda d: definition(d)["resolvedDependencies"].pop(0), "instead of its lock, recipe, base"),
        (
            lambda d: definition(d)["resolvedDependencies"].append(dependency(d, "lock")),
            "instead of its lock, recipe, base",
        ),
        (lambda d: dependency(d, "lock").update(digest={"sha256": "5"}), "its lock has no SHA-256 digest"),
        (lambda d: dependency(d, "lock").update(digest={"md5": "5"}), "its lock has no SHA-256 digest"),
        (lambda d: dependency(d, "base").update(digest={"sha256": "0" * 64}), "does not have the digest"),
        (lambda d: dependency(d, "base").pop("uri"), "does not have the digest"),
        (lambda d: dependency(d, "source").update(digest={"gitCommit": "main"}), "not a commit"),
        (lambda d: run(d)["builder"].update(id="https://example.org/ci"), "it names a builder other"),
        (lambda d: run(d)["metadata"].update(finishedOn="today"), "finishedOn is not a timestamp"),
        (lambda d: run(d).pop("metadata"), "predicate.runDetails.metadata: missing"),
        (lambda d: d.update(predicate=[]), "predicate: expected `object`"),
    ],
)
def test_anything_else_is_rejected(change: Callable[[dict[str, Any]], object], why: str) -> None:
    document = copy.deepcopy(json.loads(payload()))
    change(document)
    with pytest.raises(NoProvenance) as caught:
        read_provenance(json.dumps(document).encode(), DIGEST, BUILDER)
    assert why in str(caught.value)


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_anything_but_a_statement_is_rejected(text: bytes) -> None:
    with pytest.raises(NoProvenance, match="not provenance as this project writes it"):
        read_provenance(text, DIGEST, BUILDER)


def test_a_name_that_is_given_twice_is_rejected() -> None:
    twice = payload().replace(b'"buildType":', b'"buildType":"https://example.org","buildType":', 1)
    with pytest.raises(NoProvenance, match="twice"):
        read_provenance(twice, DIGEST, BUILDER)
