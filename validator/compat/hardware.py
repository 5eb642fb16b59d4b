"""Read a GPU and a driver as people write them, and say what is wrong with other text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import InputError
from ..versions import ComputeCapability, CudaVersion
from . import drivers, loose_values, older_releases
from .errors import UnknownGpu
from .gpus import EMBEDDED, gpu
from .platforms import not_nvidia_text, other_vendor

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
    """Parse a name (`a100`, `RTX 4090`) or a compute capability (`8.0`, `compute capability 8.0`).

    Raises UnknownGpu, with the nearest names, for an unknown one, and InputError for another vendor's.
    """
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
    cuda = loose_values.cuda(text)
    if cuda is not None and cuda.major < _FIRST_DRIVER:
        return Driver(cuda=str(_known(cuda)))
    release = loose_values.driver(text)
    if release is None or release.branch < _FIRST_DRIVER:
        raise InputError(
            f'"{text}" is neither a driver nor a CUDA version',
            hint="the first lines of `nvidia-smi` show both, such as 535.183.01 and 12.2",
        )
    drivers.refuse_mistyped(release)
    return Driver(str(release))


def _known(cuda: CudaVersion) -> CudaVersion:
    if older_releases.driver_with(cuda) is None:
        newest = drivers.branches()[-1]
        raise InputError(
            f"no known driver branch shows CUDA {cuda} in nvidia-smi; the newest that is known is"
            f" R{newest.number} with CUDA {newest.cuda}",
            hint="give the driver's release instead, which nvidia-smi shows too",
        )
    return cuda


def _short(text: str, what: str) -> str:
    text = text.strip()
    if len(text) > _LONGEST:
        raise InputError(
            f"the text for the {what} is longer than {_LONGEST} characters", hint="give its name"
        )
    return text
