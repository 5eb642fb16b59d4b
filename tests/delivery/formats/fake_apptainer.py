"""A program in the place of `apptainer run`: parses the options by its documentation, and prints the call.

Its manual says the options (https://apptainer.org/docs/user/latest/cli/apptainer_run.html). An option that it
does not have is an error, as it is for the real one.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

_PROGRAM = """\
#!{python}
import argparse, json, os, sys
parser = argparse.ArgumentParser(allow_abbrev=False)
commands = parser.add_subparsers(required=True)
run = commands.add_parser("run", allow_abbrev=False)
for name in ("nv", "no-eval", "cleanenv", "no-https", "contain", "containall", "no-home", "writable-tmpfs"):
    run.add_argument("--" + name, action="store_const", const=True)
for name in ("mount", "bind", "pwd", "env", "home"):
    run.add_argument("--" + name)
# Options end at the image.
at = next(n for n, word in enumerate(sys.argv) if word.startswith(("docker://", "oci:")))
found = {{key: value for key, value in vars(parser.parse_args(sys.argv[1:at])).items() if value is not None}}
print(json.dumps({{
    "flags": [key.replace("_", "-") for key, value in found.items() if value is True],
    "options": {{key: value for key, value in found.items() if value is not True}},
    "image": sys.argv[at],
    "command": sys.argv[at + 1:],
    "environment": {{
        key.removeprefix("APPTAINERENV_"): value
        for key, value in os.environ.items() if key.startswith("APPTAINERENV_")
    }},
}}))
"""


@dataclass(frozen=True)
class Called:
    """A call of the program. environment: the variables of the container."""

    flags: set[str]
    options: dict[str, str]
    image: str
    command: list[str]
    environment: dict[str, str]


def install(directory: Path) -> Path:
    """Write the program, and return the directory that belongs on PATH."""
    programs = directory / "programs"
    programs.mkdir()
    program = programs / "apptainer"
    program.write_text(_PROGRAM.format(python=sys.executable), encoding="utf-8")
    program.chmod(0o755)
    return programs


def read_call(text: str) -> Called:
    """Parse what the program printed."""
    found = json.loads(text)
    return Called(
        set(found["flags"]), found["options"], found["image"], found["command"], found["environment"]
    )
