"""Say what an image needs of a node, in the form that Node Feature Discovery reads from a registry.

It is an artifact that refers to the image: a YAML document with rules about features of nodes
(https://kubernetes-sigs.github.io/node-feature-discovery/v0.17/usage/image-compatibility.html). It is not
signed: it helps to choose a node, and proves nothing.
"""

from __future__ import annotations

import hashlib
from typing import Any

import yaml

from ..model.spec import ImageSpec
from ..registry.client import Registry
from .configuration import HostRequirements, host_requirements

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
    sets = [_host(), *([found] if (found := _labels(wanted)) else [])]
    return yaml.safe_dump({"version": "v1alpha1", "compatibilities": sets}, sort_keys=False).encode()


def attach_compatibility(registry: Registry, digest: str, spec: ImageSpec) -> None:
    """Attach what an image needs of a node, unless the same is attached already.

    Raises MissingError if the registry fails.
    """
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


def _host() -> dict[str, Any]:
    device = {
        "vendor": {"op": "In", "value": [_VENDOR]},
        "class": {"op": "In", "value": list(_CLASSES)},
    }
    return {
        "tag": HOST_TAG,
        "description": "An NVIDIA GPU, and the kernel module of its driver.",
        "rules": [
            _rule("nvidia gpu", "pci.device", device),
            _rule("nvidia kernel module", "kernel.loadedmodule", {"nvidia": {"op": "Exists"}}),
        ],
    }


def _labels(wanted: HostRequirements) -> dict[str, Any] | None:
    """Return the rules about labels, as far as the facts say what the image needs."""
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
    if not rules:
        return None
    description = f"By the labels of GPU Feature Discovery: {' and '.join(needed)}."
    return {"tag": LABELS_TAG, "description": description, "rules": rules}


def _rule(name: str, feature: str, expressions: dict[str, Any]) -> dict[str, Any]:
    # Not `matchAny`: NFD 0.17 takes a rule with nothing else as matched in any case.
    return {"name": name, "matchFeatures": [{"feature": feature, "matchExpressions": expressions}]}


def _at_least(number: int) -> dict[str, Any]:
    return {"op": "Gt", "value": [str(number - 1)]}
