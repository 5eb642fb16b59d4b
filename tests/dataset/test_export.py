"""An export describes and checks itself, and is there as a whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tomli
import yaml

import validator
from docs.examples import EXAMPLE, PAGE, export_to, refreshed
from validator.dataset import export
from validator.dataset.tables import SCHEMA_VERSION, TABLES
from validator.errors import InputError, MissingError
from validator.records import record_files
from validator.records.store import Store

from ..commands import ROOT, run
from ..records.values import record
from ..support import small_disk
from . import exports
from .conftest import RECORDS

PUBLISHED = Path(__file__).parent / "published"
#: Few rows, so that an export takes little time.
FEW = (*exports.SELECT, "gpu=h100", "driver=580")


def package_of(directory: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((directory / "datapackage.json").read_bytes())
    return document


def published(name: str) -> jsonschema.Draft4Validator:
    return jsonschema.Draft4Validator(json.loads((PUBLISHED / name).read_bytes()))


@pytest.mark.slow
def test_the_description_is_a_data_package(exported: Path) -> None:
    package = package_of(exported)
    published("data-package-1.json").validate(package)
    resources = package["resources"]
    assert len(resources) == len(TABLES) * len(export.FORMATS)
    assert len({resource["name"] for resource in resources}) == len(resources)
    for resource in resources:
        content = (exported / resource["path"]).read_bytes()
        assert resource["bytes"] == len(content)
        assert resource["hash"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        if resource["format"] == "json":
            assert (exported / resource["json_schema"]).is_file()


def test_the_tables_in_csv_have_a_schema(exported: Path) -> None:
    resources = package_of(exported)["resources"]
    tables = [resource for resource in resources if resource["profile"] == "tabular-data-resource"]
    assert [table["path"] for table in tables] == [f"{name}.csv" for name in exports.table_names()]
    valid = published("tabular-data-resource-1.json")
    keys = {}
    for table in tables:
        valid.validate(table)
        names = (exported / table["path"]).read_bytes().partition(b"\r\n")[0].decode().split(",")
        assert [field["name"] for field in table["schema"]["fields"]] == names
        for key in table["schema"].get("foreignKeys", []):
            keys[table["title"], key["fields"]] = key["reference"]["resource"]
    assert keys == {
        ("reasons", "fact"): "facts-csv",
        ("checks", "record"): "records-csv",
        ("fixes", "cause"): "causes-csv",
    }
    wrong = tables[0] | {"schema": {"fields": [{"name": "id", "type": "text"}]}}
    assert not valid.is_valid(wrong)


def test_the_description_has_versions_and_a_digest_of_the_rows(exported: Path) -> None:
    about = package_of(exported)["export"]
    assert package_of(exported)["version"] == about["tool"] == validator.__version__
    assert about["schema"] == SCHEMA_VERSION
    lines = ""
    for table in TABLES.values():
        text = (exported / f"{table.name}.json").read_text(encoding="utf-8")
        rows = [line.removesuffix(",") for line in text.splitlines()[1:-1]]
        digest = hashlib.sha256("".join(f"{row}\n" for row in rows).encode()).hexdigest()
        assert about["tables"][table.name] == {"rows": len(rows), "digest": f"sha256:{digest}"}
        lines += f"{digest} {table.name}\n"
    assert about["digest"] == f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"
    assert about["digest"] in (exported / "README.md").read_text(encoding="utf-8")


def test_the_sums_are_those_of_all_other_files(exported: Path) -> None:
    files = exports.files(exported)
    sums = files.pop("SHA256SUMS").decode()
    expected = [f"{hashlib.sha256(files[path]).hexdigest()}  {path}\n" for path in sorted(files)]
    assert sums == "".join(expected)


def test_the_licence_and_the_citation_are_those_of_the_repository(exported: Path) -> None:
    for name in ("LICENSE", "CITATION.cff"):
        assert (exported / name).read_bytes() == (ROOT / name).read_bytes()


def test_the_card_names_every_table_with_its_rows(exported: Path) -> None:
    card = (exported / "README.md").read_text(encoding="utf-8")
    for name, about in package_of(exported)["export"]["tables"].items():
        assert f"| `{name}` | {about['rows']} |" in card
    assert "`tensorflow=2.21.0`" in card
    assert "taken out of the records |" in card
    # Jinja's marks.
    assert "{{" not in card and "{%" not in card


@pytest.mark.slow
def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    records = list(record_files.read_file(RECORDS))
    for name in ("a", "b"):
        exports.write(tmp_path / name, records, selectors=FEW)
    assert exports.files(tmp_path / "a") == exports.files(tmp_path / "b")


@pytest.mark.slow
def test_the_same_rows_have_the_same_digest_in_other_formats(tmp_path: Path) -> None:
    whole = exports.write(tmp_path / "whole", selectors=FEW)
    part = exports.write(tmp_path / "part", selectors=FEW, formats=["csv"])
    other = exports.write(tmp_path / "other", selectors=exports.SELECT, formats=["csv"])
    assert whole.digest == part.digest != other.digest
    ends = {path.suffix for path in (tmp_path / "part").iterdir()} - {".cff", ".md", ""}
    assert ends == {".csv", ".json"}
    assert [path.name for path in (tmp_path / "part").glob("*.json")] == ["datapackage.json"]


def test_rows_of_several_groups_are_all_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet

    monkeypatch.setattr(export, "_GROUP", 100)
    exports.write(tmp_path / "data", formats=["json", "parquet"])
    file = pyarrow.parquet.ParquetFile(tmp_path / "data" / "messages.parquet")
    assert file.metadata.num_row_groups > 5
    assert exports.read_parquet(tmp_path / "data", "messages") == exports.read_json(
        tmp_path / "data", "messages"
    )


def test_an_older_export_is_replaced(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    exports.write(directory, selectors=FEW, formats=["csv", "json"])
    exports.write(directory, selectors=FEW, formats=["csv"])
    assert not (directory / "facts.json").exists()
    assert os.listdir(tmp_path) == ["data"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("notes.txt", "mine"),
        ("datapackage.json", "{"),
        ("datapackage.json", '{"name": "tensorflow-gpu-matrix", "resources": []}'),
        ("datapackage.json", '{"name": "of-somebody", "resources": [], "export": {"files": []}}'),
        ("datapackage.json", '["name"]'),
    ],
)
def test_another_directory_is_never_replaced(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match="is not empty and is not an export") as error:
        exports.write(tmp_path, selectors=FEW, formats=["csv"])
    assert error.value.hint == "choose a new directory"
    assert exports.files(tmp_path) == {name: text.encode()}


def test_an_export_with_a_file_of_the_user_s_is_not_replaced(tmp_path: Path) -> None:
    exports.write(tmp_path / "data", selectors=FEW, formats=["csv"])
    (tmp_path / "data" / "schemas" / "mine.txt").touch()
    with pytest.raises(InputError, match=r"is not a part of it: schemas/mine\.txt"):
        exports.write(tmp_path / "data", selectors=FEW, formats=["csv"])


@pytest.mark.service
def test_a_full_disk_leaves_nothing() -> None:
    with small_disk("128k") as place:
        for format_ in export.FORMATS:
            with pytest.raises(MissingError, match="no space left on the disk that holds"):
                exports.write(place / "data", formats=[format_], selectors=FEW)
            assert os.listdir(place) == []


def test_without_pyarrow_the_command_names_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    done = run("data", "export", tmp_path / "data", "--format", "csv,parquet")
    assert done.returncode == 3 and not (tmp_path / "data").exists()
    assert "Parquet needs the library pyarrow, which is not installed" in done.stderr
    assert "`./scripts/environment parquet`, or choose other formats with --format json,csv" in done.stderr
    for named in (("--format", "csv, json"), ()):
        done = run("data", "export", tmp_path / "data", *named, *selecting(FEW))
        assert done.returncode == 0 and not list(tmp_path.glob("data/*.parquet"))
        assert ("`./scripts/environment parquet` installs it." in done.stderr) == (not named)
    assert "9 tables as json, csv; data sha256:" in done.stderr


def selecting(selectors: tuple[str, ...]) -> list[str]:
    return [word for selector in selectors for word in ("--select", selector)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--format", "xlsx"],
            "'xlsx' is not a format: name some of json, csv, parquet, separated by commas",
        ),
        (["--format", ""], "'' is not a format"),
        (["--select", "tensorflow=9.9"], "has no cell that matches tensorflow=9.9"),
        (["--profile", "nightli"], 'the profile "nightli" is not known'),
    ],
)
def test_wrong_input_is_named_before_anything_is_written(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = run("data", "export", tmp_path / "data", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_the_command_exports_the_records_of_a_store(tmp_path: Path) -> None:
    kept = list(record_files.read_file(RECORDS))
    with Store(str(tmp_path / "records.db")) as store:
        store.add_all([*kept, record(1)])
    done = run(
        *("data", "export", tmp_path / "data", "--format", "json", "--profile", "full"),
        *("--store", tmp_path / "records.db", *selecting(FEW)),
    )
    assert done.returncode == 0
    assert done.stdout == ""
    assert f"{len(kept) + 1} records" in done.stderr
    rows = exports.read_json(tmp_path / "data", "records")
    assert {row["id"] for row in rows} == {one.id for one in (*kept, record(1))}
    assert package_of(tmp_path / "data")["export"]["redacted"] is True


def test_a_store_that_is_missing_is_an_error(tmp_path: Path) -> None:
    done = run("data", "export", tmp_path / "data", "--store", tmp_path / "none.db")
    assert done.returncode == 3
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_a_program_that_is_killed_leaves_no_export(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from validator.dataset import export as package\n"
        "package.card = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from validator.cli import run\n"
        "run(sys.argv[1:])\n"
    )
    arguments = ["data", "export", str(tmp_path / "data"), "--format", "csv", *selecting(FEW)]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run([sys.executable, "-c", program, *arguments], env=environment, cwd=ROOT)
    assert done.returncode == -9
    assert not (tmp_path / "data").exists()


def test_the_citation_of_an_export_can_be_read(exported: Path) -> None:
    assert yaml.safe_load((exported / "CITATION.cff").read_bytes())["version"] == validator.__version__


# CITATION.cff says how to cite this version, in the Citation File Format.


SCHEMA = Path(__file__).parent / "published" / "citation-file-format-1.2.0.json"


def problems(citation: Any) -> list[str]:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(citation)]


@pytest.fixture
def citation() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    return read


def test_it_is_valid_by_the_published_schema(citation: dict[str, Any]) -> None:
    assert problems(citation) == []


@pytest.mark.parametrize(
    "change", [{"license": "Apache 2"}, {"authors": []}, {"type": "data"}, {"doi": "none yet"}]
)
def test_the_schema_rejects_a_wrong_file(citation: dict[str, Any], change: dict[str, Any]) -> None:
    assert len(problems(citation | change)) == 1


def test_it_is_about_this_version_of_this_project(citation: dict[str, Any]) -> None:
    project = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["version"] == project["version"] == validator.__version__
    assert citation["license"] == project["license"]
    assert citation["url"] == project["urls"]["Homepage"]
    assert sorted(citation["keywords"]) == citation["keywords"]
    assert set(citation["keywords"]) <= set(project["keywords"])


# The examples in docs/how-to/use-the-data.md print what the page says.


@pytest.mark.slow
def test_the_examples_print_what_the_page_shows(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    found = list(EXAMPLE.finditer(page))
    # Every block of Python is one, and each shows something.
    assert len(found) == page.count("```python") == page.count("<!-- example") == 3
    assert all(match["shown"].strip() for match in found)
    export_to(tmp_path)
    assert refreshed(page, tmp_path) == page, "run scripts/update-docs"
