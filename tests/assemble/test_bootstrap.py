"""The requirements of a machine that bootstraps a base."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.assemble import bootstrap
from validator.errors import MissingError


def test_a_machine_without_dpkg_deb_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("apt-helper", "dpkg-deb", "mmdebstrap"):
        (programs / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(bootstrap, "HELPER", programs / "apt-helper")
    assert bootstrap.tool() == "mmdebstrap"
    (programs / "dpkg-deb").unlink()
    assert bootstrap.tool() is None
    with pytest.raises(MissingError, match="lacks apt, dpkg-deb") as caught:
        bootstrap.root_file_system("bookworm", tmp_path, lambda _: None)
    assert "install apt, dpkg and mmdebstrap" in str(caught.value.hint)


@pytest.mark.service
def test_the_steps_of_a_tool_are_told_and_not_its_lines() -> None:
    lines = (
        "I: extracting archives...",
        "Selecting previously unselected package x.",
        "I: success in 3.1 seconds",
    )
    said: list[str] = []
    bootstrap._run(["sh", "-c", "printf '%s\\n' \"$@\" >&2", "sh", *lines], "bookworm", said.append)
    assert said == ["bootstrapping Debian bookworm: extracting archives"]
