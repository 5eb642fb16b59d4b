"""Fill the release to install into the commands of a remedy: one that is predicted to work for the reader.

The data of remedies names no release, but has the placeholders below. What else the release needs (another
Python, a library path, NumPy 1) is added here, so that every remedy says it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..model.situation import WINDOWS, WSL2, Host, Software
from . import policies
from .offers import (
    Installation,
    needs_another_python,
    newest_that_works,
    notes_about,
    same_or_newest,
    why_not,
)
from .older_releases import release_of_any_age

#: The directories of NVIDIA's wheels, in Python.
NVIDIA_DIRECTORIES = 'glob.glob(sysconfig.get_path("purelib") + "/nvidia/*/lib")'
#: The reader's own release with the libraries that it was built for, or the newest that works if it doesn't.
KEEP = "pin_to_keep"
#: The Python of a new environment, so that the reader's own does not limit the release.
PYTHON = "python_that_works"
PLACEHOLDERS = frozenset({"release_that_works", "pin_that_works", KEEP, PYTHON})

#: The Python of an environment that a command makes.
_NEW_PYTHON = re.compile(r"\bpy(?:thon)?[ =:]?-?(3\.\d+)")
#: Ways in which commands run in an image and not in the reader's shell.
_IN_IMAGES = frozenset({"docker", "podman", "compose", "kubernetes", "apptainer"})
#: The Python whose pip a command runs: `tf/bin/python`, `py -3.10`, `!python` in a notebook.
_INSTALLER = re.compile(r"(?P<python>(?:\S*python[\d.]*|py(?: -3[\d.]*)?)) -m pip install")
_CONFIGURE_LOADER = (
    f"""RUN {{}} -c 'import glob, sysconfig; print("\\n".join({NVIDIA_DIRECTORIES}))'"""
    " > /etc/ld.so.conf.d/nvidia-wheels.conf && ldconfig   # in the Dockerfile"
)


@dataclass(frozen=True)
class Filling:
    """Values for the placeholders of a remedy, and what the release needs besides.

    notes: sentences. before, after: commands before and after those of the remedy.
    """

    values: Mapping[str, str]
    notes: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def filling(
    way: str, names: Collection[str], commands: Sequence[str], host: Host, software: Software
) -> Filling | None:
    """Return what a remedy is filled with, or None if no release works for the reader.

    way: that of the remedy. names: its placeholders. commands: those of the remedy. host, software: what is
    known of the reader's machine and environment.
    """
    host, software = _target(way, names, commands, host, software)
    keeps = KEEP in names
    chosen = same_or_newest(host, software) if keeps else newest_that_works(host, software.python)
    if chosen is None:
        return None
    values = {
        "release_that_works": chosen.release.version,
        "pin_that_works": chosen.requirement,
        KEEP: chosen.requirement,
        PYTHON: chosen.python,
    }
    other = _of_another_release(host, software, chosen) if keeps else ()
    installs = any("pip install" in command for command in commands)
    # conda's own packages of CUDA.
    has_cuda = any("cudatoolkit=" in command for command in commands)
    if not installs:
        return Filling(values, (*other, *notes_about(chosen, has_cuda=has_cuda)))
    in_image = way in _IN_IMAGES
    notes: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    if needs_another_python(chosen, software.python):
        notes, before = _with_python(way, chosen, in_image, host.system == WINDOWS)
    named = any("/nvidia/*/lib" in command for command in commands)
    after = tuple(_after(chosen, _installer(commands), in_image, named))
    return Filling(values, (*other, *notes, *notes_about(chosen, has_cuda=has_cuda)), before, after)


def nothing_works(
    way: str, names: Collection[str], commands: Sequence[str], host: Host, software: Software
) -> str:
    """Return the sentence that says why no release works where a remedy installs it; empty if one does."""
    host, software = _target(way, names, commands, host, software)
    if newest_that_works(host, software.python) is not None:
        return ""
    return f"No release on PyPI is predicted to use the GPU here: {why_not(host, software.python)}."


def _target(
    way: str, names: Collection[str], commands: Sequence[str], host: Host, software: Software
) -> tuple[Host, Software]:
    """Return the machine and the software, with its Python, for which a remedy installs a release."""
    if host.system == WINDOWS and (way == "wsl" or way in _IN_IMAGES):
        # Linux runs there, with a Python of its own.
        host, software = replace(host, system=WSL2), replace(software, python=None)
    new = next(filter(None, map(_NEW_PYTHON.search, commands)), None)
    if PYTHON in names or new is not None:
        software = replace(software, python=new[1] if new else None)
    return host, software


def _of_another_release(host: Host, software: Software, chosen: Installation) -> tuple[str, ...]:
    """Return what to say if a release that should keep the reader's own may be another one."""
    version, own = chosen.release.version, software.tensorflow
    if own is None:
        if host.names_gpu and host.names_driver:
            says = f"Your release of TensorFlow is not known. {version} should work on this GPU and driver."
        else:
            says = (
                "Your release of TensorFlow, and your GPU or driver, are not known. No known fact rules out"
                f" {version}."
            )
        return (f"{says} To keep your release, write its version instead.",)
    if release_of_any_age(own) == chosen.release:
        return ()
    why = why_not(host, software.python, own)
    return (
        f"This replaces TensorFlow {own} with {version}, because {own}"
        f" {f'does not work here: {why}' if why else 'is not known to work here'}.",
    )


def export_library_path(python: str) -> str:
    """Return the command that tells the loader about the directories of NVIDIA's wheels.

    It must run before Python starts. python: the Python of the environment, as the shell finds it.
    """
    code = f'import glob, sysconfig; print(":".join({NVIDIA_DIRECTORIES}))'
    return f"export LD_LIBRARY_PATH=$({python} -c '{code}')"


def _installer(commands: Sequence[str]) -> str:
    """Return the Python into which the commands install a release, as they name it."""
    named = (match["python"] for command in commands for match in _INSTALLER.finditer(command))
    return next(named, "python")


def _with_python(
    way: str, chosen: Installation, in_image: bool, on_windows: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what to say and to run first if the reader's Python is another one."""
    python = chosen.python
    needs = f"TensorFlow {chosen.release.version} needs Python {python}"
    if in_image:
        return (f"{needs}: use a base image that has it.",), ()
    notes = (f"{needs}, so make an environment with it first.",)
    if way == "conda":
        return notes, (f"conda create -y -n tf-gpu python={python} pip && conda activate tf-gpu",)
    if on_windows:
        # PowerShell 5 has no &&.
        return notes, (f"uv venv --seed --python {python} tf-gpu", r"tf-gpu\Scripts\activate")
    return notes, (f"uv venv --seed --python {python} tf-gpu && . tf-gpu/bin/activate",)


def _after(chosen: Installation, python: str, in_image: bool, named: bool) -> Iterator[str]:
    """Yield the commands that complete the installation.

    python: the one into which the release is installed. named: the commands already tell the loader about
    NVIDIA's wheels.
    """
    run = "RUN " if in_image else ""
    for requirement in policies.constraints(chosen.release.version):
        yield f'{run}{python} -m pip install "{requirement}"'
    if chosen.library_path and not named:
        yield _CONFIGURE_LOADER.format(python) if in_image else export_library_path(python.lstrip("!"))
