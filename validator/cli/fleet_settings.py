"""Open the fleet that a command names, with the settings next to the matrix."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import InputError
from ..system.files import write_atomically
from .options import print_status, working_directory

if TYPE_CHECKING:
    from ..fleet.protocol import Fleet

#: The default of `--on`: this machine, which is not a fleet.
LOCAL = "local"

fleet_file_option = click.option(
    "--fleet",
    "fleet_path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The names of this site's nodes, partitions and queues.  [default: fleet.yaml next to the matrix]",
)


def fleet_path_for(matrix_path: Path, given: Path | None) -> Path:
    """Return the fleet file that was given, or the one next to the matrix."""
    from ..fleet.settings import NAME

    return given or working_directory(matrix_path) / NAME


def open_named_fleet(name: str, path: Path) -> Fleet:
    """Return a fleet. path: of its settings, which need not exist for a fleet that needs none.

    Raises InputError for an unknown name or wrong settings, MissingError if the fleet can't be used here.
    """
    from ..fleet.protocol import opener_of
    from ..fleet.settings import FleetSettings, read_settings

    opener = opener_of(name)
    try:
        return opener(read_settings(path) if path.exists() else FleetSettings())
    except ModuleNotFoundError as error:
        raise InputError(
            f"--on {name} needs the Python package {error.name}",
            hint=f'install this tool with its extra: pip install "tensorflow-gpu-matrix[{name}]"',
        ) from error


def write_proposal(name: str, path: Path) -> None:
    """Write the fleet file that a fleet's nodes suggest. Raises InputError if the file is there."""
    from ..fleet.protocol import surveyor_of
    from ..fleet.settings import FleetSettings, propose

    if path.exists():
        raise InputError(
            f"{path} already exists", hint="write to another file with --fleet, then copy what you need"
        )
    text = propose(surveyor_of(name)(FleetSettings()))
    write_atomically(path, text.encode())
    print_status(f"Wrote {path}. Check it, especially the lines marked CHECK.")
