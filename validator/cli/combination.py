"""Read the options of `predict` as a host and software, and find the image that they are about."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import click

from ..compat.facts import UnknownGpu, read_on
from ..compat.hardware import parse_release
from ..compat.judge import judge, judge_host, parse_driver, parse_gpu
from ..compat.offers import first_usable, has_extra, requirement
from ..compat.policies import allowed_cudnn, candidates, choose
from ..compat.predict import beside, host_of, newest_python, software_of
from ..compat.releases import Release, driver_with, release
from ..errors import InputError, MissingError
from ..model.prediction import LINUX, PYPI, X86_64, Host, Outcome, Software
from ..model.spec import AS_BUILT, LATEST, RECOMMENDED, HostClass, ImageSpec, Variant, host_identifier, slug
from ..versions import ComputeCapability, CudaVersion, is_numbers, is_release_of, without_cuda_suffix
from .options import print_status

T = TypeVar("T")
_CUDNN = "nvidia-cudnn"
#: A CUDA version, not a driver: the numbers of drivers begin at 100.
_SHOWN_CUDA = re.compile(r"\d{1,2}\.\d{1,2}")


@dataclass(frozen=True)
class Question:
    """What the options of `predict` state about an image and a machine.

    software: its `cuda` and `cudnn` may also be policies. policy: the default of both.
    """

    host: Host
    software: Software = field(default_factory=Software)
    policy: str | None = None
    mode: str | None = None

    @property
    def names_host(self) -> bool:
        """True if any option describes the machine."""
        return self.host.names_gpu or bool(self.host.driver or self.host.compat)

    @property
    def says_more(self) -> bool:
        """True if any option describes something that the cells of a matrix don't have, besides the mode."""
        host, software = self.host, self.software
        more = (host.system, host.machine, host.kernel_modules, software.wheel, software.packages)
        return any(more) or software.extra is not None

    @property
    def on_cpu(self) -> bool:
        return self.software.variant == Variant.CPU.value

    @property
    def from_pypi(self) -> bool:
        return self.software.wheel in (None, PYPI)

    def pip_chooses(self, tensorflow: Release) -> bool:
        """Return whether pip chooses the versions of CUDA's libraries: the newest that the extra allows."""
        return self.software.extra is True and self.from_pypi and tensorflow.extra_style == "range"

    def cudnn(self, tensorflow: Release) -> str | None:
        """Return the cuDNN that is stated, by its option or as the package that the release loads.

        Raises UsageError if both are stated and differ.
        """
        option, name = self.software.cudnn, f"{_CUDNN}-{tensorflow.suffix}"
        wheel = self.software.versions.get(name)
        if option and wheel and is_numbers(option) and not is_release_of(wheel, option):
            raise click.UsageError(
                f"--cudnn {option} contradicts --package {name}=={wheel}: give only one of them"
            )
        return wheel or option


def image_of(asked: Question) -> ImageSpec:
    """Return the image spec, even for a version that the wheel's metadata excludes. Raises InputError."""
    software = asked.software
    tensorflow = release(software.tensorflow or "")
    python = software.python or newest_python(tensorflow, software.extra)
    if not is_numbers(python) or python.count(".") != 1:
        raise InputError(f'--python: "{python}" is not a Python version', hint="write it as 3.12")
    if asked.on_cpu:
        if asked.policy or software.cuda or software.cudnn:
            raise click.UsageError("--policy, --cuda and --cudnn have no effect with --variant cpu")
        return ImageSpec(tensorflow.version, python, Variant.CPU)
    if asked.policy and software.cuda and software.cudnn:
        raise click.UsageError("--policy has no effect with both --cuda and --cudnn")
    cudnn = asked.cudnn(tensorflow)
    if asked.policy is not None:
        policy = asked.policy
    elif asked.pip_chooses(tensorflow):
        policy = LATEST
    else:
        # If only one of the two is given, the other one is that of the build, as in a matrix.
        policy = AS_BUILT if software.cuda or cudnn else RECOMMENDED
    chosen = choose(tensorflow, software.cuda or policy, cudnn or policy, within_metadata=False)
    return ImageSpec(tensorflow.version, python, Variant.GPU, *chosen)


