"""Judge software on a host: apply every rule whose facts are known, and say which facts are missing.

The host is judged by itself (its driver, the libcuda in use, its GPU), and so is the software. Each rule
looks at few facts and caches its answers, as these two judgements do. At the end, the GPU and the driver of a
host are read as people write them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..errors import InputError
from ..model.prediction import LINUX, PYPI, WSL2, Host, Outcome, Prediction, Reason, Software, decide
from ..model.spec import NO_GPU, Variant
from ..versions import (
    ComputeCapability,
    CudaVersion,
    DriverRelease,
    major,
    minor_in,
    numbers_in,
    release_range,
    without_cuda_suffix,
)
from . import evidence, facts, hardware, kernels, known_issues, releases
from .evidence import Versions
from .facts import UnknownGpu
from .hardware import Gpu, UserDriver, gpu, user_driver
from .releases import Release, build, is_inspected, nearest_inspected, release_of_any_age

# Rules about the system, the architecture, the source of the package, the kernel modules and the vendor.


def without_cuda(release: str, system: str | None, machine: str | None, wheel: str | None) -> Reason | None:
    """Return why the package of a release has no CUDA on a system and an architecture; None if it has."""
    known = {"system": system, "machine": machine, "wheel": wheel}
    for row in facts.rows("platforms", "without_cuda"):
        conditions = [known[name] in row[name] for name in known if name in row]
        if all(conditions) and release_range(row["releases"]).contains(release):
            text = f"tensorflow {release} can't use a GPU here: {row['text']}; {row['remedy']}"
            return facts.fact(row).fails(text, "platform_without_cuda")
    return None


def other_build(wheel: str | None) -> Reason | None:
    """Return why a package can't be judged by the facts about PyPI's wheels; None if it is one of these."""
    if wheel in (None, PYPI):
        return None
    row = next(row for row in facts.rows("platforms", "builds") if row["wheel"] == wheel)
    return facts.fact(row).unknown(
        f"{row['name']} is a different build from the wheel on PyPI: it is not known which GPUs and"
        " versions it was built for"
    )


@functools.lru_cache(maxsize=256)
def kernel_modules(flavor: str | None, capability: ComputeCapability) -> Reason | None:
    """Return why a GPU can't use the open or the proprietary kernel modules; None if it can."""
    for row in facts.rows("platforms", "modules"):
        above = "below" in row and capability >= ComputeCapability.parse(row["below"])
        if row["modules"] == flavor and ComputeCapability.parse(row["from"]) <= capability and not above:
            text = f"{row['generation']} (compute capability {capability}) {row['text']}; {row['remedy']}"
            return facts.fact(row).fails(text, row["rule"])
    return None


@functools.lru_cache(maxsize=1024)
def other_vendor(gpu: str) -> facts.Row | None:
    """Return the row of the `vendor` of a GPU that is not NVIDIA's, with the `build` for it; else None."""
    name = gpu.strip().lower()
    return next((row for row in facts.rows("platforms", "vendors") if re.search(row["pattern"], name)), None)


def not_nvidia_text(gpu: str, vendor: facts.Row) -> str:
    """Return the sentence about a GPU of another vendor, for an error and for a reason."""
    return f'"{gpu}" is a GPU from {vendor["vendor"]}: TensorFlow\'s CUDA builds use only NVIDIA GPUs'


# Say why a value of CUDA_VISIBLE_DEVICES hides every GPU, whatever the machine. CUDA shows the devices that
# the variable lists, up to the first entry that is not valid.

#: No machine has this many GPUs.
_MANY_GPUS = 64


def reason_hidden(value: str) -> Reason | None:
    """Return why a value hides every GPU; None if some machine shows one, or if it begins with a variable."""
    why = why_hidden(value)
    if why is None:
        return None
    return facts.rule("platforms", "cuda-visible-devices").fails(
        f"CUDA_VISIBLE_DEVICES={value} hides every GPU from TensorFlow: {why}", "devices_hidden"
    )


def why_hidden(value: str) -> str | None:
    """Return why no machine shows a GPU with this value, as a clause, or None if some machine may."""
    first = value.split(",")[0].strip()
    if not first:
        return "an empty value shows no GPU"
    if re.fullmatch(r"-\d+", first):
        return "a negative index shows no GPU"
    if re.fullmatch(r"\d{1,9}", first):
        return f"no machine has a GPU {int(first)}" if int(first) >= _MANY_GPUS else None
    if re.match(r"(?i)all$", first):
        return '"all" is not an index: it shows no GPU'
    if re.match(r"(?i)(GPU|MIG)-|\$", first):
        return None
    return f'"{first}" is neither an index nor a UUID: it shows no GPU'


