"""Read and propose `fleet.yaml`, next to `matrix.yaml`: a site's names for what jobs need.

Features, GRES types, partitions, accounts, reservations, node labels, namespaces and queues are different on
every cluster, so none of them is in the code.

`python -m validator.fleet.settings` writes the JSON Schema of the file, for editors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType
from yaml import MappingNode

from ..compat.hardware import is_known, model_of
from ..errors import InputError
from ..matrix.document import (
    Document,
    MatrixError,
    check_shape,
    join_words,
    parse_document,
    plain_value,
    quote,
    read_document,
    unknown_name,
)
from ..matrix.document import Path as Place
from ..matrix.schema import Axis, Text, editor_schema
from ..model.spec import NO_GPU
from ..resources import manual, source
from ..versions import DriverRelease

#: The file's name, next to the matrix.
NAME = "fleet.yaml"
#: The checked-in copy of its schema.
SCHEMA = Path(__file__).with_name("schema.json")
HINT = f"{manual('reference/fleet.md')} describes the file; `fleet inventory --write` proposes one"

_HOST_CLASS = re.compile(r"r\d{3,4}(\.\d{1,3}){0,2}-[a-z0-9][a-z0-9.-]*")
#: One word, which no program takes for an option and no shell changes.
_WORD = re.compile(r"[A-Za-z0-9_][\w.:+@/,-]*")
#: Features with the operators of `sbatch --constraint`.
_CONSTRAINT = re.compile(r"[A-Za-z0-9_(\[][\w.:+=&|()\[\]*,-]*")
_GRES = re.compile(r"[A-Za-z0-9]\w*(:[\w.+-]+){0,2}(,[A-Za-z0-9]\w*(:[\w.+-]+){0,2})*")
_CONTEXT = re.compile(r"[\w.:@/+-]+")
#: Names of Kubernetes: of most objects, and of labels and their values.
_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?")
_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?")

#: How a job can run an image on a node of Slurm. `auto`: with the first container engine that the node has.
#: `venv`: in an environment made from the lock. `auto-or-venv`: `auto`, or else `venv`.
CONTAINERS = ("auto", "apptainer", "enroot", "podman", "docker", "auto-or-venv", "venv")
#: With these, some packages run as the user who submits. They could change the results of other jobs, so no
#: result of the cluster is signed.
UNSIGNED = ("auto-or-venv", "venv")
#: A GPU as Kubernetes counts it, and the taint that the GPU operator sets.
GPU_RESOURCE = "nvidia.com/gpu"
#: The effects of a taint.
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
#: A limit can have 30 days at most.
_Minutes = Annotated[int, Meta(ge=1, le=30 * 24 * 60)]


def _says(description: str, **limits: Any) -> Meta:
    """Return what the schema says about a key: a sentence, and the limits of its value."""
    found: Meta = Meta(description=description, **limits)
    return found


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The size, the time and the number of jobs. cpus, memory: 0 for what the site gives by default."""

    cpus: Annotated[int, _says("Processors of a job. Without it, the site decides.", ge=1, le=1024)] = 0
    memory: Annotated[int, _says("GiB of memory of a job. Without it, the site decides.", ge=1, le=65536)] = 0
    time_limit: Annotated[
        _Minutes, _says("Minutes that one cell may take on its node, including the pull.")
    ] = 30
    wait_limit: Annotated[_Minutes, _says("Minutes that a job may wait for a node.")] = 1440
    in_flight: Annotated[
        int, _says("The most jobs of the host class that are submitted at a time.", ge=1, le=10_000)
    ] = 20
    workers: Annotated[
        int,
        _says(
            "With 2 and `--depth full`, a cell is measured on two nodes at once, which also train together.",
            ge=1,
            le=2,
        ),
    ] = 1

    def tasks(self, depth: str) -> int:
        """Return on how many nodes units run at once, at this depth of the probe."""
        return self.workers if depth == "full" else 1


