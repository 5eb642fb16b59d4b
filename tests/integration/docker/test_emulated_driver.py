"""Faults in real containers: stubs come in as CDI devices, as a driver does, with a real TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from validator.engines.docker import DockerEngine
from validator.engines.endpoint import Endpoint, connect, connect_podman
from validator.engines.protocol import ProbeRequest, probe_archive
from validator.model.record import Verdict
from validator.model.report import CheckOutcome, Report, read_report
from validator.model.verdict import judge

from ...emulation import cdi
from ...emulation.environments import site_packages
from ...emulation.probing import GATES
from ...emulation.stubs import RELEASE, Stubs, build, build_cublas
from ...probe.environments import AS_BUILT_2_21, tensorflow_environment
from .conftest import quiet

SITE = "/opt/tensorflow"
LIMIT_S = 120.0
CUDA, NVML = f"{cdi.LIBRARIES}/libcuda.so.1", f"{cdi.LIBRARIES}/libnvidia-ml.so.1"


def only(*checks: str) -> tuple[str, ...]:
    """Return the arguments with which the probe runs only these checks."""
    return tuple(word for check in checks for word in ("--only", check))


#: Checks that don't import TensorFlow, since the import takes longer than all else here.
HOST_CHECKS = only("driver", "gpu_device_nodes", "cuda_libraries")
#: The same checks, and the one that asks TensorFlow which GPUs it sees.
SEEN = (*HOST_CHECKS, *only("gpu_visible"))
#: The checks that no stub may pass, for the most complete stub. tests/emulation/test_never_certified.py runs
#: the other checks with it, without a container.
OF_A_GPU = only("gpu_visible", *GATES)

Probe = Callable[..., Report]


@pytest.fixture(scope="module")
def site() -> Path:
    return site_packages(tensorflow_environment(AS_BUILT_2_21))


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory, site: Path) -> Stubs:
    stubs = build(tmp_path_factory.mktemp("stubs"))
    build_cublas(stubs, Path(SITE) / "nvidia/cublas/lib")
    return stubs


@pytest.fixture(scope="module")
def probe(base_image: str, endpoint: Endpoint, site: Path) -> Iterator[Probe]:
    """Runs the probe in a container of the default base; TensorFlow, and what is named, come as a GPU."""
    if not endpoint.is_local or os.geteuid() != 0:
        pytest.skip("CDI specifications can only be written beside a local engine, by root")
    if cdi.offers_gpus(endpoint.client):
        pytest.skip("this engine has GPUs of its own")

    def run(
        *arguments: str,
        mounts: Mapping[str, Path] | None = None,
        nodes: tuple[cdi.Node, ...] = (),
        first: str = "",
        **variables: str,
    ) -> Report:
        libraries = [f"{SITE}/nvidia/{path.parent.name}/lib" for path in sorted(site.glob("nvidia/*/lib"))]
        path = os.pathsep.join([*filter(None, [first]), *libraries])
        offer = cdi.Offer(
            {SITE: site, **(mounts or {})}, {"PYTHONPATH": SITE, "LD_LIBRARY_PATH": path, **variables}, nodes
        )
        with cdi.offered(None if endpoint.is_podman else endpoint.client, offer):
            # A new connection sees the device, and requests it like a real one.
            own = connect_podman() if endpoint.is_podman else connect()
            engine = DockerEngine(own)
            try:
                request = ProbeRequest(probe_archive(), arguments, {}, LIMIT_S)
                return read_report(engine.probe_image(base_image, request, quiet))
            finally:
                engine.close()

    yield run


def driver(stubs: Stubs) -> dict[str, Path]:
    place = stubs.place("driver")
    return {CUDA: place / f"libcuda.so.{RELEASE}", NVML: place / f"libnvidia-ml.so.{RELEASE}"}


def said(report: Report, check: str) -> str:
    found = report.check(check)
    assert found is not None
    return f"{found.outcome.value}: {found.sentence}"


def test_a_container_without_a_driver_is_unproven(probe: Probe) -> None:
    report = probe(*SEEN)
    assert said(report, "driver").startswith("skip: there is no NVIDIA driver here")
    assert judge(report).verdict is Verdict.UNPROVEN


def test_a_driver_that_is_only_for_monitoring(probe: Probe, stubs: Stubs) -> None:
    """NVIDIA_DRIVER_CAPABILITIES=utility has this effect: nvidia-smi works, and CUDA's library is missing."""
    report = probe(*HOST_CHECKS, mounts={NVML: driver(stubs)[NVML]})
    assert said(report, "driver").startswith("fail: there is a driver, but its CUDA library is not found")
    assert judge(report).verdict is Verdict.FAILED


