"""The lines that `build-matrix` prints before and after a build."""

from __future__ import annotations

import os
import shlex
import subprocess
import venv
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from validator.cli import progress
from validator.delivery.choose import Gpu, Host
from validator.engines.protocol import Built
from validator.engines.venv import library_path
from validator.errors import MissingError
from validator.model.record import Verdict
from validator.model.spec import NO_GPU, ImageSpec, Variant
from validator.pipeline.makers import Estimate
from validator.pipeline.run import PublishedImage, Result, Status
from validator.versions import ComputeCapability, DriverRelease

from ..pipeline.test_build_matrix import SPEC
from ..records.values import record

DIGEST = "sha256:" + "d" * 64
CPU = ImageSpec("2.21.0", "3.12", Variant.CPU)
NVIDIA: dict[str, Any] = {"Runtimes": {"nvidia": {}}}


class Engine:
    """A local engine. offered: what `docker info` says of GPUs."""

    is_local = True
    is_podman = False
    offered: ClassVar[dict[str, Any]] = {}

    @property
    def info(self) -> dict[str, Any]:
        return self.offered

    def __init__(self, kind: str) -> None:
        self.is_podman = kind == "podman"

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    def nothing() -> Host:
        raise MissingError("no driver")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("validator.delivery.pull.Engine", Engine)
    monkeypatch.setattr("validator.delivery.choose.this_host", nothing)
    monkeypatch.setattr("os.getuid", lambda: 1234)
    monkeypatch.setattr("os.getgid", lambda: 100)
    return monkeypatch


def measured(spec: ImageSpec, host: str = NO_GPU, verdict: Verdict = Verdict.UNPROVEN) -> Result:
    made = record(image=spec.identifier, host_class=host, verdict=verdict, image_digest=DIGEST)
    return Result(spec, Status.MEASURED, made, built=True)


def said(
    capsys: pytest.CaptureFixture[str], *results: Result, repository: str | None = None, engine: str = "auto"
) -> list[str]:
    progress.say_next_steps(results, repository, "quick", engine=engine)
    return capsys.readouterr().err.splitlines()


