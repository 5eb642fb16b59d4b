"""Compare the package index with the facts, and make the rows of what is new: TensorFlow releases, their
Pythons, CUDA and cuDNN wheels.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .._vendor.packaging.requirements import Requirement
from .._vendor.packaging.utils import canonicalize_name
from ..compat import facts, policies, releases
from ..compat.elf import InspectionError
from ..compat.inspect import WheelFile, write
from ..errors import MissingError
from ..locks.index import IndexFile, PackageIndex
from ..system.runs import temporary_directory
from ..versions import Version, major_minor
from . import CUDA, CUDNN, PYTHON, TENSORFLOW

#: The projects of cuDNN's wheels: one for each CUDA major version, with releases of its own.
CUDNN_PROJECTS = {"cu12": "nvidia-cudnn-cu12", "cu13": "nvidia-cudnn-cu13"}
CUDA_PROJECT = "cuda-toolkit"
#: The Python whose wheel is inspected, if there is one for it, so that releases are compared like with like.
_MEASURED_PYTHON = "3.11"
_CPYTHON = re.compile(r"cp3([0-9]{1,2})")


@dataclass(frozen=True)
class Asked:
    """The kinds of TensorFlow releases to ask for, besides stable ones."""

    candidates: bool = False
    nightlies: bool = False


#: Stable releases only.
STABLE = Asked()


@dataclass(frozen=True)
class NewRelease:
    """A TensorFlow release that the facts don't know. pythons: oldest first. wheel: the one to inspect."""

    version: str
    pythons: tuple[str, ...]
    wheel: IndexFile


@dataclass(frozen=True)
class News:
    """The releases on the index that the facts don't have.

    pythons: for each known release with wheels for Pythons that the facts don't know, all of its Pythons.
    cuda: the wheel of the metapackage `cuda-toolkit` of each new CUDA release. cudnn: new releases by suffix.
    """

    releases: tuple[NewRelease, ...] = ()
    pythons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cuda: tuple[IndexFile, ...] = ()
    cudnn: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def as_seen(self) -> dict[str, list[str]]:
        """Return the news as texts by kind, as `remark` reads them."""
        known = {release.version: release.pythons for release in releases.releases()}
        seen = {
            TENSORFLOW: [release.version for release in self.releases],
            PYTHON: [
                f"{version} for Python {python}"
                for version, pythons in self.pythons.items()
                for python in pythons
                if python not in known[version]
            ],
            CUDA: [cuda_release(file) for file in self.cuda],
            CUDNN: [
                f"{version} ({suffix})" for suffix, versions in self.cudnn.items() for version in versions
            ],
        }
        return {kind: versions for kind, versions in seen.items() if versions}

    def __bool__(self) -> bool:
        return bool(self.releases or self.pythons or self.cuda or self.cudnn)


def news(index: PackageIndex, asked: Asked) -> News:
    """Ask the index. Raises MissingError if it can't be reached, or has no wheel of a project."""
    tensorflow = _by_version(index.wheels("tensorflow"))
    found = [*_new_releases(tensorflow, asked.candidates)]
    if asked.nightlies:
        nightlies = _by_version(index.wheels("tf-nightly"))
        newest = max(nightlies)
        if newest > max(Version(known.version) for known in releases.releases()):
            found += _release(newest, nightlies[newest])
    known_cuda = {Version(release.version) for release in policies.cuda_releases()}
    cuda = {
        cuda_release(file): file
        for file in index.wheels(CUDA_PROJECT)
        if file.version > min(known_cuda)
        and Version(cuda_release(file)) not in known_cuda
        and not file.version.is_prerelease
    }
    cudnn = {}
    for suffix, project in CUDNN_PROJECTS.items():
        stable = {
            file.version for file in index.wheels(project) if file.on_linux and not file.version.is_prerelease
        }
        cudnn[suffix] = stable - {Version(version) for version in policies.cudnn_releases(suffix)}
    return News(
        releases=tuple(sorted(found, key=lambda release: Version(release.version))),
        pythons={
            known.version: pythons
            for known in releases.releases()
            if (pythons := _pythons(tensorflow.get(Version(known.version), ())))
            and set(pythons) - set(known.pythons)
        },
        cuda=tuple(cuda.values()),
        cudnn={suffix: tuple(map(str, sorted(new))) for suffix, new in cudnn.items() if new},
    )


