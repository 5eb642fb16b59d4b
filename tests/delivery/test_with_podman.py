"""`pull`, `run` and `sbom` use Podman where no Docker Engine answers. Skipped without Podman."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker.errors import ImageNotFound

from validator.delivery.pull import local_ids
from validator.engines.endpoint import Endpoint
from validator.errors import EXIT_INPUT, EXIT_OK
from validator.registry.names import identifier_of

from ..integration.podman.conftest import endpoint  # noqa: F401
from .commands import HERE, run
from .shelf import H100, Shelf
from .test_bundles import packed, small_tool  # noqa: F401
from .test_run_command import program  # noqa: F401
from .values import TAG

CPU = "2.21.0-cpu-py3.12"


@pytest.fixture
def podman(
    endpoint: Endpoint,  # noqa: F811
    shelf: Shelf,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Endpoint]:
    """Yield Podman, on a machine without Docker. Its images of the test's repository are removed."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    yield endpoint
    for image in endpoint.quick.api.images():
        if any(f"/{shelf.registry.repository.path}" in name for name in image["RepoTags"] or ()):
            with contextlib.suppress(ImageNotFound):
                endpoint.quick.images.remove(image["Id"], force=True)


def services() -> set[str]:
    """Return the processes of this user that are a service of Podman."""
    listed = subprocess.run(
        ["ps", "-u", str(os.getuid()), "-o", "pid=,args="], capture_output=True, text=True
    )
    return set(re.findall(r"(\d+) \S*podman system service", listed.stdout))


def test_pull_gives_podman_the_image_and_its_name(podman: Endpoint, shelf: Shelf) -> None:
    digest = shelf.push_certified(H100)
    repository = shelf.registry.repository
    for _ in range(2):
        done = run(shelf, "pull", "--fixtures", *HERE)
        assert (done.code, done.out) == (EXIT_OK, f"{repository.at(digest)}\n"), done.err
    assert podman.quick.images.get(repository.tagged(TAG)).id in local_ids(shelf.registry, digest)


def test_run_writes_the_line_of_the_engine_that_answers(podman: Endpoint, shelf: Shelf) -> None:
    digest = shelf.push_certified(H100)
    done = run(shelf, "run", "--fixtures", *HERE)
    assert done.code == EXIT_OK, done.err
    line = done.out.splitlines()[-1]
    assert line.startswith("podman run --rm -it --device nvidia.com/gpu=all ") and digest in line
    # Who asks for Docker's way gets Docker's line.
    line = run(shelf, "run", "--fixtures", *HERE, "--devices", "gpus").out.splitlines()[-1]
    assert line.startswith("docker run --rm -it --gpus all ")


def test_run_starts_an_image_of_podman_and_leaves_no_service(
    podman: Endpoint,
    shelf: Shelf,
    program: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pulled = shelf.registry.repository.at(shelf.push(CPU, program=program))
    local = f"tensorflow-gpu-matrix:{identifier_of(CPU)}"
    before = services()

    def started(*options: str) -> tuple[list[str], str]:
        done = run(shelf, "run", "--uncertified", "--exec", "--mount", *options, cwd=tmp_path)
        # podman passes on the program's exit code.
        assert done.code == 7, done.err
        return done.out.splitlines()[3:], done.err

    named = ("--image", identifier_of(CPU) or "")
    assert started(*named, "--", "two words", "$HOME")[0] == ["two words", "$HOME"]
    assert (tmp_path / "left").stat().st_uid == os.getuid()
    assert podman.quick.images.get(pulled).tag(*local.split(":"))
    monkeypatch.delenv("VALIDATOR_REGISTRY", raising=False)
    for image in ((), ("--image", local)):
        words, told = started("--registry", "", *image, "--", "again")
        assert words == ["again"]
        assert "It is only in the local Podman" in told
    assert services() == before
    podman.quick.images.remove(local)
    done = run(shelf, "run", "--uncertified", "--format", "podman", "--image", local, "--registry", "")
    assert (done.code, done.out) == (EXIT_INPUT, "")
    assert f"the local Podman has no image {local}" in done.err


def test_podman_reads_a_bundle_itself_and_pull_loads_it(
    podman: Endpoint,
    shelf: Shelf,
    program: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    digest = shelf.push_certified(H100)
    shelf.push(CPU, program=program)
    received = str(packed(shelf, tmp_path, *map(str, map(identifier_of, (TAG, CPU)))))
    before = {image["Id"] for image in podman.quick.api.images()}
    loaded = f"tensorflow-gpu-matrix:{identifier_of(CPU)}"
    named = ("--uncertified", "--format", "podman", "--from-bundle", received)
    try:
        done = run(
            shelf, "run", *named, "--image", str(identifier_of(CPU)), "--exec", "--", "again", cwd=tmp_path
        )
        assert (done.code, done.out.splitlines()[3:]) == (7, ["again"]), done.err
        with pytest.raises(ImageNotFound):
            podman.quick.images.get(loaded)
        done = run(shelf, "pull", "--fixtures", *HERE, "--from-bundle", received, cwd=tmp_path)
        assert done.code == EXIT_OK, done.err
        assert podman.quick.images.get(done.out.strip()).id in local_ids(shelf.registry, digest)
    finally:
        for image in podman.quick.api.images():
            if image["Id"] not in before:
                podman.quick.images.remove(image["Id"], force=True)


def test_sbom_reads_the_labels_of_an_image_of_podman(podman: Endpoint, shelf: Shelf) -> None:
    shelf.push_certified(H100)
    run(shelf, "pull", "--fixtures", *HERE)
    assert "is neither a lock" in run(shelf, "sbom", "local-name:1").err
    podman.quick.images.get(shelf.registry.repository.tagged(TAG)).tag("local-name", "1")
    try:
        done = run(shelf, "sbom", "local-name:1")
        assert (done.code, "or no lock with the same wheels" in done.err) == (EXIT_INPUT, True), done.err
    finally:
        podman.quick.images.remove("local-name:1")
