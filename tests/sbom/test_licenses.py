"""The licences of wheels are read from their METADATA, and only what is unambiguous counts."""

from __future__ import annotations

import errno
import os
import zipfile
from dataclasses import replace
from email import message_from_bytes
from pathlib import Path

import pytest
from cyclonedx.spdx import is_supported_id

from validator.sbom import CLASSIFIERS, declared_licenses, document_of_lock, license_of

from .images import BASE, LOCK

MIT, ISC = "License :: OSI Approved :: MIT License", "License :: OSI Approved :: ISC License (ISCL)"
APACHE, BSD = (
    f"License :: OSI Approved :: {name}" for name in ("Apache Software License", "BSD License")
)  # fmt: skip


def metadata(*fields: tuple[str, str]) -> bytes:
    head = [("Metadata-Version", "2.4"), ("Name", "demo"), ("Version", "1.0"), *fields]
    lines = "".join(f"{name}: {value}\n" for name, value in head)
    return f"{lines}\nLicense-Expression: 0BSD\nClassifier: {MIT}\n".encode()


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ([("License-Expression", "BSD-3-Clause AND (MIT OR Zlib)")], "BSD-3-Clause AND (MIT OR Zlib)"),
        ([("License-Expression", "mit"), ("License", "ISC"), ("Classifier", ISC)], "MIT"),
        ([("License-Expression", "Apache-2.0 WITH LLVM-exception")], "Apache-2.0 WITH LLVM-exception"),
        ([("License-Expression", "LicenseRef-NVIDIA"), ("Classifier", MIT)], None),
        ([("License", "MPL-2.0"), ("Classifier", MIT)], "MPL-2.0"),
        ([("License", "bsd-3-clause")], "BSD-3-Clause"),
        ([("License", "Apache 2.0"), ("Classifier", APACHE)], None),
        ([("License", "MIT License"), ("Classifier", MIT), ("Classifier", "Framework :: IPython")], "MIT"),
        ([("License", "Copyright (c) 2015\n        Permission is hereby"), ("Classifier", MIT)], "MIT"),
        ([("License", "BSD 3-Clause"), ("Classifier", BSD)], None),
        ([("Classifier", MIT), ("Classifier", ISC)], None),
        ([("Classifier", MIT), ("Classifier", MIT)], "MIT"),
        ([("License", "MIT OR ISC")], None),
        ([("License", "")], None),
        ([], None),
    ],
)
def test_what_metadata_declares(fields: list[tuple[str, str]], found: str | None) -> None:
    assert license_of(message_from_bytes(metadata(*fields))) == found


def test_bytes_that_are_no_text_are_no_licence() -> None:
    assert license_of(message_from_bytes(b"License: \xff\xfe\nClassifier: \xff\n\n")) is None


def test_classifiers_stand_for_licences_of_the_list() -> None:
    assert all(map(is_supported_id, CLASSIFIERS.values()))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VALIDATOR_CACHE", str(tmp_path))
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    return wheels


def test_a_wheel_in_the_cache_says_its_licence(cache: Path) -> None:
    absl, ours, tensorflow = LOCK.wheels
    with zipfile.ZipFile(cache / f"{absl.sha256}.whl", "w") as archive:
        archive.writestr("absl/METADATA", metadata(("License-Expression", "ISC")))
        archive.writestr("absl_py-2.5.1.dist-info/METADATA", metadata(("License-Expression", "Apache-2.0")))
    (cache / f"{ours.sha256}.whl").write_bytes(b"PK damaged")
    assert declared_licenses(LOCK) == {absl.sha256: "Apache-2.0"}
    declared = {one["name"]: one.get("licenses") for one in document_of_lock(LOCK, BASE)["components"]}
    assert declared["absl-py"] == [{"license": {"id": "Apache-2.0", "acknowledgement": "declared"}}]
    assert declared["ours"] is declared["tensorflow"] is None
    assert declared_licenses(replace(LOCK, wheels=(tensorflow,))) == {}


@pytest.mark.parametrize("code", [errno.EACCES, errno.EISDIR, errno.EIO])
@pytest.mark.parametrize("member", [False, True], ids=["open", "read"])
def test_a_wheel_that_cannot_be_read_has_no_licence(
    code: int, member: bool, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> bytes:
        raise OSError(code, os.strerror(code))

    with zipfile.ZipFile(cache / f"{LOCK.wheels[0].sha256}.whl", "w") as archive:
        archive.writestr("absl_py-2.5.1.dist-info/METADATA", metadata(("License-Expression", "Apache-2.0")))
    monkeypatch.setattr(zipfile.ZipFile, "read" if member else "__init__", fails)
    # An object that was not made completely is closed as well.
    monkeypatch.setattr(zipfile.ZipFile, "__del__", lambda _: None)
    assert declared_licenses(LOCK) == {}


def test_metadata_in_another_encoding_says_its_licence(cache: Path) -> None:
    content = metadata(("Author", "Jos\u00e9"), ("License-Expression", "Apache-2.0")).decode()
    with zipfile.ZipFile(cache / f"{LOCK.wheels[0].sha256}.whl", "w") as archive:
        archive.writestr("absl_py-2.5.1.dist-info/METADATA", content.encode("latin-1"))
    assert declared_licenses(LOCK) == {LOCK.wheels[0].sha256: "Apache-2.0"}
