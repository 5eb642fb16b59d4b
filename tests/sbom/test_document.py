"""The list of what is in an image is valid, complete and always the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from validator import sbom as module
from validator.assemble.base_finder import BaseContents, contents_of_suite
from validator.errors import InputError
from validator.locks.lock_files import parse
from validator.resources import images_directory
from validator.sbom import document, render

from .images import BASE, LOCK

UNLISTED = BaseContents(BASE.origin)
PURLS = [
    "pkg:generic/python@3.11.14",
    "pkg:deb/debian/bash@5.2.15-2%2Bb13?arch=amd64&distro=debian-12&upstream=bash%405.2.15-2",
    "pkg:deb/debian/bsdutils@1:2.38.1-5%2Bdeb12u3?arch=amd64&distro=debian-12"
    "&upstream=util-linux%402.38.1-5%2Bdeb12u3",
    "pkg:deb/debian/tzdata@2026a-0%2Bdeb12u1?arch=all&distro=debian-12",
    "pkg:pypi/absl-py@2.5.1",
    "pkg:generic/ours@1.0%2Bcu12",
    "pkg:pypi/tensorflow@2.21.0",
]


def listed(lock: Any = LOCK, base: BaseContents = BASE) -> dict[str, Any]:
    return document(lock, base, {})


def real() -> dict[str, Any]:
    """Return the list of one of this project's own images."""
    text = (images_directory() / "locks" / "tf2.21.0-cuda12.5-cudnn9.3-py313.txt").read_text()
    return document(parse(text), contents_of_suite("trixie"), {})


#: By the SHA-256 of the wheels.
LICENSES = {"a" * 64: "Apache-2.0", "b" * 64: "BSD-3-Clause AND (MIT OR Zlib)"}
LICENSED = document(LOCK, BASE, {}, LICENSES)


@pytest.mark.parametrize(
    "one",
    [listed(), LICENSED, listed(base=UNLISTED), real()],
    ids=["small", "licensed", "unlisted", "real"],
)
def test_the_document_is_valid(one: dict[str, Any]) -> None:
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(render(one))
    assert error is None, error


def test_it_lists_each_package_with_its_url_its_hash_and_what_it_belongs_to() -> None:
    made = listed()
    found = {one["bom-ref"]: one for one in made["components"]}
    assert set(found) == {"base", "operating-system", *PURLS}
    assert {ref: found[ref]["purl"] for ref in PURLS} == {one: one for one in PURLS}
    hashes = {one["name"]: one["hashes"][0]["content"] for one in found.values() if "hashes" in one}
    assert hashes == {
        "python": "7" * 64, "bash": "d" * 64, "absl-py": "a" * 64, "ours": "b" * 64, "tensorflow": "c" * 64
    }  # fmt: skip
    needs = {one["ref"]: one.get("dependsOn") for one in made["dependencies"]}
    assert needs["image"] == sorted(["base", *PURLS[4:]])
    assert needs["base"] == sorted(["operating-system", *PURLS[:4]])
    assert made["metadata"]["component"]["name"] == LOCK.identifier
    assert made["metadata"]["component"]["properties"][0]["value"] == LOCK.digest
    assert (found["base"]["name"], found["base"]["version"]) == ("python", "3.11-slim-bookworm")
    files = {one["name"]: one["properties"][0]["value"] for one in found.values() if "properties" in one}
    assert files == {wheel.name: wheel.filename for wheel in LOCK.wheels}


@pytest.mark.parametrize(
    ("base", "system"),
    [
        (BASE, ("debian", "12")),
        (contents_of_suite("trixie"), ("debian", "13")),
        (UNLISTED, None),
        (replace(BASE, release=""), None),
    ],
)
def test_scanners_find_the_release_of_the_distribution(
    base: BaseContents, system: tuple[str, str] | None
) -> None:
    components = listed(base=base)["components"]
    found = [(one["name"], one["version"]) for one in components if one["type"] == "operating-system"]
    assert found == ([system] if system else [])