def image_for(asked: Question) -> ImageSpec:
    """Return the image spec for the machine. Raises InputError for unknown versions.

    If nothing was chosen and the recommended image fails on this machine, return the one with the newest CUDA
    and cuDNN that doesn't fail there, or else the newest with which eager operations don't fail.
    """
    image, software = image_of(asked), asked.software
    tensorflow = release(image.tensorflow)
    chosen = asked.policy or software.cuda or software.cudnn or software.packages
    if chosen or image.cuda is None or not asked.names_host or asked.pip_chooses(tensorflow):
        return image
    others = (replace(image, cuda=cuda, cudnn=cudnn) for cuda, cudnn in candidates(tensorflow))
    usable = first_usable(
        (image, *others),
        lambda other: [judge(software_for(asked, other), host_for(asked), asked.mode)],
        (Outcome.WORKS, Outcome.UNKNOWN),
    )
    return usable or image


def software_for(asked: Question, image: ImageSpec) -> Software:
    """Return the software of the image, changed as the options say.

    Only images of this project are known to tell the loader about NVIDIA's folders. A package that is not
    from PyPI has different versions from the release's wheel, so only the given ones are known.
    """
    usual, stated = software_of(image), asked.software
    if asked.on_cpu:
        return usual
    tensorflow = release(image.tensorflow)
    named_cudnn, both = asked.cudnn(tensorflow), beside(usual, stated.versions)
    cuda, cudnn, packages = usual.cuda, usual.cudnn if named_cudnn else both.cudnn, both.packages
    # pip ignores an extra that the release does not have.
    if not asked.from_pypi or (stated.extra is not None and not (stated.extra and has_extra(tensorflow))):
        cuda, cudnn = (cuda if stated.cuda else None), (usual.cudnn if named_cudnn else None)
        packages = stated.packages
    return replace(
        usual,
        python=usual.python if asked.from_pypi else stated.python,
        cuda=cuda,
        cudnn=cudnn,
        wheel=stated.wheel or PYPI,
        extra=usual.extra if stated.extra is None else stated.extra,
        library_path=True if stated.extra is None else None,
        packages=packages,
    )


def host_for(asked: Question) -> Host:
    """Return the machine, with its GPU's capability, on Linux x86_64 unless more is stated or implied."""
    if asked.on_cpu:
        return host_of(HostClass.without_gpu())
    host, chosen = asked.host, host_class(asked)
    return replace(
        host,
        capability=str(chosen.compute_capability) if chosen else host.capability,
        system=host.system or LINUX,
        machine=host.machine or judge_host(host).of_gpu or X86_64,
    )


def host_class(asked: Question) -> HostClass | None:
    """Return the host class, or None if the driver or the GPU is not given. Raises InputError."""
    host = asked.host
    if asked.on_cpu and not asked.names_host:
        return HostClass.without_gpu()
    driver = _read(parse_release, host.driver, "--driver") if host.driver else None
    if host.compat:
        _read(CudaVersion.parse, host.compat, "--compat")
    model, capability = gpu_of(host)
    if capability is None or driver is None:
        return None
    name = host_identifier(driver, model, capability, host.compat)
    return HostClass(name, driver, capability, model, (), host.compat)


def with_driver_of(host: Host) -> Host:
    """Return the host with a driver branch if its driver is a CUDA version. Raises InputError."""
    if not host.driver or not _SHOWN_CUDA.fullmatch(host.driver):
        return host
    shown = _read(parse_driver, host.driver, "--driver").driver_cuda or host.driver
    driver = driver_with(CudaVersion.parse(shown), host.on_windows)
    print_status(f"nvidia-smi shows CUDA {shown} with driver {driver}; a release would be more exact")
    return replace(host, driver=str(driver))