def test_an_image_that_was_not_measured_on_a_gpu(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = said(capsys, measured(SPEC))
    name = f"tensorflow-gpu-matrix:{SPEC.identifier}"
    assert lines[1] == f"  {name} ({DIGEST})"
    words = shlex.split(lines[3])
    assert words[:4] == ["docker", "run", "--rm", "-it"] and words[-1] == name
    assert f"type=bind,source={tmp_path},target=/workspace" in words
    assert words[words.index("--user") + 1] == "1234:100"
    assert "--gpus" not in words
    command = f"build-matrix --profile quick --select image={SPEC.identifier}"
    assert lines[4:] == ["Measure it on a machine with a GPU:", f"  validator {command}"]


def test_a_pushed_image_is_pulled_on_the_machine_with_the_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    published = PublishedImage("2.21.0", f"ghcr.io/team/tf@{DIGEST}", DIGEST, sent=True)
    lines = said(capsys, Result(SPEC, Status.BUILT, published=published), repository="ghcr.io/team/tf")
    assert lines[1] == f"  ghcr.io/team/tf:2.21.0@{DIGEST}"
    assert lines[3].endswith(f" ghcr.io/team/tf:2.21.0@{DIGEST}")
    assert lines[-1].endswith(f"--select image={SPEC.identifier} --pull-from ghcr.io/team/tf")


def test_on_a_machine_with_a_gpu_the_line_requests_it(
    capsys: pytest.CaptureFixture[str], machine: pytest.MonkeyPatch
) -> None:
    machine.setattr(Engine, "offered", NVIDIA)
    here = Host(DriverRelease.parse("580.95.05"), (Gpu(ComputeCapability(9, 0)),))
    machine.setattr("validator.delivery.choose.this_host", lambda: here)
    lines = said(capsys, measured(SPEC, "r580-h100", Verdict.CERTIFIED))
    assert "--gpus all" in lines[3]
    assert len(lines) == 4, "nothing is left to measure"
    assert "--gpus" not in said(capsys, measured(CPU, NO_GPU, Verdict.WORKS_ON_CPU))[3]


def test_an_image_of_podman_is_started_with_podman(
    capsys: pytest.CaptureFixture[str], machine: pytest.MonkeyPatch
) -> None:
    here = Host(DriverRelease.parse("580.95.05"), (Gpu(ComputeCapability(9, 0)),))
    machine.setattr("validator.delivery.choose.this_host", lambda: here)
    machine.setattr(Engine, "offered", {"DiscoveredDevices": [{"ID": "nvidia.com/gpu=all"}]})
    # Also an image that nobody measured.
    lines = said(capsys, Result(SPEC, Status.BUILT, digest=DIGEST), engine="podman")
    assert lines[2] == "Start it here, with this directory as the working directory:"
    words = shlex.split(lines[3])
    assert words[:2] == ["podman", "run"] and words[-1] == f"tensorflow-gpu-matrix:{SPEC.identifier}"
    assert words[words.index("--device") + 1] == "nvidia.com/gpu=all"


def test_an_image_without_cuda_needs_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(said(capsys, measured(CPU, NO_GPU, Verdict.WORKS_ON_CPU))) == 4


def test_an_image_that_was_only_built_has_its_digest(capsys: pytest.CaptureFixture[str]) -> None:
    # It is there as well if an earlier run built it.
    lines = said(capsys, Result(CPU, Status.BUILT, digest=DIGEST))
    assert lines[1] == f"  tensorflow-gpu-matrix:{CPU.identifier} ({DIGEST})"
    assert lines[2] == "Start it here, with this directory as the working directory:"


def test_an_image_in_an_oci_layout_is_loaded_first(capsys: pytest.CaptureFixture[str]) -> None:
    progress.say_next_steps([Result(CPU, Status.BUILT, digest=DIGEST)], None, None, Path("my images"))
    assert capsys.readouterr().err.splitlines() == [
        "Images:",
        f"  my images:2.21.0-cpu-py3.12 ({DIGEST})",
        "Load it into a Docker Engine:",
        "  tar -C 'my images' -c . | docker load",
    ]


def test_without_an_engine_the_line_is_for_another_machine(
    capsys: pytest.CaptureFixture[str], machine: pytest.MonkeyPatch
) -> None:
    def missing(_: str) -> Engine:
        raise MissingError("no Docker Engine found")

    machine.setattr("validator.delivery.pull.Engine", missing)
    published = PublishedImage("2.21.0", f"ghcr.io/team/tf@{DIGEST}", DIGEST, sent=True)
    lines = said(capsys, Result(CPU, Status.BUILT, published=published), repository="ghcr.io/team/tf")
    assert lines[2:] == [
        "Start it on a machine with a Docker Engine:",
        f"  docker run --rm -it ghcr.io/team/tf:2.21.0@{DIGEST}",
    ]


@pytest.mark.service
@pytest.mark.parametrize("spec", [SPEC, CPU])
def test_the_printed_lines_activate_an_environment(
    spec: ImageSpec, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place = tmp_path / "my cache" / spec.identifier
    venv.create(place, with_pip=False, symlinks=True)
    site = next(place.glob("lib/python3*/site-packages"))
    for name in ("cudnn", "cublas"):
        (site / "nvidia" / name / "lib").mkdir(parents=True)
    # Stands for TensorFlow: the real one is trained with these lines in tests of a real machine.
    (site / "tensorflow.py").write_text(FAKE_TENSORFLOW)
    progress.say_environments([Built(spec, str(place), DIGEST)])
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["Environments:", f"  {place}"]
    commands = [line for line in lines[2:] if line.startswith("  ")]
    for before in ("", "/before"):
        done = subprocess.run(
            ["bash", "-euc", "\n".join(commands)], capture_output=True, text=True, timeout=60, check=False,
            env={"PATH": os.environ["PATH"], **({"LD_LIBRARY_PATH": before} if before else {})},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = [str(path) for path in library_path(place)] if spec.variant.has_cuda else []
        expected = ":".join([*found, *([before] if before else [])])
        assert done.stdout.splitlines() == [f"{place}|{expected}|fitted", "GPUs: []"]


#: Says where it runs, as the lines of training ask for it.
FAKE_TENSORFLOW = """
import os, sys
from unittest.mock import MagicMock
sys.modules["tensorflow"] = fake = MagicMock()
fake.config.list_physical_devices = lambda kind: []
fake.keras.Sequential.return_value.fit = lambda *data: print(
    sys.prefix, os.environ.get("LD_LIBRARY_PATH", ""), "fitted", sep="|")
"""


def test_the_page_of_jupyterlab_can_be_opened_here(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, Result(replace(SPEC, variant=Variant.JUPYTER), Status.BUILT, digest=DIGEST))
    assert " --publish 127.0.0.1:8888:8888 " in lines[3]


def test_nothing_is_said_where_there_is_no_image(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, Result(SPEC, Status.SKIPPED)) == []


def test_the_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    progress.say_estimate(Estimate(0, 2, 1, 3_000_000_000, 1_000_000_000, 8_000_000_000))
    assert capsys.readouterr().err.splitlines() == [
        "2 images: up to 1.0 GB of wheels to download (2.0 GB of wheels are in the cache);"
        " the largest image takes about 8.0 GB.",
        "1 image still to lock, whose size is not known yet.",
    ]


def test_an_estimate_without_a_download(capsys: pytest.CaptureFixture[str]) -> None:
    progress.say_estimate(Estimate(3, 1, 0, 2_600_000_000, 0, 8_000_000_000))
    assert capsys.readouterr().err.splitlines() == [
        "3 images already here: nothing to download.",
        "1 image: nothing to download (2.6 GB of wheels are in the cache);"
        " the largest image takes about 8.0 GB.",
    ]
