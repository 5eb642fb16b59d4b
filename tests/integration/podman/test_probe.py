"""The probe is as confined in Podman as in Docker, and what this machine does not allow is named."""

from pathlib import Path

import pytest

from validator.engines.docker import DockerEngine
from validator.errors import MissingError

from ..docker.conftest import quiet
from ..docker.test_probe import (  # noqa: F401
    LOOK,
    request,
    test_a_flood_on_stderr_does_no_harm,
    test_a_probe_is_ended_at_its_limit,
    test_a_probe_that_runs_out_of_memory_is_recognized,
    test_an_image_without_a_shell_is_named,
    test_an_image_without_python_is_named,
    test_endless_stdout_is_cut_off,
    test_leftovers_of_a_killed_run_are_removed_but_not_those_of_a_live_one,
    test_the_probe_is_confined,
    test_the_report_comes_only_from_stdout,
)


def test_limits_that_this_machine_does_not_allow_say_nothing_about_the_image(
    tiny_engine: DockerEngine, base_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No kernel allows so many open files, not even to root."""
    settings = tmp_path / "containers.conf"
    settings.write_text('[containers]\ndefault_ulimits = ["nofile=2000000000:2000000000"]\n')
    monkeypatch.setenv("CONTAINERS_CONF", str(settings))
    with pytest.raises(MissingError, match="limits of a container that this machine does not allow"):
        tiny_engine.probe_image(base_image, request(LOOK), quiet)
