"""Answer "What works on my GPU and driver?" for every release that the facts know, on the page and in
`predict`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..compat import evidence, gpus, loose_values
from ..compat.hardware import Driver, Gpu, parse_driver, parse_gpu
from ..compat.machine import judge_host
from ..compat.offers import offers
from ..compat.older_releases import driver_with
from ..compat.other_driver import other_driver
from ..errors import InputError
from ..model.situation import EAGER, JETSON, LINUX, MACHINES, MACOS, MODES, SYSTEMS, WINDOWS, WSL2, Host
from ..model.spec import host_identifier
from ..reports.diagnosis_words import fact_names
from ..versions import CudaVersion, DriverRelease
from .errors import rejecting
from .headline import basis, headline, newest_in_mode
from .measured import Measured, Option
from .remarks import remarks
from .ways import image_ways, pip_ways, refuted_images, release_row

_PYTHON = re.compile(r"[23]\.\d{1,2}")
_SYSTEMS = {LINUX: "Linux", WSL2: "WSL2", WINDOWS: "Windows", MACOS: "macOS"}


def what_works(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the newest releases that work on a machine, how to get them, and why newer ones don't.

    asked: `gpu`, `driver` and `python` as a person wrote them, each of which may be empty; `system` and
    `machine` as in `Host`; `registry`: the repository of the images, or None; `images`: the digest of
    each image that can be pulled from there, by its identifier, or None if nobody has looked; `verdicts`: of
    each cell that was measured, by its identifier, the newest `verdict`, the `digest` of the image that got
    it, and its `limits` as in `Limit` if there are any, or None if nobody has looked.

    Raises RejectedField for what can't be understood, and InputError for a system that does not exist.
    """
    with rejecting("gpu"):
        gpu = parse_gpu(asked["gpu"]) if asked["gpu"].strip() else None
    with rejecting("driver"):
        driver = parse_driver(asked["driver"]) if asked["driver"].strip() else Driver()
    python = _python(asked["python"])
    host = Host(
        gpu=gpu.name if gpu else None,
        capability=str(gpu.capability) if gpu else None,
        driver=driver.release,
        driver_cuda=driver.cuda,
        system=_one_of(asked["system"], SYSTEMS),
        # People leave "Linux" as it is, but a Jetson has an Arm processor.
        machine=JETSON if gpu and gpu.is_jetson else _one_of(asked["machine"], MACHINES),
    )
    measured = Measured(asked["registry"], asked["images"], asked["verdicts"], _class_name(host, gpu))
    options = _options(host, python, measured)
    missing = fact_names(name for name in options[0].pip.prediction.missing if name in ("driver", "gpu"))
    ways = _ways(options, measured, host, python)
    refuted = list(refuted_images(options, ways))
    modes = [newest_in_mode(ways, mode) for mode in MODES]

    def ask(other: Host) -> list[dict[str, Any]]:
        there = replace(measured, host=_class_name(other, gpu))
        return _ways(_options(other, python, there), there, other, python)

    return {
        "machine": list(_words(host, python, gpu, driver)),
        "headline": headline(ways, missing, refuted),
        "remarks": list(remarks(options, ways, host, python, other_driver(host, python), ask)),
        "basis": " ".join([basis(ways, asked["verdicts"], refuted), *_measured_otherwise(ways, host)]),
        "outcome": modes[MODES.index(EAGER)]["outcome"],
        "modes": modes,
        "ways": ways,
        "refuted": refuted,
        "releases": [release_row(option, ways, host, python) for option in options],
    }


def _options(host: Host, python: str | None, measured: Measured) -> list[Option]:
    return [measured.option(offer) for offer in offers(host, python, measured.specs())]


def _ways(
    options: Sequence[Option], measured: Measured, host: Host, python: str | None
) -> list[dict[str, Any]]:
    return [*image_ways(options, measured), *pip_ways(options, host, python)]


def _measured_otherwise(ways: Sequence[Mapping[str, Any]], host: Host) -> Iterator[str]:
    """Yield what was measured on such machines, as sentences, unless the ways name a measurement already."""
    if not any(way["measured"] for way in ways):
        yield from evidence.measured_on(judge_host(host))


def _python(text: str) -> str | None:
    if not text.strip():
        return None
    if not _PYTHON.fullmatch(loose_values.minor(text) or ""):
        with rejecting("python"):
            raise InputError(f'"{text[:20]}" is not a Python version', hint="write it as 3.12")
    return loose_values.minor(text)


def _one_of(value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise InputError(f'"{value[:20]}" is not one of {", ".join(known)}')
    return value


def _words(host: Host, python: str | None, gpu: Gpu | None, driver: Driver) -> Iterator[str]:
    """Yield how the question was understood."""
    if gpu is not None:
        name = f"{gpu.name}, " if gpu.name else ""
        yield f"{name}compute capability {gpu.capability}"
    if driver.release:
        yield f"driver {driver.release}"
    elif driver.cuda:
        oldest = driver_with(CudaVersion.parse(driver.cuda))
        yield f"CUDA {driver.cuda} in nvidia-smi, so driver R{oldest.branch}" if oldest else driver.cuda
    system = _SYSTEMS[host.system or LINUX]
    yield f"{system} on NVIDIA Jetson" if host.machine == JETSON else f"{system} {host.machine}"
    if python:
        yield f"Python {python}"


def _class_name(host: Host, gpu: Gpu | None) -> str | None:
    """Return the name of the machine's host class in the matrix; None if that needs more facts."""
    driver = loose_values.driver(host.driver)
    if driver is None and host.driver_cuda:
        driver = driver_with(CudaVersion.parse(host.driver_cuda))
    if gpu is None or driver is None:
        return None
    slug = gpus.model_of(gpu.name) if gpu.name else None
    return host_identifier(DriverRelease(driver.branch), slug, gpu.capability)
