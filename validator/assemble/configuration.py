"""The configuration of an image: its labels, variables, user and command."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from ..model.lock import Lock
from ..model.spec import ImageSpec
from . import entry_point, image_names
from .base import Base
from .host_requirements import host_requirements

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


@dataclass(frozen=True)
class Step:
    """A layer of an image. name: for people. diff_id: the digest of the uncompressed archive."""

    name: str
    diff_id: str


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
        image_names.LABEL_SPEC: spec.identifier,
        image_names.LABEL_LOCK: lock.digest,
        image_names.LABEL_BASE: base.origin,
        image_names.LABEL_RECIPE: recipe,
        image_names.LABEL_TENSORFLOW: spec.tensorflow,
        image_names.LABEL_PYTHON: spec.python,
    }
    if spec.cuda and spec.cudnn:
        found |= {image_names.LABEL_CUDA: spec.cuda.version, image_names.LABEL_CUDNN: spec.cudnn.version}
    if wanted := host_requirements(spec):
        if wanted.driver:
            found[image_names.LABEL_DRIVER] = str(wanted.driver)
        if wanted.sass or wanted.ptx:
            found[image_names.LABEL_SASS] = " ".join(map(str, wanted.sass))
            found[image_names.LABEL_PTX] = " ".join(map(str, wanted.ptx))
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
        found["NVIDIA_REQUIRE_CUDA"] = wanted.constraint
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
        found["Entrypoint"] = [entry_point.START]
    elif base.settings.get("Entrypoint"):
        found["Entrypoint"] = base.settings["Entrypoint"]
    found["Cmd"] = list(spec.command)
    return found


def config_document(configured: Mapping[str, Any], steps: Iterable[Step], created: date | None) -> bytes:
    """Return the OCI configuration as JSON. created: None means the beginning of 1970."""
    stamp = f"{created or date(1970, 1, 1)}T00:00:00Z"
    steps = tuple(steps)
    return canonical_json(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": stamp,
            "config": configured,
            "rootfs": {"type": "layers", "diff_ids": [step.diff_id for step in steps]},
            "history": [
                {"created": stamp, "created_by": f"{image_names.PROJECT}: {step.name}"} for step in steps
            ],
        }
    )


def canonical_json(document: Mapping[str, Any]) -> bytes:
    """Return JSON whose bytes depend on nothing but the document."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
