"""An assembled cpu image next to one in which `uv pip install` installs the same lock. It trains a step."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
from contextlib import ExitStack
from pathlib import Path
from typing import IO, cast

import pytest
from docker.models.containers import Container
from uv import find_uv_bin

from validator.assemble.base_files import ForwardFile
from validator.assemble.names import image_reference
from validator.assemble.wheels import Wheelhouse
from validator.engines.docker.endpoint import Endpoint
from validator.locks import files
from validator.model.lock import Lock
from validator.model.record import Record
from validator.resources import images_directory
from validator.system.sources import host_sources

from ...assemble.test_against_uv import NOTES, rows, script
from .conftest import PYTHON, REAL_CPU

pytestmark = pytest.mark.engine

TRAIN = """
import tensorflow as tf
weights = tf.Variable([[0.0], [0.0]])
optimizer = tf.keras.optimizers.SGD(0.01)
@tf.function(jit_compile=True)
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights - y) ** 2)
    optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])
    return loss
x, y = tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([[1.0], [2.0]])
optimizer.build([weights])
before, after = float(step(x, y)), float(step(x, y))
print(tf.__version__, "learned" if after < before else f"{before} {after}")
"""
#: What every new environment has, and what Docker adds for the directory itself.
OF_THE_ENVIRONMENT = re.compile(
    r"^bin/(activate|deactivate|pydoc|python|$|\.$)|site-packages/(\.?$|_virtualenv\.)|(^|/)\.lock$"
)
#: By path: the mode, and the content or the target of a link.
Tree = dict[str, tuple[int, bytes | str]]


@pytest.fixture(scope="module")
def lock() -> Lock:
    found = files.read(images_directory() / "locks", REAL_CPU.identifier)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def image(real_cpu: Record, lock: Lock) -> str:
    """The name of the image from the committed lock."""
    assert real_cpu.lock_digest == lock.digest
    return image_reference(REAL_CPU.identifier)


def test_tensorflow_trains_a_step(endpoint: Endpoint, image: str) -> None:
    printed = endpoint.client.containers.run(image, ["python", "-c", TRAIN], remove=True, network_mode="none")
    assert printed.decode().split() == [REAL_CPU.tensorflow, "learned"]


def test_the_environment_has_the_files_that_uv_installs(
    endpoint: Endpoint, image: str, lock: Lock, base_image: str, tmp_path: Path
) -> None:
    expected = installed_by_uv(endpoint, base_image, lock, tmp_path)
    with ExitStack() as stack:
        container = endpoint.client.containers.create(image)
        stack.callback(container.remove, force=True)
        found = tree(container)
    kept = {path for path in expected if not path.endswith(NOTES)}
    own = {path for path in found if path.endswith((".pyc", "/__pycache__"))}
    assert len(own) > 3000, "the byte code is there"
    assert found.keys() - own == kept
    # uv keeps the permissions that the wheel's own RECORD has.
    differ = {path for path in kept if found[path] != expected[path] and not path.endswith("/RECORD")}
    assert differ == set()
    records = {path for path in kept if path.endswith("/RECORD")}
    assert {path for path in records if found[path][1] != expected[path][1]} == set()
    # Some wheels contain others.
    assert len(records) >= len(lock.wheels)


def installed_by_uv(endpoint: Endpoint, base: str, lock: Lock, place: Path) -> Tree:
    """Install the lock with uv in a container of the base, without a network. Return the result."""
    house = Wheelhouse(host_sources())
    wheels = place / "wheels"
    wheels.mkdir()
    for wheel in lock.wheels:
        path = house.path(wheel)
        try:
            os.link(path, wheels / wheel.filename)
        except OSError:
            shutil.copyfile(path, wheels / wheel.filename)
    shutil.copy(find_uv_bin(), place / "uv")
    uv = "/work/uv --quiet --no-config --offline --no-cache"
    command = (
        f"{uv} venv --python /usr/bin/python{PYTHON} /opt/venv && {uv} pip install --no-deps --no-index"
        " --python /opt/venv/bin/python /work/wheels/*.whl"
    )
    with ExitStack() as stack:
        container = endpoint.client.containers.create(
            base, ["sh", "-c", command], network_mode="none", volumes=[f"{place}:/work:ro"]
        )
        stack.callback(container.remove, force=True)
        container.start()
        assert container.wait(timeout=120)["StatusCode"] == 0, container.logs()
        return tree(container)


def tree(container: Container) -> Tree:
    """Return the packages and the scripts of a container's environment."""
    found: Tree = {}
    for directory in (f"lib/python{PYTHON}/site-packages", "bin"):
        stream = cast(IO[bytes], ForwardFile(iter(container.get_archive(f"/opt/venv/{directory}/.")[0])))
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                path = f"{directory}/{member.name.removeprefix('./')}"
                if not OF_THE_ENVIRONMENT.search(path):
                    found[path] = (member.mode, described(archive, member, path))
    return found


def described(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> bytes | str:
    """Return the target of a link, or of a file its digest, or what is the same whoever installs it."""
    file = archive.extractfile(member) if member.isfile() else None
    if file is None:
        return member.linkname
    if path.endswith(".dist-info/RECORD"):
        return "\n".join(rows(file.read().decode()))
    if path.endswith(".dist-info/INSTALLER"):
        return ""
    if path.startswith("bin/"):
        return script(file.read())
    digest = hashlib.sha256()
    while part := file.read(1 << 20):
        digest.update(part)
    return digest.hexdigest()
