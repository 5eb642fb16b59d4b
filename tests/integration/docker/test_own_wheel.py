"""TensorFlow from a wheel that no table lists: inspected, predicted, locked, built and probed."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from validator import cli
from validator.compat import releases
from validator.engines.endpoint import Endpoint
from validator.engines.images import list_images
from validator.model.spec import image_reference

from ...supply import own_wheel_files as made
from .conftest import PYTHON, new_cache, nvidia
from .package_index import Index, TinyWheel, running_index

WHEEL = made.file_name(python=PYTHON.replace(".", ""))
MATRIX = f"""
images:
  - tensorflow: ./wheels/{WHEEL}
    python: "{PYTHON}"
hosts: [{{driver: "580", gpu: rtx-5090}}]
profiles: {{quick: {{}}}}
"""


@pytest.fixture
def index() -> Iterator[Index]:
    pip = TinyWheel.make("pip", "26.0", {"pip/__init__.py": b""})
    with running_index(pip, *(nvidia(name, pin) for name, pin in made.NVIDIA.items())) as index:
        yield index


@pytest.fixture
def place(tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a directory with a wheel and a matrix, a cache of its own, and the index as the only one."""
    made.wheel(tmp_path / "wheels", PYTHON.replace(".", ""))
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    cache = new_cache(tmp_path / "cache")
    settings = {
        "VALIDATOR_CACHE": str(cache), "UV_DEFAULT_INDEX": index.url, "UV_NO_CONFIG": "1",
        "PIP_CONFIG_FILE": "/dev/null", "UV_CACHE_DIR": str(tmp_path / "uv"), "NO_PROXY": "127.0.0.1",
    }  # fmt: skip
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(releases, "_OWN", {})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_whole_way(place: Path, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]) -> None:
    path = place / "wheels" / WHEEL
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    identifier = f"tf2.21.0+{digest[:8]}-cuda12.5-cudnn9.3-py{PYTHON.replace('.', '')}"
    origin = f"wheels/{WHEEL}#sha256={digest}"
    assert cli.run(["inspect", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == f"2.21.0+{digest[:8]}"
    assert cli.run(["plan", "--format", "json"]) == 0
    [cell] = json.loads(capsys.readouterr().out)
    assert cell["image"] == identifier
    assert cell["prediction"]["rank"] == "derived" and cell["prediction"]["eager"] == "works"
    facts = {reason["fact"] for reason in cell["prediction"]["reasons"]}
    assert f"wheel-2.21.0+{digest[:8]}" in facts
    assert cli.run(["lock"]) == 0
    lock = (place / "images" / "locks" / f"{identifier}.txt").read_text()
    assert f"# requires: tensorflow @ {origin}" in lock
    assert (
        f"tensorflow==2.21.0 --hash=sha256:{digest}  # {WHEEL} {path.stat().st_size} wheels/{WHEEL}" in lock
    )
    capsys.readouterr()
    try:
        # TensorFlow is one line of code here, so the probe finds that the image does not work.
        assert cli.run(["build-matrix", "--engine", "docker", "--json"]) == 1
        said = capsys.readouterr()
        [result] = json.loads(said.out)
        record = result["record"]
        assert (record["image"], record["tensorflow_wheel"]) == (identifier, origin), said.err
        assert record["versions"]["tensorflow"] == "2.21.0"
        assert record["verdict"] == "failed"
        labels = endpoint.client.images.get(image_reference(identifier)).labels
        assert labels["org.opencontainers.image.title"] == identifier
        assert cli.run(["sbom", identifier]) == 0
        components = json.loads(capsys.readouterr().out)["components"]
        [ours] = [one for one in components if one["name"] == "tensorflow"]
        assert {"name": "tensorflow-gpu-matrix:origin", "value": f"wheels/{WHEEL}"} in ours["properties"]
        # Another file under the same name is another image.
        shutil.copy(made.wheel(place / "other", PYTHON.replace(".", ""), sass=90), path)
        assert cli.run(["plan", "--format", "json"]) == 0
        [other] = json.loads(capsys.readouterr().out)
        assert other["image"] != identifier and other["image"].startswith("tf2.21.0+")
    finally:
        for image in list_images(endpoint.client):
            if image_reference(identifier) in image.tags:
                endpoint.client.images.remove(image_reference(identifier), force=True)
