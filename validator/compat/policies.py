"""Apply CUDA and cuDNN policies to a release: the versions they choose, the requirements to resolve."""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..conditions import fact_kind
from ..model.prediction import LINUX, MODES, PYPI, X86_64, Host, Outcome, Reason, Software
from ..model.spec import AS_BUILT, LATEST, POLICIES, RECOMMENDED, Choice, ImageSpec, Variant
from ..versions import Version, is_release_of, major_minor, release_range
from . import facts, hardware, known_issues
from . import kernels as cudnn_rules
from .facts import PolicyError, nearest_clause, nearest_versions
from .judge import judge
from .releases import Release
from .releases import release as find_release

CUDA = "cuda"
CUDNN = "cudnn"

_PIN = re.compile(r"^\d+\.\d+(\.\d+){0,2}$")
_LOWER = re.compile(r"(?:==|>=)([\w.]+)")


def choose(
    release: Release, cuda_policy: str, cudnn_policy: str, *, within_metadata: bool = True
) -> tuple[Choice, Choice]:
    """Return the CUDA and the cuDNN choice of two policies for a release.

    A policy is `as-built`, `latest`, `recommended`, or a version (`12.8`, `9.10.2`). within_metadata: False
    to accept a version that the wheel's metadata excludes, for a prediction of what would happen. Raises
    PolicyError for an unknown or excluded version, and for `latest` of a release without the extra.
    """
    chosen: list[Choice | None] = []
    for axis, policy, built in ((CUDA, cuda_policy, release.cuda), (CUDNN, cudnn_policy, release.cudnn)):
        if policy == RECOMMENDED:
            chosen.append(None)
        elif policy == AS_BUILT:
            chosen.append(Choice(AS_BUILT, built))
        elif policy == LATEST:
            chosen.append(_latest(release, axis, built))
        else:
            chosen.append(_pin(release, axis, policy, within_metadata))
    cuda, cudnn = chosen
    if cuda is None and cudnn is None:
        row = facts.recommended(release.version) or recommendation(release)
        return _named(release, CUDA, row[CUDA]), _named(release, CUDNN, row[CUDNN])
    if cuda is None or cudnn is None:
        return newest_without_fault(release, cuda, cudnn)
    return cuda, cudnn


@functools.cache
def by_policy(release: Release) -> dict[str, tuple[Choice, Choice]]:
    """Return the CUDA and the cuDNN of each policy that a release can be built with."""
    found = {}
    for policy in POLICIES:
        # A release without the extra has no `latest`.
        with contextlib.suppress(PolicyError):
            found[policy] = choose(release, policy, policy)
    return found


#: Every image has it, so that an image can be derived from it with `RUN pip install`.
PIP = "pip"


def requirements(spec: ImageSpec) -> tuple[str, ...]:
    """Return TensorFlow first, then its pins by name, pip, additions. Raises as `tensorflow_requirements`."""
    return (*tensorflow_requirements(spec), PIP, *(spec.additions.required if spec.additions else ()))


def tensorflow_requirements(spec: ImageSpec) -> tuple[str, ...]:
    """Return the requirements of TensorFlow itself.

    If nothing floats, every NVIDIA wheel is pinned, and the extra, which may ask for TensorRT, is left out.
    If one axis floats, the extra is used, with pins for the other axis. Raises PolicyError for a release that
    needs CUDA wheels that do not exist.
    """
    if spec.variant is Variant.CPU or spec.cuda is None or spec.cudnn is None:
        return (f"tensorflow-cpu=={spec.tensorflow}",)
    release = find_release(spec.tensorflow)
    if not release.wheels:
        why = f"was built with CUDA {release.cuda}, for which there are no wheels"
        if release.origin:
            why = "has no extra and-cuda in its metadata, which would name NVIDIA's wheels for it"
        raise PolicyError(CUDA, f"tensorflow {release.version} {why}")
    pins: dict[str, str] = {}
    if not spec.cuda.floats:
        pins |= cuda_wheels(release, spec.cuda)
    if not spec.cudnn.floats:
        pins[_cudnn_wheel(release)] = cudnn_version(release, spec.cudnn)
    if spec.cuda.floats or spec.cudnn.floats:
        return (requirement_of(release, "[and-cuda]"), *_pinned(pins))
    axes = {*cuda_wheels(release, Choice(AS_BUILT, release.cuda)), *pins}
    pins |= {name: _lower(pin) for name, pin in release.wheels.items() if name not in axes}
    published = release.version.partition("+")[0]
    return (requirement_of(release), *sorted((*_pinned(pins), *constraints(published))))


