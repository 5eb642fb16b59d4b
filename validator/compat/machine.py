"""Judge a host by itself: its driver, the libcuda in use and its GPU."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from ..errors import InputError
from ..model.prediction import PYPI, Host, Reason
from ..model.spec import NO_GPU
from ..versions import ComputeCapability, CudaVersion, DriverRelease, release_range
from . import facts, hardware, releases
from .facts import Fact, UnknownGpu
from .hardware import EMBEDDED, UserDriver, gpu, user_driver

# Rules about the system, the architecture, the source of the package, the kernel modules and the vendor.


@dataclass(frozen=True)
class Vendor:
    """Another vendor of GPUs. build: what makes TensorFlow use its GPUs."""

    name: str
    build: str
    fact: Fact


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
def other_vendor(gpu: str) -> Vendor | None:
    """Return the vendor of a GPU that is not NVIDIA's, by its name; None for any other name."""
    for row in facts.rows("platforms", "vendors"):
        if re.search(row["pattern"], gpu.strip().lower()):
            return Vendor(row["vendor"], row["build"], facts.fact(row))
    return None


def not_nvidia_text(gpu: str, vendor: Vendor) -> str:
    """Return the sentence about a GPU of another vendor, for an error and for a reason."""
    return f'"{gpu}" is a GPU from {vendor.name}: TensorFlow\'s CUDA builds use only NVIDIA GPUs'


def not_nvidia(gpu: str) -> Reason | None:
    """Return why a GPU of another vendor is not used; None for any other name."""
    vendor = other_vendor(gpu)
    if vendor is None:
        return None
    return vendor.fact.fails(f"{not_nvidia_text(gpu, vendor)}; use {vendor.build}", "not_nvidia")


# Say why a value of CUDA_VISIBLE_DEVICES hides every GPU, whatever the machine. CUDA shows the devices that
# the variable lists, up to the first entry that is not valid.

#: No machine has this many GPUs.
_MANY_GPUS = 64


def reason_hidden(value: str) -> Reason | None:
    """Return why a value hides every GPU; None if some machine shows one, or if the value has a variable."""
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
    facts that are not known. model: the short name of the GPU, if its name is known. is_jetson: True if the
    name of the GPU says so.
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
    is_jetson: bool = False


@functools.lru_cache(maxsize=8192)
def judge_host(host: Host) -> Machine:
    """Return the machine that is known of a host. Its architecture makes no difference here."""
    on_windows = host.on_windows
    if host.gpu == NO_GPU:
        return Machine(False, on_windows, None, None, None, None, None, (), ())
    capability, model, kind, reasons = _gpu(host.gpu, host.capability)
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
        model=model,
        is_jetson=kind == hardware.EMBEDDED,
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
) -> tuple[ComputeCapability | None, str | None, str | None, tuple[Reason, ...]]:
    """Return a GPU's capability, short name, kind (by capability if all with it share it), what is wrong."""
    given = ComputeCapability.or_none(capability)
    if name is not None:
        try:
            known = hardware.gpu(name)
        except UnknownGpu:
            other = not_nvidia(name)
            return given, None, None, (other,) if other else ()
        return given or known.compute_capability, known.slug, known.kind, ()
    kinds = {one.kind for one in hardware.gpus() if one.compute_capability == given}
    return given, None, kinds.pop() if len(kinds) == 1 else None, ()


# Read a GPU and a driver as people write them, and say what is wrong with other text.


#: The longest text that is read. The names that drivers report are much shorter.
_LONGEST = 200
_CAPABILITY = re.compile(
    r"(?:(?:cuda )?compute[ _]?cap(?:ability)?\s*[:=]?\s*)?(\d{1,2}\.\d|sm_\d{2,3})", re.IGNORECASE
)
#: How nvidia-smi prints both: `Driver Version: 535.183.01   CUDA Version: 12.2`.
_DRIVER = re.compile(r"driver(?: version)?\s*[:=]?\s*[rv]?(\d{3}[\d.]*)", re.IGNORECASE)
_CUDA = re.compile(r"cuda(?: version)?\s*[:=]?\s*v?(\d{1,2}\.\d+)", re.IGNORECASE)
#: Numbers below this are versions of CUDA. Drivers for CUDA have greater ones.
_FIRST_DRIVER = 100


@dataclass(frozen=True)
class Gpu:
    """A GPU. name: as the facts write it; None if only the capability was given. is_jetson: in a Jetson."""

    capability: ComputeCapability
    name: str | None = None
    is_jetson: bool = False


@dataclass(frozen=True)
class Driver:
    """A driver: its release or branch, or the CUDA version that `nvidia-smi` shows for it."""

    release: str | None = None
    cuda: str | None = None


def parse_gpu(text: str) -> Gpu:
    """Parse a name or a compute capability. Raises UnknownGpu, and InputError for another vendor's GPU."""
    text = _short(text, "GPU")
    if found := _CAPABILITY.fullmatch(text):
        return Gpu(ComputeCapability.parse(found[1]))
    try:
        known = gpu(text)
    except UnknownGpu:
        vendor = other_vendor(text)
        if vendor is None:
            raise
        raise InputError(not_nvidia_text(text, vendor), hint=f"use {vendor.build}") from None
    return Gpu(known.compute_capability, known.name, known.kind == EMBEDDED)


def parse_driver(text: str) -> Driver:
    """Parse a release (`535.183.01`), a branch (`R535`), the CUDA version of `nvidia-smi` (`12.2`), or the
    line of `nvidia-smi` that has both. Raises InputError for other text, and UnknownDriver for a branch whose
    number is much too great.
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
        return Driver(cuda=str(cuda))
    release = DriverRelease.or_none(text)
    if release is None or release.branch < _FIRST_DRIVER:
        raise InputError(
            f'"{text}" is neither a driver nor a CUDA version',
            hint="the first lines of `nvidia-smi` show both, such as 535.183.01 and 12.2",
        )
    return Driver(str(hardware.parse_release(text)))


def _short(text: str, what: str) -> str:
    text = text.strip()
    if len(text) > _LONGEST:
        raise InputError(
            f"the text for the {what} is longer than {_LONGEST} characters", hint="give its name"
        )
    return text
