"""The shape of `fleet.yaml`: its types with their defaults, and its JSON Schema for editors.

`python -m validator.fleet.settings_schema` writes the schema.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ..matrix.schema import Axis, Text, editor_schema

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
#: The most minutes that a limit can have: 30 days.
MAX_MINUTES = 30 * 24 * 60
#: The checked-in copy of the schema.
PATH = Path(__file__).with_name("schema.json")


class _Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The size, the time and the number of jobs. cpus, memory: 0 for what the site gives by default."""

    cpus: Annotated[
        int, Meta(ge=1, le=1024, description="Processors of a job. Without it, the site decides.")
    ] = 0
    memory: Annotated[
        int, Meta(ge=1, le=65536, description="GiB of memory of a job. Without it, the site decides.")
    ] = 0
    time_limit: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_MINUTES,
            description="Minutes that one cell may take on its node, including the pull.",
        ),
    ] = 30
    wait_limit: Annotated[
        int,
        Meta(ge=1, le=MAX_MINUTES, description="Minutes that a job may wait for a node."),
    ] = 1440
    in_flight: Annotated[
        int,
        Meta(ge=1, le=10_000, description="The most jobs of the host class that are submitted at a time."),
    ] = 20
    workers: Annotated[
        int,
        Meta(
            ge=1,
            le=2,
            description="With 2 and `--depth full`, a cell is measured on two nodes at once, which also train"
            " together.",
        ),
    ] = 1

    def tasks(self, depth: str) -> int:
        """Return on how many nodes units run at once, at this depth of the probe."""
        return self.workers if depth == "full" else 1


class _Slurm(_Limits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    partition: Annotated[
        Text, Meta(description="The partition, as for `sbatch`. Without it, the site decides.")
    ] = ""
    account: Annotated[Text, Meta(description="The account that jobs are charged to, as for `sbatch`.")] = ""
    reservation: Annotated[Text, Meta(description="The reservation that jobs use, as for `sbatch`.")] = ""
    qos: Annotated[Text, Meta(description="The quality of service, as for `sbatch`.")] = ""


class SlurmPlace(_Slurm, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a job gets a node of one host class from Slurm. Absent keys are taken from the section."""

    constraint: Annotated[
        Text,
        Meta(
            description="Features of its nodes, as for `sbatch --constraint`: `r580&h100`. Features are names"
            " that the site chose."
        ),
    ] = ""
    gres: Annotated[Text, Meta(description="The GPUs of a job, as for `sbatch --gres`: `gpu:h100:1`.")] = ""


class SlurmSection(_Slurm, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Slurm cluster."""

    directory: Annotated[
        Text,
        Meta(
            description="A directory that this machine and all nodes see under the same path. Jobs, their"
            " results and converted images are there."
        ),
    ]
    container: Annotated[
        Text,
        Meta(
            description="How nodes run images: `apptainer`, `enroot` (with Pyxis), `podman`, `docker`;"
            " `auto`: the first of these that the node has; `venv`: in a virtual environment; `auto-or-venv`:"
            " `auto`, or else `venv`. With the last two, nothing that the cluster measures is"
            " signed or certified."
        ),
    ] = CONTAINERS[0]
    python: Annotated[
        Text,
        Meta(
            description="The Python of the nodes, 3.9 or newer. It reads the driver before the container"
            " starts."
        ),
    ] = "python3"
    setup: Annotated[
        Text, Meta(description="Shell commands that each job runs first, such as `module load apptainer`.")
    ] = ""
    host_classes: Annotated[
        dict[str, SlurmPlace],
        Meta(
            min_length=1,
            description="How to get a node of each host class. Host classes that are not here are reported as"
            " missing.",
        ),
    ]

    def place(self, host_class: str) -> SlurmPlace | None:
        """Return how a job gets a node of a host class, or None if no node here belongs to it."""
        return self.host_classes.get(host_class)


class Toleration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A taint of nodes that pods tolerate."""

    key: Annotated[Text, Meta(description="The key of the taint.")]
    value: Annotated[
        Text, Meta(description="The value of the taint. Without it, any value is tolerated.")
    ] = ""
    effect: Annotated[
        Text,
        Meta(
            description=f"{', '.join(f'`{effect}`' for effect in EFFECTS)}. Without it, any effect is"
            " tolerated."
        ),
    ] = ""


class _Kubernetes(_Limits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    queue: Annotated[
        Text, Meta(description="The local queue of Kueue (https://kueue.sigs.k8s.io) that jobs go to.")
    ] = ""
    tolerations: Annotated[
        list[Toleration],
        Meta(
            max_length=100,
            description=f"Taints to tolerate in addition to `{GPU_RESOURCE}`, which is always tolerated.",
        ),
    ] = []
    resource: Annotated[
        Text,
        Meta(
            description="The resource that stands for a GPU; with MIG, for example `nvidia.com/mig-1g.10gb`."
        ),
    ] = GPU_RESOURCE


class KubernetesPlace(_Kubernetes, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a pod gets a node of one host class. Absent keys are taken from the section."""

    node_selector: Annotated[
        dict[str, Axis],
        Meta(
            min_length=1,
            description="The labels of its nodes, each with a value or a list of values; put numbers in"
            " quotes. Without it, the labels of GPU Feature Discovery: model and driver.",
        ),
    ] = {}


class KubernetesSection(_Kubernetes, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Kubernetes cluster."""

    context: Annotated[
        Text, Meta(description="The context of the kubeconfig. Without it, its current one.")
    ] = ""
    namespace: Annotated[
        Text,
        Meta(
            description="The namespace of all jobs, in which the objects of `fleet manifests` exist. Without"
            " it, that of the context."
        ),
    ] = ""
    pull_secret: Annotated[
        Text,
        Meta(
            description="The secret in this namespace with which nodes pull images. Pods use no other secret."
        ),
    ] = ""
    host_classes: Annotated[
        dict[str, KubernetesPlace],
        Meta(min_length=1, description="The host classes that differ from the others."),
    ] = {}

    def place(self, host_class: str) -> KubernetesPlace:
        """Return how a pod gets a node of a host class: as the section says if the file does not name it."""
        if host_class in self.host_classes:
            return self.host_classes[host_class]
        given = msgspec.structs.asdict(self)
        fields = KubernetesPlace.__struct_fields__
        return KubernetesPlace(**{name: value for name, value in given.items() if name in fields})


class FleetFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The names that a site has for the things that jobs need."""

    slurm: Annotated[SlurmSection, Meta(description="For `--on slurm`.")] | UnsetType = UNSET
    kubernetes: Annotated[KubernetesSection, Meta(description="For `--on kubernetes`.")] | UnsetType = UNSET


def schema_text() -> str:
    """Return the JSON Schema of a fleet file, as the checked-in copy has it."""
    return editor_schema(
        FleetFile, "Fleet of TensorFlow GPU matrix", "validator/fleet/schema.json", "reference/fleet.md"
    )


if __name__ == "__main__":
    PATH.write_text(schema_text(), encoding="utf-8")
