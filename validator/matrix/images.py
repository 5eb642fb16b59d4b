"""Turn image entries into image specs, each once, and host entries into host classes."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from urllib.parse import unquote

from .. import versions
from ..compat import hardware, policies, releases
from ..compat.facts import PolicyError
from ..compat.hardware import parse_release
from ..compat.releases import Release
from ..errors import InputError, MissingError
from ..model.spec import (
    AS_BUILT,
    LATEST,
    NAME,
    NO_GPU,
    POLICIES,
    Additions,
    CheckFile,
    Choice,
    HostClass,
    ImageSpec,
    LocalWheel,
    OnIndex,
    Requirements,
    Variant,
    Wheel,
    host_identifier,
    is_name,
)
from ..redaction.identifiers import CREDENTIALS
from ..system.http import HttpFailure, joined, without_login, without_secrets
from ..versions import ComputeCapability, CudaVersion
from .document import Document, Path, join_words, quote, unknown_name
from .requirements import (
    file_hash,
    project_in,
    read_package,
    read_project,
    read_pylock,
    read_requirements_txt,
    relative_to,
)
from .schema import CheckEntry, HostEntry, ImageEntry, ProjectEntry

#: The most images of all image entries together.
MAX_IMAGES = 20_000

#: If two policies give the same image, the one with the lower number names it. A pinned version and
#: `recommended`, which results in one, have 1.
_PREFERENCE = {AS_BUILT: 0, LATEST: 2}


@dataclass(frozen=True)
class _Request:
    """An image as an entry asks for it. The same request twice is a mistake, other policies are not."""

    tensorflow: str
    python: str
    variant: Variant
    cuda: str
    cudnn: str
    base: str | None
    additions: Additions | None
    max_size: int | None = field(compare=False)

    def spec(self) -> ImageSpec:
        cuda, cudnn = (None, None)  # type: tuple[Choice | None, Choice | None]
        if self.variant.has_cuda:
            cuda, cudnn = _chosen(self.tensorflow, self.cuda, self.cudnn)
        return ImageSpec(
            self.tensorflow, self.python, self.variant, cuda, cudnn, self.base, self.additions, self.max_size
        )


@functools.cache
def _chosen(tensorflow: str, cuda: str, cudnn: str) -> tuple[Choice, Choice]:
    return policies.choose(releases.release(tensorflow), cuda, cudnn)


def resolve_images(entries: Iterable[ImageEntry], document: Document, own: OwnReleases) -> list[ImageSpec]:
    """Return the images that the entries ask for, each identifier once. Problems go to `document`.

    own: returns the releases that no table lists, inspected, for the Pythons of an entry.
    """
    requests: dict[_Request, int] = {}
    for number, entry in enumerate(entries):
        path: Path = ("images", number)
        repeated: dict[int, list[_Request]] = {}
        for request in _requests(entry, path, document, MAX_IMAGES - len(requests), own):
            first = requests.setdefault(request, number)
            if first != number:
                repeated.setdefault(first, []).append(request)
        for first, twice in repeated.items():
            others = f" and {len(twice) - 1} more" if len(twice) > 1 else ""
            document.report(
                path,
                f"is a duplicate: images[{first}] (line {document.line(('images', first))})"
                f" already asks for {twice[0].spec().identifier}{others}",
            )
    return _unique(requests, document)


def _requests(
    entry: ImageEntry, path: Path, document: Document, most: int, own: OwnReleases
) -> Iterator[_Request]:
    """Yield every combination of the axes of an entry, which are looked up in the facts; at most `most`."""
    found = _releases(entry, path, document, own)
    variants = _variants(entry.variant, (*path, "variant"), document)
    if Variant.CPU in variants and any(release.origin for release in found):
        message = "an image of a wheel or of a nightly always has CUDA; leave cpu out of this entry"
        document.report((*path, "variant"), message)
    pythons = _pythons(entry.python, found, (*path, "python"), document)
    pairs = _pairs(entry, found, variants, path, document)
    bases = _bases(entry.base, (*path, "base"), document)
    count = 0
    for release in found:
        policies_of = sum(
            len(pairs.get(release.version, ())) if variant.has_cuda else 1 for variant in variants
        )
        count += len(bases) * len(pythons[release.version]) * policies_of
    if count > most:
        document.report(path, f"with the entries before it, asks for more than {MAX_IMAGES:,} images")
        return
    additions = {variant: resolve_additions(entry, variant, path, document) for variant in variants}
    max_size = resolve_max_size(entry, path, document)
    for release, variant in itertools.product(found, variants):
        chosen = pairs.get(release.version, []) if variant.has_cuda else [("", "")]
        for (cuda, cudnn), python, base in itertools.product(chosen, pythons[release.version], bases):
            yield _Request(release.version, python, variant, cuda, cudnn, base, additions[variant], max_size)


def _unique(requests: Mapping[_Request, int], document: Document) -> list[ImageSpec]:
    """Return one spec for each identifier. Different images with the same identifier are a problem."""
    kept: dict[str, tuple[ImageSpec, int]] = {}
    clashes: dict[tuple[int, int], str] = {}

    def naming_order(item: tuple[_Request, int]) -> tuple[int, int, str, str]:
        cuda, cudnn = item[0].cuda, item[0].cudnn
        return _PREFERENCE.get(cuda, 1), _PREFERENCE.get(cudnn, 1), cuda, cudnn

    def content(spec: ImageSpec) -> tuple[object, ...]:
        return spec.base, spec.variant, spec.additions, policies.requirements(spec)

    for request, number in sorted(requests.items(), key=naming_order):
        spec = request.spec()
        first, first_number = kept.setdefault(spec.identifier, (spec, number))
        if first != spec and content(first) != content(spec):
            later, earlier = max(number, first_number), min(number, first_number)
            clashes.setdefault((later, earlier), spec.identifier)
    for (later, earlier), identifier in clashes.items():
        other = "two of its images" if later == earlier else f"one of its images and one of images[{earlier}]"
        document.report(
            ("images", later),
            f"gives {other} the same name, {identifier}; write versions as major.minor,"
            " use bases that differ in more than punctuation, and give different additions different names",
        )
    return [spec for spec, _ in kept.values()]


# The axes of one image entry, looked up in the facts.

ALL = "all"
DEFAULT = "default"
NEWEST = "newest"
CANDIDATE = "candidate"

#: A CUDA and a cuDNN policy.
Pair = tuple[str, str]

#: A Python version of an image.
PYTHON = re.compile(r"3\.[0-9]{1,2}")
_MINOR = re.compile(r"[0-9]+\.[0-9]+")
#: A reference to an image (registry, path, tag, digest), checked loosely; the engine checks it exactly.
_BASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")


#: Returns the inspected releases of a wheel, or of what an index has, for the Pythons of an image entry.
OwnReleases = Callable[[Wheel | OnIndex, Sequence[str]], Sequence[Release]]
_NIGHTLY = "nightly"
_OF_NIGHTLY = re.compile(r"\d+\.\d+\.\d+\.dev\d+")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|file:")
_SHA256 = re.compile(r"sha256=([0-9a-f]{64})")


def refuse_own(asked: Wheel | OnIndex, pythons: Sequence[str]) -> Sequence[Release]:
    """Raise InputError: this part of the tool has nothing that could inspect a wheel."""
    raise InputError("a wheel or a nightly can't be used here")


def _own_asked(value: str, entry: ImageEntry, document: Document) -> Wheel | OnIndex | None:
    """Return the wheel that a value of the tensorflow axis names, or what to ask an index for, or None.

    Raises ValueError for a wrong value, without what may be secret in it.
    """
    if _ADDRESS.match(value):
        return _wheel_at(value)
    if value.lower().endswith(".whl") or value.startswith((".", "/", "~")):
        found = read_package(value, document.directory, document.directory)
        if not isinstance(found, LocalWheel):
            raise ValueError("is not the path of a wheel")
        place = document.directory / found.path
        return Wheel(
            found.name, found.version, found.sha256, place.name, found.size, found.path, str(place.absolute())
        )
    if entry.index:
        try:
            address = _http_address(entry.index)
        except ValueError as error:
            raise ValueError(f"is asked of an index, but `index` {error}") from None
        if value == _NIGHTLY:
            return OnIndex(None, address)
        try:
            return OnIndex(str(versions.Version(value)), address)
        except ValueError:
            raise ValueError("is not the version of a TensorFlow on this index, such as 2.21.0") from None
    if value == _NIGHTLY or _OF_NIGHTLY.fullmatch(value):
        return OnIndex(None if value == _NIGHTLY else value)
    return None


def _wheel_at(value: str) -> Wheel:
    address, _, fragment = value.partition("#")
    place = without_secrets(_http_address(address))
    filename = unquote(place.rpartition("/")[2])
    name, version = project_in(filename)
    found = _SHA256.fullmatch(fragment)
    if found is None:
        raise ValueError("has no SHA-256; write #sha256= and 64 hexadecimal digits after the address")
    return Wheel(name, version, found[1], filename, None, place, address)


def _http_address(text: str) -> str:
    """Return an address as it is. Raises ValueError if it is none of HTTP."""
    try:
        joined("", without_login(text)[0])
    except (HttpFailure, ValueError):
        raise ValueError("is not an address that begins with https://") from None
    return text


def _releases(entry: ImageEntry, path: Path, document: Document, own: OwnReleases) -> tuple[Release, ...]:
    values, path = entry.tensorflow, (*path, "tensorflow")
    found: dict[str, Release] = {}
    for index, value in enumerate(values):
        try:
            asked = _own_asked(value, entry, document)
        except ValueError as error:
            document.report((*path, index), f"{quote(shown(value))} {error}")
            continue
        if asked is not None and document.problems:
            # Nothing is downloaded or read for a file that is wrong.
            continue
        try:
            named = _releases_named(value) if asked is None else own(asked, entry.python)
        except MissingError as error:
            where = f"{document.file}:{document.line((*path, index))}"
            raise MissingError(f"{where}: {error}", hint=error.hint) from error
        except ValueError as error:
            document.report((*path, index), str(error))
            continue
        except InputError as error:
            document.report((*path, index), f"{error}; {error.hint}" if error.hint else str(error))
            continue
        again = [release.version for release in named if release.version in found]
        if again and value not in values[:index]:
            message = f"{quote(shown(value))} gives {again[0]}, which is already in this list"
            document.report((*path, index), message)
        found |= {release.version: release for release in named}
    return tuple(found.values())


def shown(value: str) -> str:
    """Return a value of the file without what may be secret in an address."""
    try:
        return without_secrets(value) if _ADDRESS.match(value) else value
    except ValueError:
        return "the address"


def _releases_named(value: str) -> list[Release]:
    """Return the releases that a value of the tensorflow axis means. Raises ValueError for a wrong value."""
    stable = [release for release in releases.releases() if not release.prerelease]
    if value == NEWEST:
        return [releases.newest()]
    if value == CANDIDATE:
        return [release for release in releases.releases() if releases.is_candidate(release.version)]
    if versions.OPERATOR_CHARACTERS.match(value):
        try:
            wanted = versions.Range.parse(value, versions.release_comparer)
        except ValueError as error:
            raise ValueError(f"{quote(value)} is not a range: {error}") from None
        inside = [release for release in stable if wanted.contains(release.version)]
        if not inside:
            raise ValueError(f"no known release is in {quote(value)}; the newest is {stable[-1].version}")
        return inside
    if _MINOR.fullmatch(value):
        releases.newest_patch(value)  # raises for a minor version that is not known
        return [release for release in stable if release.minor == value]
    return [releases.release(value)]


def _pythons(
    values: list[str], found: Iterable[Release], path: Path, document: Document
) -> dict[str, list[str]]:
    good: dict[str, dict[str, None]] = {release.version: {} for release in found}
    for index, value in enumerate(values):
        if value == ALL:
            if len(values) > 1:
                message = "all can't be in a list with versions; it means every Python"
                document.report((*path, index), message)
            for release in found:
                good[release.version] |= dict.fromkeys(release.pythons)
        elif not PYTHON.fullmatch(value):
            document.report(
                (*path, index), f'{quote(value)} is not a Python version (expected "3.12", or all)'
            )
        else:
            without = [release for release in found if value not in release.pythons]
            if any(release.origin and value in release.pythons for release in found):
                # A wheel is for one Python, and the next one in the list for another.
                without = [release for release in without if not release.origin]
            if without:
                names = join_words([release.version for release in without])
                message = f"TensorFlow {names} have no wheel for Python {value}"
                if len(without) == 1:
                    message = (
                        f"TensorFlow {names} has no wheel for Python {value};"
                        f" it has {join_words(without[0].pythons)}"
                    )
                document.report((*path, index), message)
            for release in found:
                if release.origin is None or value in release.pythons:
                    good[release.version][value] = None
    for release in found:
        if release.origin and not good[release.version] and not document.problems:
            document.report(
                path,
                f"{release.origin.filename} is for Python {join_words(release.pythons)}, which is not in"
                " this list; add it, or remove the wheel",
            )
    return {version: list(pythons) for version, pythons in good.items()}


def _variants(values: list[str], path: Path, document: Document) -> tuple[Variant, ...]:
    known = {member.value: member for member in Variant}
    for index, value in enumerate(values):
        if value not in known:
            document.report((*path, index), unknown_name(value, known))
    asked = dict.fromkeys(values or [Variant.GPU.value])
    return tuple(known[value] for value in asked if value in known)


def _bases(values: list[str], path: Path, document: Document) -> tuple[str | None, ...]:
    for index, value in enumerate(values):
        if not _BASE.fullmatch(value):
            document.report((*path, index), f"{quote(value)} is not an image name")
    asked = dict.fromkeys(value for value in values or [DEFAULT] if _BASE.fullmatch(value))
    return tuple(None if value == DEFAULT else value for value in asked)


def _pairs(
    entry: ImageEntry, found: Iterable[Release], variants: tuple[Variant, ...], path: Path, document: Document
) -> dict[str, list[Pair]]:
    """Return the pairs of policies that each release can be built with."""
    given = [name for name in ("policy", "cuda", "cudnn") if getattr(entry, name)]
    if variants == (Variant.CPU,):
        for name in given:
            document.report((*path, name), "a cpu image has no CUDA; leave this key out", at_key=True)
    if not any(variant.has_cuda for variant in variants):
        return {}
    if entry.policy and len(given) > 1:
        others = join_words(given[1:])
        document.report((*path, "policy"), f"can't be combined with {others}; remove one", at_key=True)
        return {}
    if entry.policy:
        return {release.version: _by_policy(entry.policy, release, path, document) for release in found}
    return {release.version: _by_axis(entry, release, path, document) for release in found}


def _by_policy(values: list[str], release: Release, path: Path, document: Document) -> list[Pair]:
    def read(value: str) -> Pair:
        if value not in POLICIES:
            hint = "; give versions with cuda and cudnn" if versions.is_numbers(value) else ""
            raise ValueError(unknown_name(value, POLICIES) + hint)
        return _possible(release, value, value)

    return [pair for _, pair in document.read_each(values, (*path, "policy"), read)]


def _by_axis(entry: ImageEntry, release: Release, path: Path, document: Document) -> list[Pair]:
    # Each axis is combined with as-built of the other, which is possible if anything is. So a wrong value is
    # reported once, and not for every value of the other axis.
    try:
        _possible(release, AS_BUILT, AS_BUILT)
    except PolicyError as error:
        document.report((*path, "tensorflow"), str(error))
        return []
    cudas = document.read_each(
        entry.cuda or [AS_BUILT], (*path, policies.CUDA), lambda value: _possible(release, value, AS_BUILT)[0]
    )
    cudnns = document.read_each(
        entry.cudnn or [AS_BUILT],
        (*path, policies.CUDNN),
        lambda value: _possible(release, AS_BUILT, value)[1],
    )
    return [(cuda, cudnn) for (_, cuda), (_, cudnn) in itertools.product(cudas, cudnns)]


def _possible(release: Release, cuda: str, cudnn: str) -> Pair:
    """Return a pair of policies. Raises PolicyError if a release can't be built with them."""
    policies.choose(release, cuda, cudnn)
    if refusal := _without_wheels(release.version):
        raise refusal
    return cuda, cudnn


