"""images/bases.yaml: every default base has a digest."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.assemble.base_finder import FILE, TAG, pinned_bases, text_of
from validator.errors import InputError

PIN = "python:3.12-slim-bookworm@sha256:" + "a" * 64


def test_every_default_base_is_pinned_and_the_file_is_as_it_is_written() -> None:
    bases = pinned_bases()
    assert {python: base.partition("@")[0] for python, base in bases.items()} == {
        python: TAG.format(python) for python in bases
    }
    assert text_of(bases) == FILE.read_text()


@pytest.mark.parametrize(
    "text",
    [
        '"3.12": python:3.12-slim-bookworm\n',
        '"3.12": null\n',
        '"3.12": python:3.12-slim-bookworm@sha256:abc\n',
        '"3.12": python:3.12-slim-bookworm@md5:' + "a" * 64 + "\n",
        '"3.12": python@sha256:' + "a" * 64 + "\n",
        f'"3.12": [{PIN}]\n',
        f"latest: {PIN}\n",
        f'"3.11": {PIN}\n"3.12": python:3.12-slim-bookworm\n',
    ],
)
def test_an_unpinned_base_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bases.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"bases\.yaml: .* is not pinned") as raised:
        pinned_bases(path)
    assert "scripts/refresh bases" in str(raised.value.hint)


@pytest.mark.parametrize("text", ["", "[]", "x: [", "text"])
def test_a_file_without_bases_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bases.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"bases\.yaml"):
        pinned_bases(path)
