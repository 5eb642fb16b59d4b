"""`audit` matches what is in an image against a database, and says what it could not match."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from validator.reports.audit import AuditDocument

from ..audit.databases import OTHER, Entry, affected, entry, events, write
from ..commands import Done, run
from ..documented import misfits

NAME = "tf2.21.0-cuda12.5-cudnn9.3-py313"
FIXABLE = entry(
    "GHSA-aaaa-bbbb-cccc", affected("tensorflow", events(("introduced", "0"), ("fixed", "2.21.1"))),
    aliases=["CVE-2026-1000"], summary="Crash \x1b[31min\n::error::a kernel",
    database_specific={"severity": "HIGH"},
)  # fmt: skip
UNFIXED = entry(
    "PYSEC-2026-9", affected("keras", events(("introduced", "0"))), modified="2100-01-01T00:00:00Z"
)


def audited(
    path: Path, *entries: Entry | bytes, options: tuple[str, ...] = (), base: str = "unlisted"
) -> Done:
    place = write(path / "database", *entries)
    return run("audit", NAME, "--base", base, "--database", place, *options)


def test_findings_are_shown_the_most_severe_first(tmp_path: Path) -> None:
    done = audited(tmp_path, UNFIXED, FIXABLE)
    assert done.returncode == 1
    head, first, second = done.stdout.splitlines()
    assert head.split() == ["severity", "package", "version", "fixed", "in", "vulnerability", "summary"]
    assert first.startswith("high") and "2.21.1" in first and "CVE-2026-1000 GHSA-aaaa-bbbb-cccc" in first
    assert second.startswith("unknown") and "no fix yet" in second
    assert "\x1b" not in done.stdout and "\n::error::" not in done.stdout
    assert "2 findings in 2 of the" in done.stderr
    assert "no Debian packages are listed, so those of the base are not audited" in done.stderr


@pytest.mark.parametrize(
    ("fail_on", "with_fixable", "with_unfixed"),
    [
        ("any", 1, 1), ("fixable", 1, 0), ("none", 0, 0), ("low", 1, 0), ("high", 1, 0), ("critical", 0, 0),
    ],
)  # fmt: skip
def test_the_exit_code_is_chosen(tmp_path: Path, fail_on: str, with_fixable: int, with_unfixed: int) -> None:
    options = ("--fail-on", fail_on)
    assert audited(tmp_path / "1", FIXABLE, options=options).returncode == with_fixable
    unfixed = audited(tmp_path / "2", UNFIXED, options=options)
    assert unfixed.returncode == with_unfixed
    assert ("1 finding without a severity" in unfixed.stderr) == (fail_on in ("low", "high", "critical"))


def test_json_has_what_the_table_has_and_more(tmp_path: Path) -> None:
    done = audited(tmp_path, FIXABLE, b"{", OTHER, options=("--json",), base="bootstrap")
    document = json.loads(done.stdout)
    assert (done.returncode, document["failed"], document["image"]) == (1, True, NAME)
    assert list(misfits(document, AuditDocument)) == []
    (finding,) = document["findings"]
    assert (finding["name"], finding["severity"], finding["fixed"]) == ("tensorflow", "high", "2.21.1")
    assert document["database"]["entries"] == 2 and document["database"]["unreadable"] == 1
    assert document["packages"]["system"] and document["packages"]["not_audited"] == []
    assert "no Debian packages" not in done.stderr


def test_an_old_database_and_files_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    old = {**FIXABLE, "modified": "2020-01-01T00:00:00Z"}
    done = audited(tmp_path, old, b"{")
    assert "days old, so newer vulnerabilities are not found" in done.stderr
    assert "1 file of the database can't be read" in done.stderr and "001.json" in done.stderr
    assert "days old" not in audited(tmp_path / "new", UNFIXED).stderr


def test_without_a_finding_all_is_well(tmp_path: Path) -> None:
    done = audited(tmp_path, OTHER, base="bootstrap")
    assert (done.returncode, done.stdout) == (0, "")
    assert "No known vulnerability in the" in done.stderr


def test_a_database_of_another_ecosystem_is_not_a_success(tmp_path: Path) -> None:
    done = audited(tmp_path, UNFIXED, base="bootstrap", options=("--fail-on", "none"))
    assert done.returncode == 2 and "no entries about Debian:1" in done.stderr
    assert "No known vulnerability" not in done.stderr and done.stdout == ""


def test_what_is_not_matched_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    components = [
        {"name": "tensorflow", "purl": "pkg:pypi/tensorflow@2.21.1"},
        {"name": "bash", "purl": "pkg:deb/ubuntu/bash@5.2?distro=ubuntu-24.04"},
    ]
    document = {"bomFormat": "CycloneDX", "components": components}
    monkeypatch.setattr("validator.cli.audit.read_sbom", lambda *_: document)
    done = audited(tmp_path, FIXABLE)
    assert done.returncode == 0
    # osv.dev has a database of Ubuntu, which would not help.
    assert "Not audited, because `audit` matches only packages of PyPI and of Debian: bash\n" in done.stderr


@pytest.mark.parametrize("content", [b"", b"not json"])
def test_a_path_that_is_no_database_is_an_error(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file.json"
    file.write_bytes(content)
    done = run("audit", NAME, "--base", "unlisted", "--database", file)
    assert done.returncode == 2 and "no vulnerability in the format OSV" in done.stderr
    assert run("audit", NAME, "--database", tmp_path / "none").returncode == 2