@functools.cache
def _without_wheels(version: str) -> PolicyError | None:
    """Return why no image can be built of a release with any policy, or None if one can."""
    release = releases.release(version)
    chosen = policies.choose(release, AS_BUILT, AS_BUILT)
    try:
        policies.requirements(ImageSpec(version, release.pythons[-1], Variant.GPU, *chosen))
    except PolicyError as error:
        return error
    return None


# What an image entry adds to its images: packages, files and settings.

#: What the variant jupyter adds: JupyterLab, and what `%gpu_doctor` needs in addition.
JUPYTER = "jupyter"
JUPYTER_PACKAGES = ("jupyterlab", "msgspec", "click")

#: The keys of an entry that add something to its images.
_KEYS = ("packages", "requirements", "system_packages", "environment", "checks")

_SYSTEM_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIZE = re.compile(r"(?P<number>\d{1,6}(?:\.\d{1,3})?) ?(?P<unit>[MG]i?B)")
_UNITS = {"MB": 1000**2, "GB": 1000**3, "MiB": 1024**2, "GiB": 1024**3}

#: Variables that belong to the image -> the reason.
_OWNED = (
    (re.compile(r"PATH|VIRTUAL_ENV|PYTHONHOME"), "it makes the image's Python the one that runs"),
    (
        re.compile(r"LD_LIBRARY_PATH|LD_PRELOAD"),
        "it would come before the loader's cache, through which TensorFlow finds the image's CUDA and cuDNN",
    ),
    (re.compile(r"NVIDIA_.*"), "the NVIDIA runtime reads it, and the image sets it for its CUDA"),
    (re.compile(r"VALIDATOR_.*"), "the entry point reads it"),
)


