"""Test `report`, above all with `--html`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from validator import cli
from validator.errors import InputError
from validator.model.codec import encode
from validator.model.record import Record, Verdict
from validator.records.store import Store

from ..corpus.reader import REPORTS
from ..reports.page.test_site import detail_of
from ..reports.page.values import H100, certificate, image, measured

ROOT = Path(__file__).parents[2]
NEWEST = image()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a current directory with a copy of the matrix and its locks."""
    shutil.copy(ROOT / "matrix.yaml", tmp_path)
    shutil.copytree(ROOT / "images" / "locks", tmp_path / "images" / "locks")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VALIDATOR_REGISTRY", raising=False)
    return tmp_path


def add(*records: Record) -> None:
    with Store(".validator/records.db") as store:
        for record in records:
            store.add(record)


def html(*arguments: str) -> int:
    return cli.run(["report", "--profile", "nightly", "--html", "site", *arguments])


def details(project: Path) -> list[dict[str, object]]:
    return [detail_of(path.read_bytes()) for path in sorted((project / "site" / "data").glob("*.js"))]


@pytest.mark.slow
def test_the_page_is_written_and_updated(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(measured(NEWEST, H100, Verdict.FAILED, 1))
    assert html() == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Wrote site/index.html" in captured.err
    first = {path.name for path in (project / "site" / "data").iterdir()}
    assert len(first) == 1
    assert (project / "site" / "badges" / "2.21.svg").exists()
    assert html() == 0
    assert "(0 files written, " in capsys.readouterr().err
    add(measured(NEWEST, H100, Verdict.UNPROVEN, 2))
    assert html() == 0
    assert "1 removed)" in capsys.readouterr().err
    assert {path.name for path in (project / "site" / "data").iterdir()}.isdisjoint(first)


def test_without_a_selection_the_recorded_images_of_other_profiles_are_shown(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(
        measured(image("2.20.0"), H100, Verdict.FAILED, 1), measured(image("2.99.0"), H100, Verdict.FAILED, 2)
    )

    def shown(*arguments: str) -> dict[str, list[str]]:
        assert cli.run(["report", "--format", "json", *arguments]) == 0
        rows: dict[str, list[str]] = {}
        for row in json.loads(capsys.readouterr().out):
            assert row["prediction"] is not None
            rows.setdefault(row["image"], []).extend([row["host"]] if row["measured"] else [])
        return rows

    newest = "tf2.21.0-cuda12.9-cudnn9.28-py312"
    assert shown() == {newest: [], image("2.20.0").identifier: [H100.identifier]}
    assert shown("--profile", "quick") == {newest: []}
    assert shown("--select", "tensorflow=2.21") == {newest: []}


@pytest.mark.slow
def test_other_files_and_other_pages_are_left_alone(project: Path) -> None:
    (project / "site").mkdir()
    (project / "site" / "CNAME").write_text("mine")
    assert html() == 0
    assert (project / "site" / "CNAME").read_text() == "mine"
    (project / "site" / "index.html").write_text("mine")
    with pytest.raises(InputError, match="was not written by this program"):
        html()
    assert (project / "site" / "index.html").read_text() == "mine"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--html", "site", "--format", "json"],
        ["--html", "site", "--output", "report.md"],
        ["--certificates", "file.json"],
    ],
)
def test_contradicting_options_are_rejected(project: Path, arguments: list[str]) -> None:
    assert cli.run(["report", *arguments]) == 2
    assert not (project / "site").exists()


@pytest.mark.slow
def test_a_report_shows_its_cause_and_remedy(project: Path) -> None:
    report = next(REPORTS.glob("*library-path-unset.json"))
    assert cli.run(["records", "import", "--report", str(report)]) == 0
    assert html() == 0
    found = [entry for entry in details(project) if entry["causes"]]
    assert found
    causes = found[0]["causes"]
    assert isinstance(causes, list)
    assert any(cause["remedies"] for cause in causes)


@pytest.mark.slow
def test_the_page_shows_the_given_certificates_and_registry(project: Path) -> None:
    record = measured(NEWEST, H100, Verdict.CERTIFIED, 1)
    add(record)
    document = {"certificates": [encode(certificate(record))], "refused": []}
    (project / "verified.json").write_text(json.dumps(document))
    arguments = ("--certificates", "verified.json", "--certificates", "verified.json")
    assert html(*arguments, "--registry", "registry.example.org/team/tf") == 0
    [entry] = details(project)
    assert [each["signer"] for each in entry["certificates"]] == ["a key of the tests"]  # type: ignore[attr-defined]
    assert '"registry":"registry.example.org/team/tf"' in (project / "site" / "index.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"7", b"{}", b'{"certificates": 7}', b'{"certificates": [{}]}', b"\xff", b"[" * 100_000],
)
def test_a_file_without_certificates_is_rejected(project: Path, content: bytes) -> None:
    (project / "verified.json").write_bytes(content)
    with pytest.raises(InputError, match=r"verified\.json: not a file with certificates"):
        html("--certificates", "verified.json")
    assert not (project / "site").exists()


@pytest.mark.slow
def test_a_missing_file_of_certificates_is_rejected(project: Path) -> None:
    with pytest.raises(InputError, match=r"verified\.json: No such file"):
        html("--certificates", "verified.json")
