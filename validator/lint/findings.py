"""Lint files: ask `compat` about the software of an environment, and name the place to blame for each reason.

A finding holds for every version that the pins allow. If one allowed combination has no fault, there is no
finding.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..compat import judge, kernels, known_issues, releases
from ..compat.facts import UnknownRelease
from ..compat.offers import has_extra, installed, newest_that_works, requirement
from ..compat.policies import cudnn_releases
from ..compat.predict import ANY_HOST, beside, host_of, image_with, newest_python
from ..compat.releases import Release, known_versions, release_of_any_age
from ..errors import InputError
from ..model.prediction import (
    LINUX,
    PYPI,
    WORST_FIRST,
    X86_64,
    Finding,
    Host,
    OnHost,
    Outcome,
    Place,
    Prediction,
    Reason,
    Rule,
    Software,
)
from ..model.spec import HostClass
from ..system.runs import temporary_directory
from ..versions import Version, leading_numbers
from . import dockerfile, pins
from .dockerfile import Read, reader
from .pins import READ_WITHIN, TENSORFLOW, Environment, Pin, Source, Stated, pythons_within

# The codes of findings, which are those of rules of `compat`, with what each is about and how to fix it.


#: Code -> what a file says that can't work.
CODES: Mapping[Rule, str] = {
    "cuda_of_another_version": "CUDA of another version than TensorFlow loads: a base image, NVIDIA's wheels"
    " (`-cu11`, `-cu12`, `-cu13`), or a package of conda",
    "cudnn_of_another_major": "cuDNN of another major version than TensorFlow was compiled with",
    "cudnn_older_than_built": "cuDNN of an older minor version than TensorFlow was compiled with",
    "python_without_wheel": "a Python for which this TensorFlow has no wheel",
    "mixed_frameworks": "PyTorch or JAX in the same environment, whose wheels bring a cuDNN that TensorFlow"
    " rejects, or the wheels of cuDNN for two versions of CUDA",
    "requirement_unmet": "a version of Keras or NumPy that TensorFlow's metadata rejects, so that pip"
    " refuses to install it with TensorFlow",
    "package_removed": "a package that was replaced, such as `tensorflow-gpu`, in a version that only fails"
    " to install",
    "release_missing": "a release of the package `tensorflow` that does not exist, such as 2.16.0; a release"
    " that is newer than those that this tool knows may exist, and is not reported",
    "invalid_version": "a package next to TensorFlow that is pinned to an invalid version, such as `==9.x`,"
    " in a Dockerfile, a requirements file, or a list of requirements in another file",
    "cpu_package": "`tensorflow-cpu` where the file says that a GPU will be used",
    "cuda_libraries_not_installed": "`tensorflow` without `[and-cuda]` in an image without CUDA, where the"
    " file says that a GPU will be used; also any release before 2.14, because these have no such extra",
    "library_path_not_set": "an environment in which nothing tells the loader where NVIDIA's wheels are,"
    " which this release does not find by itself",
    "devices_hidden": "`CUDA_VISIBLE_DEVICES` in a Dockerfile or a compose file, with a value that hides"
    " every GPU, such as `-1` or an empty one",
    "known_issue": "versions that are known to break each other, such as NumPy 2 with an older TensorFlow",
}


_TELL_THE_LOADER = (
    """RUN ls -d "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"/nvidia/*/lib"""
    " > /etc/ld.so.conf.d/nvidia-wheels.conf && ldconfig"
)


def fix(code: Rule, version: str, python: Stated | None, blamed: Stated | None) -> str:
    """Return what to do about a finding, as sentences; nothing where its message says it.

    version: the TensorFlow release, empty if it is not known. blamed: what is to blame, if not a package.
    """
    release = release_of_any_age(version) if version else releases.newest()
    if release is None:
        return ""
    if code in ("cuda_of_another_version", "cudnn_of_another_major", "cudnn_older_than_built"):
        return _libraries(release, blamed)
    if code == "python_without_wheel":
        return _python(release, python)
    if code == "cuda_libraries_not_installed" and blamed and blamed.image:
        return "Use the base image for GPUs, whose tag contains -gpu."
    if code == "cuda_libraries_not_installed" and version and not has_extra(release):
        other = _suggested(python) if python else release
        instead = f", or require {requirement(other)}, which brings its own" if has_extra(other) else ""
        return f"{_base_image(release.cuda, release.cudnn)}{instead}."
    if code in ("cpu_package", "cuda_libraries_not_installed", "package_removed"):
        if not version:
            release = _suggested(python)
        return f"Require {requirement(release)}." + ("" if has_extra(release) else f" {_system(release)}")
    if code == "devices_hidden":
        return (
            "Leave the variable out. Choose the GPUs when you start the container, such as with"
            " docker run --gpus."
        )
    if code == "library_path_not_set":
        return f"Add this after the installation: {_TELL_THE_LOADER}"
    if code == "mixed_frameworks":
        return "Install each framework in an environment of its own."
    # The messages of the others say which versions fit, or which releases exist.
    return ""


def _suggested(python: Stated | None) -> Release:
    """Return the newest release that finds the libraries in NVIDIA's wheels, with a Python that fits."""
    allowed = pins.pythons_within(python.value) if python else ()
    chosen = newest_that_works(Host(system=LINUX, machine=X86_64), allowed[-1] if allowed else None)
    return chosen.release if chosen else releases.newest()


def _base_image(cuda: str, cudnn: str) -> str:
    name = image_with(cuda, cudnn)
    newer = f", or newer ones of the same major versions, such as {name}" if name else ""
    return f"Use a base image with CUDA {cuda} and cuDNN {cudnn}{newer}"


def _libraries(release: Release, blamed: Stated | None) -> str:
    measured = releases.build(release.version)
    cudnn = (measured.cudnn if measured else None) or release.cudnn
    parts = []
    if blamed and blamed.image:
        parts.append(f"{_base_image(release.cuda, cudnn)}.")
    elif blamed:
        parts.append(f"Use CUDA {release.cuda} and cuDNN {cudnn}, or newer ones of the same major versions.")
    elif release.wheels:
        major, minor = leading_numbers(cudnn)[:2]
        pin = f"nvidia-cudnn-{release.suffix}>={major}.{minor},<{major + 1}"
        parts.append(f"Leave out NVIDIA's wheels, or use those of {release.suffix}, such as {pin}.")
    else:
        parts.append(_system(release))
    if has_extra(release):
        parts.append(f"{requirement(release)} brings the libraries itself.")
    return " ".join(parts)


def _python(release: Release, python: Stated | None) -> str:
    pythons = release.pythons
    several = f"{pythons[0]} to {pythons[-1]}" if len(pythons) > 2 else " or ".join(pythons)
    own = f"Use Python {several}"
    wanted = pins.pythons_within(python.value) if python else ()
    fitting = [
        one
        for one in releases.releases()
        if not one.prerelease and any(minor in one.pythons for minor in wanted)
    ]
    if not fitting:
        return f"{own}."
    other = fitting[-1]
    minor = [one for one in wanted if one in other.pythons][-1]
    return f"{own}, or tensorflow=={other.version}, which has a wheel for Python {minor}."


def _system(release: Release) -> str:
    return f"Install CUDA {release.cuda} and cuDNN {release.cudnn} on the system."


_ON_CPU = ("tensorflow-cpu", "intel-tensorflow")
_CUDNN = ("nvidia-cudnn-cu11", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13")
#: Packages that bring CUDA's libraries along.
_BRING_CUDA = ("torch", "jax-cuda12-plugin", "jax-cuda13-plugin", "nvidia-cuda-runtime", "nvidia-cublas")


@dataclass(frozen=True)
class _Case:
    """One combination of versions that the pins allow. others: packages that known combinations name."""

    tensorflow: str
    python: str | None
    cudnn: tuple[str, str] | None
    others: tuple[tuple[str, str], ...]


def findings(environment: Environment) -> list[Finding]:
    """Return what can't work in an environment, in no particular order."""
    tensorflow = _tensorflow(environment)
    stated = _stated(environment, tensorflow)
    found = [_finding(reason, place, environment, "") for reason, place in stated]
    if tensorflow is None or tensorflow.from_conda:
        # Other builds have other libraries.
        return found
    if any(one.code == "release_missing" for one in found):
        return found
    cases = _cases(environment, tensorflow)
    if not cases:
        # This is wrong whichever release pip installs, even one that the facts lack.
        from_index = tensorflow.name == TENSORFLOW[0] and tensorflow.versions is not None
        for_any = (
            judge.without_libraries("") if from_index and _without_cuda(environment, tensorflow) else None
        )
        if tensorflow.name in _ON_CPU:
            for_any = known_issues.cpu_package({tensorflow.name: ""}, None)
        if for_any and environment.for_gpu:
            found.append(_finding(for_any, tensorflow.place, environment, ""))
        return found
    # The messages name the newest combination.
    *older, newest = cases
    reasons = [reason for reason in _against(environment, tensorflow, newest) if reason.rule]
    for case in older:
        if not reasons:
            break
        rules = {reason.rule for reason in _against(environment, tensorflow, case)}
        reasons = [reason for reason in reasons if reason.rule in rules]
    for reason in reasons:
        place = _blamed(environment, tensorflow, newest, reason)
        # A package that breaks TensorFlow is reported once, without pip's refusal.
        if reason.rule != "requirement_unmet" or all(one.place != place for one in found):
            found.append(_finding(reason, place, environment, newest.tensorflow))
    return found


def _stated(environment: Environment, tensorflow: Pin | None) -> Iterator[tuple[Reason, Place]]:
    """Yield what can't work, whichever allowed version is installed."""
    devices = environment.visible_devices
    on_cpu = not tensorflow or tensorflow.name in _ON_CPU or _without_cuda(environment, tensorflow)
    if devices and (environment.for_gpu or not on_cpu) and (hidden := judge.reason_hidden(devices.value)):
        yield hidden, devices.place
    if tensorflow is None or tensorflow.from_conda:
        return
    for pin in environment.pins:
        last = known_issues.last_of_removed(pin.name)
        if last is not None and pin.versions is not None and not pin.from_conda:
            version = pin.exact or (last if pin.versions.contains(last) else "")
            if removed := known_issues.removed_package(pin.name, version):
                yield removed, pin.place
        if pin.invalid:
            yield known_issues.invalid_version(pin.name, pin.invalid), pin.place
    if tensorflow.name == TENSORFLOW[0] and tensorflow.exact is not None:
        missing = kernels.no_such_release(tensorflow.exact)
        if missing is not None:
            yield missing, tensorflow.place


def _without_cuda(environment: Environment, tensorflow: Pin) -> bool:
    """Return True if neither the system nor a package is known to bring CUDA's libraries."""
    others = [pin for pin in environment.pins if pin is not tensorflow and not pin.from_conda]
    return environment.without_cuda and "and-cuda" not in tensorflow.extras and not _bring_cuda(others)


def unknown_release(environment: Environment) -> Iterator[tuple[Place, UnknownRelease]]:
    """Yield the place of the TensorFlow pin if its release may exist but is not in the facts.

    The error with it names the nearest known releases.
    """
    pin = _tensorflow(environment)
    if pin is None or pin.from_conda or pin.exact is None or release_of_any_age(pin.exact) is not None:
        return
    if kernels.no_such_release(pin.exact) is None:
        try:
            releases.release(pin.exact)
        except UnknownRelease as error:
            yield pin.place, error


def allowed_software(environment: Environment) -> tuple[Pin | None, list[Software]]:
    """Return the pin of TensorFlow, and the software of each combination of versions that the pins allow.

    The newest combination is the last one. There is none if not all of them are known.
    """
    tensorflow = _tensorflow(environment)
    cases = _cases(environment, tensorflow) if tensorflow else ()
    return tensorflow, [_software(environment, tensorflow, case, None) for case in cases if tensorflow]


def _tensorflow(environment: Environment) -> Pin | None:
    by_name = {pin.name: pin for pin in environment.pins}
    return next((by_name[name] for name in TENSORFLOW if name in by_name), None)


def _cases(environment: Environment, tensorflow: Pin) -> Sequence[_Case]:
    """Return every combination that the pins allow, the newest last; empty if not all are known."""
    allowed = () if tensorflow.from_conda else _allowed(tensorflow, known_versions())
    pythons: Sequence[str | None] = pythons_within(environment.python.value) if environment.python else ()
    pin = next((pin for name in _CUDNN for pin in environment.pins if pin.name == name), None)
    known = cudnn_releases(pin.name.rpartition("-")[2]) if pin else ()
    cudnns = [(pin.name, version) for version in _allowed(pin, known)] if pin else []
    named = known_issues.named_packages()
    ends = [ends for pin in environment.pins if pin.name in named and (ends := _ends(pin))]
    return [
        _Case(tensorflow, python, cudnn, others)
        for tensorflow, python, cudnn, others in itertools.product(
            allowed, pythons or (None,), cudnns or (None,), tuple(itertools.product(*ends))
        )
    ]


def _ends(pin: Pin) -> Sequence[tuple[str, str]]:
    """Return two versions of a package, the newer one first, that enclose all that its pin allows.

    What the facts say about both, they say about each version between them. Return nothing if the pin allows
    any old version, or only one.
    """
    if pin.exact is not None or pin.versions is None or pin.from_conda:
        return ()
    lower = [
        one.version.removesuffix(".*") for one in pin.versions if one.operator in (">=", ">", "~=", "==")
    ]
    upper = [one.version for one in pin.versions if one.operator in ("<=", "<")]
    if not lower:
        return ()
    return (pin.name, min(upper, key=Version, default="9999")), (pin.name, max(lower, key=Version))


def _allowed(pin: Pin, known: Sequence[str]) -> Sequence[str]:
    """Return the versions that a pin allows, oldest first; empty if they are not all known."""
    if pin.exact is not None:
        return (pin.exact,)
    if pin.versions is None or not len(pin.versions):
        return ()
    major, minor = leading_numbers(known[-1])[:2]
    later = (f"{major}.{minor + 1}", f"{major + 1}.0", "9999")
    if any(pin.versions.contains(version) for version in later):
        return ()
    return tuple(version for version in known if pin.versions.contains(version))


def _against(
    environment: Environment, tensorflow: Pin, case: _Case, without: Pin | Stated | None = None
) -> list[Reason]:
    """Return the reasons why a combination fails on every machine, and those on models of GPUs that it names.

    without: a statement to leave out.
    """
    stated = _software(environment, tensorflow, case, without)
    found = [reason for reason in judge.of_software(stated, ANY_HOST) if reason.outcome is Outcome.FAILS]
    found += known_issues.on_some_gpus(judge.judge_software(stated, ANY_HOST).values)
    return [*found, *_before_running(environment, tensorflow, case, without)]


def _before_running(
    environment: Environment, tensorflow: Pin, case: _Case, without: Pin | Stated | None = None
) -> list[Reason]:
    """Return why pip does not install all that a combination needs. without: as for `_against`."""
    pins = (pin for pin in environment.pins if pin is not without and not pin.from_conda)
    versions = {pin.name: pin.exact or "" for pin in pins}
    found = list(known_issues.requirement_unmet(case.tensorflow, versions))
    stated = _software(environment, tensorflow, case, without)
    release = release_of_any_age(case.tensorflow)
    if stated.extra is not False or release is None or has_extra(release):
        return found
    wheels = any(pin.name.startswith("nvidia-") for pin in environment.pins)
    # Before 2.1, the package `tensorflow` may be a build without CUDA.
    if tensorflow.name in (release.package, "tensorflow-gpu") and not wheels:
        found.append(judge.without_libraries(release.version))
    return found


def _software(
    environment: Environment, tensorflow: Pin, case: _Case, without: Pin | Stated | None
) -> Software:
    others = [
        pin for pin in environment.pins if pin is not tensorflow and pin is not without and not pin.from_conda
    ]
    on_cpu = tensorflow.name in _ON_CPU
    installed = _installed(environment, others, case)
    extra = True if "and-cuda" in tensorflow.extras and not on_cpu else None
    brings = extra or _bring_cuda(others)
    cuda, cudnn = (None, None) if brings or on_cpu else (environment.cuda, environment.cudnn)
    if environment.for_gpu and environment.without_cuda and not brings and not on_cpu:
        extra = False
    if on_cpu:
        installed = {tensorflow.name: case.tensorflow} if environment.for_gpu else {}
    elif also_on_cpu := {pin.name: pin.exact or "" for pin in others if pin.name in _ON_CPU}:
        installed |= {tensorflow.name: case.tensorflow, **also_on_cpu}
    python = None if environment.python is without else case.python
    return Software(
        tensorflow=case.tensorflow,
        python=python,
        cuda=cuda.value if cuda and cuda is not without else None,
        cudnn=cudnn.value if cudnn and cudnn is not without else None,
        wheel=PYPI,
        extra=extra,
        library_path=environment.library_path if extra else None,
        packages=tuple(installed.items()),
    )


def _bring_cuda(pins: Sequence[Pin]) -> bool:
    with_jax = any(_jax_plugin(pin) or (pin.name == "jax" and "cuda11-pip" in pin.extras) for pin in pins)
    return with_jax or any(pin.name.startswith(_BRING_CUDA) for pin in pins)


def _installed(environment: Environment, others: Sequence[Pin], case: _Case) -> dict[str, str]:
    """Return the packages next to TensorFlow whose versions are known."""
    installed: dict[str, str] = {}
    names = {pin.name for pin in others}
    for pin in others:
        version = pin.exact
        if case.cudnn is not None and pin.name == case.cudnn[0]:
            version = case.cudnn[1]
        version = dict(case.others).get(pin.name, version)
        plugin = _jax_plugin(pin)
        if plugin and pin.versions is not None:
            installed.setdefault(plugin, version or "")
        if version is not None and pin.name not in TENSORFLOW and not _without_wheels(pin, names):
            installed[pin.name] = version
    if any(pin.name.startswith("nvidia-") and pin.exact is None for pin in others):
        # Wheels that may or may not be installed, in an unknown version.
        kept = ("nvidia-cudnn-", "nvidia-cuda-runtime", "nvidia-cuda-nvcc")
        installed = {
            name: version
            for name, version in installed.items()
            if name.startswith(kept) or not name.startswith("nvidia-")
        }
    if environment.complete and not any(name in _CUDNN for name in installed):
        # These builds of the frameworks bring no cuDNN.
        return {name: version for name, version in installed.items() if name not in known_issues.with_cudnn()}
    return installed


def _jax_plugin(pin: Pin) -> str | None:
    """Return the package with CUDA that an extra of JAX installs, together with NVIDIA's wheels."""
    found = [one for one in pin.extras if re.fullmatch(r"cuda1[23](?:-pip)?", one)]
    return f"jax-{found[0].removesuffix('-pip')}-plugin" if pin.name == "jax" and found else None


def _without_wheels(pin: Pin, names: Collection[str]) -> bool:
    """Return True for a plugin of JAX that uses the CUDA of the system, because nothing asks for wheels."""
    plugin = re.fullmatch(r"jax-cuda(\d+)-plugin", pin.name)
    return plugin is not None and "with-cuda" not in pin.extras and f"nvidia-cudnn-cu{plugin[1]}" not in names


def _blamed(environment: Environment, tensorflow: Pin, case: _Case, reason: Reason) -> Place:
    """Return the place of the statement without which a reason does not hold; else that of TensorFlow."""
    others: list[Pin | Stated | None] = [pin for pin in environment.pins if pin is not tensorflow]
    # A framework is to blame for the cuDNN that it requires.
    others.sort(key=lambda one: not (isinstance(one, Pin) and one.name in known_issues.with_cudnn()))
    for one in (*others, environment.cudnn, environment.cuda, environment.python):
        if one is None:
            continue
        if reason not in _against(environment, tensorflow, case, without=one):
            return one.place
    return tensorflow.place


def _finding(reason: Reason, place: Place, environment: Environment, release: str) -> Finding:
    reason = _about_python(reason, release, environment.python)
    assert reason.rule is not None
    stated = (environment.cuda, environment.cudnn, environment.python)
    blamed = next((one for one in stated if one is not None and one.place == place), None)
    says = fix(reason.rule, release, environment.python, blamed)
    return Finding(place, reason.rule, reason.sentence, says, reason.fact, reason.source)


def _about_python(reason: Reason, version: str, python: Stated | None) -> Reason:
    """Return the reason with all Pythons that a file allows instead of one."""
    release = release_of_any_age(version)
    if reason.rule != "python_without_wheel" or not release or not python:
        return reason
    if len(pythons_within(python.value)) == 1:
        return reason
    return kernels.no_wheel_for(release, f"any Python that the file allows ({python.value})")


# Find the reader of a file by its name, and lint files together.

_DOCKERFILE = re.compile(r"(?is)(?:.+[._-])?(?:dockerfile|containerfile)(?:[._-].+)?")
_KNOWN = (
    "Dockerfiles, compose files, requirements files (*.txt, *.in, requirements.lock), pyproject.toml,"
    " environment.yml, Pipfile, pixi.toml, uv.lock, poetry.lock, pdm.lock, pylock.toml, Pipfile.lock,"
    " pixi.lock and conda-lock.yml"
)


@dataclass(frozen=True)
class Linted:
    """The findings in files, sorted by place.

    unknown: the pins of TensorFlow releases that the facts don't have, which were not judged.
    """

    findings: tuple[Finding, ...]
    unknown: tuple[tuple[Place, UnknownRelease], ...]


def lint(paths: Iterable[Path], ignored: frozenset[str] = frozenset(), *, for_gpu: bool = False) -> Linted:
    """Return what can't work in the files, without what their comments silence.

    ignored: codes that are left out everywhere. for_gpu: True if the project is meant for a GPU even where
    its files don't say so. Raises InputError for a file that can't be read, or of an unknown kind.
    """
    found: set[Finding] = set()
    unknown: dict[Place, UnknownRelease] = {}
    silenced: dict[tuple[str, int], frozenset[str]] = {}
    for path in paths:
        environments, sources = read(path)
        for source in sources:
            silenced.update({(source.name, line): codes for line, codes in source.ignored.items()})
        for environment in environments:
            found.update(findings(replace(environment, for_gpu=True) if for_gpu else environment))
            unknown.update(unknown_release(environment))
    shown = (
        finding
        for finding in found
        if finding.code not in ignored
        and finding.code not in silenced.get((finding.place.file, finding.place.line), ())
    )
    return Linted(tuple(sorted(shown)), tuple((place, unknown[place]) for place in sorted(unknown)))


def lint_texts(name: str, texts: Mapping[str, str], *, for_gpu: bool = False) -> Linted:
    """Return what can't work in the text of this name. It may include the others, but no file from here.

    texts: by file name, without a directory. Raises InputError as `lint` does.
    """
    for one in texts:
        if not re.fullmatch(r"[\w.+-]{1,100}", one) or set(one) == {"."}:
            raise InputError(f'"{one[:100]}" is not a plain file name', hint="write it as requirements.txt")
    with temporary_directory("lint") as directory:
        root = directory.resolve()
        for one, text in texts.items():
            (root / one).write_text(text, encoding="utf-8", errors="replace", newline="")
        limit = READ_WITHIN.set(root)
        try:
            linted = lint([root / name], for_gpu=for_gpu)
        except InputError as error:
            raise InputError(str(error).replace(f"{root}/", ""), hint=error.hint) from None
        finally:
            READ_WITHIN.reset(limit)

    def named(place: Place) -> Place:
        return replace(place, file=Path(place.file).name)

    return Linted(
        tuple(replace(one, place=named(one.place)) for one in linted.findings),
        tuple((named(place), error) for place, error in linted.unknown),
    )


def read(path: Path) -> tuple[Sequence[Environment], Sequence[Source]]:
    """Return what a file installs, and the files that were read.

    Raises InputError for a file that can't be read, or of an unknown kind.
    """
    read_file = reader_of(path)
    if read_file is None:
        raise InputError(f"{path} is not a kind of file that lint knows", hint=f"it reads {_KNOWN}")
    return read_file(path)


def reader_of(path: Path) -> Read | None:
    """Return what reads a file, or None for a kind that lint does not know."""
    return dockerfile.of_dockerfile if _DOCKERFILE.fullmatch(path.name) else reader(path.name)


# Predict whether the software that a project pins works on machines: a GPU and a driver each.


def on_hosts(paths: Iterable[Path], hosts: Sequence[HostClass]) -> list[OnHost]:
    """Return the predictions for each pin of TensorFlow in the files on each machine, sorted by place.

    A pin that is installed in several ways, such as with each extra of a project, has its worst prediction.
    If a pin allows several releases, the prediction is for the one that pip would install today. Raises
    InputError for a file that can't be read, or that does not say which TensorFlow is installed.
    """
    found: dict[tuple[Place, str], OnHost] = {}
    for path in paths:
        environments = [replace(one, for_gpu=True) for one in read(path)[0]]
        predicted = [one for each in environments for host in hosts for one in _on_host(each, host)]
        if not predicted:
            raise InputError(
                f"{path} does not say which TensorFlow pip installs, so there is nothing to predict",
                hint="name a file that pins it, such as a lock or requirements.txt with tensorflow==2.21.0;"
                " use --wheel for a package that is not from PyPI",
            )
        # The worst one stays.
        for one in sorted(predicted, key=lambda one: -WORST_FIRST.index(one.prediction.outcome)):
            found[one.place, one.host] = one
    return [found[key] for key in sorted(found)]


def _on_host(environment: Environment, host: HostClass) -> Iterator[OnHost]:
    """Yield the prediction for the TensorFlow that pip would install today, if the pins say which."""
    pin = _tensorflow(environment)
    cases = _cases(environment, pin) if pin else ()
    if pin is None or not cases:
        return
    stated = [reason for reason, _ in _stated(environment, pin)]
    predictions = [
        (case.tensorflow, _predicted(environment, pin, case, host).ruled_out(stated)) for case in cases
    ]
    # pip takes the newest release that it can install. The file need not name the Python.
    for rule in ("python_without_wheel", "requirement_unmet"):
        fitting = [one for one in predictions if all(each.rule != rule for each in one[1].reasons)]
        predictions = fitting or predictions
    newest = [one for one in predictions if one[0] == predictions[-1][0]]
    release, found = ([one for one in newest if one[1].outcome is not Outcome.FAILS] or newest)[-1]
    about = tuple(_about_python(reason, release, environment.python) for reason in found.reasons)
    yield OnHost(pin.place, release, host.identifier, replace(found, reasons=about))


def _predicted(environment: Environment, pin: Pin, case: _Case, host: HostClass) -> Prediction:
    software = _software(environment, pin, case, None)
    found = judge.judge(_completed(software), host_of(host))
    release = release_of_any_age(case.tensorflow)
    rules = {reason.rule for reason in found.reasons}
    if (
        release
        and found.outcome is Outcome.UNKNOWN
        and "cudnn" in found.missing
        and "cpu_package" not in rules
    ):
        instead = f"it needs CUDA {release.cuda} and cuDNN {release.cudnn}"
        instead = f"require {requirement(release)}, which brings them" if has_extra(release) else instead
        text = (
            f"it is not known which {'cuDNN' if software.cuda else 'CUDA and cuDNN'} tensorflow"
            f" {release.version} finds, because the file installs none; {instead}"
        )
        reason = release.fact.unknown(text, "cuda_libraries_not_installed")
        found = replace(found, reasons=(reason, *found.reasons))
    return found.ruled_out(_before_running(environment, pin, case))


def _completed(software: Software) -> Software:
    """Return the software with what pip would install today, where the file doesn't say it.

    Without the extra, the libraries are those that the wheel was built for and opens.
    """
    known = release_of_any_age(software.tensorflow or "")
    if known is None:
        return software
    software = replace(software, python=software.python or newest_python(known, software.extra))
    if software.cuda is None and software.extra is None:
        return replace(software, cuda=known.cuda)
    if software.extra and known.extra_style == "range":
        both = beside(installed(known, library_path=False), software.versions)
        return replace(software, cuda=both.cuda, cudnn=both.cudnn, packages=both.packages)
    return software