def resolve_additions(
    entry: ImageEntry, variant: Variant, path: Path, document: Document
) -> Additions | None:
    """Return what an entry adds to its images of a variant, or None. Problems go to `document`."""
    jupyter = variant is Variant.JUPYTER
    adds = any(getattr(entry, key) for key in _KEYS)
    if not adds and not jupyter:
        if entry.name:
            document.report(
                (*path, "name"), "has no effect on an image to which nothing is added", at_key=True
            )
        return None
    if entry.name and not is_name(entry.name):
        document.report(
            (*path, "name"),
            f"{quote(entry.name)} is not a name: use up to 32 lower-case letters, digits, dots and dashes"
            " (eight hexadecimal digits are the names of images without one)",
        )

    def package(text: str) -> str | LocalWheel:
        try:
            return read_package(text, document.directory, document.directory)
        except ValueError as error:
            raise ValueError(f"{quote(text)} {error}") from None

    requirements, from_file = _requirements(entry, (*path, "requirements"), document)
    packages = [found for _, found in document.read_each(entry.packages, (*path, "packages"), package)]
    for index, name in enumerate(entry.system_packages):
        if not _SYSTEM_PACKAGE.fullmatch(name):
            message = f"{quote(name)} is not the name of a Debian or Ubuntu package"
            document.report((*path, "system_packages", index), message)
    wheels = [one for one in (*packages, *from_file) if isinstance(one, LocalWheel)]
    return Additions(
        name=entry.name or (JUPYTER if jupyter and not adds else None),
        packages=(*(JUPYTER_PACKAGES if jupyter else ()), *(one for one in packages if isinstance(one, str))),
        wheels=tuple(dict.fromkeys(wheels)),
        requirements=requirements,
        system_packages=tuple(filter(_SYSTEM_PACKAGE.fullmatch, entry.system_packages)),
        environment=tuple(sorted(_environment(entry, (*path, "environment"), document))),
        checks=tuple(_checks(entry, (*path, "checks"), document)),
        directory=document.directory,
    )


