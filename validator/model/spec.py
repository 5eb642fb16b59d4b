"""The values of the matrix: image specs to build, their locks and names, host classes, and cells of both."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from datetime import date
from enum import Enum
from pathlib import Path, PurePosixPath

from ..versions import ComputeCapability, DriverRelease

# The user's packages, files and settings in an image, in addition to TensorFlow.

#: Ids of checks begin with this if they are the user's own, so that they never have the id of another.
PREFIX = "ours/"
#: The beginning of the id of a check that a package in the environment has as an entry point.
INSTALLED = "installed/"
#: The name of a check's file without `.py`: it is a module, and the rest of the check's id.
NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
#: A name for additions. Eight hexadecimal digits are an image without a name.
_NAME = re.compile(r"(?![0-9a-f]{8}$)[a-z0-9](?:[a-z0-9.-]{0,30}[a-z0-9])?")


@dataclass(frozen=True)
class LocalWheel:
    """A wheel on this machine. path: relative to the matrix file, with `/`. name: normalized. size: bytes."""

    path: str
    name: str
    version: str
    sha256: str
    size: int

    @property
    def requirement(self) -> str:
        """The wheel as a requirement with its hash, so that another file is another requirement."""
        return f"{self.name} @ {self.path}#sha256={self.sha256}"


@dataclass(frozen=True)
class Requirements:
    """The requirements that a file asks for.

    origin: where they come from, for people: `requirements.txt`, `pyproject.toml (group train)`.
    lines: requirements (PEP 508) without hashes. constraints: the same, for packages that something else
        requires. hashes: the accepted SHA-256 digests of a package's files, by its normalized name; a package
        without an entry may have any.
    """

    origin: str
    lines: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    hashes: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class CheckFile:
    """A user's own check. path: like a wheel's. timeout_s: for all of it, the import of TensorFlow too."""

    path: str
    sha256: str
    required: bool = True
    timeout_s: float = 120.0

    @property
    def id(self) -> str:
        """`ours/our_check` for `checks/our_check.py`, as in reports and certificates."""
        return PREFIX + PurePosixPath(self.path).stem


@dataclass(frozen=True)
class Additions:
    """The additions of an image entry in the matrix.

    name: what its identifier ends in, or None; then it ends in digits of the digest. packages: requirements
    (PEP 508) from the matrix file. wheels: those that it names by path. requirements: those of a file, or
    None. system_packages: Debian or Ubuntu packages. environment: variables with their values, by name.
    directory: the one of the matrix file, to which all paths are relative. It does not count in comparisons.
    """

    name: str | None = None
    packages: tuple[str, ...] = ()
    wheels: tuple[LocalWheel, ...] = ()
    requirements: Requirements | None = None
    system_packages: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    checks: tuple[CheckFile, ...] = ()
    directory: Path = field(default=Path(), compare=False)

    @property
    def digest(self) -> str:
        """The SHA-256 (hex) of everything that is added; the name is not part."""
        added = {key: value for key, value in asdict(self).items() if key not in ("name", "directory")}
        return hashlib.sha256(json.dumps(added, sort_keys=True).encode()).hexdigest()

    @property
    def required(self) -> tuple[str, ...]:
        """The requirements to resolve together with TensorFlow: each once, in order."""
        lines = self.requirements.lines if self.requirements else ()
        return tuple(dict.fromkeys((*self.packages, *(wheel.requirement for wheel in self.wheels), *lines)))

    @property
    def constraints(self) -> tuple[str, ...]:
        return self.requirements.constraints if self.requirements else ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Everything added except wheels, as lines for the lock; the lock is stale if a line changes."""
        required = {True: "required check", False: "check"}
        return (
            *(f"constraint {line}" for line in self.constraints),
            *(f"system package {name}" for name in self.system_packages),
            *(f"variable {name}={value}" for name, value in self.environment),
            *(f"{required[check.required]} {check.path} sha256:{check.sha256}" for check in self.checks),
        )

    @property
    def label(self) -> str:
        """Its part of the identifier: the name, or eight hexadecimal digits of the digest."""
        return self.name or self.digest[:8]