def test_it_says_which_licence_each_wheel_declares() -> None:
    found = {one["name"]: one.get("licenses") for one in LICENSED["components"]}
    assert found["absl-py"] == [{"license": {"id": "Apache-2.0", "acknowledgement": "declared"}}]
    assert found["ours"] == [{"expression": "BSD-3-Clause AND (MIT OR Zlib)", "acknowledgement": "declared"}]
    assert found["tensorflow"] is found["bash"] is None


def test_a_base_whose_packages_nobody_can_list_is_one_component() -> None:
    components = {one["name"]: one for one in listed(base=UNLISTED)["components"]}
    assert set(components) == {"absl-py", "ours", "tensorflow", "python"}
    assert components["python"]["bom-ref"] == "base"
    assert components["python"]["description"] == "The packages of this base are not listed."
    assert components["python"]["hashes"] == [{"alg": "SHA-256", "content": "7" * 64}]


def test_the_same_lock_gives_the_same_bytes() -> None:
    assert render(listed()) == render(document(replace(LOCK), replace(BASE), {}))


def test_another_version_of_the_tool_gives_another_list(monkeypatch: pytest.MonkeyPatch) -> None:
    before = listed()
    monkeypatch.setattr(module, "__version__", "0.0.1")
    assert listed()["serialNumber"] != before["serialNumber"]
    assert listed()["metadata"]["tools"]["components"][0]["version"] == "0.0.1"


@pytest.mark.parametrize(
    "other",
    [
        listed(replace(LOCK, wheels=LOCK.wheels[:2])),
        listed(replace(LOCK, identifier="tf2.21.0-cpu-py312")),
        LICENSED,
        listed(base=UNLISTED),
        listed(base=replace(BASE, packages=())),
        listed(base=replace(BASE, origin=BASE.origin.replace("7", "8"))),
        document(LOCK, BASE, {"SOURCE_DATE_EPOCH": "0"}),
    ],
)
def test_another_image_has_another_number(other: dict[str, Any]) -> None:
    assert other["serialNumber"] != listed()["serialNumber"]


@pytest.mark.parametrize(
    ("environment", "date"),
    [
        ({}, "2026-11-20T00:00:00"),
        ({"SOURCE_DATE_EPOCH": ""}, "2026-11-20T00:00:00"),
        ({"SOURCE_DATE_EPOCH": "1700000000"}, "2023-11-14T22:13:20"),
    ],
)
def test_the_date_is_that_of_the_lock_or_the_one_that_was_given(
    environment: dict[str, str], date: str
) -> None:
    assert document(LOCK, BASE, environment)["metadata"]["timestamp"] == f"{date}+00:00"


def test_a_lock_without_a_date_is_from_1970() -> None:
    made = document(replace(LOCK, resolved=None), BASE, {})
    assert made["metadata"]["timestamp"] == "1970-01-01T00:00:00+00:00"


@pytest.mark.parametrize("text", ["today", "1e3", "9" * 30])
def test_a_wrong_date_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match=r"SOURCE_DATE_EPOCH is .* not a number of seconds"):
        document(LOCK, BASE, {"SOURCE_DATE_EPOCH": text})


@pytest.mark.parametrize(
    ("origin", "name", "version", "digest"),
    [
        (f"bootstrap:bookworm@sha256:{'1' * 64}", "debian", "bookworm", "1" * 64),
        (
            f"registry:localhost:5000/team/base@sha256:{'1' * 64}",
            "localhost:5000/team/base",
            "latest",
            "1" * 64,
        ),
        (f"registry:python:3.12@sha256:{'1' * 64}+packages:abcdef012345", "python", "3.12", None),
        ("registry:mine:1", "mine", "1", None),
    ],
)
def test_a_base_has_the_name_and_the_digest_of_its_origin(
    origin: str, name: str, version: str, digest: str | None
) -> None:
    components = listed(base=replace(BASE, origin=origin))["components"]
    (base,) = (one for one in components if one["bom-ref"] == "base")
    hashes = [{"alg": "SHA-256", "content": digest}] if digest else None
    assert (base["name"], base["version"], base.get("hashes")) == (name, version, hashes)