def resolve_max_size(entry: ImageEntry, path: Path, document: Document) -> int | None:
    """Return the size budget of an entry in bytes, or None if it has none."""
    match = _SIZE.fullmatch(entry.max_size)
    if match is not None:
        return round(float(match["number"]) * _UNITS[match["unit"]])
    if entry.max_size:
        message = f"{quote(entry.max_size)} is not a size; write it like 3.5GB or 800MiB"
        document.report((*path, "max_size"), message)
    return None


def _requirements(
    entry: ImageEntry, path: Path, document: Document
) -> tuple[Requirements | None, list[LocalWheel]]:
    """Return the requirements of the entry's file or project, and the wheels that they name by path."""
    given = entry.requirements
    if not given:
        return None, []
    root = document.directory
    try:
        if isinstance(given, ProjectEntry):
            where = FilePath(given.project) / "pyproject.toml"
            origin = f"{where.as_posix()} (group {given.group})" if given.group else where.as_posix()
            found = read_project(root / given.project, given.group, root)
        elif given.endswith(".toml"):
            lock = root / given
            if lock.name == "pyproject.toml":
                raise ValueError(
                    f"a project is written as {{project: {relative_to(lock.parent, root)}}},"
                    " with a group if wanted"
                )
            origin, found = given, read_pylock(lock, root)
        else:
            origin, found = given, read_requirements_txt(root / given, root)
    except ValueError as error:
        document.report(path, str(error))
        return None, []
    return found.requirements(origin), found.wheels