class _Slurm(Limits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    partition: Annotated[Text, _says("The partition, as for `sbatch`. Without it, the site decides.")] = ""
    account: Annotated[Text, _says("The account that jobs are charged to, as for `sbatch`.")] = ""
    reservation: Annotated[Text, _says("The reservation that jobs use, as for `sbatch`.")] = ""
    qos: Annotated[Text, _says("The quality of service, as for `sbatch`.")] = ""


class SlurmPlace(_Slurm, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a job gets a node of one host class from Slurm. Absent keys are taken from the section."""

    constraint: Annotated[
        Text,
        _says(
            "Features of its nodes, as for `sbatch --constraint`: `r580&h100`. Features are names"
            " that the site chose."
        ),
    ] = ""
    gres: Annotated[Text, _says("The GPUs of a job, as for `sbatch --gres`: `gpu:h100:1`.")] = ""


class SlurmSection(_Slurm, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Slurm cluster."""

    directory: Annotated[
        Text,
        _says(
            "A directory that this machine and all nodes see under the same path. Jobs, their"
            " results and converted images are there."
        ),
    ]
    container: Annotated[
        Text,
        _says(
            "How nodes run images: `apptainer`, `enroot` (with Pyxis), `podman`, `docker`;"
            " `auto`: the first of these that the node has; `venv`: in a virtual environment; `auto-or-venv`:"
            " `auto`, or else `venv`. With the last two, nothing that the cluster measures is"
            " signed or certified."
        ),
    ] = CONTAINERS[0]
    python: Annotated[
        Text, _says("The Python of the nodes, 3.9 or newer. It reads the driver before the container starts.")
    ] = "python3"
    setup: Annotated[
        Text, _says("Shell commands that each job runs first, such as `module load apptainer`.")
    ] = ""
    host_classes: Annotated[
        dict[str, SlurmPlace],
        _says(
            "How to get a node of each host class. Host classes that are not here are reported as missing.",
            min_length=1,
        ),
    ]


class Toleration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A taint of nodes that pods tolerate."""

    key: Annotated[Text, _says("The key of the taint.")]
    value: Annotated[Text, _says("The value of the taint. Without it, any value is tolerated.")] = ""
    effect: Annotated[
        Text, _says(f"{', '.join(f'`{effect}`' for effect in EFFECTS)}. Without it, any effect is tolerated.")
    ] = ""


class _Kubernetes(Limits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    queue: Annotated[Text, _says("The local queue of Kueue (https://kueue.sigs.k8s.io) that jobs go to.")] = (
        ""
    )
    tolerations: Annotated[
        list[Toleration],
        _says(
            f"Taints to tolerate in addition to `{GPU_RESOURCE}`, which is always tolerated.", max_length=100
        ),
    ] = []
    resource: Annotated[
        Text, _says("The resource that stands for a GPU; with MIG, for example `nvidia.com/mig-1g.10gb`.")
    ] = GPU_RESOURCE


class KubernetesPlace(_Kubernetes, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a pod gets a node of one host class. Absent keys are taken from the section."""

    node_selector: Annotated[
        dict[str, Axis],
        _says(
            "The labels of its nodes, each with a value or a list of values; put numbers in"
            " quotes. Without it, the labels of GPU Feature Discovery: model and driver.",
            min_length=1,
        ),
    ] = {}


class KubernetesSection(_Kubernetes, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Kubernetes cluster."""

    context: Annotated[Text, _says("The context of the kubeconfig. Without it, its current one.")] = ""
    namespace: Annotated[
        Text,
        _says(
            "The namespace of all jobs, in which the objects of `fleet manifests` exist. Without"
            " it, that of the context."
        ),
    ] = ""
    pull_secret: Annotated[
        Text, _says("The secret in this namespace with which nodes pull images. Pods use no other secret.")
    ] = ""
    host_classes: Annotated[
        dict[str, KubernetesPlace], _says("The host classes that differ from the others.", min_length=1)
    ] = {}

    def place(self, host_class: str) -> KubernetesPlace:
        """Return how a pod gets a node of a host class: as the section says if the file does not name it."""
        shared = {name: getattr(self, name) for name in _Kubernetes.__struct_fields__}
        return self.host_classes.get(host_class) or KubernetesPlace(**shared)


class FleetFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The names that a site has for the things that jobs need."""

    slurm: Annotated[SlurmSection, _says("For `--on slurm`.")] | UnsetType = UNSET
    kubernetes: Annotated[KubernetesSection, _says("For `--on kubernetes`.")] | UnsetType = UNSET


_Section = TypeVar("_Section", SlurmSection, KubernetesSection)


def schema_text() -> str:
    """Return the JSON Schema of a fleet file, as the checked-in copy has it."""
    return editor_schema(
        FleetFile, "Fleet of TensorFlow GPU matrix", "validator/fleet/schema.json", "reference/fleet.md"
    )


# Read the file.


@dataclass(frozen=True)
class FleetSettings:
    """The clusters of a site. slurm: None if the file has no such section, because it needs a directory."""

    slurm: SlurmSection | None = None
    kubernetes: KubernetesSection = field(default_factory=KubernetesSection)


def read_settings(path: Path) -> FleetSettings:
    """Read the file. Raises InputError, with line and column of each problem."""
    try:
        return settings_of(read_document(path))
    except MatrixError as error:
        raise InputError(str(error), hint=HINT) from None


def settings_of(document: Document) -> FleetSettings:
    """Return the settings in a document. Raises MatrixError with every problem."""
    check_shape(document, FleetFile)
    document.raise_problems()
    content = plain_value(document.root)
    assert isinstance(document.root, MappingNode)
    for entry in content.get("kubernetes", {}).get("host_classes", {}).values():
        # A file may give a single value for a label.
        for label, values in entry.get("node_selector", {}).items():
            entry["node_selector"][label] = [values] if isinstance(values, str) else values
    slurm = None
    if "slurm" in content:
        slurm = _section(content["slurm"], "slurm", SlurmSection, SlurmPlace, document)
        if not slurm.directory.startswith("/") or "\n" in slurm.directory:
            message = (
                f"{quote(slurm.directory)} is not an absolute path; all nodes have to see it under this path"
            )
            document.report(("slurm", "directory"), message)
        if slurm.container not in CONTAINERS:
            document.report(("slurm", "container"), unknown_name(slurm.container, CONTAINERS))
        for name, place in slurm.host_classes.items():
            if name != NO_GPU and not (
                place.constraint or place.gres or place.partition or place.reservation
            ):
                message = (
                    "needs a constraint, a gres, a partition or a reservation; without one, any node would do"
                )
                document.report(("slurm", "host_classes", name), message)
    given = content.get("kubernetes", {})
    kubernetes = _section(given, "kubernetes", KubernetesSection, KubernetesPlace, document)
    document.raise_problems()
    return FleetSettings(slurm, kubernetes)


def _section(
    given: dict[str, Any], name: str, kind: type[_Section], place: type[msgspec.Struct], document: Document
) -> _Section:
    """Return a section whose host classes also have what it says for all of them."""
    _check_values(given, (name,), document)
    shared = {key: value for key, value in given.items() if key in place.__struct_fields__}
    for host_class, entry in given.get("host_classes", {}).items():
        path = (name, "host_classes", host_class)
        if host_class != NO_GPU and not _HOST_CLASS.fullmatch(host_class):
            message = f'{quote(host_class)} is not a host class (such as "r580-h100", or "{NO_GPU}")'
            document.report(path, message, at_key=True)
        _check_values(entry, path, document)
        given["host_classes"][host_class] = {**shared, **entry}
    return msgspec.convert(given, kind, strict=False)


#: What a value may look like, by its key. All of them end in a command line, a batch script or a manifest.
_PATTERNS = {
    **dict.fromkeys(("python", "partition", "account", "reservation", "qos"), _WORD),
    "constraint": _CONSTRAINT,
    "gres": _GRES,
    "context": _CONTEXT,
    "namespace": _DNS_LABEL,
    "pull_secret": _DNS_NAME,
    "queue": _DNS_NAME,
    "resource": _LABEL_KEY,
}
_SAMPLES = {
    "constraint": "features with operators, such as r580&h100, without spaces",
    "gres": "a generic resource, such as gpu:h100:1",
    "namespace": "a namespace: lower-case letters, digits and dashes",
    "resource": "a resource of a node, such as nvidia.com/gpu",
}


def _check_values(given: Mapping[str, Any], path: Place, document: Document) -> None:
    """Report every value of a section or of a host class that can't be right."""
    for name, value in given.items():
        if name in _PATTERNS and not _PATTERNS[name].fullmatch(value):
            expected = _SAMPLES.get(name, "a name without spaces")
            document.report((*path, name), f"{quote(value)} is not {expected}")
    for index, taint in enumerate(given.get("tolerations", [])):
        place = (*path, "tolerations", index)
        _check_label(taint["key"], taint.get("value", ""), place, document)
        if "effect" in taint and taint["effect"] not in EFFECTS:
            message = f"{quote(taint['effect'])} is not an effect of a taint: {join_words(EFFECTS)}"
            document.report((*place, "effect"), message)
    for key, values in given.get("node_selector", {}).items():
        for index, value in enumerate(values):
            _check_label(key, value, (*path, "node_selector", key, index), document)


def _check_label(key: str, value: str, path: Place, document: Document) -> None:
    for what, text, pattern in (("key", key, _LABEL_KEY), ("value", value, _LABEL_VALUE)):
        if not pattern.fullmatch(text):
            document.report(path, f"{quote(text)} is not the {what} of a label or a taint in Kubernetes")


# Propose a `fleet.yaml` from the nodes that a scheduler has.
#
# An engine that can do this has a function `survey(settings: FleetSettings) -> Survey` in its module, which
# may raise FleetDown and MissingError.

#: A feature or a label that says a driver: `r580`, `580.65.06`, `driver580`, `nvidia-driver_580`.
_DRIVER = re.compile(
    r"(?:(?:r|driver[-_]?|nvidia[-_]?(?:driver[-_]?)?)(?=\d)|(?=\d{3}\.))(\d{3}(?:\.\d{1,3}){0,2})",
    re.IGNORECASE,
)
#: The branches that there may be, so that `r210`, a rack, is not taken for a driver.
_OLDEST, _NEWEST = 390, 999


@dataclass(frozen=True)
class NodeKind:
    """Nodes that look the same to their scheduler. sample: the name of one.

    driver: its release or branch. gpu: its model as in host classes. Each is "" if the scheduler does not
    know it or there is no GPU. has_gpu: True if it has any. place: the keys of a host class by which jobs
    get such a node. said: what else a comment has to say about it.
    """

    nodes: int
    sample: str
    driver: str
    gpu: str
    has_gpu: bool
    place: Mapping[str, object] = field(default_factory=dict)
    said: str = ""

    @property
    def host_class(self) -> str | None:
        """The host class, or None if the driver or the model is not known."""
        if not self.has_gpu:
            return NO_GPU
        if not self.driver or not self.gpu:
            return None
        return f"r{self.driver.partition('.')[0]}-{self.gpu}"


@dataclass(frozen=True)
class Survey:
    """The kinds of nodes that a scheduler has.

    section: of the file. keys: of the section besides `host_classes`, each with its value and a comment.
    """

    section: str
    keys: Mapping[str, tuple[str, str]]
    kinds: Sequence[NodeKind]


def propose(survey: Survey) -> str:
    """Return a fleet file for the nodes that there are. Those that are not known are in it as comments."""
    section = survey.section
    groups: dict[str | None, list[NodeKind]] = {}
    for kind in survey.kinds:
        groups.setdefault(kind.host_class, []).append(kind)
    unknown = groups.pop(None, [])
    total = sum(kind.nodes for kind in survey.kinds)
    lines = [
        f"# yaml-language-server: $schema={source('validator/fleet/schema.json')}",
        f"# Proposed by `fleet inventory --on {section} --write` from {_counted(total)}. Check it, above all",
        f"# the lines with CHECK. All keys: {manual('reference/fleet.md')}",
        f"{section}:",
    ]
    for name, (value, comment) in survey.keys.items():
        lines += [f"  # {comment}", f"  {name}: {json.dumps(value)}"]
    if groups:
        lines.append("  host_classes:")
    for host_class, group in sorted(groups.items(), key=lambda entry: str(entry[0])):
        # One way to get a node: the one that most of them share.
        first, *others = sorted(group, key=lambda kind: -kind.nodes)
        lines += [f"    # {text}" for text in (_described(first), first.said) if text]
        if host_class == NO_GPU and len(groups) > 1:
            lines.append("    # CHECK: make sure that these keys don't choose nodes with a GPU.")
        for other in others:
            lines.append(f"    # CHECK: {_described(other)} need other keys: {_flow(other.place)}")
        lines.append(f"    {host_class}: {_flow(first.place)}")
    if NO_GPU not in groups:
        what = "are missing" if section == "slurm" else "run on any node"
        lines.append(f"  # CHECK: every node has a GPU, so `{NO_GPU}` is not here: its cells {what}.")
        lines.append("  # Add it to `host_classes` with the keys of nodes that they may use.")
    for kind in unknown:
        why = kind.said or "its driver or its model is not known"
        lines.append(f"  # CHECK: {_described(kind)}: {why}. Add it as:")
        lines.append(f"  #   rDRIVER-{kind.gpu or 'MODEL'}: {_flow(kind.place)}")
    text = "\n".join(lines) + "\n"
    if groups or section != "slurm":
        # A proposal that can't be read would be a bug of this module.
        settings_of(parse_document(text.encode(), NAME))
    return text


def driver_of(words: Iterable[str]) -> str:
    """Return the driver that one of some features names (`r580`), or "" if none or several do."""
    found = {match[1] for word in words if (match := _DRIVER.fullmatch(word))}
    found = {text for text in found if _OLDEST <= DriverRelease.parse(text).branch <= _NEWEST}
    return found.pop() if len(found) == 1 else ""


def model_in(words: Iterable[str]) -> str:
    """Return the GPU model that one of some words names (`h100`), or "" if none or several do."""
    found = {model_of(text) for word in words for text in [word.replace("_", " ")] if is_known(text)}
    return found.pop() if len(found) == 1 else ""


def _described(kind: NodeKind) -> str:
    return f"{_counted(kind.nodes)}, such as {kind.sample}" if kind.nodes > 1 else kind.sample


def _counted(nodes: int) -> str:
    return f"{nodes} node{'' if nodes == 1 else 's'}"


def _flow(place: Mapping[str, object]) -> str:
    """Return the keys as YAML in one line, whose quoted texts are those of JSON."""
    parts = []
    for name, value in place.items():
        if isinstance(value, Mapping):
            inner = ", ".join(f"{key}: {json.dumps(text)}" for key, text in value.items())
            parts.append(f"{name}: {{{inner}}}")
        else:
            parts.append(f"{name}: {json.dumps(value)}")
    return f"{{{', '.join(parts)}}}"


if __name__ == "__main__":
    SCHEMA.write_text(schema_text(), encoding="utf-8")
