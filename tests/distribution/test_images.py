"""Images from the installed tool in an empty directory, with a Docker Engine and without any.

Their wheels are tiny and come from an index on this machine, and the registry is on this machine too.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from validator.engines.endpoint import Endpoint
from validator.engines.images import list_images
from validator.model.spec import image_reference

from ..integration.docker.conftest import KERAS, PYTHON, endpoint, new_cache, tensorflow
from ..integration.docker.package_index import Index, TinyWheel, running_index
from ..registry.server import RunningRegistry
from .conftest import Installed

__all__ = ["endpoint"]

NAME = "from-a-wheel"
IDENTIFIER = f"tf2.21.0-cpu-py{PYTHON.replace('.', '')}_{NAME}"
TAG = f"2.21.0-cpu-py{PYTHON}_{NAME}"
DIGEST = r"sha256:[0-9a-f]{64}"
IMAGE = image_reference(IDENTIFIER)
MATRIX = f"""\
images:
  - name: {NAME}
    tensorflow: "2.21.0"
    python: "{PYTHON}"
    variant: cpu
    packages: [tiny-addition]
hosts: [{{gpu: none}}]
profiles: {{quick: {{description: all of it}}}}
"""
WHEELS = (
    tensorflow("2.21.0"),
    KERAS,
    TinyWheel.make("pip", "25.0", {"pip/__init__.py": b""}),
    TinyWheel.make("tiny-addition", "1.0", {"tiny_addition/__init__.py": b"X = 1\n"}),
)
#: What the machine without an engine has: no docker, and bubblewrap only where a test adds it.
PROGRAMS = ("cosign", "dpkg-deb", "git", "mmdebstrap")


@dataclass(frozen=True)
class User:
    """Somebody in an empty directory, with an index, a registry, and a cache and keys of their own."""

    installed: Installed
    repository: str
    environment: dict[str, str]

    def run(self, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = self.installed.run(*arguments, environment=self.environment, timeout_s=300)
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return done

    def without_engine(self, programs: Path, *names: str) -> User:
        """Return the same user on a machine with these programs and no engine."""
        for name in (*PROGRAMS, *names):
            if found := shutil.which(name):
                (programs / name).symlink_to(found)
        nowhere = {"DOCKER_HOST": f"unix://{programs}/docker.sock", "PATH": str(programs)}
        return replace(self, environment={**self.environment, **nowhere})


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    with running_index(*WHEELS) as index:
        yield index


@pytest.fixture
def registry(own_server: RunningRegistry) -> RunningRegistry:
    return own_server


@pytest.fixture
def user(installed: Installed, registry: RunningRegistry, index: Index, tmp_path: Path) -> User:
    """Somebody who ran `init`, described an image of their own and locked it."""
    user = User(
        installed,
        f"{registry.address}/team/tf",
        {
            "VALIDATOR_CACHE": str(new_cache(tmp_path / "cache")),
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "UV_DEFAULT_INDEX": index.url,
            "UV_INDEX": "",
            "UV_NO_CONFIG": "1",
            "PIP_CONFIG_FILE": os.devnull,
        },
    )
    assert "Wrote matrix.yaml" in user.run("init").stderr
    (installed.directory / "matrix.yaml").write_text(MATRIX)
    assert "1 lock written" in user.run("lock").stderr
    return user


@pytest.fixture
def removed(endpoint: Endpoint, registry: RunningRegistry) -> Iterator[None]:
    """Remove what the test leaves in the engine."""
    yield
    for image in list_images(endpoint.client):
        if any(name == IMAGE or name.startswith(registry.address) for name in image.tags):
            endpoint.client.images.remove(str(image.id), force=True)


def started(command: str) -> str:
    """Run a printed `docker run` line with a Python program instead of a terminal. Return what it printed."""
    words = [word for word in shlex.split(command) if word != "-it"]
    program = "import tiny_addition, tensorflow, os; print(tensorflow.__version__, os.getcwd())"
    done = subprocess.run(
        [*words, "python", "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_with_an_engine(user: User, endpoint: Endpoint, removed: None) -> None:
    if not endpoint.is_local:
        pytest.skip("the engine is remote: it can't reach a registry on this machine")
    # It is built, and found again, with its wheels in the cache.
    for download in (
        "1 image: up to 0.0 GB of wheels to download",
        "1 image already here: nothing to download.",
    ):
        said = user.run("build-matrix", "--no-validate").stderr
        assert download in said
        assert re.search(rf"^  {re.escape(IMAGE)} \({DIGEST}\)$", said, re.MULTILINE), said
        line = said.partition("with this directory as the working directory:\n")[2].splitlines()[0]
        assert started(line) == "2.21.0 /workspace"
    # Where it came from is printed, and can be pulled elsewhere. The tiny TensorFlow can't train.
    pushed = user.run("build-matrix", "--push", user.repository, "--json", code=1)
    reference = f"{user.repository}:{TAG}@{json.loads(pushed.stdout)[0]['published']['digest']}"
    assert f"\n  {reference}\n" in pushed.stderr
    assert started(f"docker run --rm --workdir /workspace {reference}") == "2.21.0 /workspace"
    subprocess.run(["docker", "image", "rm", "--force", IMAGE, reference], capture_output=True, check=True)
    (user.installed.directory / ".validator" / "records.db").unlink()
    pulled = user.run("build-matrix", "--pull-from", user.repository, "--json", code=1)
    assert json.loads(pulled.stdout)[0]["record"]["image_digest"] == reference.partition("@")[2]
    checked = user.run("check", "--image", reference, "--only", "python_stack", "--json")
    assert json.loads(checked.stdout)["environment"]["packages"]["tiny-addition"] == "1.0"


@pytest.mark.engine
@pytest.mark.parametrize("bubblewrap", [True, False])
def test_without_an_engine(user: User, registry: RunningRegistry, tmp_path: Path, bubblewrap: bool) -> None:
    if bubblewrap and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    programs = tmp_path / "programs"
    programs.mkdir()
    user = user.without_engine(programs, *(["bwrap", "true"] if bubblewrap else []))
    pushed = user.run("build-matrix", "--push", user.repository, "--no-validate", "--json")
    [result] = json.loads(pushed.stdout)
    assert registry.tags("team/tf")[TAG] == result["published"]["digest"]
    reference = f"{user.repository}:{TAG}@{result['published']['digest']}"
    assert f"Start it on a machine with a Docker Engine:\n  docker run --rm -it {reference}" in pushed.stderr
    assert ("gets no byte code" in pushed.stderr) is not bubblewrap

    written = user.run("build-matrix", "--oci", "layout").stderr
    assert f"\n  layout:{TAG} ({result['published']['digest']})\n" in written
    layout = json.loads((user.installed.directory / "layout" / "index.json").read_text())
    assert [entry["digest"] for entry in layout["manifests"]] == [result["published"]["digest"]]


@pytest.mark.engine
@pytest.mark.parametrize(
    "arguments",
    [("build-matrix", "--push", "REPOSITORY"), ("build-matrix", "--pull-from", "REPOSITORY"),
     ("build-matrix", "--engine", "docker"), ("check", "--image", IMAGE)],
)  # fmt: skip
def test_what_needs_an_engine_says_what_to_do(
    installed: Installed, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    user = User(installed, "", {}).without_engine(programs)
    (installed.directory / "matrix.yaml").write_text(MATRIX)
    (installed.directory / "trust.yaml").write_text("runners: []\n")
    given = ["127.0.0.1:9/team/tf" if word == "REPOSITORY" else word for word in arguments]
    said = user.run(*given, code=3).stderr
    assert f"no Docker Engine found: the socket {programs}/docker.sock does not exist" in said
    assert "install Docker Engine 23 or newer; without one" in said
    assert "`build-matrix --no-validate` with --push or --oci makes images" in said
    assert "`check --python`" in said
