"""An assembled cpu image next to one in which `uv pip install` installs the same lock. It trains a step."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from uv import find_uv_bin

from validator.assemble.wheels import Wheelhouse
from validator.engines.endpoint import Endpoint
from validator.locks import lock_files
from validator.model.record import Record
from validator.model.spec import Lock, image_reference
from validator.resources import images_directory
from validator.system.package_sources import host_sources

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
#: What every new environment has.
OF_THE_ENVIRONMENT = re.compile(
    r"^bin/(activate|deactivate|pydoc|python)|site-packages/_virtualenv\.|(^|/)\.lock$"
)
#: Lists everything in an environment: path, mode, the digest of a file, and the target of a link or the text
#: of a file whose digest says too little.
LIST = f"""
import hashlib, json, os, stat

found = []
os.chdir("/opt/venv")
for top in ("lib/python{PYTHON}/site-packages", "bin"):
    waiting = [top]
    while waiting:
        for entry in os.scandir(waiting.pop()):
            digest, text = "", ""
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                text = os.readlink(entry.path)
            elif stat.S_ISDIR(mode):
                waiting.append(entry.path)
            else:
                with open(entry.path, "rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                if top == "bin" or entry.name == "RECORD":
                    with open(entry.path, encoding="utf-8") as file:
                        text = file.read()
            found.append((entry.path, mode, digest, text))
print(json.dumps(found))
"""
#: By path: the mode, and the content or the target of a link.
Tree = dict[str, tuple[int, str]]


@pytest.fixture(scope="module")
def lock() -> Lock:
    found = lock_files.read(images_directory() / "locks", REAL_CPU.identifier)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def image(real_cpu: Record, lock: Lock) -> str:
    """Return the name of the image from the committed lock."""
    assert real_cpu.lock_digest == lock.digest
    return image_reference(REAL_CPU.identifier)


def test_tensorflow_trains_a_step(endpoint: Endpoint, image: str) -> None:
    printed = endpoint.client.containers.run(image, ["python", "-c", TRAIN], remove=True, network_mode="none")
    assert printed.decode().split() == [REAL_CPU.tensorflow, "learned"]


def test_the_environment_has_the_files_that_uv_installs(
    endpoint: Endpoint, image: str, lock: Lock, base_image: str, tmp_path: Path
) -> None:
    expected = installed_by_uv(endpoint, base_image, lock, tmp_path)
    found = tree(endpoint, image, "true")
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
    uv = "/input/uv --quiet --no-config --offline --no-cache"
    command = (
        f"{uv} venv --python /usr/bin/python{PYTHON} /opt/venv && {uv} pip install --no-deps --no-index"
        " --python /opt/venv/bin/python /input/wheels/*.whl"
    )
    return tree(endpoint, base, command, f"{place}:/input:ro")


def tree(endpoint: Endpoint, image: str, command: str, *volumes: str) -> Tree:
    """Return the packages and the scripts of an environment, after a command in a container of the image.

    The Python of the base reads the files there: Docker would send all of them as an archive.
    """
    listed = endpoint.client.containers.run(
        image,
        ["-c", f'{command} && exec /usr/bin/python{PYTHON} -I -S -B -c "$0"', LIST],
        entrypoint="sh", user="root", network_mode="none", volumes=list(volumes), remove=True,
    )  # fmt: skip
    found: Tree = {}
    for path, mode, digest, text in json.loads(listed):
        if not OF_THE_ENVIRONMENT.search(path):
            found[path] = (mode, described(path, digest, text))
    return found


def described(path: str, digest: str, text: str) -> str:
    """Return a link's target, a file's digest, or the part of a file that no installer changes."""
    if path.endswith(".dist-info/RECORD"):
        return "\n".join(rows(text))
    if path.endswith(".dist-info/INSTALLER"):
        return ""
    if path.startswith("bin/") and digest:
        return script(text.encode()).decode()
    return digest or text
