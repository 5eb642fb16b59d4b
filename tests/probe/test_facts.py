"""The collected facts, on this machine and on made-up ones."""

from __future__ import annotations

import ctypes.util
import errno
import faulthandler
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from validator.probe import host, installed, loader
from validator.probe.checks import packages
from validator.probe.child import Capture, forked
from validator.probe.cli import collect, shareable


@pytest.mark.slow
def test_facts_of_this_machine_are_json_without_personal_names() -> None:
    facts = collect(1800.0)
    text = json.dumps(facts["host"])
    assert facts["host"]["kernel"] == os.uname().release
    assert facts["host"]["machine"] == os.uname().machine
    assert os.uname().nodename not in (value for value in facts["host"].values() if isinstance(value, str))
    assert "hostname" not in text
    assert facts["environment"]["packages"]["pytest"]


@pytest.mark.slow
def test_missing_driver_libraries_are_reported_as_not_answering() -> None:
    libraries = host.host_facts()["driver_libraries"]
    for library in libraries.values():
        assert library["answered"] or library["error"]


def test_variables_of_other_programs_and_secrets_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TF_VAR_password", "TF_TOKEN_app", "NVIDIA_API_KEY", "TF_CLI_CONFIG_FILE"):
        monkeypatch.setenv(name, "secret")
    for name in ("TF_XLA_FLAGS", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "NVIDIA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "x")
    variables = installed.environment({}, None)["variables"]
    assert "secret" not in variables.values()
    assert {"TF_XLA_FLAGS", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "NVIDIA_VISIBLE_DEVICES"} <= set(
        variables
    )


def make_tensorflow(site: Path, requires: list[str], build: str) -> None:
    platform = site / "tensorflow" / "python" / "platform"
    platform.mkdir(parents=True)
    (site / "tensorflow" / "__init__.py").write_text("raise AssertionError('imported')")
    (platform / "build_info.py").write_text(
        f"import collections\nbuild_info = collections.OrderedDict({build})\n"
    )
    metadata = site / "tensorflow-2.21.0.dist-info"
    metadata.mkdir()
    lines = ["Metadata-Version: 2.1", "Name: tensorflow", "Version: 2.21.0"]
    (metadata / "METADATA").write_text(
        "\n".join([*lines, *(f"Requires-Dist: {entry}" for entry in requires)]) + "\n"
    )


def test_tensorflow_is_described_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requires = [
        "numpy>=1.26.0",
        'nvidia-cudnn-cu12<10.0,>=9.3.0.75; extra == "and-cuda"',
        "nvidia-cublas-cu12 (==12.2.5.6) ; extra == 'and-cuda'",
        "nvidia-nccl-cu12 ==2.21.5 ; extra == 'and-cuda'",
        'nvidia-other-cu12>=1; extra == "other"',
    ]
    make_tensorflow(tmp_path, requires, "[('is_cuda_build', True), ('cudnn_version', '9')]")
    monkeypatch.syspath_prepend(tmp_path)
    found = installed.tensorflow(installed.packages())
    assert found is not None
    assert found["version"] == "2.21.0"
    assert found["directory"] == str(tmp_path / "tensorflow")
    assert found["build"] == {"is_cuda_build": True, "cudnn_version": "9"}
    assert found["built_with"] == {
        "nvidia-cudnn-cu12": "9.3.0.75",
        "nvidia-cublas-cu12": "12.2.5.6",
        "nvidia-nccl-cu12": "2.21.5",
    }


def test_two_versions_of_one_name_are_both_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("1.0", "2.0"):
        directory = tmp_path / f"Some_Thing-{version}.dist-info"
        directory.mkdir()
        (directory / "METADATA").write_text(f"Metadata-Version: 2.1\nName: Some_Thing\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert sorted(installed.packages()["some-thing"]) == ["1.0", "2.0"]


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n", "535.183.01"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build\n",
            "570.124.06",
        ),
        ("", None),
    ],
)
def test_kernel_driver(text: str, release: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_read", lambda path: text)
    assert host.kernel_driver() == release


def test_gpus_on_the_pci_bus_are_counted_with_or_without_a_driver(tmp_path: Path) -> None:
    devices = (("0x10de", "0x030200"), ("0x10de", "0x030000"), ("0x10de", "0x040300"), ("0x1af4", "0x030000"))
    for number, (vendor, kind) in enumerate(devices):
        device = tmp_path / f"0000:00:0{number}.0"
        device.mkdir()
        (device / "vendor").write_text(vendor + "\n")
        (device / "class").write_text(kind + "\n")
    (tmp_path / "0000:00:09.0").mkdir()
    assert host.pci_gpus(str(tmp_path)) == 2
    assert host.pci_gpus(str(tmp_path / "none")) is None


def test_without_dev_there_are_no_device_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(original: Any, path: Any = ".") -> Any:
        if str(path).rstrip("/") == "/dev":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return original(path)

    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, functools.partial(asked, getattr(os, name)))
    monkeypatch.setattr(host, "_asked", lambda ask, limit_s: {})
    assert host.host_facts()["device_nodes"] == []