def _by_version(files: Iterable[IndexFile]) -> dict[Version, list[IndexFile]]:
    found: dict[Version, list[IndexFile]] = {}
    for file in files:
        found.setdefault(file.version, []).append(file)
    return found


def _new_releases(offered: Mapping[Version, list[IndexFile]], candidates: bool) -> Iterable[NewRelease]:
    """Return the stable releases that are newer than all known ones, or than those of their minor version.

    With candidates, also the newest candidate of each later release.
    """
    known = {Version(release.version) for release in releases.releases()}
    stable = sorted(Version(release.version) for release in releases.releases() if not release.prerelease)
    newest = {version.release[:2]: version for version in stable}
    final = [version for version in offered if not version.is_prerelease]
    new = [version for version in final if version > newest.get(version.release[:2], stable[-1])]
    if candidates:
        last = max(final, default=stable[-1])
        later = [one for one in sorted(offered) if one.is_prerelease and not one.is_devrelease and one > last]
        new += {version.release: version for version in later}.values()
    for version in new:
        if version not in known:
            yield from _release(version, offered[version])


def _release(version: Version, files: list[IndexFile]) -> Iterable[NewRelease]:
    """Return the release, or nothing if it has no wheel for Linux with x86_64."""
    pythons = _pythons(files)
    if pythons:
        python = _MEASURED_PYTHON if _MEASURED_PYTHON in pythons else pythons[0]
        wheel = next(file for file in files if _python(file) == python)
        yield NewRelease(str(version), pythons, wheel)


def _pythons(files: Iterable[IndexFile]) -> tuple[str, ...]:
    found = {python for file in files if (python := _python(file)) is not None}
    return tuple(sorted(found, key=Version))


def _python(file: IndexFile) -> str | None:
    if not file.on_linux:
        return None
    for tag in file.tags:
        # A free-threaded Python (cp313t) has the same interpreter tag, but another ABI.
        if tag.interpreter == tag.abi and (found := _CPYTHON.fullmatch(tag.interpreter)):
            return f"3.{found[1]}"
    return None


def cuda_release(file: IndexFile) -> str:
    """Return the CUDA release of a wheel of the metapackage: `13.0.3` of 13.0.3.0."""
    return ".".join(map(str, file.version.release[:3]))


# Change rows in the text of a file of facts, and nothing else in it.
# In `validator/compat/data/*.yaml`, a row is one line below the name of its section. Comments, the order of
# the other rows and their spelling stay.

Row = Mapping[str, Any]
#: With libyaml it takes a fifth of the time.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SECTION = re.compile(r"^(\w+):\s*$")
_ROW = re.compile(r"^  - \{")
#: Text that YAML reads as the same text, even in a list or a mapping in flow style.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+#-]*")


class Table:
    """The text of one file of facts."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def rows(self, section: str) -> list[Row]:
        """Return the rows of a section, in order. Raises KeyError for an unknown section."""
        return [row for _, row in self._numbered(section)]

    def put(self, section: str, row: Row, order: Callable[[Row], Any]) -> None:
        """Put a row in the place of the one with the same id, or before the first row that is greater."""
        there = self._numbered(section)
        line = f"  - {flow(row)}"
        for number, old in there:
            if old["id"] == row["id"]:
                self._lines[number] = line
                return
        end = (there[-1][0] if there else self._lines.index(f"{section}:")) + 1
        after = next((number for number, old in there if order(old) > order(row)), end)
        self._lines.insert(after, line)

    def remove(self, section: str, identifier: str) -> None:
        """Remove the row with this id, if there is one."""
        for number, row in self._numbered(section):
            if row["id"] == identifier:
                del self._lines[number]
                return

    def _numbered(self, section: str) -> list[tuple[int, Row]]:
        if f"{section}:" not in self._lines:
            raise KeyError(section)
        start = self._lines.index(f"{section}:")
        found = []
        for number in range(start + 1, len(self._lines)):
            line = self._lines[number]
            if _SECTION.match(line):
                break
            if _ROW.match(line):
                found.append((number, yaml.load(line, Loader=_LOADER)[0]))
        return found


def flow(value: Any) -> str:
    """Return a value as YAML on one line, quoted only where YAML would read another value."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and yaml.load(value, Loader=_LOADER) == value
        return value if plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)


