"""The entry point in real containers, with drivers that come in as CDI devices do."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from validator.assemble.configuration import XLA_CACHE
from validator.engines.docker import DockerEngine
from validator.engines.endpoint import Endpoint, connect
from validator.engines.protocol import Built

from ...emulation import cdi
from .conftest import quiet
from .saved_image import files_of, save
from .test_probe import request

OLD, NEW = "470.82.01", "535.183.01"


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """Stands in for a driver's library: only its name matters."""
    file = tmp_path / "library"
    file.touch()
    return file


def given(empty: Path, release: str) -> cdi.Offer:
    """Return the device that a host with that driver offers to a container."""
    return cdi.Offer({f"{cdi.LIBRARIES}/libcuda.so.{release}": empty})


@pytest.fixture
def cdi_host(endpoint: Endpoint) -> Iterator[Endpoint]:
    if not endpoint.is_local or os.geteuid() != 0:
        pytest.skip("CDI specifications can only be written beside a local engine, by root")
    if cdi.offers_gpus(endpoint.client):
        pytest.skip("this engine has GPUs of its own")
    yield endpoint


def run(endpoint: Endpoint, image: Built, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `docker run` as a person would."""
    command = [endpoint.program, "run", "--rm", "--network=none", *arguments, image.reference]
    return subprocess.run([*command, "echo", "started"], capture_output=True, text=True, check=False)


GPU = ("--device", cdi.ALL)


def test_a_driver_that_is_too_old_is_rejected(cdi_host: Endpoint, gpu_image: Built, empty: Path) -> None:
    with cdi.offered(cdi_host.client, given(empty, OLD)):
        refused = run(cdi_host, gpu_image, *GPU)
        warned = run(cdi_host, gpu_image, *GPU, "-e", "VALIDATOR_REQUIRE=warn")
        disabled = run(cdi_host, gpu_image, *GPU, "-e", "NVIDIA_DISABLE_REQUIRE=1")
    assert (refused.returncode, refused.stdout) == (3, "")
    assert (
        "this image needs cuda>=12.0 (NVIDIA_REQUIRE_CUDA), but this host has driver 470.82.01"
        in refused.stderr
    )
    assert (warned.returncode, warned.stdout) == (0, "started\n")
    assert "this host has driver 470.82.01" in warned.stderr
    assert (disabled.returncode, disabled.stdout, disabled.stderr) == (0, "started\n", "")


@pytest.mark.parametrize(
    "options", [[], ["--user=12345:12345"], ["--read-only"], ["--cap-drop=ALL", "--read-only", "--user=1:1"]]
)
def test_a_driver_that_fits_starts_silently(
    cdi_host: Endpoint, gpu_image: Built, empty: Path, options: list[str]
) -> None:
    with cdi.offered(cdi_host.client, given(empty, NEW)):
        done = run(cdi_host, gpu_image, *GPU, *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, "started\n", "")


def test_without_a_gpu_the_container_says_so_and_starts(endpoint: Endpoint, gpu_image: Built) -> None:
    done = run(endpoint, gpu_image)
    assert (done.returncode, done.stdout) == (0, "started\n")
    assert "this container has no GPU" in done.stderr


def test_the_entry_point_can_be_replaced(cdi_host: Endpoint, gpu_image: Built, empty: Path) -> None:
    with cdi.offered(cdi_host.client, given(empty, OLD)):
        done = run(cdi_host, gpu_image, *GPU, "--entrypoint", "/usr/bin/env")
    assert (done.returncode, done.stdout, done.stderr) == (0, "started\n", "")


def test_a_cpu_image_ignores_the_driver(cdi_host: Endpoint, cpu_image: Built, empty: Path) -> None:
    with cdi.offered(cdi_host.client, given(empty, OLD)):
        done = run(cdi_host, cpu_image, *GPU)
    assert (done.returncode, done.stdout, done.stderr) == (0, "started\n", "")


def test_the_probe_runs_where_the_driver_is_too_old(
    cdi_host: Endpoint, gpu_image: Built, empty: Path
) -> None:
    """The probe has to report such a driver."""
    with cdi.offered(cdi_host.client, given(empty, OLD)):
        engine = DockerEngine(connect())
        try:
            assert engine.probe(gpu_image, request("print('reported')"), quiet) == b"reported\n"
        finally:
            engine.close()


def test_the_layer_of_the_entry_point_is_the_same_in_every_image(
    endpoint: Endpoint, gpu_image: Built
) -> None:
    image = save(endpoint.client, gpu_image.reference)
    [layer] = [layer for layer in image.layers if "opt/tensorflow-gpu-matrix/start" in files_of(layer)]
    files = files_of(layer)
    ours = "opt/tensorflow-gpu-matrix"
    made = {"opt", ours, *(f"{ours}/{name}" for name in ("cache.py", "start", "tables"))}
    assert set(files) == made | {"var", "var/cache", XLA_CACHE[1:]}
    assert {member.mtime for member in files.values()} == {0}
    assert files["opt/tensorflow-gpu-matrix/start"].mode & 0o777 == 0o755


def test_a_new_volume_takes_the_private_directories_of_several_users(
    endpoint: Endpoint, gpu_image: Built
) -> None:
    """The root file system is read-only, and no user is root. A user who comes later finds the same again."""
    volume = f"test-{uuid.uuid4().hex}"
    version = gpu_image.reference.rpartition(":")[2].split("-")[0].removeprefix("tf")
    arguments = [
        "/opt/tensorflow-gpu-matrix/cache.py", f"{XLA_CACHE}/{version}-0123", NEW, "NVIDIA H100",
    ]  # fmt: skip
    command = [endpoint.program, "run", "--rm", "--network=none", "--read-only"]
    command += ["--mount", f"type=volume,source={volume},target={XLA_CACHE}"]
    try:
        for user in ("10001:10001", "4242:4242", "10001:10001"):
            python = ["--user", user, "--entrypoint", "/opt/venv/bin/python", gpu_image.reference]
            done = subprocess.run(
                [*command, *python, "-I", "-S", *arguments], capture_output=True, text=True, check=False
            )
            place = f"{XLA_CACHE}/{user.partition(':')[0]}/{version}-0123-NVIDIA-H100-{NEW}"
            assert (done.returncode, done.stdout, done.stderr) == (0, f"{place}\n", "")
    finally:
        subprocess.run([endpoint.program, "volume", "rm", volume], capture_output=True, check=False)