# Compared by identity, which is fast: equal descriptions of a machine get the same one from the cache.
@dataclass(frozen=True, eq=False)
class Machine:
    """A machine as the rules see it, and the reasons that follow from it.

    has_gpu: False if it is known to have none. driver: as installed; on Windows its number is that of
    Windows. linux: the Linux branch with the same CUDA, or the driver itself on Linux. None if they are not
    known. user_cuda: the newest CUDA that the libcuda in use supports, None if it is not known. missing: the
    facts that are not known. model: the short name of the GPU, if its name is known. of_gpu: the architecture
    that the name of the GPU implies, if any.
    """

    has_gpu: bool
    on_windows: bool
    driver: DriverRelease | None
    linux: DriverRelease | None
    capability: ComputeCapability | None
    user: UserDriver | None
    user_cuda: CudaVersion | None
    reasons: tuple[Reason, ...]
    missing: tuple[str, ...]
    model: str | None = None
    of_gpu: str | None = None


@functools.lru_cache(maxsize=8192)
def judge_host(host: Host) -> Machine:
    """Return the machine that a host describes. The host's architecture makes no difference here."""
    on_windows = host.on_windows
    if host.gpu == NO_GPU:
        return Machine(False, on_windows, None, None, None, None, None, (), ())
    capability, known, kind, reasons = _gpu(host.gpu, host.capability)
    driver = DriverRelease.or_none(host.driver)
    shown = CudaVersion.or_none(host.driver_cuda)
    if driver is None and shown is not None:
        driver = releases.driver_with(shown, on_windows)
    linux = driver
    if driver and on_windows and driver.branch >= hardware.branches()[0].number:
        # R570 for 572.16. Before R450, a Windows driver has the number of its Linux branch.
        same = hardware.branch_of(driver.branch)
        linux = DriverRelease(same.number) if same else None
    if capability is not None and not on_windows:
        wrong = kernel_modules(host.kernel_modules, capability)
        reasons += (wrong,) if wrong else ()
    if capability is not None and capability > hardware.gpus()[-1].compute_capability:
        newest = hardware.branches()[-1]
        text = f"no table has compute capability {capability}; the newest driver in them is R{newest.number}"
        reasons += (newest.fact.unknown(text),)
    needed = {"driver": linux, "gpu": capability, "system": host.system}
    missing = tuple(name for name, value in needed.items() if value is None)
    user, branch = None, None
    if linux is not None:
        user = user_driver(linux, host.compat if CudaVersion.or_none(host.compat) else None, kind)
        branch = hardware.branch_of(user.branch)
        if capability is not None:
            reasons += hardware.knows_gpu(linux.branch, user.branch, capability)
        reasons += user.reasons
    return Machine(
        has_gpu=True,
        on_windows=on_windows,
        driver=driver,
        linux=linux,
        capability=capability,
        user=user,
        user_cuda=branch.cuda if branch else None,
        reasons=reasons,
        missing=missing,
        model=known.slug if known else None,
        of_gpu=known.machine if known else None,
    )


def runs_toolkit(machine: Machine, toolkit: CudaVersion) -> Reason | None:
    """Decide if the driver runs the libraries of a toolkit; None if the driver is not known."""
    if machine.driver is None:
        return None
    lifted_to = machine.user.lifted_to if machine.user else None
    floor = releases.oldest_driver(toolkit, machine.on_windows)
    in_tables = not machine.on_windows and hardware.minor_version(toolkit.major) is not None
    if floor is None or lifted_to is not None or in_tables:
        return hardware.runs_toolkit(toolkit, machine.linux, lifted_to) if machine.linux else None
    oldest = f"{floor.driver} or newer{' for Windows' if machine.on_windows else ''}"
    if machine.driver < floor.driver:
        text = f"CUDA {toolkit} needs driver {oldest}; this is {machine.driver}"
        return floor.fact.fails(text, "driver_too_old")
    return floor.fact.works(f"driver {machine.driver} runs CUDA {toolkit} ({oldest})")


