"""The tools that can start an image, and the files for those that take one.

Docker Compose: https://github.com/compose-spec/compose-spec. `start` writes for tools that take a command.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..assemble.configuration import START, USER, USER_NAME, XLA_CACHE
from ..errors import InputError
from .start import (
    CACHE_WHY,
    PINNED_MEMORY_WHY,
    SHARED_MEMORY_GIB,
    SHARED_MEMORY_WHY,
    WORKSPACE,
    Devices,
    Image,
    Noted,
    Place,
    Start,
    cache_variables,
    comments,
    docker_command,
    header,
    podman_command,
    sentence,
    to_jsonc,
    to_yaml,
    write_apptainer,
    write_docker,
    write_podman,
    write_slurm,
)

_SERVICE = "tensorflow"
_GPUS: dict[Devices, Noted] = {
    Devices.GPUS: Noted(
        {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]},
        "All GPUs, through the engine's nvidia runtime.",
    ),
    Devices.CDI: Noted(
        {"driver": "cdi", "device_ids": ["nvidia.com/gpu=all"], "capabilities": ["gpu"]},
        "All GPUs, as CDI devices of the engine.",
    ),
}


def write_compose(start: Start) -> str:
    """Return the file."""
    ports = " --service-ports" if start.port is not None else ""
    how = f"Start it with: docker compose run --rm{ports} {_SERVICE}"
    document: dict[str, Any] = {"services": {_SERVICE: _service(start)}}
    if start.xla_volume:
        document["volumes"] = {"xla": {"name": start.xla_volume}}
    return "".join(f"{line}\n" for line in comments(header(start.image, how))) + to_yaml(document)


def _service(start: Start) -> dict[str, Any]:
    found: dict[str, Any] = {"image": _text(start.image.reference)}
    if start.image.place is Place.ENGINE:
        found["pull_policy"] = Noted("never", "The image is only in this engine.")
    if start.command:
        found["command"] = [_text(word) for word in start.command]
    else:
        found |= {"stdin_open": Noted(True, "The image's own command reads from your terminal."), "tty": True}
    if start.host is not None:
        found["shm_size"] = Noted(f"{SHARED_MEMORY_GIB}gb", sentence(SHARED_MEMORY_WHY))
        if start.gpu_count > 1 and not start.user.rootless:
            found["ulimits"] = Noted({"memlock": -1}, sentence(PINNED_MEMORY_WHY))
    if start.port is not None:
        found["ports"] = Noted(
            [f"127.0.0.1:{start.port}:{start.port}"], "Its page can be opened on this machine only."
        )
    if start.directory is not None:
        found |= {
            "volumes": [{"type": "bind", "source": _text(str(start.directory)), "target": WORKSPACE}],
            "working_dir": WORKSPACE,
            "user": Noted(start.user.in_docker, "Files that it writes there belong to you."),
        }
    if start.xla_volume:
        volume = {"type": "volume", "source": "xla", "target": XLA_CACHE}
        found["volumes"] = [*found.get("volumes", []), Noted(volume, sentence(start.xla_why))]
    if variables := start.variables("/tmp" if start.directory is not None else None):
        whys = _whys(start)
        found["environment"] = {
            name: Noted(_text(value), whys[name]) if name in whys else _text(value)
            for name, value in variables.items()
        }
    if start.devices is not None:
        found["deploy"] = {"resources": {"reservations": {"devices": [_GPUS[start.devices]]}}}
    return found


def _whys(start: Start) -> dict[str, str]:
    """Return why variables are set that nobody asked for."""
    home = "In the image, your user may have no home directory."
    whys = {"HOME": home, "CUDA_CACHE_PATH": sentence(CACHE_WHY)}
    return {name: why for name, why in whys.items() if name not in start.environment}


def _text(value: str) -> str:
    """Return a text in which Compose ("Interpolation") and Kubernetes (args, env) replace no variable."""
    return value.replace("$", "$$")


# Write a devcontainer.json, which VS Code and others open
# (https://containers.dev/implementors/json_reference).

#: Where such a file is found.
USUAL = ".devcontainer/devcontainer.json"
_PYTHON = "/opt/venv/bin/python"
#: Editors replace these variables in values, and no escape is documented (Variables in devcontainer.json).
_REPLACED = re.compile(
    r"\$\{(?:env|localEnv|containerEnv|(?:local|container)WorkspaceFolder(?:Basename)?|devcontainerId)[:}]"
)


def write_devcontainer(start: Start) -> str:
    """Return the file. Raises InputError for a command, an image without a tag, or an unfit value."""
    if start.command:
        raise InputError(
            "a dev container is for an editor, which starts its own command",
            hint="leave out the command, and run it in the editor's terminal",
        )
    for name, value in start.environment.items():
        if _REPLACED.search(value):
            raise InputError(
                f"the value of {name} contains what a dev container would replace: {value!r}",
                hint="set the variable in the editor's terminal",
            )
    how = f"VS Code and others find it as {USUAL}: `Dev Containers: Reopen in Container`."
    return to_jsonc(_document(start), header(start.image, how))


def _document(start: Start) -> dict[str, Any]:
    found: dict[str, Any] = {"name": start.image.name, "image": _image(start.image)}
    if start.image.checks_host:
        why = "The image knows this user by number. The next line needs the name."
        found |= {"remoteUser": Noted(USER_NAME, why), "containerUser": USER_NAME}
    found["updateRemoteUserUID"] = Noted(
        True, "On Linux, this user gets your number, so that files that it writes belong to you."
    )
    if start.host is not None:
        found |= _gpus(start)
    caches = cache_variables("${containerWorkspaceFolder}")
    variables: dict[str, Any] = {**caches, **start.environment}
    first = next(iter(caches))
    if first not in start.environment:
        variables[first] = Noted(variables[first], sentence(CACHE_WHY))
    found["containerEnv"] = variables
    if start.image.checks_host:
        found["postStartCommand"] = Noted(
            [START, "true"],
            "A dev container does not start the image's entry point, which checks the driver and GPUs and"
            " gives XLA a place to keep what it compiles. So here, XLA compiles anew at each start.",
        )
    if start.port is not None:
        found["forwardPorts"] = Noted([start.port], "JupyterLab, if you start it: `jupyter lab`.")
    settings = {"python.defaultInterpreterPath": _PYTHON}
    found["customizations"] = {"vscode": {"extensions": ["ms-python.python"], "settings": settings}}
    return found


def _image(image: Image) -> Any:
    if image.place is not Place.ENGINE:
        return image.reference
    if not image.tag:
        raise InputError(
            f"{image.name} has no tag in the local Docker Engine, and a dev container needs one",
            hint=f"give it one with `docker tag {image.name} NAME:TAG`, and pass that to --image",
        )
    return Noted(
        image.tag,
        "The tag: editors derive an image with your user ID, and BuildKit finds no image by its ID.",
    )


def _gpus(start: Start) -> dict[str, Any]:
    arguments: list[Any] = []
    if start.devices is Devices.CDI:
        needed = Noted("optional", "The tool knows only the nvidia runtime, so the flag is in runArgs.")
        arguments += [Noted("--device", "All GPUs, as CDI devices of the engine."), "nvidia.com/gpu=all"]
    else:
        needed = Noted(True, "The tool adds `--gpus all` if the engine has the nvidia runtime.")
    arguments += [Noted("--shm-size", sentence(SHARED_MEMORY_WHY)), f"{SHARED_MEMORY_GIB}g"]
    if start.gpu_count > 1 and not start.user.rootless:
        arguments += [Noted("--ulimit", sentence(PINNED_MEMORY_WHY)), "memlock=-1"]
    return {"hostRequirements": {"gpu": needed}, "runArgs": arguments}


# Write the objects for Kubernetes: a Job for a command, or a Pod for a terminal or JupyterLab.

#: A GPU as Kubernetes counts it, and the taint that the GPU operator sets.
GPU_RESOURCE = "nvidia.com/gpu"
#: Labels of GPU Feature Discovery: the driver's branch, and the two numbers of the compute capability.
DRIVER_LABEL = "nvidia.com/cuda.driver-version.major"
CAPABILITY_LABELS = ("nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor")
_NAME = "tensorflow"
_CLAIM = f"{_NAME}-workspace"
_SIZE = "20Gi"


def write_kubernetes(start: Start) -> str:
    """Return the objects."""
    kind = "job" if start.command else "pod"
    how = [f"Start it with: kubectl apply -f FILE. To start it again: kubectl delete {kind} {_NAME}."]
    if start.command:
        how.append(f"Its output: kubectl logs --follow job/{_NAME}")
    elif start.port is not None:
        how.append(
            f"JupyterLab: kubectl port-forward pod/{_NAME} {start.port}; its token: kubectl logs {_NAME}"
        )
    else:
        how.append(f"Its terminal: kubectl attach -it {_NAME}")
    documents = []
    if start.directory is not None:
        size = {"requests": {"storage": _SIZE}}
        claim = {"accessModes": ["ReadWriteOnce"], "resources": size}
        documents.append(_object("v1", "PersistentVolumeClaim", _CLAIM, claim))
    pod = {"restartPolicy": "Never", **_spec(start)}
    if start.command:
        once = Noted(0, "A command that fails is not started again.")
        documents.append(_object("batch/v1", "Job", _NAME, {"backoffLimit": once, "template": {"spec": pod}}))
    else:
        documents.append(_object("v1", "Pod", _NAME, pod))
    top = "".join(f"{line}\n" for line in comments(header(start.image, *how)))
    return top + "---\n".join(map(to_yaml, documents))


def _object(version: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _spec(start: Start) -> dict[str, Any]:
    found: dict[str, Any] = {
        "automountServiceAccountToken": Noted(False, "The program gets no access to the cluster."),
        "securityContext": _security(start),
    }
    if start.host is not None:
        labels = {DRIVER_LABEL: str(start.host.driver.branch)}
        if len(start.host.capabilities) == 1:
            [capability] = start.host.capabilities
            numbers = (str(capability.major), str(capability.minor))
            labels |= dict(zip(CAPABILITY_LABELS, numbers, strict=True))
        found["nodeSelector"] = Noted(
            labels,
            "Nodes like this host, by the labels of GPU Feature Discovery. If the cluster does not run"
            " it, use the labels that the cluster has.",
        )
        found["tolerations"] = Noted(
            [{"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}],
            "Many clusters keep other pods away from nodes with GPUs.",
        )
    found["containers"] = [_container(start)]
    found["volumes"] = _volumes(start)
    return found


def _security(start: Start) -> Noted:
    """Return who the pod runs as. Root may not run it, so the image's own user does then."""
    own = {"runAsUser": start.user.uid, "runAsGroup": start.user.gid} if start.user.uid else {}
    group = Noted(
        start.user.gid if own else USER, f"{WORKSPACE} belongs to this group, which can write there."
    )
    profile = {"type": "RuntimeDefault"}
    return Noted(
        {"runAsNonRoot": True, **own, "fsGroup": group, "seccompProfile": profile},
        "Your own number, so that files in the volume belong to you."
        if own
        else "The image's own user, because a pod should not run as root.",
    )


