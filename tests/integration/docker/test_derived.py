"""`check --image` on an image that somebody derived from one of ours, as the manual says."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from validator.cli.doctor import check_command
from validator.engines.docker import DockerEngine
from validator.engines.endpoint import Endpoint
from validator.engines.protocol import Built
from validator.locks import lock_files
from validator.model.spec import Lock

from .conftest import CPU, KERAS, maker_at, quiet, removed_afterwards, tensorflow
from .package_index import Index, TinyWheel, lock_of

#: A release of which other tests have no image.
SPEC = replace(CPU, tensorflow="2.98.0")
PANDAS = TinyWheel.make("pandas", "2.3", {"pandas/__init__.py": b"__version__ = '2.3'\n"})
NEWER_KERAS = TinyWheel.make("keras", "3.1.0", {"keras/__init__.py": b"X = 2\n"})
DERIVED = "validator-test-derived:derived"
SITE = "/opt/venv/lib/python3/site-packages"

Derive = Callable[..., subprocess.CompletedProcess[str]]


def real_pip() -> TinyWheel:
    """Return pip as it is installed in the tests' environment, as a wheel."""
    distribution = importlib.metadata.distribution("pip")
    members = {
        str(path): Path(str(distribution.locate_file(path))).read_bytes()
        for path in distribution.files or ()
        if path.parts[0] == "pip" and path.suffix != ".pyc"
    }
    return TinyWheel.make("pip", distribution.version, members, "pip = pip._internal.cli.main:main")


@pytest.fixture(scope="module")
def lock(index: Index) -> Lock:
    wheels = (tensorflow(SPEC.tensorflow), KERAS, real_pip())
    index.add(*wheels, PANDAS, NEWER_KERAS)
    return lock_of(SPEC, *wheels)


@pytest.fixture(scope="module")
def base(endpoint: Endpoint, cache: Path, index: Index, lock: Lock) -> Iterator[Built]:
    if not endpoint.is_local:
        pytest.skip("the engine is remote: its builds can't reach an index on this machine")
    engine = DockerEngine(endpoint, maker_at(cache, index.url, endpoint))
    yield from removed_afterwards(engine, endpoint, engine.build(SPEC, lock, quiet))


@pytest.fixture
def repository(lock: Lock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to a directory with the lock of the base."""
    (tmp_path / "matrix.yaml").write_text("")
    lock_files.write(tmp_path / lock_files.DIRECTORY, lock)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def derive(base: Built, index: Index) -> Iterator[Derive]:
    """Return a function that builds an image with these lines after FROM, and pip's index on this machine."""

    def run(*lines: str) -> subprocess.CompletedProcess[str]:
        recipe = "\n".join([f"FROM {base.reference}", f"ENV PIP_INDEX_URL={index.url}", *lines])
        return subprocess.run(
            ["docker", "build", "--network", "host", "--no-cache", "--tag", DERIVED, "-"],
            input=recipe, capture_output=True, text=True, timeout=300,
        )  # fmt: skip

    yield run
    subprocess.run(["docker", "image", "rm", "--force", DERIVED], capture_output=True, check=False)


def check(*arguments: str) -> str:
    words = ["--image", DERIVED, "--only", "python_stack", *arguments]
    done = CliRunner().invoke(check_command, words, standalone_mode=False)
    assert done.exception is None, done.output
    return done.stdout


@pytest.mark.usefixtures("repository")
def test_a_package_is_added_as_the_images_user(base: Built, derive: Derive, lock: Lock) -> None:
    done = derive("RUN pip install pandas")
    assert done.returncode == 0, done.stderr
    run = ["docker", "run", "--rm", "--env", "VALIDATOR_REQUIRE=off", DERIVED]
    said = subprocess.run(
        [*run, "python", "-c", "import os, pandas; print(os.getuid(), pandas.__version__, pandas.__file__)"],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout.split()  # fmt: skip
    # Through the link lib/python3.11, as Python has it.
    assert said[:2] == ["10001", "2.3"] and said[2].endswith("/site-packages/pandas/__init__.py")

    text = check()
    assert f"This image was derived from {SPEC.identifier} ({base.digest}):" in text
    assert "packages added: pandas 2.3\n" in text
    assert "no file of TensorFlow's or NVIDIA's packages changed" in text
    assert f"A certificate of {SPEC.identifier} is about that image's digest" in text
    changes = json.loads(check("--format", "json"))["derived"]
    assert (changes["lock_digest"], changes["base"], changes["compared"]) == (lock.digest, base.digest, True)
    assert (changes["added"], changes["removed"], changes["upgraded"]) == ({"pandas": "2.3"}, {}, {})
    assert changes["files"] == {}
    assert any("pip install pandas" in line for line in changes["commands"])


@pytest.mark.usefixtures("repository")
def test_a_locked_package_is_replaced_only_by_root(derive: Derive) -> None:
    done = derive("RUN pip install keras==3.1.0")
    assert done.returncode != 0
    assert re.search("Permission denied|Operation not permitted", done.stderr), done.stderr

    done = derive(
        "USER root",
        f"RUN pip install keras==3.1.0 && echo '# ours' >> {SITE}/tensorflow/__init__.py",
        "USER 10001:10001",
    )
    assert done.returncode == 0, done.stderr
    text = check()
    assert "packages changed: keras 3.0.0 to 3.1.0\n" in text
    assert "files of tensorflow-cpu changed: tensorflow/__init__.py\n" in text


@pytest.mark.usefixtures("repository")
def test_our_own_image_is_compared_with_its_own_lock(base: Built, tmp_path: Path) -> None:
    words = ["--image", base.reference, "--only", "lock_match"]
    done = CliRunner().invoke(check_command, words, standalone_mode=False)
    assert re.search(r"^lock_match +pass ", done.stdout, re.MULTILINE), done.stdout
    # It is judged as an image without CUDA, which needs no GPU.
    assert "no GPU" not in done.stdout and "unproven: " in done.stdout
    lock_files.path_of(tmp_path / lock_files.DIRECTORY, SPEC.identifier).unlink()
    done = CliRunner().invoke(check_command, words, standalone_mode=False)
    assert f"The lock of {SPEC.identifier} is not here, so its packages are not compared" in done.stderr
    assert re.search(r"^lock_match +skip ", done.stdout, re.MULTILINE), done.stdout


def test_our_own_image_is_not_derived_from_another(base: Built) -> None:
    done = CliRunner().invoke(
        check_command, ["--image", base.reference, "--only", "driver"], standalone_mode=False
    )
    assert "driver" in done.stdout and "derived from" not in done.stdout