def _gpu(
    name: str | None, capability: str | None
) -> tuple[ComputeCapability | None, Gpu | None, str | None, tuple[Reason, ...]]:
    """Return a GPU's capability, model and kind, and what is wrong with it.

    Without a name, the kind is that of all GPUs with this capability, if they have the same one.
    """
    given = ComputeCapability.or_none(capability)
    if name is not None:
        try:
            known = hardware.gpu(name)
        except UnknownGpu:
            if (vendor := other_vendor(name)) is None:
                return given, None, None, ()
            text = f"{not_nvidia_text(name, vendor)}; use {vendor['build']}"
            return given, None, None, (facts.fact(vendor).fails(text, "not_nvidia"),)
        return given or known.compute_capability, known, known.kind, ()
    kinds = {one.kind for one in hardware.gpus() if one.compute_capability == given}
    return given, None, kinds.pop() if len(kinds) == 1 else None, ()


# Judge software by itself, and on a host.


# Compared by identity, which is fast: equal descriptions of the software get the same one from the cache.
@dataclass(frozen=True, eq=False)
class JudgedSoftware:
    """Software as the rules see it, and the reasons that follow from it.

    from_pypi: True if the facts about PyPI's wheels hold. inspected: True if they also have its kernels.
    values: what conditions of known combinations may ask about. combinations: those that may apply to a wheel
    from PyPI, depending on the GPU. against: reasons why it fails on every machine. reasons: the others.
    missing: facts that are not known. tried: what people measured and reported with it.
    """

    versions: Versions
    on_cpu: bool
    from_pypi: bool
    inspected: bool
    nvcc: str | None
    values: Mapping[str, str]
    combinations: tuple[known_issues.Combination, ...]
    against: tuple[Reason, ...]
    reasons: tuple[Reason, ...]
    missing: tuple[str, ...]
    tried: tuple[evidence.Tried, ...]


def judge_software(software: Software, host: Host) -> JudgedSoftware:
    """Judge software on the system and the architecture of a host, whose driver and GPU don't matter here."""
    return _judge(software, host.system, host.machine)


@functools.lru_cache(maxsize=8192)
def _judge(software: Software, system: str | None, machine: str | None) -> JudgedSoftware:
    versions = _versions_of(software)
    release = versions.release.version if versions.release else software.tensorflow
    values = known_issues.of_software(
        release, versions.python, versions.cudnn, software.extra, versions.packages
    )
    from_pypi = software.wheel in (None, PYPI)
    combinations = known_issues.on_image(values) if from_pypi and versions.release is not None else ()
    found = _reasons_of(software, system, machine, versions, combinations)
    reasons = [reason for reason in found if reason is not None]
    needed: dict[str, object] = {
        "tensorflow": versions.release,
        "python": versions.python,
        "cuda": versions.cuda,
        "cudnn": versions.cudnn,
        "machine": machine,
        "wheel": software.wheel,
    }
    if any(reason.rule == "library_path_not_set" for reason in reasons):
        needed["library_path"] = software.library_path
    tried: tuple[evidence.Tried, ...] = ()
    if versions.release is not None and software.variant != Variant.CPU.value:
        # A candidate or nightly that was not inspected is judged by its release, but it was tried itself.
        stated = software.tensorflow or ""
        same = nearest_inspected(stated) is None
        version = versions.release.version if same else stated
        tried = evidence.on_software(version, software, versions, system, machine)
    return JudgedSoftware(
        versions=versions,
        on_cpu=software.variant == Variant.CPU.value,
        from_pypi=from_pypi,
        inspected=from_pypi and is_inspected(versions.release),
        nvcc=numbers_in(versions.packages.get("nvidia-cuda-nvcc")),
        values=values,
        combinations=tuple(one for one in combinations if one.by_gpu),
        against=tuple(reason for reason in reasons if reason.outcome is Outcome.FAILS),
        reasons=tuple(reason for reason in reasons if reason.outcome is not Outcome.FAILS),
        missing=tuple(name for name, value in needed.items() if value is None),
        tried=tried,
    )


def _versions_of(software: Software) -> Versions:
    """Return the versions; those of installed wheels come before those that were stated."""
    wheels = {without_cuda_suffix(name): version for name, version in software.packages}
    release = release_of_any_age(software.tensorflow or "")
    cuda, cudnn_version = software.cuda, software.cudnn
    if software.extra and release is not None and release.extra_style == "exact":
        # The extra pins the versions that TensorFlow was built with.
        cuda, cudnn_version = cuda or release.cuda, cudnn_version or release.cudnn
    loaded = wheels.get("nvidia-cudnn") or cudnn_version
    cudnn_numbers = numbers_in(loaded)
    return Versions(
        release,
        minor_in(software.python),
        CudaVersion.or_none(wheels.get("nvidia-cuda-runtime") or cuda),
        cudnn_numbers,
        None if cudnn_numbers else major(loaded or "") or None,
        wheels,
    )