def gpu_of(host: Host) -> tuple[str | None, ComputeCapability | None]:
    """Return the model's slug, which may be unknown, and the capability, if given. Raises InputError."""
    text = host.capability
    given = _read(ComputeCapability.parse, text, "--compute-capability") if text else None
    if not host.gpu:
        return None, given
    try:
        read = parse_gpu(host.gpu)
    except UnknownGpu:
        if given is None:
            raise
        return slug(host.gpu), given
    except InputError as error:
        raise InputError(f"--gpu: {error}", hint=error.hint) from None
    capability = ComputeCapability.parse(read.capability or "")
    if given is not None and given != capability:
        raise InputError(
            f"--compute-capability {given}: {read.gpu or host.gpu} has {capability}",
            hint="give only one of the two options",
        )
    return slug(read.gpu) if read.gpu else None, capability


def assumed_cudnn(asked: Question, image: ImageSpec, software: Software) -> str:
    """Return which cuDNN pip is assumed to choose, and the command that installs exactly that one.

    If the combination fails with that cuDNN but works with older ones that the extra allows, the command
    installs the newest of those. Empty if pip has no choice.
    """
    tensorflow = release(image.tensorflow)
    given = any(without_cuda_suffix(name) == _CUDNN for name, _ in asked.software.packages)
    floats = image.cudnn is not None and image.cudnn.floats
    if given or not floats or not asked.pip_chooses(tensorflow):
        return ""
    wanted, host = requirement(tensorflow), host_for(asked)
    version = software.versions.get(_CUDNN) or software.cudnn

    def outcome(cudnn: str) -> Outcome:
        packages = tuple({**software.versions, _CUDNN: cudnn}.items())
        return judge(replace(software, cudnn=cudnn, packages=packages), host, asked.mode).outcome

    # The newest cuDNN that the extra allows and that makes a failing combination work.
    other = None
    if judge(software, host, asked.mode).outcome is Outcome.FAILS:
        newest_first = reversed(allowed_cudnn(tensorflow))
        other = next((cudnn for cudnn in newest_first if outcome(cudnn) is Outcome.WORKS), None)
    then = f"It works with cuDNN {other}:" if other else "To get exactly that one:"
    return (
        f"This is for cuDNN {version}, which pip chooses for {wanted} from the\nreleases that were known on"
        f" {read_on()}. {then}\n"
        f'  python -m pip install "{wanted}" nvidia-cudnn-{tensorflow.suffix}=={other or version}'
    )


def with_this_host(host: Host) -> Host:
    """Return the host with what this machine shows in place of what was not given."""
    from ..engines.this_machine import read_this_host

    here = read_this_host(one_kind=not host.names_gpu)
    if not (here.driver or host.driver):
        raise MissingError(
            "this machine shows no NVIDIA driver",
            hint="give --driver and --gpu, or run `nvidia-smi` to see why",
        )
    return replace(
        host,
        driver=host.driver or here.driver,
        gpu=host.gpu if host.names_gpu else here.gpu,
        capability=host.capability if host.names_gpu else here.capability,
        system=host.system or here.system,
        machine=host.machine or here.machine,
        kernel_modules=host.kernel_modules or here.kernel_modules,
    )


def read_packages(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the normalized names and the versions of `NAME==VERSION`.

    Raises InputError for anything else, and for two versions of one package.
    """
    packages: dict[str, str] = {}
    for text in texts:
        name, equals, version = (part.strip() for part in text.partition("=="))
        if not (name and equals and version[:1].isdigit()):
            raise InputError(
                f'--package: "{text}" is not a name and a version', hint="write it as torch==2.6.0"
            )
        name = re.sub(r"[-_.]+", "-", name).lower()
        if packages.setdefault(name, version) != version:
            raise InputError(f"--package: {name} has two versions, {packages[name]} and {version}")
    return tuple(packages.items())


def _read(parse: Callable[[str], T], text: str, option: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        hint = error.hint if isinstance(error, InputError) else None
        raise InputError(f"{option}: {error}", hint=hint) from None
