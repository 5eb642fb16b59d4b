"""The layer table: this machine's own rows, and those of the project."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from threading import Timer

import msgspec
import pytest

from validator.assemble.layer_table import LayerTable, SharedRow, read_rows, write_rows
from validator.assemble.layers import Encoded, layer_key
from validator.errors import InputError, MissingError

KEY = layer_key("gzip 1", ["wheels 1", "a" * 64])
ENCODED = Encoded("sha256:" + "1" * 64, 5, "sha256:" + "2" * 64, "application/x-layer", {"note": "one"})


def shared(name: str, recipe: str = "gzip 1") -> SharedRow:
    return SharedRow(
        name, recipe, ("wheels 1", "a" * 64), ENCODED.digest, 5, ENCODED.diff_id, ENCODED.media_type,
        annotations={"note": "one"},
    )  # fmt: skip


def test_a_row_is_found_by_another_process_later(tmp_path: Path) -> None:
    LayerTable(tmp_path).add(KEY, "numpy 2.0", ENCODED)
    table = LayerTable(tmp_path)
    row = table.row(KEY)
    assert row is not None and (row.key, row.name, row.encoded) == (KEY, "numpy 2.0", ENCODED)
    assert row.made_here
    assert table.row(layer_key("gzip 2", ["wheels 1", "a" * 64])) is None
    assert table.has_content(ENCODED.diff_id) and not table.has_content(ENCODED.digest)


def test_a_row_has_the_fields_that_earlier_versions_of_the_tool_know(tmp_path: Path) -> None:
    LayerTable(tmp_path).add(KEY, "numpy 2.0", replace(ENCODED, annotations={}))
    with closing(sqlite3.connect(tmp_path / "layers.sqlite")) as database:
        (row,) = database.execute("SELECT row FROM layers").fetchone()
    assert set(json.loads(row)) == {
        "key", "name", "digest", "size", "diff_id", "media_type", "annotations",
    }  # fmt: skip


def test_keys_depend_on_every_part() -> None:
    keys = [
        layer_key("r", ["a", "b"]),
        layer_key("r", ["ab"]),
        layer_key("ra", ["b"]),
        layer_key("r", ["b", "a"]),
    ]
    assert len(set(keys)) == 4


def test_a_row_of_the_project_counts_but_was_not_made_here(tmp_path: Path) -> None:
    path = tmp_path / "layers.json"
    write_rows(path, [shared("numpy 2.0")])
    table = LayerTable(tmp_path / "own", [tmp_path / "missing.json", path])
    row = table.row(KEY)
    assert row is not None and row.encoded == ENCODED and not row.made_here
    assert not table.has_content(ENCODED.diff_id)
    table.add(KEY, "numpy 2.0", ENCODED)
    assert table.row(KEY) == msgspec.structs.replace(row, made_here=True)


def test_a_wrong_row_of_the_project_is_named_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "layers.json"
    write_rows(path, [shared("numpy 2.0")])
    table = LayerTable(tmp_path / "own", [path])
    row = table.row(KEY)
    assert row is not None
    error = table.refuse(row, replace(ENCODED, digest="sha256:" + "9" * 64))
    assert str(error).startswith(f"{path} says that the layer 'numpy 2.0' is ")
    assert table.row(KEY) == row


def test_the_table_of_the_project_can_be_reviewed(tmp_path: Path) -> None:
    path = tmp_path / "layers.json"
    rows = [shared(name, name) for name in ("b", "a", "c")]
    write_rows(path, rows)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 5
    assert [line.partition('"name":"')[2][0] for line in lines[1:-1]] == ["a", "b", "c"]
    assert read_rows(path) == tuple(sorted(rows, key=lambda row: row.name))
    assert read_rows(tmp_path / "missing.json") == ()
    write_rows(path, [])
    assert read_rows(path) == ()


@pytest.mark.parametrize("text", ["", "{}", '[{"name": "x"}]', '[{"name":"x","digest":1}]'])
def test_a_table_of_the_project_that_is_not_valid_is_rejected(tmp_path: Path, text: str) -> None:
    path = tmp_path / "layers.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"layers\.json is not a table of layers"):
        LayerTable(tmp_path, [path])


def test_a_wrong_row_is_dropped_and_named(tmp_path: Path) -> None:
    table = LayerTable(tmp_path)
    table.add(KEY, "numpy 2.0", ENCODED)
    row = table.row(KEY)
    assert row is not None
    found = replace(ENCODED, digest="sha256:" + "9" * 64)
    error = table.refuse(row, found)
    assert KEY[:12] in str(error) and "numpy 2.0" in str(error) and found.digest in str(error)
    assert table.row(KEY) is None


def test_facts_are_read_once(tmp_path: Path) -> None:
    assert LayerTable(tmp_path).facts("key", lambda: {"a": [1]}) == {"a": [1]}
    assert LayerTable(tmp_path).facts("key", lambda: pytest.fail("read again")) == {"a": [1]}


def test_a_damaged_row_is_made_again(tmp_path: Path) -> None:
    LayerTable(tmp_path).add(KEY, "x", ENCODED)
    with sqlite3.connect(tmp_path / "layers.sqlite") as database:
        database.execute("UPDATE layers SET row = ?", (b"{",))
    assert LayerTable(tmp_path).row(KEY) is None


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "layers.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(MissingError, match=r"layers\.sqlite: the layer table can't be used"):
        LayerTable(tmp_path).row(KEY)


def _add_many(directory: Path, start: int) -> None:
    table = LayerTable(directory)
    for number in range(start, start + 25):
        table.add(layer_key("r", [str(number)]), str(number), ENCODED)


@pytest.mark.slow
def test_processes_write_at_the_same_time(tmp_path: Path) -> None:
    context = get_context("spawn")
    children = [context.Process(target=_add_many, args=(tmp_path, start)) for start in (0, 25)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0]
    table = LayerTable(tmp_path)
    assert all(table.row(layer_key("r", [str(number)])) for number in range(50))


def test_a_new_table_is_opened_while_another_process_opens_it(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "layers.sqlite", isolation_level=None, check_same_thread=False)
    other.execute("PRAGMA application_id = 1")
    # It is about to switch to the log.
    other.execute("BEGIN IMMEDIATE")
    ending = Timer(0.2, lambda: other.execute("COMMIT"))
    ending.start()
    table = LayerTable(tmp_path)
    table.add(KEY, "numpy 2.0", ENCODED)
    ending.join()
    assert table.row(KEY) is not None
    other.close()