def _reasons_of(
    software: Software,
    system: str | None,
    machine: str | None,
    versions: Versions,
    combinations: Iterable[known_issues.Combination],
) -> Iterator[Reason | None]:
    yield known_issues.cpu_package(versions.packages, software.variant)
    yield other_build(software.wheel)
    yield known_issues.two_cudnns(software.versions)
    for name, version in software.packages:
        yield known_issues.removed_package(name, version)
    release = versions.release
    if release is None:
        return
    yield without_cuda(release.version, system, machine, software.wheel)
    if software.wheel not in (None, PYPI):
        return
    # The wheel on PyPI and the libraries that it loads.
    if versions.python is not None:
        yield kernels.python_wheel(release, versions.python)
    if versions.cuda is not None:
        yield kernels.cuda_major(release, versions.cuda)
    measured = build(release.version)
    built_with = (measured.cudnn if measured else None) or release.cudnn
    loaded = versions.cudnn or versions.cudnn_major
    if loaded is not None:
        yield kernels.fits_build(loaded, built_with)
    wheel = numbers_in(versions.packages.get("nvidia-cudnn"))
    yield from known_issues.mixed_frameworks(release, built_with, versions.packages, wheel)
    yield from (one.reason() for one in combinations if not one.by_gpu)
    if system not in (None, LINUX, WSL2):
        return
    # Where the CUDA libraries come from, and whether TensorFlow finds them.
    has_libraries = versions.cuda is not None or versions.from_wheels
    has_extra = software.extra and release.extra_style != "none"
    if software.extra and not has_extra:
        yield release.fact.unknown(
            f"tensorflow {release.version} has no and-cuda extra, so pip ignores it with a warning: CUDA"
            f" {release.cuda} and cuDNN {release.cudnn} must be on the system"
        )
    if software.extra is False and not has_libraries and release.extra_style != "none":
        yield without_libraries(release.version)
    if has_extra:
        yield known_issues.framework_for_another_cuda(release, software.versions)
    elif software.cuda is None and versions.cuda is None:
        yield known_issues.wheels_of_another_cuda(release, software.versions)
    from_wheels = has_extra or versions.from_wheels
    yield kernels.search_path(release.version, from_wheels, software.library_path)


def without_libraries(version: str) -> Reason:
    """Return why a TensorFlow fails on a system without CUDA. version: empty if it is not known."""
    release = release_of_any_age(version) if version else None
    why = f"{f'tensorflow {version}'.rstrip()} was installed without CUDA's libraries"
    if release is not None and release.extra_style == "none":
        why += "; it has no extra that installs them, so"
        text = f"{why} CUDA {release.cuda} and cuDNN {release.cudnn} must be on the system"
        return release.fact.fails(text, "cuda_libraries_not_installed")
    pin = f"=={version}" if version else ""
    return facts.rule("platforms", "extra-and-cuda").fails(
        f"{why}; install tensorflow[and-cuda]{pin}", "cuda_libraries_not_installed"
    )


#: A driver branch that compiles every PTX.
_ANY_BRANCH = 9999


def judge(software: Software, host: Host, mode: str | None = None) -> Prediction:
    """Predict from the known facts if TensorFlow can use the GPU. mode: only `eager` or `xla`; None: both.

    A value that no table has (a release, driver or GPU that does not exist) counts as not known. Where the
    source of TensorFlow, the system or the architecture is not known, it is judged as the wheel from PyPI on
    Linux x86_64, but it can't be predicted to work.
    """
    return judge_both(judge_software(software, host), judge_host(host), mode)