#: The components of CUDA that TensorFlow's extra can require: those that a row of wheels.yaml has.
COMPONENTS = (
    "cublas", "cuda-cupti", "cuda-nvcc", "cuda-nvrtc", "cuda-runtime", "cufft", "curand", "cusolver",
    "cusparse", "nvjitlink",
)  # fmt: skip
#: What was read in the release's own wheel, and what follows from it.
_MEASURED, _DERIVED = "verified-local", "derived"
_WHEEL = "wheel"
_WHEEL_SOURCE = "Inspection of the release's own wheel by `validator refresh`, see builds.yaml"
_BOUND = re.compile(r"(==|>=)\s*([0-9][\w.]*)")


def _version(row: Row) -> Version:
    return Version(row["version"])


def _add_release(table: Table, measured: Mapping[str, Any], pythons: Sequence[str]) -> None:
    """Add a release to tensorflow.yaml. Raises MissingError if its wheel lacks what it was built for."""
    version = measured["tensorflow"]
    extra: dict[str, str] = {}
    for requirement in map(Requirement, measured["and_cuda"]):
        bounds = sorted(map(str, requirement.specifier), key=lambda text: (not text.startswith(">"), text))
        extra[canonicalize_name(requirement.name)] = ",".join(bounds)
    extra = dict(sorted(extra.items()))
    cuda, status = _cuda(measured, extra)
    row: Row = {
        "id": f"tensorflow-{version}", "version": version, "pythons": list(pythons), "cuda": cuda,
        "cudnn": _cudnn(measured, extra), "status": status, "sources": [_WHEEL],
    }  # fmt: skip
    table.put("releases", row, _version)
    if not extra:
        return
    new = {
        "id": f"extra-{version}", "releases": [],
        "style": "exact" if all(pin.startswith("==") for pin in extra.values()) else "range",
        "wheels": extra, "status": _MEASURED, "sources": [_WHEEL],
    }  # fmt: skip
    same = (row for row in table.rows("extras") if row["wheels"] == extra and row["style"] != "none")
    row = next(same, new)
    if version not in row["releases"]:
        row = {**row, "releases": [*row["releases"], version]}
        table.put("extras", row, lambda row: Version(row["releases"][0]))


def _add_cuda(table: Table, index: PackageIndex, file: IndexFile) -> None:
    """Add a CUDA release to wheels.yaml. Raises MissingError if `cuda-toolkit` lacks a component."""
    with temporary_directory("metadata") as directory:
        path = directory / file.filename
        index.download(file, path)
        try:
            with WheelFile(path) as wheel:
                requirements = wheel.metadata().get_all("Requires-Dist", [])
        except InspectionError as error:
            raise MissingError(f"{file.filename}: its metadata can't be read: {error}") from error
    found: dict[str, str] = {}
    version, suffix = cuda_release(file), f"cu{file.version.major}"
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name).removeprefix("nvidia-").removesuffix(f"-{suffix}")
        bound = _BOUND.search(str(requirement.specifier))
        if name in COMPONENTS and bound:
            found.setdefault(name, bound[2].removesuffix("."))
    missing = [name for name in COMPONENTS[:-1] if name not in found]
    if missing:
        raise MissingError(
            f"the metapackage cuda-toolkit {version} does not require {', '.join(missing)}",
            hint=f"add the row of CUDA {version} to validator/compat/data/wheels.yaml by hand",
        )
    row = {
        "id": f"cuda-{version}", "release": version, "suffix": suffix,
        "components": {name: found[name] for name in COMPONENTS if name in found},
        "status": "verified", "sources": ["cuda-toolkit-meta"],
    }  # fmt: skip
    table.put("cuda", row, lambda row: Version(row["release"]))


def _cuda(measured: Mapping[str, Any], extra: Mapping[str, str]) -> tuple[str, str]:
    """Return the CUDA that a release was built with, and the status of that fact."""
    if measured["build"]["cuda"] is not None:
        return major_minor(str(measured["build"]["cuda"])), _MEASURED
    # 2.22.0rc0 has no version in build_info.py. Its extra starts at the version that it is built with.
    for name, pin in extra.items():
        bound = _BOUND.search(pin)
        if name.startswith("nvidia-cuda-runtime") and bound:
            return major_minor(bound[2]), _DERIVED
    raise MissingError(
        f"tensorflow {measured['tensorflow']}: neither build_info.py nor the extra and-cuda says which CUDA"
        " it was built with",
        hint="if it is a build with CUDA, add its row to validator/compat/data/tensorflow.yaml by hand",
    )