def is_name(text: str) -> bool:
    """Return True for 1 to 32 of a-z, 0-9, `.` and `-`, unless these are eight hexadecimal digits."""
    return _NAME.fullmatch(text) is not None


class Variant(str, Enum):
    """The variant of an image: with CUDA, without, or with CUDA and JupyterLab."""

    GPU = "gpu"
    CPU = "cpu"
    JUPYTER = "jupyter"

    @property
    def has_cuda(self) -> bool:
        return self is not Variant.CPU


#: JupyterLab, reachable through a published port of the container. It prints its address with a token.
#: In a rootless engine, the owner of a mounted directory is root in the container.
JUPYTER_PORT = 8888
JUPYTER_COMMAND = (
    *("jupyter", "lab", "--ip=0.0.0.0", f"--port={JUPYTER_PORT}"),
    *("--no-browser", "--allow-root"),
)

#: The policies that are not a version. `recommended` results in a version, like a pin.
AS_BUILT = "as-built"
LATEST = "latest"
RECOMMENDED = "recommended"
POLICIES = (RECOMMENDED, AS_BUILT, LATEST)


@dataclass(frozen=True)
class Choice:
    """The CUDA or cuDNN of an image spec: the requested policy, and the version that it results in.

    policy: `as-built`, `latest`, or the pin itself (`12.8`, `9.10.2`). version: major.minor that results
    (`12.5`). For a floating choice it is the version in the lock, or without a lock, in the facts. floats:
    True if the version depends on the day when the lock was resolved; the identifier then contains the policy
    instead of the version.
    """

    policy: str
    version: str
    floats: bool = False

    @property
    def label(self) -> str:
        """Its part of the identifier: the version if it is fixed, else `latest`."""
        return LATEST if self.floats else self.version


@dataclass(frozen=True)
class ImageSpec:
    """An image to build. `cuda` and `cudnn` are None for the cpu variant.

    base: a base image name, or None for the default of this Python.
    max_size: the most bytes that the compressed image may have, or None; not part of what the image is.
    additions: what it has in addition to TensorFlow, or None. An image of the variant jupyter has some.
    """

    tensorflow: str
    python: str
    variant: Variant
    cuda: Choice | None = None
    cudnn: Choice | None = None
    base: str | None = None
    additions: Additions | None = None
    max_size: int | None = field(default=None, compare=False)

    @property
    def identifier(self) -> str:
        """The name used in file names, logs, selectors and records: `tf2.21.0-cuda12.9-cudnn9.28-py312`.

        The name of its additions follows an underscore, which nothing else has: `…-py312_ours`.
        """
        parts = [f"tf{self.tensorflow}"]
        if self.cuda is None or self.cudnn is None:
            parts.append("cpu")
        else:
            parts += [f"cuda{self.cuda.label}", f"cudnn{self.cudnn.label}"]
        parts.append(python_label(self.python))
        if self.base is not None:
            # A tag of a registry has at most 128 characters, so 12 digits of the digest have to do.
            name, _, digest = self.base.partition("@sha256:")
            parts.append(slug(f"{name}-{digest[:12]}"))
        added = f"_{self.additions.label}" if self.additions else ""
        return "-".join(parts) + added

    @property
    def command(self) -> tuple[str, ...]:
        """The command that a container of the image runs by default."""
        return JUPYTER_COMMAND if self.variant is Variant.JUPYTER else ("python",)

    @property
    def port(self) -> int | None:
        """The port on which that command answers, or None."""
        return JUPYTER_PORT if self.variant is Variant.JUPYTER else None

    def __str__(self) -> str:
        return self.identifier


#: TensorFlow from a wheel that no table lists: its version, then eight digits of the wheel's SHA-256.
_BUILD = re.compile(r"tf[^-+]+\+(?P<build>(?:[a-z0-9.]+\.)?[0-9a-f]{8})-")


