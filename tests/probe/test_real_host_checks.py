"""The probe's findings about variables, packages, libraries and compilers of real releases, without a GPU."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from validator.model.report import CheckOutcome, CheckResult, read_report

from .environments import AS_BUILT_2_21, tensorflow_environment
from .unpacked import unpacked_probe

pytestmark = pytest.mark.engine

#: Each with the CUDA wheels that it was built with.
RELEASES = {
    "2.15.1": ("tensorflow[and-cuda]==2.15.1",),
    "2.18.1": ("tensorflow[and-cuda]==2.18.1",),
    "2.21.0": AS_BUILT_2_21,
}
ASK_XLA = Path(__file__).parent / "ask_xla.py"
ASK_TOOLCHAIN = Path(__file__).parent / "ask_toolchain.py"
HOST_CHECKS = ("environment", "python_stack", "library_conflicts", "tpu_interference")


class Installed:
    """One release in its own environment."""

    def __init__(self, release: str, archive: Path) -> None:
        self.release, self.archive = release, archive
        self.python = tensorflow_environment(RELEASES[release])
        self.site = self.python.parents[1] / "lib" / "python3.11" / "site-packages"
        self.library_path = os.pathsep.join(str(path) for path in sorted(self.site.glob("nvidia/*/lib")))

    def checks(self, *names: str, **variables: str) -> dict[str, CheckResult]:
        """Return results of checks. The libraries of the wheels are on the path unless stated otherwise."""
        # No path is abbreviated: the home directory does not matter here.
        environment = {
            "HOME": "/nowhere",
            "PATH": "/usr/bin:/bin",
            "LD_LIBRARY_PATH": self.library_path,
            **variables,
        }
        only = [argument for name in names for argument in ("--only", name)]
        done = subprocess.run(
            [self.python, self.archive, *only],
            env=environment,
            cwd="/",
            capture_output=True,
            text=True,
            check=True,
        )
        return {check.id: check for check in read_report(done.stdout).checks}


@pytest.fixture(scope="module", params=list(RELEASES))
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(request.param, unpacked_probe(tmp_path_factory.mktemp("probe")))


def problems(check: CheckResult) -> list[str]:
    return [problem.code for problem in check.problems]


def test_a_correct_environment_passes(installed: Installed) -> None:
    found = installed.checks(*HOST_CHECKS)
    for check in found.values():
        assert check.outcome is CheckOutcome.PASS, check.sentence
    libraries = {entry["soname"]: entry for entry in found["library_conflicts"].evidence.raw["libraries"]}
    assert len(libraries) >= 8
    assert {entry["found_by"] for entry in libraries.values() if entry["path"]} == {"LD_LIBRARY_PATH"}
    parts = found["library_conflicts"].evidence.raw["cudnn_parts"]
    assert len(parts) >= 6 and len({part["version"] for part in parts}) == 1


def test_the_search_order_is_that_of_the_loader(installed: Installed) -> None:
    """Without LD_LIBRARY_PATH the wheel's own search path leads to the libraries; what loads is observed."""
    (check,) = installed.checks("library_conflicts", LD_LIBRARY_PATH="").values()
    cudnn = next(one for one in check.evidence.raw["libraries"] if one["soname"].startswith("libcudnn."))
    assert cudnn["found_by"] == "RUNPATH"
    assert cudnn["path"].endswith(f"nvidia/cudnn/lib/{cudnn['soname']}")


def test_an_older_cudnn_in_front(installed: Installed, tmp_path: Path) -> None:
    major, number = (8, 8100) if installed.release == "2.15.1" else (9, 90100)
    source = tmp_path / "cudnn.c"
    source.write_text(f"unsigned long cudnnGetVersion(void) {{ return {number}; }}\n")
    target = tmp_path / f"libcudnn.so.{major}.1.0"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", target, source], check=True)
    (tmp_path / f"libcudnn.so.{major}").symlink_to(target.name)
    found = installed.checks(
        "environment", "library_conflicts", LD_LIBRARY_PATH=f"{tmp_path}:{installed.library_path}"
    )
    assert problems(found["library_conflicts"]) == ["older_copy_wins", "cudnn_parts_from_elsewhere"]
    (problem,) = found["environment"].problems
    assert (problem.code, problem.severity) == ("old_cudnn_on_library_path", "fault")