def requirement_of(release: Release, extra: str = "") -> str:
    """Return the requirement of a release: of its version, or of the file if no index has it."""
    own = release.origin
    if own is not None and own.path is not None:
        return f"{own.name}{extra} @ {own.origin}"
    return f"{release.package}{extra}=={own.version if own else release.version}"


def cuda_wheels(release: Release, choice: Choice) -> dict[str, str]:
    """Return the CUDA wheels of a choice with versions; for a floating one, the newest that are known."""
    known = cuda_releases(release.suffix)
    names = [name for name in release.wheels if any(name in one.components for one in known)]
    if _is_pinned(release, choice):
        return {name: _lower(release.wheels[name]) for name in names}
    pin = choice.version if choice.policy == LATEST else choice.policy
    found = [one for one in known if is_release_of(one.version, pin)]
    return {name: found[-1].components[name] for name in names} if found else {}


def cudnn_version(release: Release, choice: Choice) -> str:
    """Return the cuDNN wheel version of a choice (`9.3.0.75`); for a floating one the newest that is known.

    If no wheel is known (cuDNN 8.1), return the choice's own version.
    """
    if _is_pinned(release, choice):
        pin = release.wheels.get(_cudnn_wheel(release))
        return _lower(pin) if pin else release.cudnn
    pin = choice.version if choice.policy == LATEST else choice.policy
    # The release's own suffix comes last, because the last match is taken.
    suffixes = (*(one for one in ("cu11", "cu12") if one != release.suffix), release.suffix)
    found = [one for suffix in suffixes for one in cudnn_releases(suffix) if is_release_of(one, pin)]
    return found[-1] if found else pin


def loaded_packages(release: Release, cudnn: Choice, cuda: Choice) -> dict[str, str]:
    """Return the wheels of choices whose versions rules use: cuDNN, and nvcc's if there is one."""
    nvcc = cuda_wheels(release, cuda).get(f"nvidia-cuda-nvcc-{release.suffix}")
    found = {"nvidia-cudnn": cudnn_version(release, cudnn)}
    return {**found, "nvidia-cuda-nvcc": nvcc} if nvcc else found


@functools.cache
def constraints(version: str) -> tuple[str, ...]:
    """Return requirements that are missing in the metadata of a release."""
    return tuple(
        row["requirement"] for row in facts.rows("tensorflow", "constraints") if version in row["releases"]
    )


def _latest(release: Release, axis: str, built: str) -> Choice:
    if release.extra_style == "none":
        raise PolicyError(
            axis,
            f"tensorflow {release.version} has no and-cuda extra, which would define its latest {axis};"
            f" use {AS_BUILT} or a version",
            (AS_BUILT,),
        )
    if release.extra_style == "range":
        return Choice(LATEST, major_minor(_allowed(release, axis)[-1]), floats=True)
    # An exact extra gives the versions it was built with; only TensorRT makes it differ from as-built.
    return Choice(LATEST, built, floats=True) if release.needs_tensorrt else Choice(AS_BUILT, built)


def _pin(release: Release, axis: str, policy: str, within_metadata: bool) -> Choice:
    allowed = _allowed(release, axis)
    # Every version that exists, with or without wheels that TensorFlow could use.
    known = [*cudnn_releases("cu11"), *cudnn_releases("cu12")]
    if axis == CUDA:
        toolkits = [row["release"] for row in facts.rows("toolkits", "toolkits")]
        known = [*toolkits, *(one.version for one in cuda_releases())]
    if not _PIN.match(policy) or not any(is_release_of(version, policy) for version in known):
        nearest = nearest_versions(policy, _minors(allowed or known))
        raise PolicyError(axis, f'"{policy}" is not known{nearest_clause(nearest)}', nearest)
    if within_metadata and not any(is_release_of(version, policy) for version in allowed):
        nearest = nearest_versions(policy, _minors(allowed), count=1)
        wheel = _cudnn_wheel(release) if axis == CUDNN else f"nvidia-cuda-runtime-{release.suffix}"
        pins = release.wheels.get(wheel, "no NVIDIA wheels")
        # By major and minor: `>=12.5,<13`.
        bounds = re.sub(r"(\d+)\.(\d+)[\w.]*", lambda m: m[1] if m[2] == "0" else f"{m[1]}.{m[2]}", pins)
        raise PolicyError(
            axis,
            f'"{policy}" is not allowed by the metadata of tensorflow {release.version}'
            f" ({bounds}){nearest_clause(nearest)}",
            nearest,
        )
    return Choice(policy, major_minor(policy))