def build_name(version: str, sha256: str) -> str:
    """Return the name of TensorFlow in a wheel that no table lists: `2.21.0+b3f1c2d4`."""
    return f"{version}{'.' if '+' in version else '+'}{sha256[:8]}"


def build_of(identifier: str) -> str | None:
    """Return `b3f1c2d4` for `tf2.21.0+b3f1c2d4-…`, and None for an image of a release."""
    found = _BUILD.match(identifier)
    return found["build"] if found else None


def variant_of(identifier: str) -> Variant:
    """Return whether an image spec with this identifier has CUDA (`gpu`, which stands for `jupyter` too)."""
    return Variant.CPU if re.match(r"tf[^-]+-cpu-py\d", identifier) else Variant.GPU


#: The host class of a machine without a GPU. Only images without CUDA can be proven on it.
NO_GPU = "no-gpu"


@dataclass(frozen=True)
class HostClass:
    """A kind of machine to validate on: a driver (branch or release), a GPU, and the runner that has them.

    gpu: the model's name as written in the matrix (`h100`), or None when only the capability is known.
    runner: labels of the CI runner that belongs to this class.
    compat: CUDA version of a cuda-compat package on the loader path (`12.9`), or None.
    """

    identifier: str
    driver: DriverRelease
    compute_capability: ComputeCapability
    gpu: str | None = None
    runner: tuple[str, ...] = ()
    compat: str | None = None

    @classmethod
    def without_gpu(cls, runner: tuple[str, ...] = ()) -> HostClass:
        """Return the class `no-gpu`. Its driver and capability are lower than every real one, so that no rule
        takes them for real."""
        return cls(NO_GPU, DriverRelease(0, (0,), "none"), ComputeCapability(0, 0), runner=runner)

    @property
    def has_gpu(self) -> bool:
        return self.identifier != NO_GPU

    def __str__(self) -> str:
        return self.identifier


@dataclass(frozen=True)
class Cell:
    """Image spec x host class: the unit that is predicted and measured."""

    image: ImageSpec
    host: HostClass

    @property
    def identifier(self) -> str:
        return cell_identifier(self.image.identifier, self.host.identifier)

    def __str__(self) -> str:
        return self.identifier


def python_label(python: str) -> str:
    """Return `py312`."""
    return f"py{python.replace('.', '')}"


def host_identifier(
    driver: DriverRelease, gpu: str | None, capability: ComputeCapability, compat: str | None = None
) -> str:
    """Return `r535-h100`, `r535.183.01-sm90` or `r535-h100-compat12.9`. gpu: the model's slug, or None."""
    label = gpu or capability.sm.replace("_", "")
    return f"r{driver}-{label}" + (f"-compat{compat}" if compat else "")


def cell_identifier(image: str, host: str) -> str:
    """Return `tf2.21.0-cuda12.9-cudnn9.28-py312@r535-h100`."""
    return f"{image}@{host}"


