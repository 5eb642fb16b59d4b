"""`check --image` on an image that somebody derived from one of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from validator.assemble.names import PROJECT
from validator.cli.check import command
from validator.engines.base import Built
from validator.engines.docker.endpoint import Endpoint
from validator.locks import files

from .conftest import CPU, cpu_lock
from .package_index import Index

SITE = "/opt/venv/lib/python3/site-packages"
#: What `pip install` would do: a package more, and a file of TensorFlow's replaced.
DERIVE = f"""\
set -e
mkdir {SITE}/pandas-2.3.dist-info
printf 'Metadata-Version: 2.1\\nName: pandas\\nVersion: 2.3\\n' > {SITE}/pandas-2.3.dist-info/METADATA
echo '# ours' >> {SITE}/tensorflow/__init__.py
"""
BASE, DERIVED = "validator-test-base:derived", "validator-test-derived:derived"


@pytest.fixture
def derived(endpoint: Endpoint, cpu_image: Built) -> Iterator[str]:
    """An image whose history names a step of ours, and one that was derived from it."""
    client = endpoint.client
    names = (str(cpu_image.digest), BASE, DERIVED)
    steps = ([f"{PROJECT}: byte code"], ["/bin/sh", "-c", DERIVE])
    for source, name, step in zip(names[:2], names[1:], steps, strict=True):
        container = client.containers.create(source, step, user="0", entrypoint=[])
        try:
            if name == DERIVED:
                container.start()
                assert container.wait()["StatusCode"] == 0, container.logs()
            container.commit(*name.split(":"))
        finally:
            container.remove(force=True)
    yield DERIVED
    for name in (DERIVED, BASE):
        client.images.remove(name, force=True)


def test_a_derived_image_is_compared_with_its_base(
    derived: str, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "matrix.yaml").write_text("")
    lock = cpu_lock(index)
    files.write(tmp_path / files.DIRECTORY, lock)
    monkeypatch.chdir(tmp_path)
    arguments = ["--image", derived, "--only", "python_stack"]
    text = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert f"This image was derived from {CPU.identifier} (sha256:" in text.stdout, text.output
    assert "packages added: pandas 2.3" in text.stdout
    assert "files of tensorflow-cpu changed: tensorflow/__init__.py" in text.stdout
    assert f"A certificate of {CPU.identifier} is about that image's digest" in text.stdout
    done = CliRunner().invoke(command, [*arguments, "--format", "json"], standalone_mode=False)
    changes = json.loads(done.stdout)["derived"]
    assert changes["lock_digest"] == lock.digest
    assert (changes["added"], changes["removed"], changes["upgraded"]) == ({"pandas": "2.3"}, {}, {})
    # An image of ours itself is not derived from another.
    own = CliRunner().invoke(command, ["--image", BASE, "--only", "driver"], standalone_mode=False)
    assert "derived from" not in own.stdout