# Images with different bases have the same software, so that a matrix asks many times.
@functools.lru_cache(maxsize=32768)
def judge_both(software: JudgedSoftware, host: Machine, mode: str | None = None) -> Prediction:
    """Predict from what was judged about the software and about the host. mode: as for `judge`."""
    if not host.has_gpu and not software.on_cpu:
        text = "this host has no GPU: TensorFlow runs on the CPU, which proves nothing about any GPU"
        return decide((*software.against, facts.rule("tensorflow", "no-gpu").unknown(text)))
    if not host.has_gpu:
        text = "tensorflow-cpu contains no CUDA: it runs on the CPU by design, with any driver and GPU"
        by_design = facts.rule("tensorflow", "tensorflow-cpu").works(text)
        release, python = software.versions.release, software.versions.python
        if release is not None and python is not None:
            return decide((by_design, kernels.python_wheel(release, python)))
        return decide((by_design,), tuple(one for one in software.missing if one in ("tensorflow", "python")))
    missing = (*software.missing, *host.missing)
    # The reasons to fail on every machine come first, then those that need the machine, then all others.
    reasons = (*software.against, *_on_gpu(software, host), *software.reasons)
    tried = evidence.on_machine(software.tried, host) if software.tried else ()
    return evidence.weigh(reasons, tried, missing, mode) if tried else decide(reasons, missing, mode)


def judge_uninspected(
    software: Software, host: Host, nearest: Release, mode: str | None = None
) -> Prediction:
    """Predict for a candidate or nightly that was not inspected; never `works`. nearest: an inspected one."""
    judged, machine = judge_software(replace(software, tensorflow=None), host), judge_host(host)
    word = judge(replace(software, tensorflow=nearest.version), host, mode).word
    text = (
        f"it is not known what the wheel of tensorflow {software.tensorflow} needs and which GPUs it has"
        f" kernels for, because it was not inspected; the nearest inspected release is {nearest.version},"
        f" whose prediction here is: {word}"
    )
    not_known = nearest.fact.unknown(text, "no_kernels_for_gpu")
    reasons = (*judged.against, *_on_gpu(judged, machine), *judged.reasons, not_known)
    tried = evidence.on_machine(judge_software(software, host).tried, machine)
    return evidence.weigh(reasons, tried, machine.missing, mode)


def of_software(software: Software, host: Host) -> tuple[Reason, ...]:
    """Return the reasons that hold on every machine with the host's system, deciding ones first."""
    judged = judge_software(software, host)
    return decide((*judged.against, *judged.reasons)).reasons


def facts_of(software: Software, host: Host) -> Mapping[str, tuple[known_issues.Combination, bool | None]]:
    """Return known combinations and traits by id, and if they hold; None if unknown, as for other builds."""
    values = known_values(software, host)
    of_pypi = values if judge_software(software, host).from_pypi else {}
    return {
        **{issue.fact.id: (issue, issue.holds(of_pypi)) for issue in known_issues.combinations()},
        **{trait.fact.id: (trait, trait.holds(values)) for trait in known_issues.traits()},
    }


def known_values(software: Software, host: Host) -> Mapping[str, str]:
    """Return the values that conditions on known combinations ask about, by kind."""
    values, machine = judge_software(software, host).values, judge_host(host)
    if machine.capability is None:
        return values
    return {**values, **known_issues.of_gpu(machine.capability, machine.model)}


def _on_gpu(software: JudgedSoftware, host: Machine) -> Iterator[Reason]:
    """Return the reasons that need the machine, in the order in which a user would meet them."""
    toolkit, cudnn, capability = software.versions.cuda, software.versions.cudnn, host.capability
    yield from host.reasons
    if toolkit is not None and (runs := runs_toolkit(host, toolkit)):
        yield runs
    if capability is not None:
        yield from _on_capability(software, host)
        if cudnn is not None:
            yield kernels.fits_gpu(cudnn, capability)
    if cudnn and toolkit is not None and host.linux is not None and host.user is not None:
        # Windows drivers have other numbers, and `runs_toolkit` has already compared them.
        driver = None if host.user.lifted_to or host.on_windows else host.linux
        yield kernels.fits_cuda(cudnn, toolkit, driver)
    compiled = host.user_cuda and software.nvcc and kernels.xla_compiler(software.nvcc, host.user_cuda)
    if compiled:
        yield compiled


# The driver makes no difference here.
@functools.lru_cache(maxsize=8192)
def _combinations_on(
    software: JudgedSoftware, capability: ComputeCapability, model: str | None
) -> tuple[Reason, ...]:
    return known_issues.on_gpu(software.combinations, software.values, capability, model)


