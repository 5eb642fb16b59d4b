"""Find out how the reader installed and starts TensorFlow. It decides which remedies fit."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .next_step import command
from .observations import Observations, on_windows

_INSTALLS = frozenset({"pip", "uv", "conda"})
#: Ways of starting on machines that several people share, where the reader has no root.
_SHARED = frozenset({"kubernetes", "slurm", "colab", "kaggle"})
#: For a way, another one whose remedies fit if a cause has none for the way itself.
_INSTEAD = {
    "uv": "pip",
    "conda": "pip",
    "podman": "docker",
    "compose": "docker",
    "kubernetes": "docker",
    "kaggle": "colab",
}
#: Container programs by the names under which they are observed.
_ENGINES = {
    "docker": "docker",
    "nvidia-docker": "docker",
    "nvidia-docker2": "docker",
    "nerdctl": "docker",
    "podman": "podman",
    "compose": "compose",
    "kubernetes": "kubernetes",
    "apptainer": "apptainer",
    "singularity": "apptainer",
}
#: Kinds whose observation alone shows a way.
_SHOWN_BY = {
    "slurm_request": "slurm",
    "apptainer": "apptainer",
    "conda": "conda",
    "conda_install": "conda",
    "wsl": "wsl",
    # Errors that only a container engine reports.
    "docker_no_gpu_driver": "docker",
    "docker_unknown_runtime": "docker",
    "docker_hook_failed": "docker",
    "cdi_unresolvable": "docker",
    "container_cli_error": "docker",
    "cgroup_lost_gpu": "docker",
}
_UV = re.compile(r"\buv (?:pip|add|sync|run|venv)\b")
#: A command of pip that uv has too.
_PIP_COMMAND = re.compile(
    r"(?P<python>[\w./\\-]*\bpython3?) -m pip"
    r" (?P<name>install|uninstall|list|show|freeze|check)\b(?P<rest>[^&|;#]*)"
)
#: Options of pip that have another name in uv, or none.
_UV_OPTIONS = {"-y": "", "--yes": "", "--force-reinstall": "--reinstall", "--no-cache-dir": "--no-cache"}
_PIP_OPTION = re.compile(rf" ({'|'.join(_UV_OPTIONS)})(?=\s|$)")


@dataclass(frozen=True)
class Reader:
    """The known facts about the person who reads the diagnosis.

    ways: how TensorFlow was installed and is started; empty if nothing is known. rebooted: the person says
    that the machine was rebooted. doctor: the command that runs the probe in their environment.
    """

    ways: frozenset[str]
    rebooted: bool = False
    doctor: str = "validator doctor"

    @classmethod
    def of(cls, observations: Observations, image: str = "") -> Reader:
        """Return what the observations tell about the reader. image: the one that was probed, if any."""
        return cls(_ways(observations), observations.has("rebooted"), command(observations, image))

    @property
    def has_root(self) -> bool:
        """False on machines that the reader shares with others and does not administer."""
        return not self.ways & _SHARED

    def precedence(self, way: str, available: frozenset[str]) -> int | None:
        """Return the place of a way's remedies: 0 for the reader's own, 1 for those that fit everyone.

        None: they are for others. available: the ways that the cause has remedies for.
        """
        if way in ("any", "host"):
            return 1
        # pip is the usual way of installing.
        for own in self.ways if self.ways & _INSTALLS else self.ways | {"pip"}:
            while own not in available and own in _INSTEAD:
                own = _INSTEAD[own]
            if own == way:
                return 0 if way in self.ways or way not in _INSTALLS else 1
        return None if self.ways else 2


def for_uv(command: str) -> str:
    """Return the uv command that does the same as a pip command."""
    return _PIP_COMMAND.sub(_as_uv, command)


def _as_uv(command: re.Match[str]) -> str:
    python = command["python"]
    # uv installs into the active environment if it is not told of another.
    into = "" if python in ("python", "python3") else f" --python {python}"
    return f"uv pip {command['name']}{into}" + _PIP_OPTION.sub(
        lambda option: f" {name}" if (name := _UV_OPTIONS[option[1]]) else "", command["rest"]
    )


def _ways(observations: Observations) -> frozenset[str]:
    ways = {way for kind, way in _SHOWN_BY.items() if observations.has(kind)}
    engines = {
        _ENGINES[name]
        for kind, value in (("container", "kind"), ("docker_run", "engine"))
        for observation in observations.of(kind)
        if (name := observation.values.get(value, "")) in _ENGINES
    }
    if engines:
        ways = (ways - {"docker"}) | engines
    elif any(observations.has(kind) for kind in ("container", "docker_run", "image")):
        ways.add("docker")
    hosts = {notebook.values.get("name", "") for notebook in observations.of("hosted_notebook")}
    ways |= hosts & _SHARED
    if on_windows(observations) is not None:
        # Where TensorFlow can use the GPU of a Windows machine.
        ways.add("wsl")
    for install in (*observations.of("pip_install"), *observations.of("pip_requested")):
        ways.add("uv" if _UV.search(install.text) else "pip")
    return frozenset(ways)
