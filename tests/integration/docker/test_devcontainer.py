"""The real Dev Containers CLI, which editors use too, opens what `run --format devcontainer` writes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from validator.delivery.formats import write_devcontainer
from validator.delivery.start import Devices, Image, Place, Start, User
from validator.engines.endpoint import Endpoint
from validator.engines.protocol import Built

from ...delivery.formats.test_devcontainer_cli import unpack
from ...delivery.values import host
from ...emulation import cdi
from ...loop import tiers

#: A user of this machine whom the image does not know.
UID, GID = 54321, 54322


@dataclass(frozen=True)
class Editor:
    """The CLI, as a user who is not root starts it. home: that user's directory, with the workspace."""

    program: Path
    home: Path
    sockets_group: int

    @property
    def workspace(self) -> Path:
        return self.home / "work"

    def __call__(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["node", str(self.program), verb, "--workspace-folder", str(self.workspace), *words]
        return subprocess.run(
            command,
            env={
                "PATH": f"{self.home}:{os.environ['PATH']}",
                "HOME": str(self.home),
                "TMPDIR": str(self.home),
            },
            cwd=self.home, user=UID, group=GID, extra_groups=[self.sockets_group],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    def write(self, text: str) -> None:
        place = self.workspace / ".devcontainer"
        place.mkdir(parents=True)
        (place / "devcontainer.json").write_text(text, encoding="utf-8")
        for path in (self.workspace, place):
            os.chown(path, UID, GID)


@pytest.fixture
@tiers.docker
def editor(endpoint: Endpoint) -> Iterator[Editor]:
    """Yield the editor. Its containers, and the images that it derives, are removed afterwards."""
    socket = Path("/var/run/docker.sock")
    if os.geteuid() != 0 or not endpoint.is_local or not socket.exists():
        pytest.skip("to start it as another user, root and an engine at the default socket are needed")
    # Another user can't enter pytest's directories.
    home = Path(tempfile.mkdtemp(prefix="devcontainer-", dir="/tmp"))
    try:
        os.chown(home, UID, GID)
        # The CLI asks for the user's name, which only a user of the machine has.
        (home / "id").write_text("#!/bin/sh\necho me\n", encoding="utf-8")
        (home / "id").chmod(0o755)
        opened = Editor(unpack(home), home, socket.stat().st_gid)
        yield opened
        found = endpoint.client.containers.list(
            all=True, filters={"label": f"devcontainer.local_folder={opened.workspace}"}
        )
        for container in found:
            image = container.image
            container.remove(force=True)
            if image is not None and any(tag.startswith("vsc-work-") for tag in image.tags):
                endpoint.client.images.remove(image.tags[0], force=True)
    finally:
        shutil.rmtree(home)


def started(image: Built, endpoint: Endpoint, devices: Devices | None = None) -> Start:
    """Return what `run --uncertified --format devcontainer` writes for this image of the engine."""
    found = endpoint.client.images.get(image.reference)
    local = Image(
        str(found.id),
        image.reference,
        ("Not measured.",),
        certified=False,
        place=Place.ENGINE,
        tag=image.reference,
    )
    return Start(local, host("580") if devices else None, devices, User(UID, GID))


def test_it_opens_with_the_user_s_own_number(editor: Editor, endpoint: Endpoint, gpu_image: Built) -> None:
    editor.write(write_devcontainer(started(gpu_image, endpoint)))
    up = editor("up")
    assert up.returncode == 0, up.stderr
    assert json.loads(up.stdout)["outcome"] == "success"
    assert json.loads(up.stdout)["remoteUser"] == "tensorflow"
    # What postStartCommand prints.
    assert "this container has no GPU" in up.stderr
    script = 'touch left && id -un && id -u && echo "$CUDA_CACHE_PATH" && touch "$HOME/own"'
    inside = editor("exec", "sh", "-c", script)
    assert inside.returncode == 0, inside.stderr
    assert inside.stdout.split() == ["tensorflow", str(UID), "/workspaces/work/.cache/cuda"]
    left = (editor.workspace / "left").stat()
    assert (left.st_uid, left.st_gid) == (UID, GID)


def test_a_driver_that_is_too_old_is_reported(
    editor: Editor, endpoint: Endpoint, gpu_image: Built, tmp_path: Path
) -> None:
    if cdi.offers_gpus(endpoint.client):
        pytest.skip("this engine has GPUs of its own")
    library = tmp_path / "library"
    library.touch()
    editor.write(write_devcontainer(started(gpu_image, endpoint, Devices.CDI)))
    offer = cdi.Offer({f"{cdi.LIBRARIES}/libcuda.so.470.82.01": library})
    with cdi.offered(endpoint.client, offer):
        up = editor("up")
    assert up.returncode == 1
    assert (
        "this image needs cuda>=12.0 (NVIDIA_REQUIRE_CUDA), but this host has driver 470.82.01" in up.stderr
    )