def _container(start: Start) -> dict[str, Any]:
    # Without a claim, everything is gone with the pod.
    xla = start.xla_variables(f"{WORKSPACE}/.cache/xla") if start.directory is not None else {}
    variables = {"HOME": "/tmp", **cache_variables(WORKSPACE), **xla, **start.environment}
    whys = {**_whys(start), "VALIDATOR_XLA_CACHE": sentence(start.xla_why)}
    entries: list[Any] = []
    for name, value in variables.items():
        entry = {"name": name, "value": _text(value)}
        entries.append(Noted(entry, whys[name]) if name in whys else entry)
    found: dict[str, Any] = {"name": _NAME, "image": start.image.reference}
    if start.command:
        found["args"] = Noted(
            [_text(word) for word in start.command],
            "`command` would replace the image's entry point, which checks the driver and the GPUs.",
        )
    elif start.port is not None:
        found["ports"] = [{"containerPort": start.port}]
    else:
        found |= {"stdin": True, "tty": True}
    found |= {
        "workingDir": WORKSPACE,
        "env": entries,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if start.host is not None:
        found["resources"] = {"limits": {GPU_RESOURCE: str(start.gpu_count)}}
    mounts = [{"name": "workspace", "mountPath": WORKSPACE}]
    if start.host is not None:
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})
    found["volumeMounts"] = mounts
    return found


