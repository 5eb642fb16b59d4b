"""No stub leads to a certificate, whatever it claims and however far it lets TensorFlow come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from validator.model.report import CheckOutcome

from .environments import site_packages
from .probing import GATES, never_certified, probe
from .stubs import Stubs, build_cublas

pytestmark = pytest.mark.engine

ALL = ("driver", "runtime", "cudnn", "cublas")
#: Each class of settings for the stubs: which stubs, and their variables.
MODES: Mapping[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "driver": (("driver",), {}),
    "two GPUs": (("driver",), {"STUB_GPUS": "2"}),
    "no GPU": (("driver",), {"STUB_GPUS": "0"}),
    "no answer from NVML": (("driver",), {"STUB_FAIL": "nvmlInit=9"}),
    "versions differ": (("driver",), {"STUB_FAIL": "nvmlInit=18,cuInit=803"}),
    "cuInit fails": (("driver",), {"STUB_FAIL": "cuInit=999"}),
    "old driver": (("driver",), {"STUB_CUDA": "11040"}),
    "new driver": (("driver", "runtime"), {"STUB_CUDA": "13000"}),
    "memory works": (("driver", "runtime"), {}),
    "no memory": (("driver", "runtime"), {"STUB_FREE_MIB": "1"}),
    "capability 3.0": (("driver", "runtime", "cudnn"), {"STUB_CAPABILITY": "3.0"}),
    "capability 5.0": (("driver", "runtime", "cudnn"), {"STUB_CAPABILITY": "5.0"}),
    "capability 7.5": (("driver", "runtime", "cudnn"), {"STUB_CAPABILITY": "7.5"}),
    "capability 8.6": (("driver", "runtime", "cudnn"), {"STUB_CAPABILITY": "8.6"}),
    "capability 12.0": (("driver", "runtime", "cudnn"), {"STUB_CAPABILITY": "12.0"}),
    "old cuDNN": (("driver", "runtime", "cudnn"), {"STUB_CUDNN": "8907"}),
    "all libraries": (ALL, {}),
    "kernels are said to run": (ALL, {"STUB_LAUNCHES": "1"}),
    "two GPUs, kernels are said to run": (ALL, {"STUB_LAUNCHES": "1", "STUB_GPUS": "2"}),
    "kernels are said to run, no NVML": (ALL, {"STUB_LAUNCHES": "1", "STUB_FAIL": "nvmlInit=9"}),
    "kernels are said to run, NVIDIA's libraries": (("driver", "runtime"), {"STUB_LAUNCHES": "1"}),
}
#: The settings that are run in every release: from the least to all.
IN_EVERY_RELEASE = ("driver", "memory works", "kernels are said to run")
#: Every check of the probe runs here, in one release. Elsewhere only the gates run: `never_certified` takes
#: the others as passed.
WHOLE = "kernels are said to run"


@pytest.mark.parametrize("mode", MODES)
def test_no_setting_of_the_stubs_is_certified(
    mode: str, tensorflow: Callable[[str], Path], stubs: Stubs, archive: Path
) -> None:
    _hold(mode, tensorflow("2.21.0"), stubs, archive, whole=mode == WHOLE)


@pytest.mark.parametrize("release", ["2.15.1", "2.18.1"])
@pytest.mark.parametrize("mode", IN_EVERY_RELEASE)
def test_no_setting_is_certified_in_other_releases(
    mode: str, release: str, tensorflow: Callable[[str], Path], stubs: Stubs, archive: Path
) -> None:
    _hold(mode, tensorflow(release), stubs, archive)


def test_tensorflow_believes_the_stubs(
    tensorflow: Callable[[str], Path], stubs: Stubs, archive: Path
) -> None:
    """Otherwise the tests above would prove nothing: it makes the device, and fails at the first kernel."""
    only = [word for name in ("gpu_visible", "gpu_compute") for word in ("--only", name)]
    report = probe(tensorflow("2.21.0"), archive, stubs, ("driver", "runtime"), {}, *only)
    visible, compute = report.check("gpu_visible"), report.check("gpu_compute")
    assert visible is not None and visible.outcome is CheckOutcome.PASS, visible
    assert compute is not None and compute.outcome in (CheckOutcome.FAIL, CheckOutcome.CRASH), compute
    assert "Created device" in report.raw["logs"]["tensorflow_stderr"]


def _hold(mode: str, python: Path, stubs: Stubs, archive: Path, *, whole: bool = False) -> None:
    first, variables = MODES[mode]
    if "cublas" in first:
        build_cublas(stubs, site_packages(python) / "nvidia/cublas/lib")
    only = () if whole else tuple(word for gate in GATES for word in ("--only", gate))
    never_certified(probe(python, archive, stubs, first, variables, *only))
