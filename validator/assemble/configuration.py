"""The configuration of an image: its labels, variables, user and command."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from .. import resources
from ..compat import hardware
from ..compat.facts import UnknownRelease
from ..compat.kernels import kernels
from ..compat.releases import Target
from ..model.spec import (
    LABEL_BASE,
    LABEL_CUDA,
    LABEL_CUDNN,
    LABEL_DRIVER,
    LABEL_LOCK,
    LABEL_PTX,
    LABEL_PYTHON,
    LABEL_RECIPE,
    LABEL_SASS,
    LABEL_SPEC,
    LABEL_TENSORFLOW,
    PROJECT,
    ImageSpec,
    Lock,
    Variant,
)
from ..registry.client import Registry
from ..versions import ComputeCapability, CudaVersion, DriverRelease
from .base import Base
from .install import merged
from .layers import Entry, InMemory, LayerSource

# The requirements of an image on its host, taken from the compatibility rules. They are used for the image's
# variables, its labels, and the tables that its entry point reads.


@dataclass(frozen=True)
class HostRequirements:
    """The requirements of a gpu image on its host. cuda: the minimum version that the driver must support.

    driver: the minimum release. sass, ptx: the targets for which at least some kernels in TensorFlow's wheel
    have machine code, and PTX: 9.0, 9.0a. Empty if the wheel is unknown.
    """

    cuda: CudaVersion
    driver: DriverRelease | None
    sass: tuple[Target, ...] = ()
    ptx: tuple[Target, ...] = ()

    @property
    def compute_capability(self) -> ComputeCapability | None:
        """The minimum compute capability: for older GPUs, the wheel has neither machine code nor PTX."""
        return min((target.capability for target in (*self.sass, *self.ptx)), default=None)


def host_requirements(spec: ImageSpec) -> HostRequirements | None:
    """Return the requirements of an image, or None if it has no CUDA.

    Within a major version of CUDA, the driver of the first minor version is enough (minor-version
    compatibility): 12.5 needs R525 (`cuda>=12.0`), not R555. Such a host can't JIT-compile newer PTX; that is
    a matter for the prediction, not a reason to refuse to start.
    """
    if spec.variant is Variant.CPU or spec.cuda is None:
        return None
    major = CudaVersion.parse(spec.cuda.version).major
    floor = hardware.minor_version(major)
    branch = hardware.branch_of(floor.driver.branch) if floor else None
    try:
        known = kernels(spec.tensorflow)
    except UnknownRelease:
        known = None
    groups = known.groups if known else ()
    return HostRequirements(
        branch.cuda if branch else CudaVersion(major, 0),
        floor.driver if floor else None,
        tuple(sorted(frozenset[Target]().union(*(group.sass for group in groups)))),
        tuple(sorted(frozenset[Target]().union(*(group.ptx for group in groups)))),
    )


def tables() -> str:
    """Return the facts about drivers and GPUs for the entry point (`images/entrypoint/start`), one per line.

    Only data-center GPUs with one-word names are included; the entry point treats all others as unknown.
    """
    lines = [f"branch {branch.number} {branch.cuda}" for branch in hardware.branches()]
    lines += [
        f"gpu {gpu.compute_capability} {gpu.name}"
        for gpu in hardware.gpus()
        if gpu.data_center and " " not in gpu.name
    ]
    return "".join(f"{line}\n" for line in lines)


# The layer with the entry point, which checks the host's driver before the container's command starts.

_DIRECTORY = "opt/tensorflow-gpu-matrix"
#: The path of the program in the image.
START = f"/{_DIRECTORY}/start"
#: The directory in the image for a volume in which XLA keeps what it compiles.
XLA_CACHE = "/var/cache/tensorflow-gpu-matrix"


def entry_point() -> LayerSource:
    """Return the layer. It is the same in all images with CUDA."""
    ours = resources.images_directory() / "entrypoint"
    start, cache, facts = (ours / "start").read_bytes(), (ours / "cache.py").read_bytes(), tables().encode()

    def entries() -> Iterable[Entry]:
        files = [
            Entry(f"{_DIRECTORY}/start", 0o755, InMemory(start)),
            Entry(f"{_DIRECTORY}/cache.py", 0o644, InMemory(cache)),
            Entry(f"{_DIRECTORY}/tables", 0o644, InMemory(facts)),
            # A new volume gets the mode of the directory that it is mounted over. In it, each user has one.
            Entry(XLA_CACHE[1:], 0o1777),
        ]
        return merged([("entry point", files)])

    digests = [hashlib.sha256(content).hexdigest() for content in (start, cache, facts)]
    return LayerSource("entry point", ("entry point 2", *digests), entries)


# The layer for JupyterLab: `%gpu_doctor`, a first notebook, and the settings that open it.
#
# The image has the sources of `%gpu_doctor` and not the whole tool, because a notebook does not need the
# tool's other dependencies. The packages that these sources need besides TensorFlow are in the image's lock
# (`JUPYTER_PACKAGES`). A `.pth` file makes Python find them after the packages of the environment, so that
# `pip install` of the tool replaces them.

_RECIPE = "notebooks 1"
_PYTHON = f"{_DIRECTORY}/python"
_VENV = "opt/venv"
_PACKAGE = Path(__file__).resolve().parent.parent
#: The sources, with the probe, which `%gpu_doctor` packs and runs in a child process.
_SOURCES = (
    "__init__.py", "conditions.py", "errors.py", "problems.py", "problems.json", "resources.py",
    "version_numbers.py", "versions.py",
    "_vendor/**/*.py", "_vendor/packaging/LICENSE*",
    # All but what inspects wheels.
    "compat/__init__.py", "compat/compile.py", "compat/evidence.py", "compat/facts.py", "compat/hardware.py",
    "compat/judge.py", "compat/kernels.py", "compat/known_issues.py", "compat/offers.py",
    "compat/policies.py", "compat/predict.py", "compat/releases.py",
    "compat/data/compiled.json",
    "diagnosis/**/*.py", "diagnosis/data/compiled.json",
    "embedded/__init__.py", "embedded/examine.py", "embedded/notebook.py",
    "engines/__init__.py", "engines/protocol.py",
    "model/*.py", "probe/**/*.py", "probe/data/*.json", "redaction/*.py",
    "reports/__init__.py", "reports/diagnosis.py", "reports/printable.py",
    "reports/templates/diagnosis.html.j2",
    "system/__init__.py", "system/files.py", "system/orphans.py", "system/processes.py",
    "system/runs.py",
)  # fmt: skip


def notebooks() -> LayerSource:
    """Return the layer. It is the same in all images with JupyterLab."""
    files = _files()
    digest = hashlib.sha256()
    for path, content in files.items():
        digest.update(f"{path}\0{len(content)}\0".encode() + content)

    def entries() -> Iterable[Entry]:
        made = [Entry(path, 0o644, InMemory(content)) for path, content in files.items()]
        return merged([("notebooks", made)])

    return LayerSource("%gpu_doctor and a notebook", (_RECIPE, digest.hexdigest()), entries)


@functools.cache
def _files() -> dict[str, bytes]:
    ours = resources.images_directory() / "notebooks"
    sources = sorted({path for pattern in _SOURCES for path in _PACKAGE.glob(pattern)})
    return {
        f"{_VENV}/etc/jupyter/jupyter_lab_config.py": (ours / "jupyter_lab_config.py").read_bytes(),
        f"{_VENV}/lib/python3/site-packages/tensorflow-gpu-matrix.pth": f"/{_PYTHON}\n".encode(),
        **{f"{_DIRECTORY}/notebooks/{path.name}": path.read_bytes() for path in sorted(ours.glob("*.ipynb"))},
        **{f"{_PYTHON}/validator/{path.relative_to(_PACKAGE)}": path.read_bytes() for path in sources},
    }


#: Changes when the same image would get another configuration.
RECIPE = "configuration 2"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"

#: The user that images run as: the number of the user and of its group.
USER = 10001
USER_NAME = "tensorflow"
HOME = "/home/tensorflow"
_PATH = "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: The parts of a base's settings that its images have too. The others are about its own command.
_INHERITED = ("Env", "Labels", "ExposedPorts", "Volumes", "StopSignal", "Shell")


def labels(spec: ImageSpec, lock: Lock, base: Base, recipe: str) -> dict[str, str]:
    """Return the OCI labels and this project's own. None of them depends on the time or the builder.

    recipe: the digest of everything else that decides what is in the image.
    """
    parts = [f"TensorFlow {spec.tensorflow}"]
    if spec.cuda and spec.cudnn:
        parts.append(f"CUDA {spec.cuda.version}, cuDNN {spec.cudnn.version}")
    parts.append(f"Python {spec.python}")
    found = {
        "org.opencontainers.image.title": spec.identifier,
        "org.opencontainers.image.description": ", ".join(parts),
        "org.opencontainers.image.version": spec.tensorflow,
        "org.opencontainers.image.base.name": base.name,
        LABEL_SPEC: spec.identifier,
        LABEL_LOCK: lock.digest,
        LABEL_BASE: base.origin,
        LABEL_RECIPE: recipe,
        LABEL_TENSORFLOW: spec.tensorflow,
        LABEL_PYTHON: spec.python,
    }
    if spec.cuda and spec.cudnn:
        found |= {LABEL_CUDA: spec.cuda.version, LABEL_CUDNN: spec.cudnn.version}
    if wanted := host_requirements(spec):
        if wanted.driver:
            found[LABEL_DRIVER] = str(wanted.driver)
        if wanted.sass or wanted.ptx:
            found[LABEL_SASS] = " ".join(map(str, wanted.sass))
            found[LABEL_PTX] = " ".join(map(str, wanted.ptx))
    if base.digest:
        found["org.opencontainers.image.base.digest"] = base.digest
    return found


def variables(spec: ImageSpec) -> dict[str, str]:
    """Return the environment variables that an image sets.

    The NVIDIA container runtime reads three of them: the GPUs and driver libraries to mount, and the required
    driver. With a plain CUDA_VERSION, it would treat the image as one that uses the old scheme. The minimum
    compute capability is not an NVIDIA_REQUIRE variable, because the runtime would refuse a host with an old
    and a new GPU.
    """
    found = {"PATH": _PATH}
    if spec.variant.has_cuda:
        found |= {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
    if wanted := host_requirements(spec):
        found["NVIDIA_REQUIRE_CUDA"] = f"cuda>={wanted.cuda}"
        if capability := wanted.compute_capability:
            found["VALIDATOR_COMPUTE_CAPABILITY"] = str(capability)
    if spec.additions:
        found |= dict(spec.additions.environment)
    return found


def settings(spec: ImageSpec, lock: Lock, base: Base, recipe: str) -> dict[str, Any]:
    """Return the field `config` of the image's configuration."""
    found = {name: base.settings[name] for name in _INHERITED if base.settings.get(name)}
    environment = dict(line.partition("=")[::2] for line in found.get("Env", ()))
    environment.update(variables(spec))
    found["Env"] = [f"{name}={value}" for name, value in environment.items()]
    found["Labels"] = {**found.get("Labels", {}), **labels(spec, lock, base, recipe)}
    if spec.port is not None:
        found["ExposedPorts"] = {**found.get("ExposedPorts", {}), f"{spec.port}/tcp": {}}
    found["User"] = f"{USER}:{USER}"
    found["WorkingDir"] = HOME
    if spec.variant.has_cuda:
        found["Entrypoint"] = [START]
    elif base.settings.get("Entrypoint"):
        found["Entrypoint"] = base.settings["Entrypoint"]
    found["Cmd"] = list(spec.command)
    return found


