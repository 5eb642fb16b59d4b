"""The lists of what is in an image are valid, complete and always the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from validator.assemble.base_contents import BaseContents, contents_of_suite
from validator.errors import InputError
from validator.locks.lock_files import parse
from validator.resources import images_directory
from validator.sbom.bill import Bill, bill
from validator.sbom.cyclonedx import cyclonedx
from validator.sbom.documents import documents, render
from validator.sbom.spdx import spdx

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


def listed(lock: Any = LOCK, base: BaseContents = BASE) -> Bill:
    return bill(lock, base, {})


def real() -> Bill:
    """Return the list of one of this project's own images."""
    text = (images_directory() / "locks" / "tf2.21.0-cuda12.5-cudnn9.3-py313.txt").read_text()
    return bill(parse(text), contents_of_suite("trixie"), {})


#: By the SHA-256 of the wheels.
LICENSES = {"a" * 64: "Apache-2.0", "b" * 64: "BSD-3-Clause AND (MIT OR Zlib)"}
LICENSED = bill(LOCK, BASE, {}, LICENSES)


@pytest.mark.parametrize(
    "one",
    [listed(), LICENSED, listed(base=UNLISTED), real()],
    ids=["small", "licensed", "unlisted", "real"],
)
def test_both_documents_are_valid(one: Bill, tmp_path: Path) -> None:
    # Importing them takes as long as many tests, and each worker imports this module.
    from spdx_tools.spdx.parser.parse_anything import parse_file
    from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(render(cyclonedx(one)))
    assert error is None, error
    file = tmp_path / "image.spdx.json"
    file.write_text(render(spdx(one)))
    assert validate_full_spdx_document(parse_file(str(file))) == []


def test_cyclonedx_lists_each_package_with_its_url_its_hash_and_what_it_belongs_to() -> None:
    document = cyclonedx(listed())
    found = {one["bom-ref"]: one for one in document["components"]}
    assert set(found) == {"base", "operating-system", *PURLS}
    assert {ref: found[ref]["purl"] for ref in PURLS} == {one: one for one in PURLS}
    hashes = {one["name"]: one["hashes"][0]["content"] for one in found.values() if "hashes" in one}
    assert hashes == {
        "python": "7" * 64, "bash": "d" * 64, "absl-py": "a" * 64, "ours": "b" * 64, "tensorflow": "c" * 64
    }  # fmt: skip
    needs = {one["ref"]: one.get("dependsOn") for one in document["dependencies"]}
    assert needs["image"] == sorted(["base", *PURLS[4:]])
    assert needs["base"] == sorted(["operating-system", *PURLS[:4]])
    assert document["metadata"]["component"]["name"] == LOCK.identifier
    assert document["metadata"]["component"]["properties"][0]["value"] == LOCK.digest
    assert (found["base"]["name"], found["base"]["version"]) == ("python", "3.11-slim-bookworm")


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
    components = cyclonedx(listed(base=base))["components"]
    found = [(one["name"], one["version"]) for one in components if one["type"] == "operating-system"]
    assert found == ([system] if system else [])


def test_spdx_says_the_same() -> None:
    document = spdx(listed())
    found = {one["SPDXID"]: one for one in document["packages"]}
    purls = {
        key: one["externalRefs"][0]["referenceLocator"] for key, one in found.items() if "externalRefs" in one
    }
    assert sorted(purls.values()) == sorted(PURLS)
    pairs = [
        (one["spdxElementId"], one["relationshipType"], one["relatedSpdxElement"])
        for one in document["relationships"]
    ]
    assert ("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Image") in pairs
    assert ("SPDXRef-Image", "DESCENDANT_OF", "SPDXRef-Base") in pairs
    inside = {(one, purls[other]) for one, kind, other in pairs if kind == "CONTAINS"}
    assert inside == {("SPDXRef-Base", one) for one in PURLS[:4]} | {
        ("SPDXRef-Image", one) for one in PURLS[4:]
    }
    tensorflow = next(one for one in found.values() if one["name"] == "tensorflow")
    assert tensorflow["checksums"] == [{"algorithm": "SHA256", "checksumValue": "c" * 64}]
    assert tensorflow["packageFileName"] == LOCK.wheels[2].filename


def test_both_say_which_licence_each_wheel_declares() -> None:
    found = {one["name"]: one.get("licenses") for one in cyclonedx(LICENSED)["components"]}
    assert found["absl-py"] == [{"license": {"id": "Apache-2.0", "acknowledgement": "declared"}}]
    assert found["ours"] == [{"expression": "BSD-3-Clause AND (MIT OR Zlib)", "acknowledgement": "declared"}]
    assert found["tensorflow"] is found["bash"] is None
    declared = {one["name"]: one["licenseDeclared"] for one in spdx(LICENSED)["packages"]}
    assert declared["absl-py"] == "Apache-2.0" and declared["ours"] == "BSD-3-Clause AND (MIT OR Zlib)"
    assert declared["tensorflow"] == declared["bash"] == "NOASSERTION"
    assert {one["licenseConcluded"] for one in spdx(LICENSED)["packages"]} == {"NOASSERTION"}


def test_a_base_whose_packages_nobody_can_list_is_one_component() -> None:
    one = listed(base=UNLISTED)
    assert [part.name for part in one.components] == ["absl-py", "ours", "tensorflow"]
    (base,) = (part for part in cyclonedx(one)["components"] if part["bom-ref"] == "base")
    assert base["description"] == "The packages of this base are not listed."
    assert base["hashes"] == [{"alg": "SHA-256", "content": "7" * 64}]
    assert spdx(one)["packages"][1]["comment"] == "The packages of this base are not listed."


def test_the_same_lock_gives_the_same_bytes() -> None:
    first, again = documents(listed()), documents(bill(replace(LOCK), replace(BASE), {}))
    assert [render(one) for one in first.values()] == [render(one) for one in again.values()]


@pytest.mark.parametrize(
    "other",
    [
        listed(replace(LOCK, wheels=LOCK.wheels[:2])),
        listed(replace(LOCK, identifier="tf2.21.0-cpu-py312")),
        LICENSED,
        listed(base=UNLISTED),
        listed(base=replace(BASE, packages=())),
        listed(base=replace(BASE, origin=BASE.origin.replace("7", "8"))),
        bill(LOCK, BASE, {"SOURCE_DATE_EPOCH": "0"}),
        replace(listed(), tool_version="0.0.1"),
    ],
)
def test_another_image_has_another_number(other: Bill) -> None:
    assert cyclonedx(other)["serialNumber"] != cyclonedx(listed())["serialNumber"]
    assert spdx(other)["documentNamespace"] != spdx(listed())["documentNamespace"]


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
    made = bill(LOCK, BASE, environment)
    assert cyclonedx(made)["metadata"]["timestamp"] == f"{date}+00:00"
    assert spdx(made)["creationInfo"]["created"] == f"{date}Z"


def test_a_lock_without_a_date_is_from_1970() -> None:
    made = bill(replace(LOCK, resolved=None), BASE, {})
    assert cyclonedx(made)["metadata"]["timestamp"] == "1970-01-01T00:00:00+00:00"


@pytest.mark.parametrize("text", ["today", "1e3", "9" * 30])
def test_a_wrong_date_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match=r"SOURCE_DATE_EPOCH is .* not a number of seconds"):
        bill(LOCK, BASE, {"SOURCE_DATE_EPOCH": text})


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
    one = listed(base=replace(BASE, origin=origin))
    assert (one.base_name, one.base_version, one.base_digest) == (name, version, digest)
