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
#: `venv`: in an environment made from the lock. `auto-or-venv`: so where the node has no container engine.
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
        int, Meta(ge=1, le=1024, description="Processors of a job. By default, the site decides.")
    ] = 0
    memory: Annotated[
        int, Meta(ge=1, le=65536, description="GiB of memory of a job. By default, the site decides.")
    ] = 0
    time_limit: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_MINUTES,
            description="Minutes that one cell may take on its node, including the pull. Default: 30.",
        ),
    ] = 30
    wait_limit: Annotated[
        int,
        Meta(
            ge=1, le=MAX_MINUTES, description="Minutes that a job may wait for a node. Default: 1440, a day."
        ),
    ] = 1440
    in_flight: Annotated[
        int, Meta(ge=1, le=10_000, description="The most jobs of one host class at a time. Default: 20.")
    ] = 20
    workers: Annotated[
        int,
        Meta(ge=1, le=2, description="Nodes that measure a cell at once with --depth full. Default: 1."),
    ] = 1

    def tasks(self, depth: str) -> int:
        """Return on how many nodes units run at once, at this depth of the probe."""
        return self.workers if depth == "full" else 1


class _Slurm(_Limits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    partition: Annotated[Text, Meta(description="The partition. By default, the site decides.")] = ""
    account: Annotated[Text, Meta(description="The account that jobs are charged to.")] = ""
    reservation: Annotated[Text, Meta(description="The reservation that jobs use.")] = ""
    qos: Annotated[Text, Meta(description="The quality of service.")] = ""


class SlurmPlace(_Slurm, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a job gets a node of one host class from Slurm. Absent keys are taken from the section."""

    constraint: Annotated[
        Text, Meta(description='Features of its nodes, as for `sbatch --constraint`: "r580&h100".')
    ] = ""
    gres: Annotated[Text, Meta(description='Its GPUs, as for `sbatch --gres`: "gpu:h100:1".')] = ""


class SlurmSection(_Slurm, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Slurm cluster."""

    directory: Annotated[
        Text, Meta(description="A directory that this machine and all nodes see under the same path.")
    ]
    container: Annotated[
        Text, Meta(description=f"How nodes run images: {', '.join(CONTAINERS)}. Default: auto.")
    ] = CONTAINERS[0]
    python: Annotated[Text, Meta(description="The Python of the nodes, 3.9 or newer. Default: python3.")] = (
        "python3"
    )
    setup: Annotated[
        Text, Meta(description='Shell commands that a job runs first, such as "module load apptainer".')
    ] = ""
    host_classes: Annotated[
        dict[str, SlurmPlace], Meta(min_length=1, description="How to get a node of each host class.")
    ]


class Toleration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A taint of nodes that pods tolerate."""

    key: Annotated[Text, Meta(description="The key of the taint.")]
    value: Annotated[
        Text, Meta(description="The value of the taint. Without it, any value is tolerated.")
    ] = ""
    effect: Annotated[
        Text, Meta(description=f"{', '.join(EFFECTS)}. Without it, any effect is tolerated.")
    ] = ""


class _Kubernetes(_Limits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    queue: Annotated[Text, Meta(description="The local queue of Kueue that jobs go to.")] = ""
    tolerations: Annotated[
        list[Toleration],
        Meta(max_length=100, description=f"Taints to tolerate in addition to {GPU_RESOURCE}."),
    ] = []
    resource: Annotated[
        Text, Meta(description=f"The resource that is a GPU: {GPU_RESOURCE} (the default), or a MIG device.")
    ] = GPU_RESOURCE


class KubernetesPlace(_Kubernetes, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a pod gets a node of one host class. Absent keys are taken from the section."""

    node_selector: Annotated[
        dict[str, Axis],
        Meta(
            min_length=1,
            description="The labels of its nodes, each with a value or a list of them. By default, the labels"
            " of GPU Feature Discovery.",
        ),
    ] = {}


class KubernetesSection(_Kubernetes, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Kubernetes cluster."""

    context: Annotated[
        Text, Meta(description="The context of the kubeconfig. Default: its current context.")
    ] = ""
    namespace: Annotated[
        Text, Meta(description="The namespace of all jobs. Default: that of the context.")
    ] = ""
    pull_secret: Annotated[
        Text, Meta(description="The secret in this namespace with which nodes pull images.")
    ] = ""
    host_classes: Annotated[
        dict[str, KubernetesPlace],
        Meta(min_length=1, description="The host classes that differ from the others."),
    ] = {}


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