def _environment(entry: ImageEntry, path: Path, document: Document) -> Iterator[tuple[str, str]]:
    for name, value in entry.environment.items():
        reason = next((reason for pattern, reason in _OWNED if pattern.fullmatch(name)), None)
        if not _VARIABLE.fullmatch(name):
            document.report((*path, name), f"{quote(name)} is not the name of a variable", at_key=True)
        elif reason is not None:
            document.report((*path, name), f"{name} belongs to the image: {reason}", at_key=True)
        else:
            if any(pattern.search(f"{name}={value}") for pattern, _ in CREDENTIALS):
                document.warn(
                    (*path, name),
                    "looks like a secret; everybody who has the image or this file can read it."
                    " Pass it when you start a container instead (docker run --env)",
                )
            yield name, value


def _checks(entry: ImageEntry, path: Path, document: Document) -> Iterator[CheckFile]:
    given = [one if isinstance(one, CheckEntry) else CheckEntry(path=one) for one in entry.checks]
    modules: dict[str, int] = {}

    def hash_of(check: CheckEntry) -> str:
        file = FilePath(check.path)
        if file.is_absolute():
            raise ValueError("must be a path relative to this file, so that it is the same elsewhere")
        if file.suffix != ".py" or not NAME.fullmatch(file.stem):
            raise ValueError(
                f"{quote(file.name)} is not the name of a check: use a lower-case letter, then lower-case"
                " letters, digits and _, and .py at the end"
            )
        try:
            return file_hash(document.directory / file, document.directory)[0]
        except ValueError as error:
            raise ValueError(f"{quote(check.path)} {error}") from None

    for index, sha256 in document.read_each(given, path, hash_of):
        check = given[index]
        module = FilePath(check.path).name
        if modules.setdefault(module, index) != index:
            document.report((*path, index), f"another check is in a file with the name {module}")
        relative = relative_to(document.directory / check.path, document.directory)
        yield CheckFile(relative, sha256, check.required, check.timeout)