@pytest.mark.parametrize(
    ("fail", "expected"),
    [
        ("cuInit=34", "the toolkit's stub is loaded as the CUDA library"),
        ("cuInit=802", "CUDA_ERROR_SYSTEM_NOT_READY (802)"),
        ("cuInit=803,nvmlInit=18", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"),
        ("cuInit=804", "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804)"),
        ("cuInit=999", "CUDA_ERROR_UNKNOWN (999)"),
    ],
)
def test_the_error_of_cuinit_is_named(probe: Probe, stubs: Stubs, fail: str, expected: str) -> None:
    report = probe(*HOST_CHECKS, mounts=driver(stubs), nodes=cdi.DRIVER_NODES, STUB_FAIL=fail)
    assert expected in said(report, "driver")
    assert judge(report).verdict is Verdict.FAILED


def test_libraries_without_device_files(probe: Probe, stubs: Stubs) -> None:
    report = probe(*HOST_CHECKS, mounts=driver(stubs))
    assert "the driver has no device files here" in said(report, "driver")
    assert said(report, "gpu_device_nodes").startswith("fail: /dev/nvidia0 is missing")


def test_device_files_without_a_driver(probe: Probe, stubs: Stubs) -> None:
    report = probe(*HOST_CHECKS, mounts=driver(stubs), nodes=cdi.DRIVER_NODES)
    assert said(report, "gpu_device_nodes").startswith("fail: /dev/nvidia-uvm can't be opened")


def test_a_hidden_gpu_is_named(probe: Probe, stubs: Stubs) -> None:
    report = probe(*SEEN, mounts=driver(stubs), nodes=cdi.DRIVER_NODES, CUDA_VISIBLE_DEVICES="7")
    assert "CUDA_VISIBLE_DEVICES" in said(report, "driver") + said(report, "gpu_visible")
    assert judge(report).verdict is Verdict.FAILED


def test_a_missing_library_is_named(probe: Probe, stubs: Stubs, tmp_path: Path) -> None:
    nothing = {f"{SITE}/nvidia/cudnn/lib": tmp_path}
    report = probe(*HOST_CHECKS, mounts={**driver(stubs), **nothing}, nodes=cdi.DRIVER_NODES)
    assert "libcudnn.so.9" in said(report, "cuda_libraries")
    assert said(report, "cuda_libraries").startswith("fail")


@pytest.mark.parametrize("gpus", ["1", "2"])
def test_the_most_complete_stub_is_not_certified(probe: Probe, stubs: Stubs, gpus: str) -> None:
    """Everything is claimed: libraries, device files that open, memory, kernels that are said to have run."""
    places = {f"/opt/stubs/{name}": stubs.place(name) for name in ("runtime", "cudnn", "cublas")}
    report = probe(
        *OF_A_GPU, mounts={**driver(stubs), **places}, nodes=cdi.FALSE_NODES,
        first=os.pathsep.join(places), STUB_GPUS=gpus, STUB_LAUNCHES="1",
    )  # fmt: skip
    # TensorFlow is fooled; otherwise this would prove nothing.
    assert said(report, "gpu_visible").startswith("pass")
    assert "Created device" in report.raw["logs"]["tensorflow_stderr"]
    assert judge(report).verdict is Verdict.FAILED
    for name in ("gpu_compute", "xla_train_step"):
        check = report.check(name)
        assert check is not None and check.outcome in (CheckOutcome.FAIL, CheckOutcome.CRASH), check
    assert "fail: /dev/nvidia-uvm is not a device of the NVIDIA driver" in said(report, "gpu_device_nodes")