def slug(text: str) -> str:
    """Return a name for identifiers: only lower-case letters, digits, dots and dashes."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")


@dataclass(frozen=True)
class Wheel:
    """One pinned wheel.

    name: normalized by PyPA's rules (lower case, dashes). sha256: hex digest of the file. filename: of the
    wheel, which has its tags. size: bytes to download, or None if the index does not say. path: of a wheel on
    this machine, relative to the directory of the matrix file, or the address of one elsewhere, without what
    may be secret in it; None for the index's. address: where it is from here, with all secrets: it is never
    written anywhere.
    """

    name: str
    version: str
    sha256: str
    filename: str
    size: int | None = None
    path: str | None = None
    address: str | None = field(default=None, compare=False, repr=False)

    @property
    def is_local(self) -> bool:
        """True if it is a file next to the matrix file."""
        return self.path is not None and "://" not in self.path

    @property
    def origin(self) -> str:
        """Where it comes from, with its hash: `wheels/ours-1.0-py3-none-any.whl#sha256=…`."""
        return f"{self.path or self.filename}#sha256={self.sha256}"

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class OnIndex:
    """A TensorFlow that a package index has to be asked for.

    version: None for the newest. index: its address; None for the index of this machine.
    """

    version: str | None
    index: str | None = field(default=None, repr=False)

    @property
    def project(self) -> str:
        return "tf-nightly" if self.version is None or ".dev" in self.version else "tensorflow"


@dataclass(frozen=True)
class Lock:
    """The wheels of one image spec, sorted by name.

    identifier: the image spec's. requirements: the requested requirements, one per line; if they differ from
    today's requirements of the spec, the lock no longer satisfies the spec. platform: the wheel platform it
    was resolved for, as uv names it (`x86_64-manylinux_2_28`). additions: what the matrix adds to the image
    except wheels, one line for each (`Additions.notes`). resolved: the day (UTC) when these wheels were
    chosen, which is the date of the image; or None. It does not count in comparisons.
    """

    identifier: str
    python: str
    platform: str
    requirements: tuple[str, ...]
    wheels: tuple[Wheel, ...]
    additions: tuple[str, ...] = ()
    resolved: date | None = field(default=None, compare=False)

    @property
    def digest(self) -> str:
        """`sha256:` over name, version and hash of every wheel. The same wheels have the same digest."""
        text = "".join(f"{wheel.name}=={wheel.version} {wheel.sha256}\n" for wheel in self.wheels)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    @property
    def size(self) -> int:
        """Bytes to download for all wheels whose size is known."""
        return sum(wheel.size or 0 for wheel in self.wheels)

    @property
    def own_tensorflow(self) -> Wheel | None:
        """The wheel of TensorFlow that the identifier names by its hash, or None."""
        build = build_of(self.identifier)
        return next((one for one in self.wheels if build and one.sha256.startswith(build[-8:])), None)

    @property
    def own_origin(self) -> str | None:
        """Where that wheel comes from, as records and certificates say it."""
        return self.own_tensorflow.origin if self.own_tensorflow else None

    def version(self, name: str) -> str | None:
        """Return the pinned version of a distribution, or None if it is not in the lock."""
        return next((wheel.version for wheel in self.wheels if wheel.name == name), None)


#: The image repository, and the prefix of labels.
PROJECT = "tensorflow-gpu-matrix"

LABEL_SPEC = f"{PROJECT}.image-spec"
LABEL_LOCK = f"{PROJECT}.lock-digest"
LABEL_BASE = f"{PROJECT}.base"
LABEL_RECIPE = f"{PROJECT}.recipe"
LABEL_TENSORFLOW = f"{PROJECT}.tensorflow"
LABEL_PYTHON = f"{PROJECT}.python"
#: Major and minor version from the image spec. This label and those below are only on gpu images.
LABEL_CUDA = f"{PROJECT}.cuda"
LABEL_CUDNN = f"{PROJECT}.cudnn"
#: The oldest driver release that runs the image's CUDA (minor-version compatibility).
LABEL_DRIVER = f"{PROJECT}.minimum-driver"
#: Compute capabilities that TensorFlow's wheel has machine code for, and PTX: `6.0 7.0 8.0`.
LABEL_SASS = f"{PROJECT}.sass"
LABEL_PTX = f"{PROJECT}.ptx"

#: A tag has at most 128 characters (OCI distribution specification).
_LONGEST_TAG = 128


def image_reference(identifier: str) -> str:
    """Return the image name of an image spec. If the tag is too long, a digest replaces its end."""
    # A tag can't have the + before the name of a wheel that no table lists.
    tag = identifier.replace("+", "-")
    if len(tag) > _LONGEST_TAG:
        tag = f"{tag[: _LONGEST_TAG - 13]}-{hashlib.sha256(tag.encode()).hexdigest()[:12]}"
    return f"{PROJECT}:{tag}"