# Turn host entries into host classes: every driver with every GPU.

#: The most host classes of all host entries together.
MAX_HOSTS = 2_000

NONE = "none"

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_PLACEHOLDERS = ("host", "driver", "gpu")

#: A GPU of a host class: its name in runner labels, its model (None if not known), its compute capability.
_Gpu = tuple[str, str | None, ComputeCapability]


def resolve_hosts(entries: Iterable[HostEntry], document: Document) -> list[HostClass]:
    """Return the host classes that the entries ask for, each identifier once. Problems go to `document`."""
    found: dict[str, tuple[HostClass, int]] = {}
    for number, entry in enumerate(entries):
        path: Path = ("hosts", number)
        repeated: dict[int, list[str]] = {}
        for host in _host_classes(entry, path, document, MAX_HOSTS - len(found)):
            first = found.setdefault(host.identifier, (host, number))
            if first[0] is not host:
                repeated.setdefault(first[1], []).append(host.identifier)
        for first_number, names in repeated.items():
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            if first_number == number:
                document.report(path, f"defines the host class {names[0]}{others} twice")
            else:
                where = f"hosts[{first_number}] (line {document.line(('hosts', first_number))})"
                document.report(path, f"is a duplicate: {where} already gives {names[0]}{others}")
    return [host for host, _ in found.values()]