def _on_capability(software: JudgedSoftware, host: Machine) -> Iterator[Reason]:
    """Return the reasons about the wheel's code and the GPU."""
    release, capability = software.versions.release, host.capability
    if release is None or capability is None:
        return
    if host.of_gpu and software.from_pypi:
        wrong = without_cuda(release.version, LINUX, host.of_gpu, PYPI)
        if wrong is not None and wrong not in software.against:
            yield wrong
    if software.combinations:
        yield from _combinations_on(software, capability, host.model)
    if software.inspected:
        runs = kernels.run_on(release.version, capability, host.user.branch if host.user else _ANY_BRANCH)
        if host.user is not None or runs.outcome is Outcome.FAILS:
            yield runs
        if target := kernels.targets_gpu(release.version, capability, software.nvcc):
            yield target
    elif not software.from_pypi:
        return
    elif release.lowest_gpu and capability < ComputeCapability.parse(release.lowest_gpu):
        text = (
            f"the package of tensorflow {release.version} is for compute capability {release.lowest_gpu} and"
            f" newer, not for {capability}"
        )
        yield release.fact.fails(text, "no_kernels_for_gpu")
    else:
        text = (
            f"it is not known which compute capabilities the wheel of tensorflow {release.version} has"
            " kernels for, because it was not inspected; the nearest inspected release is"
            f" {releases.releases()[0].version}"
        )
        yield release.fact.unknown(text, "no_kernels_for_gpu")


# Read a GPU and a driver as people write them, and say what is wrong with other text.

#: The longest text that is read. The names that drivers report are much shorter.
_LONGEST = 200
_CAPABILITY = re.compile(
    r"(?:(?:cuda )?compute[ _]?cap(?:ability)?\s*[:=]?\s*)?(\d{1,2}\.\d|sm_?\d{2,3})", re.IGNORECASE
)
#: How nvidia-smi prints both: `Driver Version: 535.183.01   CUDA Version: 12.2`.
_DRIVER = re.compile(r"driver(?: version)?\s*[:=]?\s*[rv]?(\d{3}[\d.]*)", re.IGNORECASE)
_CUDA = re.compile(r"cuda(?: version)?\s*[:=]?\s*v?(\d{1,2}\.\d+)", re.IGNORECASE)
#: Numbers below this are versions of CUDA. Drivers for CUDA have greater ones.
_FIRST_DRIVER = 100


def parse_gpu(text: str) -> Host:
    """Parse a name or a compute capability, as a host of which nothing else is known.

    Raises UnknownGpu, and InputError for another vendor's GPU.
    """
    text = _short(text, "GPU")
    if found := _CAPABILITY.fullmatch(text):
        return Host(capability=str(ComputeCapability.parse(found[1])))
    try:
        known = gpu(text)
    except UnknownGpu:
        vendor = other_vendor(text)
        if vendor is None:
            raise
        raise InputError(not_nvidia_text(text, vendor), hint=f"use {vendor['build']}") from None
    return Host(gpu=known.name, capability=str(known.compute_capability), machine=known.machine)


def parse_driver(text: str) -> Host:
    """Parse a release (`535.183.01`), a branch (`R535`), the CUDA version of `nvidia-smi` (`12.2`), or the
    line of `nvidia-smi` that has both, as a host of which nothing else is known. Raises InputError for other
    text, and UnknownDriver for a branch whose number is much too great.
    """
    text = _short(text, "driver")
    if (found := _DRIVER.search(text)) or (found := _CUDA.search(text)):
        text = found[1]
    cuda = CudaVersion.or_none(text)
    if cuda is not None and cuda.major < _FIRST_DRIVER:
        if releases.driver_with(cuda) is None:
            newest = hardware.branches()[-1]
            raise InputError(
                f"no known driver branch shows CUDA {cuda} in nvidia-smi; the newest that is known is"
                f" R{newest.number} with CUDA {newest.cuda}",
                hint="give the driver's release instead, which nvidia-smi shows too",
            )
        return Host(driver_cuda=str(cuda))
    release = DriverRelease.or_none(text)
    if release is None:
        raise InputError(
            f'"{text}" is neither a driver nor a CUDA version',
            hint="the first lines of `nvidia-smi` show both, such as 535.183.01 and 12.2",
        )
    return Host(driver=str(hardware.parse_release(text)))


def _short(text: str, what: str) -> str:
    text = text.strip()
    if len(text) > _LONGEST:
        raise InputError(
            f"the text for the {what} is longer than {_LONGEST} characters", hint="give its name"
        )
    return text