def test_unknown_flags_of_this_xla(installed: Installed) -> None:
    def problem(**variables: str) -> str | None:
        (check,) = installed.checks("environment", **variables).values()
        assert check.outcome in (CheckOutcome.PASS, CheckOutcome.FAIL), check.sentence
        return next((one.code for one in check.problems if one.entry["variable"] in variables), None)

    known = "--xla_gpu_autotune_level=2 --xla_dump_to=/tmp/x --xla_force_host_platform_device_count=2"
    assert problem(XLA_FLAGS=known) is None
    assert problem(XLA_FLAGS=f"{known} --xla_gpu_autotune_levels=2") == "xla_flags_unknown_flag"
    assert problem(TF_XLA_FLAGS="--tf_xla_auto_jit=2 --tf_xla_clustering_debug") is None
    assert problem(TF_XLA_FLAGS="--tf_xla_autojit=2") == "tf_xla_flags_unknown_flag"


def test_another_tensorflow_in_front(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('the wrong one')\n")
    (check,) = installed.checks("python_stack", PYTHONPATH=str(tmp_path)).values()
    assert check.outcome is CheckOutcome.FAIL
    assert "package_shadowed" in problems(check)


def test_xla_finds_the_compiler_that_the_check_names(installed: Installed, tmp_path: Path) -> None:
    """The check finds the ptxas that XLA's own search finds, wherever it is."""
    wheel = installed.site / "nvidia" / "cuda_nvcc"
    elsewhere = tmp_path / "path"
    elsewhere.mkdir()
    (elsewhere / "ptxas").symlink_to(wheel / "bin" / "ptxas")
    searches = list(itertools.product(("/usr/bin:/bin", f"{elsewhere}:/usr/bin:/bin"), (None, wheel)))
    for (path, preferred), check in zip(searches, toolchains(installed, searches), strict=True):
        assert check["outcome"] == "pass", check["sentence"]
        expected = asked(installed, str(preferred or "./cuda_sdk_lib"), path)
        for found, wanted in (
            (check["evidence"]["ptxas"]["path"], expected["ptxas"]),
            (check["evidence"]["libdevice"], expected["libdevice"]),
        ):
            assert os.path.realpath(found) == os.path.realpath(wanted)


def toolchains(installed: Installed, searches: Sequence[tuple[str, Path | None]]) -> list[dict[str, Any]]:
    """Return what the check `xla_toolchain` finds with each PATH and preferred directory."""
    variables = [
        {"PATH": path, "XLA_FLAGS": f"--xla_gpu_cuda_data_dir={preferred}" if preferred else ""}
        for path, preferred in searches
    ]
    done = subprocess.run(
        [installed.python, ASK_TOOLCHAIN, installed.archive, json.dumps(variables)],
        env={"HOME": "/nowhere", "PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": installed.library_path},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_compiler_of_the_wheel_is_named_with_its_version(installed: Installed) -> None:
    wheel = installed.site / "nvidia" / "cuda_nvcc"
    flag = f"--xla_gpu_cuda_data_dir={wheel}"
    (check,) = installed.checks("xla_toolchain", PATH="/nowhere", XLA_FLAGS=flag).values()
    version = check.evidence.raw["ptxas"]["version"]
    assert version == {"2.15.1": "12.2.140", "2.18.1": "12.5.82", "2.21.0": "12.5.82"}[installed.release]
    assert [entry["code"] for entry in check.evidence.raw["advisories"]] == ["ptxas_hopper_clamp"]
    assert check.evidence.raw["advisories"][0]["applies"] is False


def asked(installed: Installed, preferred: str, path: str) -> dict[str, str]:
    """Return the answers of XLA's own functions, in a process of that environment."""
    done = subprocess.run(
        [installed.python, ASK_XLA, installed.site / "tensorflow", preferred],
        env={"PATH": path, "LD_LIBRARY_PATH": installed.library_path, "TF_CPP_MIN_LOG_LEVEL": "3"},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    if answer["ptxas"] == "ptxas":  # found on PATH by the system, which does not say where
        answer["ptxas"] = next(f"{one}/ptxas" for one in path.split(":") if os.path.exists(f"{one}/ptxas"))
    return answer