def _volumes(start: Start) -> list[Any]:
    workspace: Any = {"name": "workspace", "emptyDir": {}}
    note = "The files are gone with the pod. --mount writes a volume that stays."
    if start.directory is not None:
        workspace = {"name": "workspace", "persistentVolumeClaim": {"claimName": _CLAIM}}
        note = (
            "The nodes don't have your directory. Copy your files into this volume, for example with"
            " kubectl cp, or name a claim that has them."
        )
    volumes: list[Any] = [Noted(workspace, note)]
    if start.host is not None:
        memory = {"medium": "Memory", "sizeLimit": f"{SHARED_MEMORY_GIB}Gi"}
        volumes.append(Noted({"name": "shared-memory", "emptyDir": memory}, sentence(SHARED_MEMORY_WHY)))
    return volumes


@dataclass(frozen=True)
class Format:
    """A format. write: returns the whole file. usual: where such a file has to be, or an empty text.

    places: where the tool finds an image. uses_docker: whether the local Docker Engine starts the container.
    command: returns the words to run at once, or None if the tool takes a file.
    """

    write: Callable[[Start], str]
    places: frozenset[Place]
    usual: str = ""
    uses_docker: bool = False
    command: Callable[[Start], list[str]] | None = None


_DOCKER = frozenset({Place.REGISTRY, Place.ENGINE})
#: Podman and Apptainer don't read images from every Docker Engine: Podman 4.3 uses version 1.22 of its API,
#: which Docker 25 and newer refuse. Podman's local images are its own.
_OTHERS = frozenset({Place.REGISTRY, Place.LAYOUT})

FORMATS: dict[str, Format] = {
    "docker": Format(write_docker, _DOCKER, uses_docker=True, command=docker_command),
    "compose": Format(write_compose, _DOCKER, uses_docker=True),
    "devcontainer": Format(write_devcontainer, _DOCKER, usual=USUAL, uses_docker=True),
    "apptainer": Format(write_apptainer, _OTHERS),
    "slurm": Format(write_slurm, _OTHERS),
    "kubernetes": Format(write_kubernetes, frozenset({Place.REGISTRY})),
    "podman": Format(write_podman, _OTHERS | {Place.ENGINE}, command=podman_command),
}