def _cudnn(measured: Mapping[str, Any], extra: Mapping[str, str]) -> str:
    """Return the cuDNN of the tested build: the oldest that the extra allows, or that of the headers."""
    for name, pin in extra.items():
        bound = _BOUND.search(pin)
        if name.startswith("nvidia-cudnn") and bound:
            return major_minor(bound[2])
    headers = measured["build"]["cudnn_headers"]
    if headers is None:
        raise MissingError(
            f"tensorflow {measured['tensorflow']}: neither its code nor the extra and-cuda says which cuDNN"
            " it needs",
            hint="extend validator/compat/inspect.py so that it reads the version from this code",
        )
    return major_minor(headers)


def needs_a_person(cuda: Iterable[str], cudnn: Iterable[str]) -> list[str]:
    """Return a sentence for each fact that only NVIDIA's documentation has, and that is missing."""
    toolkits = {row["release"] for row in facts.rows("toolkits", "toolkits")}
    found = [
        f"toolkits.yaml has no row for CUDA {version}: add it with the driver that its release notes name"
        for version in cuda
        if version not in toolkits
    ]
    known = max((Version(row["below"]) for row in facts.rows("cudnn", "cudnn")), default=Version("0"))
    return found + [
        f"cudnn.yaml has no row for cuDNN {version}: add it from NVIDIA's support matrix"
        for version in cudnn
        if Version(version) >= known
    ]


def write_facts(
    data: Path, index: PackageIndex, found: News, builds: list[dict[str, Any]], today: datetime.date
) -> None:
    """Write what is new into the files of facts in a directory. builds: the rows of the new releases."""
    tensorflow, wheels = (
        Table((data / f"{name}.yaml").read_text(encoding="utf-8")) for name in ("tensorflow", "wheels")
    )
    superseded = []
    if any(Version(release.version).is_devrelease for release in found.releases):
        # A nightly build takes the place of the one before it.
        superseded = [old.version for old in releases.releases() if Version(old.version).is_devrelease]
    for version in superseded:
        tensorflow.remove("releases", f"tensorflow-{version}")
        for row in tensorflow.rows("extras"):
            if row["releases"] == [version]:
                tensorflow.remove("extras", row["id"])
    for release, inspected in zip(found.releases, builds, strict=True):
        _add_release(tensorflow, inspected, release.pythons)
    for row in tensorflow.rows("releases"):
        if pythons := found.pythons.get(row["version"]):
            tensorflow.put("releases", {**row, "pythons": list(pythons)}, _version)
    for file in found.cuda:
        _add_cuda(wheels, index, file)
    rows = {row["suffix"]: row for row in wheels.rows("cudnn")}
    for suffix, versions in found.cudnn.items():
        new = {"id": f"cudnn-{suffix}", "suffix": suffix, "releases": [], "read": ""}
        row = rows.get(suffix, {**new, "status": "verified", "sources": ["idx"]})
        rows[suffix] = {**row, "releases": sorted({*row["releases"], *versions}, key=Version)}
    for row in rows.values():
        # The whole index was read today.
        wheels.put("cudnn", {**row, "read": today.isoformat()}, lambda row: row["suffix"])
    for name, table in (("tensorflow", tensorflow), ("wheels", wheels)):
        (data / f"{name}.yaml").write_text(table.text, encoding="utf-8")
    if builds:
        write(data / "builds.yaml", builds, without=superseded)
        # The rows of a release name this source.
        path = data / "sources.yaml"
        lines = path.read_text(encoding="utf-8").splitlines()
        names = [None if line.startswith("#") else line.partition(":")[0].strip('"') for line in lines]
        if _WHEEL not in names:
            later = (number for number, name in enumerate(names) if name is not None and name > _WHEEL)
            lines.insert(next(later, len(lines)), f'{_WHEEL}: "{_WHEEL_SOURCE}"')
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
