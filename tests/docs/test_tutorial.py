"""The tutorial, from the first step to the last that needs no engine, in a new directory without a GPU.

`tests/integration/docker/test_rehearsal.py` does the steps from the build to the pull with a real engine.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from docs.transcripts import ROOT
from validator.delivery.choose import Host
from validator.errors import EXIT_OK, MissingError
from validator.matrix.load import load_matrix
from validator.matrix.plan import plan

from ..commands import Done, run
from .shown import Block, of_this_tool, read

PAGE = ROOT / "docs/tutorial/first-image.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = list(read(str(PAGE.relative_to(ROOT)), TEXT))


def block(beginning: str) -> Block:
    """Return the block with a command that begins so."""
    return next(found for found in BLOCKS for command in found.commands if command.startswith(beginning))


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Done]:
    """Return what each command printed, in the order of the page."""

    def nothing() -> Host:
        raise MissingError("this machine has no NVIDIA driver")

    monkeypatch.setattr("validator.delivery.choose.this_host", nothing)
    found = {}
    for step in ("init", "plan", "records list", "report"):
        (arguments,) = of_this_tool(
            next(one for one in block(f"validator {step}").commands if one.startswith(f"validator {step}"))
        )
        found[step] = run(*arguments, cwd=tmp_path)
    return found


@pytest.mark.slow
def test_the_steps_without_an_engine_do_what_the_page_says(typed: dict[str, Done], tmp_path: Path) -> None:
    assert {step: done.returncode for step, done in typed.items()} == dict.fromkeys(typed, EXIT_OK)
    assert (typed["plan"].stdout + typed["plan"].stderr).rstrip("\n") == block("validator plan").output
    assert (tmp_path / "page/index.html").is_file()


@pytest.mark.slow
def test_init_writes_what_the_table_lists(typed: dict[str, Done], tmp_path: Path) -> None:
    rows = re.findall(r"^\| `(\S+?)`(?:, in `(\S+)`)? \|", TEXT, re.MULTILINE)
    listed = {Path(directory, name) for name, directory in rows}
    assert {path for path in listed if not (tmp_path / path).exists()} == {Path("trust.yaml")}
    assert typed["init"].returncode == EXIT_OK


@pytest.mark.slow
def test_the_image_with_packages_is_the_one_of_init_with_two_more_lines(
    typed: dict[str, Done], tmp_path: Path
) -> None:
    (shown,) = (yaml.safe_load(found.text) for found in BLOCKS if found.language == "yaml")
    matrix = tmp_path / "matrix.yaml"
    written = yaml.safe_load(matrix.read_text())
    added = {key: shown["images"][0].pop(key) for key in ("name", "packages")}
    assert shown["images"][0] == written["images"][0]
    written["images"][0] |= added
    matrix.write_text(yaml.safe_dump(written))
    (image,) = plan(load_matrix(matrix), "quick").images
    assert image.identifier.endswith("_ours")
    assert typed["init"].returncode == EXIT_OK


def test_the_names_of_images_are_those_of_the_plan() -> None:
    """`docker run` starts the image that `init` chose."""
    (planned,) = re.findall(r"^(tf\S+?)@", block("validator plan").output, re.MULTILINE)
    assert set(re.findall(r"tensorflow-gpu-matrix:(tf\S+)", TEXT)) == {planned}