@functools.cache
def allowed_cudnn(release: Release) -> tuple[str, ...]:
    """Return the wheels of cuDNN that the metadata of a release allows, oldest first."""
    pin = release.wheels.get(_cudnn_wheel(release))
    return tuple(filter(release_range(pin).contains, cudnn_releases(release.suffix))) if pin else ()


@functools.cache
def _allowed(release: Release, axis: str) -> tuple[str, ...]:
    """Return the known versions that the metadata of a release allows, oldest first."""
    if axis == CUDNN:
        return allowed_cudnn(release)
    return tuple(
        known.version
        for known in cuda_releases(release.suffix)
        if release.wheels
        and all(
            release_range(release.wheels[name]).contains(version)
            for name, version in known.components.items()
            if name in release.wheels
        )
    )


def _is_pinned(release: Release, choice: Choice) -> bool:
    """Return True if the choice means the pins (or lower bounds) of the extra."""
    return choice.policy == AS_BUILT or (choice.policy == LATEST and release.extra_style == "exact")


def _minors(versions: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(major_minor(version) for version in versions))


def _cudnn_wheel(release: Release) -> str:
    return f"nvidia-cudnn-{release.suffix}"


@functools.cache
def _lower(specifier: str) -> str:
    """Return the version of an exact pin, or the lower bound of a range. Raises ValueError."""
    match = _LOWER.search(specifier)
    if match is None:
        raise ValueError(f'"{specifier}" has neither an exact version nor a lower bound')
    return str(Version(match[1]))


def _pinned(pins: dict[str, str]) -> list[str]:
    return [f"{name}=={version}" for name, version in sorted(pins.items())]


# The policy `recommended`: the newest CUDA and cuDNN for which no fault is known.


def is_recommended(spec: ImageSpec) -> bool:
    """Return True if an image has what `recommended` takes for its release, and its metadata allows more."""
    release = find_release(spec.tensorflow)
    return _has_choice(release) and (spec.cuda, spec.cudnn) == choose(release, RECOMMENDED, RECOMMENDED)


def why_recommended(release: Release) -> str:
    """Return why `recommended` takes its versions, naming a fault of the others, without a full stop."""
    return str((facts.recommended(release.version) or recommendation(release))["why"])


@functools.cache
def recommendation(release: Release) -> facts.Row:
    """Return a release's `cuda`, `cudnn` and `why`, to be compiled: this judges hundreds of combinations."""
    chosen = newest_without_fault(release)
    return {CUDA: chosen[0].version, CUDNN: chosen[1].version, "why": _why(release, chosen)}


def _why(release: Release, chosen: tuple[Choice, Choice]) -> str:
    names = _pair_name(chosen)
    if not _has_choice(release):
        return f"{names} are the only versions that tensorflow {release.version} allows"
    newest = candidates(release)[0]
    why = f"{names} are the newest that tensorflow {release.version} allows"
    if chosen == newest:
        why += ", and no known fault rules them out"
    else:
        why += " and that have no fault that other versions avoid"
    for worse in (newest, choose(release, AS_BUILT, AS_BUILT)):
        for model in _targets(cudnn_version(release, newest[1])):
            known = {reason.fact for reason in _faults(release, chosen, model)}
            for reason in _faults(release, worse, model):
                if reason.fact not in known:
                    # Without what to do about it, because `recommended` does that.
                    issue = known_issues.by_kind().get(fact_kind(reason.fact))
                    fault = (replace(reason, text=issue.text) if issue else reason).sentence
                    known_on = f"With {_pair_name(worse)}, a fault is known on {model}"
                    return f"{why}. {known_on}: {fault} ({reason.fact})"
    return why


