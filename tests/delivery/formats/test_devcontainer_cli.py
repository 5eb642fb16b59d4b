"""The devcontainer.json is read by the real Dev Containers CLI, which editors use too.

It doesn't check names and types of properties, which `test_devcontainer` does.
`tests/integration/docker/test_devcontainer.py` opens the container.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from validator.delivery.formats import write_devcontainer
from validator.delivery.start import Devices
from validator.system.package_sources import npm_package

from . import starts
from .starts import start
from .test_devcontainer import read

#: npm, from which it comes, is a package index.
pytestmark = pytest.mark.engine

VERSION = "0.89.0"
INTEGRITY = "sha512-LzaoOGKQ/Zql6PsiZ4hVIYVZagzWkD65aG/1ou5/Kly5Y1PtjLg1yn7qu+LZCzVoAl6DZZ/pbz8qOO4RLNlqMg=="
HOSTILE = "b \" ' // /* \n $x $(reboot) `reboot` {} \\"


def unpack(directory: Path) -> Path:
    """Unpack the CLI into a directory, and return the program, which Node.js runs."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node.js is not installed (Debian, Ubuntu: apt install nodejs npm)")
    with tarfile.open(npm_package("@devcontainers/cli", VERSION, INTEGRITY)) as package:
        package.extractall(directory, filter="data")
    return directory / "package" / "devcontainer.js"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("devcontainers"))


def read_configuration(program: Path, directory: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Have the program read the configuration of a workspace with this file."""
    file = directory / ".devcontainer" / "devcontainer.json"
    file.parent.mkdir()
    file.write_text(text, encoding="utf-8")
    return subprocess.run(
        ["node", str(program), "read-configuration", "--workspace-folder", str(directory)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize(
    "made",
    [
        start(environment={"HOSTILE": HOSTILE}),
        start(devices=Devices.CDI, image=starts.with_image(port=8888)),
        start(host=None, devices=None),
    ],
    ids=["gpus", "cdi", "cpu"],
)
def test_it_reads_what_was_written(made: Any, program: Path, tmp_path: Path) -> None:
    text = write_devcontainer(made)
    place = f"/workspaces/{tmp_path.name}"
    wanted = json.loads(json.dumps(read(text)).replace("${containerWorkspaceFolder}", place))
    done = read_configuration(program, tmp_path, text)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["configuration"]
    assert found.pop("configFilePath")["fsPath"] == str(tmp_path / ".devcontainer" / "devcontainer.json")
    assert found == wanted
    assert place in found["containerEnv"]["CUDA_CACHE_PATH"]


def test_a_file_that_is_no_configuration_is_an_error(program: Path, tmp_path: Path) -> None:
    assert read_configuration(program, tmp_path, "[]").returncode == 1
