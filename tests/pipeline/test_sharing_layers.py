"""The shared layer table: written from locks, used by another machine, and checked by making layers again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from validator.assemble.image import OciLayout, assemble
from validator.assemble.layer_table import LayerTable, SharedRow, read_rows, write_rows
from validator.assemble.wheel_layers import plan_image
from validator.assemble.wheels import Wheelhouse
from validator.locks import lock_files
from validator.pipeline import sharing_layers
from validator.pipeline.sharing_layers import Image, LayerMaker, share
from validator.system.package_sources import PackageSources

from ..assemble.bases import CPU, FILES, GPU, Shelf, ThisPython, base_of, layer, lock_of, set_small_limits
from ..assemble.test_image import gpu_lock


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    set_small_limits(monkeypatch)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "shelf")


@pytest.fixture
def image(shelf: Shelf) -> Image:
    return Image(GPU, gpu_lock(shelf))


@pytest.fixture
def maker(tmp_path: Path, shelf: Shelf, image: Image) -> LayerMaker:
    return maker_at(tmp_path / "one", shelf, image)


def maker_at(directory: Path, shelf: Shelf, *images: Image) -> LayerMaker:
    """Return what makes layers on a machine that has all wheels, and did nothing so far."""
    wheels = directory / "wheels"
    wheels.mkdir(parents=True)
    for image in images:
        for wheel in image.lock.wheels:
            target = wheels / f"{wheel.sha256}.whl"
            if not target.exists():
                target.write_bytes(shelf.path(wheel).read_bytes())
    house = Wheelhouse(PackageSources(index_url="http://127.0.0.1:9/simple"), wheels)
    return LayerMaker(house, LayerTable(directory / "table"), lambda line: None)


@pytest.mark.slow
def test_the_rows_are_those_of_an_assembled_image(
    maker: LayerMaker, image: Image, shelf: Shelf, tmp_path: Path
) -> None:
    path = tmp_path / "layers.json"
    rows = maker.rows(image)
    assert share(path, rows, [image]) == (5, 0)
    table = LayerTable(tmp_path / "other", [path])
    base = base_of(table, layer(FILES))
    planned = plan_image(image.spec, image.lock, base, shelf, table, ThisPython())
    assembled = assemble(planned, OciLayout(tmp_path / "image", "x"), table, lambda line: None)
    expected = {one.name: one.encoded for one in assembled.layers if one.name in {row.name for row in rows}}
    assert {row.name: row.encoded for row in read_rows(path)} == expected
    assert "libtensorflow_cc.so.2" in expected and "tensorflow 1.0" in expected


def test_an_image_is_published_with_rows_of_another_machine(
    maker: LayerMaker, image: Image, shelf: Shelf, tmp_path: Path
) -> None:
    path = tmp_path / "layers.json"
    write_rows(path, maker.rows(image))
    there = OciLayout(tmp_path / "image", "x")
    for number in (1, 2):
        table = LayerTable(tmp_path / f"other{number}", [path])
        planned = plan_image(image.spec, image.lock, base_of(table, layer(FILES)), shelf, table)
        assembled = assemble(planned, there, table, lambda line: None)
        shared = {row.digest for row in read_rows(path)}
        made = [one.name for one in assembled.layers if one.is_new and one.encoded.digest in shared]
        assert len(made) == (5 if number == 1 else 0)
        # What only the file says does not count as made by this machine, for `certify`.
        unknown = [row.name for row in read_rows(path) if not table.has_content(row.diff_id)]
        assert len(unknown) == (0 if number == 1 else 5)


def test_a_layer_is_made_once(maker: LayerMaker, image: Image) -> None:
    rows = maker.rows(image)
    again = replace(maker, progress=lambda line: pytest.fail(line) if "making" in line else None)
    assert again.rows(image) == rows


def test_rows_are_right(maker: LayerMaker, image: Image, shelf: Shelf, tmp_path: Path) -> None:
    rows = maker.rows(image)
    other = maker_at(tmp_path / "two", shelf, image)
    assert list(other.problems(rows, [image])) == []


@pytest.mark.parametrize("field", ["name", "digest", "size", "diff_id", "annotations", "made_from", "recipe"])
def test_a_wrong_row_is_found(
    maker: LayerMaker, image: Image, shelf: Shelf, tmp_path: Path, field: str
) -> None:
    values: dict[str, object] = {
        "name": "x", "digest": f"sha256:{'0' * 64}", "size": 1, "diff_id": f"sha256:{'0' * 64}",
        "annotations": {"a": "b"}, "made_from": ("wheels 1", "0" * 64), "recipe": "gzip 0",
    }  # fmt: skip
    rows = maker.rows(image)
    wrong: list[SharedRow] = [msgspec.structs.replace(row, **{field: values[field]}) for row in rows]
    problems = list(maker_at(tmp_path / "two", shelf, image).problems(wrong, [image]))
    assert [problem.partition(": ")[0] for problem in problems] == [row.name for row in wrong]
    assert len(problems) == 5


def test_only_the_wheels_of_the_new_rows_are_needed(
    maker: LayerMaker, image: Image, shelf: Shelf, tmp_path: Path
) -> None:
    rows = {row.name: row for row in maker.rows(image)}
    other = maker_at(tmp_path / "two", shelf, image)
    for wheel in image.lock.wheels:
        if wheel.name in ("tensorflow", "numpy"):
            (tmp_path / "two/wheels" / f"{wheel.sha256}.whl").unlink()
    assert list(other.problems([rows["nvidia-cublas-cu12 1.0"]], [image])) == []


def test_rows_that_no_image_can_use_are_removed(
    maker: LayerMaker, image: Image, shelf: Shelf, tmp_path: Path
) -> None:
    path = tmp_path / "layers.json"
    rows = maker.rows(image)
    share(path, [msgspec.structs.replace(row, recipe="zstd 0") for row in rows], [image])
    assert share(path, rows, [image]) == (5, 5)
    tensorflow = image.lock.wheels[-1]
    small = Image(CPU, lock_of(CPU, shelf.wheel("six", {"six.py": b""}), tensorflow))
    assert share(path, [], [small]) == (0, 3)
    assert {row.name for row in read_rows(path)} == {"libtensorflow_cc.so.2", "tensorflow 1.0"}
    assert share(path, [], []) == (0, 2)
    assert path.read_text(encoding="utf-8") == "[]\n"


def test_the_check_of_a_change(
    maker: LayerMaker, image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    rows = maker.rows(image)
    (tmp_path / "images").mkdir()
    write_rows(tmp_path / "images/layers.json", rows)
    write_rows(tmp_path / "old.json", rows[1:])
    asked: list[SharedRow] = []

    def problems(self: LayerMaker, some: Sequence[SharedRow], images: Sequence[Image]) -> list[str]:
        asked.extend(some)
        assert [one.lock for one in images] == [image.lock]
        return ["it is wrong"] if asked[1:] else []

    (tmp_path / "matrix.yaml").write_text("", encoding="utf-8")
    lock_files.write(tmp_path / lock_files.DIRECTORY, image.lock)
    monkeypatch.setattr(sharing_layers, "images_directory", lambda: tmp_path / "images")
    monkeypatch.setattr(sharing_layers, "shipped_matrix", lambda: tmp_path / "matrix.yaml")
    monkeypatch.setattr(sharing_layers, "load_matrix", lambda path: SimpleNamespace(images=(image.spec,)))
    monkeypatch.setattr(sharing_layers, "locked_images", lambda specs, locks: [image])
    monkeypatch.setattr(LayerMaker, "problems", problems)
    assert sharing_layers.main([str(tmp_path / "old.json")]) == 0
    assert asked == [rows[0]]
    # A row that changed is new.
    write_rows(tmp_path / "old.json", [msgspec.structs.replace(row, size=1) for row in rows])
    assert sharing_layers.main([str(tmp_path / "old.json")]) == 1
    assert set(map(repr, asked)) == set(map(repr, rows))
    assert "it is wrong" in capsys.readouterr().err
