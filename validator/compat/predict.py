"""Predict a cell: apply every rule, and put the reasons that decide first.

Rules look at few parts of a cell (release, CUDA, cuDNN, driver, GPU), so each rule caches its answers. For a
cell, the answers only have to be sorted.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..model.prediction import Outcome, Prediction, Reason
from ..model.spec import Cell, Choice, HostClass, ImageSpec
from ..versions import ComputeCapability, CudaVersion, DriverRelease
from . import cudnn, drivers, facts, gpus, installation, kernels, known_issues, policies
from .builds import build
from .drivers import UserDriver, user_driver
from .errors import UnknownGpu
from .releases import release as find_release

#: The wheels of a lock whose versions the rules use, without the -cuNN suffix.
_USED_WHEELS = ("numpy", "nvidia-cuda-nvcc", "nvidia-cuda-runtime", "nvidia-cudnn")

_NO_GPU_TEXT = "this host has no GPU: TensorFlow runs on the CPU, which proves nothing about any GPU"


@dataclass(frozen=True)
class _Environment:
    """The image as the rules see it: the versions that matter for a GPU, and the reasons that need no GPU.

    combinations: ids of the known combinations that apply to the image and have a condition on the GPU.
    against: reasons why it fails on every host.
    """

    tensorflow: str
    cuda: CudaVersion
    cudnn: str
    nvcc: str | None
    combinations: tuple[str, ...]
    against: tuple[Reason, ...]
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class _Host:
    """The host class as the rules see it: the driver, the libcuda in use, and the reasons from them.

    user_cuda: the newest CUDA that the libcuda supports, None if it is older than every known one.
    """

    driver: DriverRelease
    capability: ComputeCapability
    user: UserDriver
    user_cuda: CudaVersion | None
    reasons: tuple[Reason, ...]


def predict(cell: Cell, wheels: Mapping[str, str] | None = None) -> Prediction:
    """Predict a cell.

    wheels: the versions in its lock by wheel name, so that a floating choice is predicted for these versions.
    Without a lock, it is predicted for the newest versions that the facts know. Raises UnknownRelease for a
    TensorFlow that the facts do not know.
    """
    image = cell.image
    if image.cuda is None or image.cudnn is None:
        return _decide(_on_cpu(image))
    environment = _environment(image.tensorflow, image.python, image.cuda, image.cudnn, _used_wheels(wheels))
    if not cell.host.has_gpu:
        return _decide((*environment.against, _rule("no-gpu").unknown(_NO_GPU_TEXT)))
    # Why the image fails everywhere comes before what the driver changes; its other reasons come after that.
    return _decide((*environment.against, *_on_gpu(environment, _host(cell.host)), *environment.reasons))


def of_image(image: ImageSpec) -> tuple[Reason, ...]:
    """Return the reasons that hold for an image on every host, those that decide first."""
    assert image.cuda is not None and image.cudnn is not None
    environment = _environment(image.tensorflow, image.python, image.cuda, image.cudnn, ())
    return tuple(sorted((*environment.against, *environment.reasons), key=_order))


def _on_cpu(image: ImageSpec) -> tuple[Reason, ...]:
    text = "tensorflow-cpu contains no CUDA: it runs on the CPU by design, with any driver and GPU"
    return (_rule("tensorflow-cpu").works(text), installation.python_wheel(image.tensorflow, image.python))


def _on_gpu(environment: _Environment, host: _Host) -> Iterator[Reason]:
    """Return the reasons that need the GPU or the driver, in the order in which a user would meet them."""
    lifted_to = host.user.lifted_to
    yield from host.reasons
    yield drivers.runs_toolkit(environment.cuda, host.driver, lifted_to)
    yield from known_issues.on_gpu(environment.combinations, host.capability)
    yield kernels.run_on(environment.tensorflow, host.capability, host.user.branch)
    yield cudnn.fits_gpu(environment.cudnn, host.capability)
    yield cudnn.fits_cuda(environment.cudnn, environment.cuda, None if lifted_to else host.driver)
    if environment.nvcc is not None and host.user_cuda is not None:
        compiled = installation.xla_compiler(environment.nvcc, host.user_cuda)
        if compiled is not None:
            yield compiled


def _decide(reasons: Iterable[Reason]) -> Prediction:
    """Return `fails` if a reason fails, else `unknown` if one is unknown, else `works`. Remarks come last."""
    ordered = tuple(sorted(reasons, key=_order))
    return Prediction(ordered[0].outcome, ordered)


def _order(reason: Reason) -> int:
    if reason.outcome is Outcome.FAILS:
        return 0
    if reason.outcome is Outcome.UNKNOWN:
        return 1
    return 3 if reason.advisory else 2


@functools.lru_cache(maxsize=8192)
def _environment(
    tensorflow: str, python: str, cuda: Choice, cudnn_choice: Choice, locked: tuple[tuple[str, str], ...]
) -> _Environment:
    release, measured, from_lock = find_release(tensorflow), build(tensorflow), dict(locked)
    nvcc = from_lock.get("nvidia-cuda-nvcc") or policies.cuda_wheels(release, cuda).get(
        f"nvidia-cuda-nvcc-{release.suffix}"
    )
    toolkit = CudaVersion.parse(from_lock.get("nvidia-cuda-runtime") or cuda.version)
    cudnn_version = from_lock.get("nvidia-cudnn") or policies.cudnn_version(release, cudnn_choice)
    versions = {**from_lock, "nvidia-cudnn": cudnn_version, **({"nvidia-cuda-nvcc": nvcc} if nvcc else {})}
    from_extra = cuda.floats or cudnn_choice.floats
    combinations = known_issues.on_image(tensorflow, python, from_extra, versions)
    found = (
        installation.python_wheel(tensorflow, python),
        *(one.reason() for one in combinations if one.capabilities is None),
        installation.cuda_major(tensorflow, toolkit),
        cudnn.fits_build(cudnn_version, (measured.cudnn if measured else None) or release.cudnn),
        installation.search_path(tensorflow),
    )
    reasons = [reason for reason in found if reason is not None]
    return _Environment(
        tensorflow=tensorflow,
        cuda=toolkit,
        cudnn=cudnn_version,
        nvcc=nvcc,
        combinations=tuple(one.fact.id for one in combinations if one.capabilities is not None),
        against=tuple(reason for reason in reasons if reason.outcome is Outcome.FAILS),
        reasons=tuple(reason for reason in reasons if reason.outcome is not Outcome.FAILS),
    )


@functools.lru_cache(maxsize=8192)
def _host(host: HostClass) -> _Host:
    user = user_driver(host.driver, host.compat, _kind(host.gpu, host.compute_capability))
    branch = drivers.branch_of(user.branch)
    known_gpu = drivers.knows_gpu(host.driver.branch, user.branch, host.compute_capability)
    return _Host(
        driver=host.driver,
        capability=host.compute_capability,
        user=user,
        user_cuda=branch.cuda if branch else None,
        reasons=(*known_gpu, *user.reasons),
    )


def _kind(name: str | None, capability: ComputeCapability) -> str | None:
    """Return the kind of a GPU by its name, or by its capability if all GPUs with it are of one kind."""
    if name is not None:
        try:
            return gpus.gpu(name).kind
        except UnknownGpu:
            return None
    kinds = {one.kind for one in gpus.gpus() if one.compute_capability == capability}
    return kinds.pop() if len(kinds) == 1 else None


def _rule(identifier: str) -> facts.Fact:
    return facts.rule("tensorflow", identifier)


def _used_wheels(wheels: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    """Return the wheels that the rules use: (name without suffix, version)."""
    if not wheels:
        return ()
    return tuple(
        (name, version)
        for name in _USED_WHEELS
        for spelled in (name, f"{name}-cu11", f"{name}-cu12")
        if (version := wheels.get(spelled))
    )