def config_document(
    configured: Mapping[str, Any], layers: Sequence[tuple[str, str]], created: date | None
) -> bytes:
    """Return the OCI configuration as JSON. layers: names and diff_ids. created: None means 1970-01-01."""
    stamp = f"{created or date(1970, 1, 1)}T00:00:00Z"
    return canonical_json(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": stamp,
            "config": configured,
            "rootfs": {"type": "layers", "diff_ids": [diff_id for _, diff_id in layers]},
            "history": [{"created": stamp, "created_by": f"{PROJECT}: {name}"} for name, _ in layers],
        }
    )


def canonical_json(document: Mapping[str, Any]) -> bytes:
    """Return JSON whose bytes depend on nothing but the document."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


# Say what an image needs of a node, in the form that Node Feature Discovery reads from a registry.
#
# It is an artifact that refers to the image: a YAML document with rules about features of nodes
# (https://kubernetes-sigs.github.io/node-feature-discovery/v0.17/usage/image-compatibility.html). It is not
# signed: it helps to choose a node, and proves nothing.

ARTIFACT = "application/vnd.nfd.image-compatibility.v1alpha1"
MEDIA_TYPE = "application/vnd.nfd.image-compatibility.spec.v1alpha1+yaml"
#: NVIDIA's vendor, and the classes of its GPUs: with and without a display.
_VENDOR, _CLASSES = "10de", ("0300", "0302")

#: What the `nfd` client can see on a node by itself.
HOST_TAG = "host"
#: What only the labels of GPU Feature Discovery say.
LABELS_TAG = "gpu-feature-discovery"


def compatibility(spec: ImageSpec) -> bytes | None:
    """Return what an image needs of a node, as YAML, or None if it needs no GPU."""
    wanted = host_requirements(spec)
    if wanted is None:
        return None
    device = {"vendor": {"op": "In", "value": [_VENDOR]}, "class": {"op": "In", "value": list(_CLASSES)}}
    host = {
        "tag": HOST_TAG,
        "description": "An NVIDIA GPU, and the kernel module of its driver.",
        "rules": [
            _rule("nvidia gpu", "pci.device", device),
            _rule("nvidia kernel module", "kernel.loadedmodule", {"nvidia": {"op": "Exists"}}),
        ],
    }
    sets: list[dict[str, Any]] = [host]
    rules, needed = [], []
    if wanted.driver is not None:
        label = {"nvidia.com/cuda.driver-version.major": _at_least(wanted.driver.branch)}
        rules.append(_rule("driver branch", "local.label", label))
        needed.append(f"driver {wanted.driver.branch} or newer")
    if (capability := wanted.compute_capability) is not None:
        label = {"nvidia.com/gpu.compute.major": _at_least(capability.major)}
        rules.append(_rule("compute capability", "local.label", label))
        # The labels have one number each, and a rule compares one label.
        rounded = " (only the first number is checked)" if capability.minor else ""
        needed.append(f"a GPU with compute capability {capability} or newer{rounded}")
    if rules:
        description = f"By the labels of GPU Feature Discovery: {' and '.join(needed)}."
        sets.append({"tag": LABELS_TAG, "description": description, "rules": rules})
    return yaml.safe_dump({"version": "v1alpha1", "compatibilities": sets}, sort_keys=False).encode()


def attach_compatibility(registry: Registry, digest: str, spec: ImageSpec) -> None:
    """Attach what an image needs of a node, unless it is attached already. Raises MissingError."""
    content = compatibility(spec)
    if content is None:
        return
    wanted = f"sha256:{hashlib.sha256(content).hexdigest()}"
    for entry in registry.attached(digest, ARTIFACT):
        manifest = registry.manifest(entry.digest)
        layers = (manifest and manifest.layers) or ()
        # The digest of a layer is that of its content.
        if [layer.digest for layer in layers] == [wanted]:
            return
    registry.attach(digest, ARTIFACT, content, {}, media_type=MEDIA_TYPE)


def _rule(name: str, feature: str, expressions: dict[str, Any]) -> dict[str, Any]:
    # Not `matchAny`: NFD 0.17 takes a rule with nothing else as matched in any case.
    return {"name": name, "matchFeatures": [{"feature": feature, "matchExpressions": expressions}]}


def _at_least(number: int) -> dict[str, Any]:
    return {"op": "Gt", "value": [str(number - 1)]}
