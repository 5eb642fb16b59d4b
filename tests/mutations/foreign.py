"""Targets for the files of other people's projects and of clusters, which many rooms read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from validator.compat.facts import UnknownGpu
from validator.diagnosis import diagnose_file
from validator.errors import InputError
from validator.fleet.settings import read_settings
from validator.lint.findings import lint, on_hosts
from validator.matrix.requirements import read_pylock, read_requirements_txt
from validator.model.spec import HostClass
from validator.redaction.redact import Redaction

HOST = HostClass.without_gpu(())

#: Small valid files, by the name by which lint knows their kind.
PROJECTS = {path.stem: path.read_bytes() for path in sorted(Path(__file__).with_name("seeds").glob("*.txt"))}

_OUTPUT = {"output_type": "stream", "text": ["failed call to cuInit: UNKNOWN ERROR (303)\n"]}
_CELL = {"cell_type": "code", "source": ["import tensorflow\n"], "outputs": [_OUTPUT]}
NOTEBOOK = {"cells": [_CELL], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
FLEET = """slurm:
  directory: /shared/x
  container: podman
  host_classes:
    r580-h100: {constraint: "r580&h100", gres: "gpu:h100:1", time_limit: 60}
kubernetes: {namespace: gpu}
"""


def seeds_of(name: str) -> Callable[[], Sequence[bytes]]:
    """Return the function that gives the seeds of a project's file."""
    return lambda: [PROJECTS[name]]


def reader_of(name: str) -> Callable[[bytes, Path], None]:
    """Return the function that lints a project's file, as `lint` and `predict` do."""

    def read(data: bytes, place: Path) -> None:
        (place / "more.txt").write_text("keras==3.0\n")
        path = place / name
        path.write_bytes(data)
        found = None
        for ask in (lambda: lint([path]), lambda: on_hosts([path], [HOST])):
            try:
                found = ask()
            except (InputError, UnknownGpu) as error:
                refused: Exception | None = error
            else:
                refused = None
        if found is None and refused is not None:
            raise refused
        _as_of_a_matrix(path, place)

    return read


def _as_of_a_matrix(path: Path, place: Path) -> None:
    """Read a file as the requirements of an image."""
    with contextlib.suppress(ValueError):
        if path.suffix == ".txt":
            read_requirements_txt(path, place)
        elif path.name == "pylock.toml":
            read_pylock(path, place)


def read_fleet(data: bytes, place: Path) -> None:
    """Read a fleet file."""
    path = place / "fleet.yaml"
    path.write_bytes(data)
    read_settings(path)


def read_notebook(data: bytes, place: Path) -> None:
    """Diagnose a notebook, and take out what must not leave the machine."""
    path = place / "a.ipynb"
    path.write_bytes(data)
    with path.open("rb") as stream:
        diagnose_file(stream, str(path))
    text = data.decode("utf-8", "replace")
    Redaction([text])(text)