def newest_without_fault(
    release: Release, cuda: Choice | None = None, cudnn: Choice | None = None
) -> tuple[Choice, Choice]:
    """Return the newest CUDA and cuDNN with the fewest faults. A choice that is given stays as it is.

    Count faults on the data-center GPUs for which the newest cuDNN has kernels: at most one for eager
    operations and one for XLA on each. A fault of every version makes no difference.
    """
    if not _has_choice(release):
        return cuda or Choice(AS_BUILT, release.cuda), cudnn or Choice(AS_BUILT, release.cudnn)
    pairs = candidates(release, cuda, cudnn)
    best = pairs[0]
    counts = {model: _count(release, best, model) for model in _targets(cudnn_version(release, best[1]))}
    fewest = sum(counts.values())
    # Try first the GPUs on which the newest versions have faults: most other versions have as many faults
    # there, so they need not be judged on the others.
    models = sorted(counts, key=lambda model: -counts[model])
    for pair in pairs[1:]:
        found = 0
        for model in models:
            found += _count(release, pair, model)
            if found >= fewest:
                break
        else:
            best, fewest = pair, found
    return best


def _count(release: Release, pair: tuple[Choice, Choice], model: str) -> int:
    """Return in how many modes, eager operations and XLA, a CUDA and a cuDNN have a fault on a GPU."""
    faults = _faults(release, pair, model)
    return sum(any(reason.mode in (None, mode) for reason in faults) for mode in MODES)


def _has_choice(release: Release) -> bool:
    """Return True if the metadata of a release allows more than the versions that it was built with."""
    return release.extra_style == "range"


def candidates(
    release: Release, cuda: Choice | None = None, cudnn: Choice | None = None
) -> list[tuple[Choice, Choice]]:
    """Return the CUDA and cuDNN that a release allows, newest first. A choice that is given stays."""
    cudas, cudnns = (
        [given] if given else [_named(release, axis, minor) for minor in _minors(_allowed(release, axis))]
        for axis, given in ((CUDA, cuda), (CUDNN, cudnn))
    )
    return list(itertools.product(cudas, cudnns))[::-1]


def _named(release: Release, axis: str, minor: str) -> Choice:
    """Return the choice of a minor version, which is `as-built` if the release was built with it."""
    built = release.cuda if axis == CUDA else release.cudnn
    return Choice(AS_BUILT if minor == built else minor, minor)


@functools.cache
def _targets(newest_cudnn: str) -> tuple[str, ...]:
    """Return the models of the data-center GPUs for which a cuDNN has kernels."""
    return tuple(
        model.name
        for model in hardware.gpus()
        if model.data_center
        and model.machine is None
        and cudnn_rules.fits_gpu(newest_cudnn, model.compute_capability).outcome is Outcome.WORKS
    )


def _faults(release: Release, pair: tuple[Choice, Choice], model: str) -> list[Reason]:
    """Return what speaks against a CUDA and a cuDNN on a GPU, whatever its driver. Advisories don't count."""
    cuda, cudnn = pair
    installed = loaded_packages(release, cudnn, cuda)
    software = Software(
        tensorflow=release.version,
        python=release.pythons[-1],
        cuda=cuda.version,
        cudnn=installed["nvidia-cudnn"],
        wheel=PYPI,
        variant=Variant.GPU.value,
        extra=False,
        library_path=True,
        packages=tuple(installed.items()),
    )
    prediction = judge(software, Host(gpu=model, system=LINUX, machine=X86_64))
    return [one for one in prediction.reasons if one.outcome is not Outcome.WORKS and not one.advisory]


def _pair_name(pair: tuple[Choice, Choice]) -> str:
    return f"CUDA {pair[0].version} and cuDNN {pair[1].version}"


# NVIDIA's wheels: the component versions of each CUDA release, and the cuDNN releases.


@dataclass(frozen=True)
class CudaRelease:
    """One CUDA release as wheels. version: `12.8.1`. components: wheel -> version."""

    version: str
    components: Mapping[str, str] = field(hash=False)


@functools.cache
def cuda_releases(suffix: str | None = None) -> tuple[CudaRelease, ...]:
    """Return every CUDA release that has wheels, of one suffix or of all, oldest first."""
    found = []
    for row in facts.rows("wheels", "cuda"):
        if suffix in (None, row["suffix"]):
            # From CUDA 13 on, wheels have no suffix.
            end = f"-{row['suffix']}" if row["suffix"] in ("cu11", "cu12") else ""
            components = {f"nvidia-{name}{end}": pin for name, pin in row["components"].items()}
            found.append(CudaRelease(row["release"], components))
    return tuple(found)


@functools.cache
def cudnn_releases(suffix: str) -> tuple[str, ...]:
    """Return every cuDNN wheel version of one suffix, oldest first; nothing for an unknown suffix."""
    for row in facts.rows("wheels", "cudnn"):
        if row["suffix"] == suffix:
            return tuple(row["releases"])
    return ()