def test_a_plain_file_is_not_a_device(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").write_text("")
    assert host.device_node(str(tmp_path / "nvidia0"))["device"] is False


def test_a_device_of_another_driver_is_not_nvidias() -> None:
    node = host.device_node("/dev/null")
    assert node["device"] and node["opens"]
    assert node["registered"] is False


DEVICES = """\
Character devices:
  1 mem
 10 misc
195 nvidia
195 nvidiactl
507 nvidia-uvm

Block devices:
  7 loop
"""


@pytest.mark.parametrize(
    ("text", "major", "expected"),
    [
        (DEVICES, 195, True),
        (DEVICES, 507, True),
        (DEVICES, 10, True),
        (DEVICES, 1, False),
        (DEVICES, 240, None),
        (DEVICES, 7, None),
        ("", 195, None),
    ],
)
def test_the_kernel_decides_if_a_major_number_is_nvidias(
    text: str, major: int, expected: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_read", lambda path: text)
    assert host.registered(major) is expected


@pytest.mark.service
def test_the_path_of_a_library_is_the_real_file() -> None:
    name = ctypes.util.find_library("z")
    assert name is not None
    found = loader.path_of(ctypes.CDLL(name))
    assert found is not None and os.path.isfile(found) and not os.path.islink(found)
    assert loader.loaded(name) is not None
    assert loader.loaded("libno-such-thing.so.1") is None


def _yields_and_dies(number: int) -> Iterator[str]:
    yield "first"
    # pytest's, which would write its own report of the planned death.
    faulthandler.disable()
    os.write(2, b"about to die\n")
    os.kill(os.getpid(), number)


def _hangs() -> Iterator[str]:
    yield "first"
    time.sleep(3600)


def _raises() -> Iterator[str]:
    yield "first"
    raise OSError("it\nis broken")


def _leaves() -> Iterator[str]:
    yield "first"
    os._exit(7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "arguments", "limit_s", "failure"),
    [
        (_yields_and_dies, (signal.SIGSEGV,), 30, "SIGSEGV"),
        (_hangs, (), 0.3, "timeout"),
        (_raises, (), 30, "OSError: is broken"),
        (_leaves, (), 30, "exit status 7"),
    ],
)
def test_values_from_before_a_failure_of_the_child_are_kept(
    function: Any, arguments: tuple[Any, ...], limit_s: float, failure: str
) -> None:
    answer = forked(function, *arguments, limit_s=limit_s)
    assert answer.values == ["first"]
    assert str(answer.failure) == failure


@pytest.mark.slow
def test_the_output_of_a_dying_child_is_kept() -> None:
    assert forked(_yields_and_dies, signal.SIGABRT, limit_s=30).stderr == "about to die\n"


def _environment() -> Iterator[str]:
    yield os.environ["PROBE_TEST"]


@pytest.mark.slow
def test_a_child_has_its_own_environment() -> None:
    assert forked(_environment, limit_s=30, environment={"PROBE_TEST": "here"}).values == ["here"]
    assert "PROBE_TEST" not in os.environ


@pytest.mark.service
def test_crashes_of_driver_libraries_are_reported(tmp_path: Path) -> None:
    """A library in the driver's place whose first function kills the process."""
    for name, function in (("libcuda.so.1", "cuDriverGetVersion"), ("libnvidia-ml.so.1", "nvmlInit_v2")):
        source = tmp_path / "stub.c"
        source.write_text(f"#include <stdlib.h>\nint {function}(void *p) {{ abort(); return 0; }}\n")
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(tmp_path / name), str(source)], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "validator.probe.cli", "--host-facts"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    libraries = json.loads(done.stdout)["driver_libraries"]
    assert libraries["cuda"]["error"] == libraries["nvml"]["error"] == "SIGABRT"
    assert libraries["cuda"]["path"] == str(tmp_path / "libcuda.so.1")


LOCK = """\
# made by the validator
# spec: tf2.21.0-cuda12.5-cudnn9.3-py312
absl-py==2.5.1 \\
    --hash=sha256:0123
NumPy==2.4.6 --hash=sha256:4567
nvidia_cudnn.cu12==9.3.0.75
six==1.17.0 ; python_version >= "3.9" \\
    --hash=sha256:89ab
"""


def test_a_lock_is_read_by_normalized_name() -> None:
    assert packages.pins(LOCK) == {
        "absl-py": "2.5.1",
        "numpy": "2.4.6",
        "nvidia-cudnn-cu12": "9.3.0.75",
        "six": "1.17.0",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("numpy>=2\n", "line 1"),
        ("a==1\n\nb @ file:///x\n", "line 3"),
        ("a==1\nA==2\n", "line 2: a is pinned twice"),
        ("# nothing\n", "has no pins"),
        ("\x00\x01", "line 1"),
    ],
)
def test_other_text_is_rejected_as_a_lock(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        packages.pins(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/ann/venv/bin/python", "~/venv/bin/python"),
        ("a /home/ann and /home/ann/x", "a ~ and ~/x"),
        ("/home/anna/x", "/home/anna/x"),
        ("/mnt/home/ann/x", "/mnt/home/ann/x"),
        ("/a:/home/ann/lib:/b", "/a:~/lib:/b"),
        ("loaded\n/home/ann/x", "loaded\n~/x"),
    ],
)
def test_the_home_directory_is_written_as_a_tilde(text: str, expected: str) -> None:
    assert shareable({"x": [text]}, "/home/ann") == {"x": [expected]}


def test_numbers_that_json_lacks_become_null() -> None:
    assert shareable([float("nan"), float("inf"), 1.5], "") == [None, None, 1.5]


@pytest.mark.parametrize("sizes", [(1, 2), (5, 5), (3, 100), (100, 3), (1,) * 40, (0, 8, 0)])
def test_a_capture_keeps_head_and_tail_and_counts_the_rest(sizes: tuple[int, ...]) -> None:
    capture, text = Capture(10), b""
    for number, size in enumerate(sizes):
        part = bytes([97 + number % 26]) * size
        capture.add(part)
        text += part
    assert capture.total == len(text)
    assert bool(capture.dropped) == (len(text) > 10)
    if len(text) <= 10:
        assert capture.text == text.decode()
    else:
        assert capture.text.startswith(text[:5].decode())
        assert capture.text.endswith(text[-5:].decode())
        assert f"{len(text) - 10} bytes left out" in capture.text
    assert capture.recent(4) == text[-4:].decode()
