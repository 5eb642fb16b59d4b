"""Write the commands of a remedy for the reader's shell, container engine and package manager.

The data has every command for bash on Linux, with Docker and pip. A command that the reader can't run becomes
one that does the same, or None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

#: A command of pip that uv has too.
_PIP_COMMAND = re.compile(
    r"(?P<python>[\w./\\-]*\bpython3?) -m pip"
    r" (?P<name>install|uninstall|list|show|freeze|check)\b(?P<rest>[^&|;#]*)"
)
#: Options of pip that have another name in uv, or none.
_UV_OPTIONS = {"-y": "", "--yes": "", "--force-reinstall": "--reinstall", "--no-cache-dir": "--no-cache"}
_PIP_OPTION = re.compile(rf" ({'|'.join(_UV_OPTIONS)})(?=\s|$)")


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


#: How TensorFlow 1 is told to let its memory grow, and how a release before 2.1 is asked for its GPUs.
_GROWTH = re.compile(r"in the program, right after the import: for gpu in .*set_memory_growth.*")
_GROWTH_1 = (
    "in the program: config = tf.ConfigProto(); config.gpu_options.allow_growth = True;"
    " tf.Session(config=config)"
)
_HIDE_GPUS = 'tf.config.set_visible_devices([], "GPU")'
_HIDE_GPUS_1 = 'tf.Session(config=tf.ConfigProto(device_count={"GPU": 0}))'
_LIST_GPUS = 'tf.config.list_physical_devices("GPU")'


def for_release(command: str, release: Sequence[int]) -> str:
    """Return a command with the functions that a release before 2.1 has. release: its numbers, if known."""
    if not release or tuple(release) >= (2, 1):
        return command
    if release[0] == 1:
        command = _GROWTH.sub(_GROWTH_1, command).replace(_HIDE_GPUS, _HIDE_GPUS_1)
        return command.replace(_LIST_GPUS, "tf.test.is_gpu_available()")
    return re.sub(r"tf\.config\.(?=list_physical|set_visible)", "tf.config.experimental.", command)


_GPUS = re.compile(r"--gpus (?:all|'[^']*')")
#: `docker run` with the options that every engine has, the image and what runs in it.
_PLAIN_RUN = re.compile(
    r"docker run (?:--rm |-it? |--gpus all )*(?P<variables>(?:-e \S+ )*)IMAGE(?: (?P<program>.*))?"
)


def for_engine(command: str, engine: str) -> str | None:
    """Return what another container engine runs in place of a command of Docker.

    engine: a way, or `old_docker` for a Docker before 19.03, which has no --gpus.
    """
    if not command.startswith("docker ") or engine == "docker":
        return command
    if engine == "old_docker":
        return _GPUS.sub("--runtime=nvidia", command)
    if engine == "podman":
        return "podman " + _GPUS.sub("--device nvidia.com/gpu=all", command).removeprefix("docker ")
    run = _PLAIN_RUN.fullmatch(command)
    program = run["program"] or "" if run else ""
    if engine == "compose":
        return f"docker compose run --rm {run['variables']}SERVICE {program}".rstrip() if run else command
    return f"kubectl exec POD -- {program}" if run and program and not run["variables"] else None


_EXPORT = re.compile(r"export (?P<name>\w+)=(?P<value>[^$\s]\S*)(?P<comment>\s+#.*)?")
_UNSET = re.compile(r"unset (?P<names>[\w ]+)")
_ASSIGNED = re.compile(r"(?P<name>[A-Z_]+)=(?P<value>\S+) (?P<rest>\S.*)")
_PYTHON_CODE = re.compile(r"-c '(?P<code>[^']*)'")
_GREP = re.compile(r"\| grep (?:-\w+ )*(?:'(?P<quoted>[^']+)'|(?P<plain>[^'|\s]+))$")
_GREP_FILES = re.compile(r"grep -\w+ (?P<what>.+?) --include='(?P<files>[^']+)' \.")
#: Programs, places and syntax that Windows does not have.
_UNIX = re.compile(
    r"^(?:!|sudo|apt-get|ldconfig|ldd|lspci|lsmod|free|find|ls |id\b|module |mkdir -p|uname|RUN )|\$\("
    r"|(?<!\$env):\$|/(?:etc|proc|usr|dev|mnt|lib)/|2>|<\(| \|\| |\| (?:head|tr|sudo)\b"
)


def for_powershell(command: str) -> str | None:
    """Return what does the same in PowerShell; None if nothing does on Windows."""
    if command.startswith("#") or ".exe" in command:
        return command
    if set_ := _EXPORT.fullmatch(command):
        return f'$env:{set_["name"]} = "{set_["value"]}"{set_["comment"] or ""}'
    if removed := _UNSET.fullmatch(command):
        return f"Remove-Item {', '.join(f'Env:{name}' for name in removed['names'].split())}"
    if assigned := _ASSIGNED.fullmatch(command):
        rest = for_powershell(assigned["rest"])
        return f'$env:{assigned["name"]} = "{assigned["value"]}"; {rest}' if rest else None
    if command.startswith("kill "):
        return command.replace("kill ", "Stop-Process -Id ", 1)
    if searched := _GREP_FILES.fullmatch(command):
        return f"Get-ChildItem -Recurse -Filter {searched['files']} | Select-String {searched['what']}"
    if _UNIX.search(command):
        return None
    # Windows PowerShell has no &&.
    command = command.replace(" && ", "; ")
    command = re.sub(r"^env(?= \|)", "Get-ChildItem Env:", command)
    # Windows PowerShell takes double quotes out of the arguments of programs.
    command = _PYTHON_CODE.sub(lambda code: '-c "' + code["code"].replace('"', "'") + '"', command)
    command = _GREP.sub(lambda grep: f"| Select-String '{grep['quoted'] or grep['plain']}'", command)
    command = re.sub("^cat ", "Get-Content ", command)
    return None if "| grep" in command else command


def for_notebook(command: str) -> str:
    """Return what does the same in a cell of a hosted notebook."""
    if command.startswith(("!", "#", "%")):
        return command
    if set_ := _EXPORT.fullmatch(command):
        return f"%env {set_['name']}={set_['value']}"
    if removed := _UNSET.fullmatch(command):
        names = removed["names"].split()
        return f"import os; [os.environ.pop(name, None) for name in {names}]"
    return f"!{command}"


#: The variable that a command sets, removes or shows.
_VARIABLE = re.compile(r"^(?:export|unset) (?P<name>\w+)|^env \| grep (?:-E )?'?(?P<shown>\w+)'?")


def of_program(command: str, lines: Mapping[str, str]) -> str | None:
    """Return the variable that a command is about, if the program sets it itself.

    lines: the variables that the program sets, each with the line that does it.
    """
    match = _VARIABLE.match(command)
    named = (match["name"] or match["shown"]) if match else ""
    return next((name for name in lines if named and named in name), None)