def _host_classes(entry: HostEntry, path: Path, document: Document, most: int) -> list[HostClass]:
    """Return every combination of the axes of an entry; none if there are more than `most`."""
    for index, label in enumerate(entry.runner):
        for name in _PLACEHOLDER.findall(label):
            if name not in _PLACEHOLDERS:
                message = f"in {quote(label)}, " + unknown_name(name, _PLACEHOLDERS, "the placeholder")
                document.report((*path, "runner", index), message)
    if entry.gpu == [NONE]:
        for name in ("driver", "compute_capability", "compat"):
            if getattr(entry, name):
                message = "has no meaning with gpu: none; leave this key out"
                document.report((*path, name), message, at_key=True)
        return [HostClass.without_gpu(_runner(entry, NO_GPU, NONE, NONE))]
    if not entry.driver:
        document.report(path, "the key driver is missing")
    if bool(entry.gpu) == bool(entry.compute_capability):
        document.report(path, "needs either gpu or compute_capability, and not both")
    models = document.read_each(entry.gpu, (*path, "gpu"), _model)
    others = document.read_each(entry.compute_capability, (*path, "compute_capability"), _capability)
    asked = [gpu for _, gpu in (*models, *others)]
    drivers = [one for _, one in document.read_each(entry.driver, (*path, "driver"), parse_release)]
    given = document.read_each(
        entry.compat or [NONE],
        (*path, "compat"),
        lambda text: None if text == NONE else str(CudaVersion.parse(text)),
    )
    compats = [one for _, one in given]
    if len(drivers) * len(asked) * len(compats) > most:
        document.report(path, f"with the entries before it, asks for more than {MAX_HOSTS:,} host classes")
        return []
    hosts = []
    for driver, (label, model, capability), compat in itertools.product(drivers, asked, compats):
        identifier = host_identifier(driver, model, capability, compat)
        runner = _runner(entry, identifier, str(driver), label)
        hosts.append(HostClass(identifier, driver, capability, model, runner, compat))
    return hosts


def _model(name: str) -> _Gpu:
    if name == NONE:
        raise ValueError(
            "none can't be in a list with models; add a separate entry for machines without a GPU"
        )
    gpu = hardware.gpu(name)
    return gpu.slug, gpu.slug, gpu.compute_capability


def _capability(text: str) -> _Gpu:
    capability = ComputeCapability.parse(text)
    return capability.sm.replace("_", ""), None, capability


def _runner(entry: HostEntry, host: str, driver: str, gpu: str) -> tuple[str, ...]:
    values = {"host": host, "driver": driver, "gpu": gpu}
    return tuple(_PLACEHOLDER.sub(lambda match: values.get(match[1], ""), label) for label in entry.runner)
