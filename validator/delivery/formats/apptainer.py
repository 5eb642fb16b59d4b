"""Write a shell script for Apptainer (https://apptainer.org/docs/user/latest/)."""

from __future__ import annotations

import shlex

from ..start import CACHE_WHY, WORKSPACE, Place, Start, cache_variables
from .engines import bind
from .text import assignment, comments, header, sentence

_SHEBANG = "#!/bin/sh"
#: A variable with this prefix is set in the container without it, also with --cleanenv.
_PREFIX = "APPTAINERENV_"


def write(start: Start) -> str:
    """Return the script."""
    lines = [_SHEBANG, *comments(header(start.image)), "set -eu", *body(start)]
    return "".join(f"{line}\n" for line in lines)


def body(start: Start) -> list[str]:
    """Return the lines of a shell script that replace the shell by the container."""
    words, told = ["apptainer", "run"], []
    if start.host is not None:
        words.append("--nv")
        told.append("--nv: all GPUs that this process may use, with the host's driver.")
    # Otherwise a shell evaluates variables and arguments: it runs what is between backticks.
    words.append("--no-eval")
    told.append("--no-eval: variables and arguments are taken as they are written (Apptainer 1.1 and newer).")
    words.append("--cleanenv")
    told.append("--cleanenv: no variables of the host, such as PYTHONPATH, change what is in the image.")
    if start.directory is not None:
        words += ["--mount", bind(start.directory, "destination"), "--pwd", WORKSPACE]
        told.append(
            f"--mount, --pwd: this directory is {WORKSPACE} in the container, and the command starts there."
        )
    if start.image.place is Place.LAYOUT:
        told.append("oci: Apptainer converts the image in this directory, and caches the result.")
    if start.image.plain_http:
        words.append("--no-https")
        told.append("--no-https: the registry answers without TLS.")
    told.append("Nothing is needed for your user or for shared memory: the container has those of the host.")
    if start.port is not None:
        told.append(
            f"The container has the host's network: JupyterLab answers on port {start.port} of this machine,"
            " to whoever has its token."
        )
    variables = {**(cache_variables(WORKSPACE) if start.directory is not None else {}), **start.environment}
    exports = [f"export {assignment(_PREFIX + name, value)}" for name, value in variables.items()]
    notes = comments([sentence(CACHE_WHY)]) if start.directory is not None else []
    line = shlex.join([*words, start.image.in_transport, *start.command])
    return [*notes, *exports, *comments(told), f"exec {line}"]
