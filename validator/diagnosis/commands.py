"""Read the commands that people ran, and write those of a remedy for the reader's machine.

A command that was run may stand after a prompt, in a Dockerfile, in a notebook or within a sentence. The data
has every command of a remedy for bash on Linux, with Docker and pip. A command that the reader can't run
becomes one that does the same, or None.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .observations import normalized
from .text import Line

_Values = tuple[str, Mapping[str, str]]

#: The kinds that commands show, with the names of their values.
KINDS: Mapping[str, frozenset[str]] = {
    "docker_run": frozenset({"gpus", "image", "engine", "runtime_class"}),
    "pip_install": frozenset({"name", "version", "spec", "extra"}),
    "conda_install": frozenset({"name", "version", "build", "channel"}),
}
#: How many commands of one kind are read in a line, and how many characters of each.
_MOST, _LONGEST = 10, 1500
#: Packages that say something about the GPU, by the beginning of their normalized names.
_PACKAGES = re.compile(
    r"(?:tensorflow|tf-nightly|tf-keras|keras|nvidia-|torch|jax|numpy|protobuf|cuda|cudnn|python$|intel-tensorflow)"
)
_CONTAINER = re.compile(
    r"(?P<engine>nvidia-docker2?|docker|podman|nerdctl)(?P<compose>-compose|\s+compose)?(?:\s+container)?"
    r"\s+(?:run|create)\s+"
    r"|(?P<apptainer>apptainer|singularity)\s+(?:-{1,2}\w\S*\s+)*(?:run|exec|shell|instance\s+start)\s+",
    re.IGNORECASE,
)
_PIP = re.compile(
    r"(?:pip[\d.]*|uv\s+pip|uv|poetry|pipenv|pipx)[\"',\s]+(?:install|add|download)(?:[\"']?\s*,\s*[\"']?|\s+)",
    re.IGNORECASE,
)
_CONDA = re.compile(
    r"(?:micromamba|mamba|conda)\s+(?:-{1,2}\S+\s+)*(?:install|create|update)\s+", re.IGNORECASE
)
#: What stands before a command that was typed: a prompt, a mark of a notebook or a list, variables.
_TYPED = re.compile(
    r"\s*(?:\([\w. -]{1,40}\)\s*)?(?:[\w.@:~/\\\[\]-]*(?: [\w.@:~/\\\[\]-]+)?[$#>%]+\s*)?"
    r"(?:In ?\[\d*\]:\s*)?[!%]*(?:RUN\s+|[-*]\s+|\d+[.)]\s+)?[`'\"]*"
    r"(?:(?:sudo|time|nohup|exec|python[\d.]*|-m|\w+=\S*)\s+)*"
)
_WORD = re.compile(r"(?:[^\s\"']|\"[^\"]*\"|'[^']*'|[\"'])+")
_ENDS_COMMAND = re.compile(r"[;|`\n]|&&|\s>|\s#\s")
#: Options of `docker run` that take a value in the next word.
_OPTIONS = (
    "-v -e -p -w -u -h -m -l --volume --env --publish --workdir --user --hostname --memory --label --name"
    " --net --network --ipc --pid --shm-size --ulimit --mount --env-file --entrypoint --cpus --restart"
    " --platform --pull --security-opt --cap-add --group-add --tmpfs --expose --add-host --dns --device"
    " --gpus --runtime --cgroupns -B --bind --home --pwd --overlay"
)
_WITH_VALUE = frozenset(_OPTIONS.split())
_IMAGE = re.compile(r"(?:docker://|(?:~|\.{1,2}|\$\w+)?/)?[a-z0-9][\w.-]*(?:[/:][\w.@:-]+)*(?:/[\w.@:-]+)*")
#: Images whose names have no sign of an image, such as a colon.
_PLAIN_IMAGES = frozenset({"ubuntu", "debian", "python", "centos", "fedora", "image", "myimage", "busybox"})
_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z][\w.-]*?)(?:\[(?P<extra>[\w, -]*)\])?"
    r"(?P<spec>(?:\s*(?:===?|~=|!=|<=?|>=?)\s*[\w.*+!]+,?)*)"
)
_CONDA_SPEC = re.compile(
    r"(?:(?P<channel>[\w-]+)(?:/[\w-]+)?::)?(?P<name>[a-z][\w.-]*)"
    r"(?:(?:==?|>=|<=|<|>)(?P<version>\d[\w.*]*)(?:=(?P<build>[\w.*]+))?)?"
)


class Shown(NamedTuple):
    """A fact that a command shows. typed: it is not part of a sentence. text: how it begins in the line."""

    kind: str
    values: Mapping[str, str]
    typed: bool
    text: str


def read_commands(line: str) -> Iterator[Shown]:
    """Yield everything that the commands in a line show."""
    for pattern, reader in _READERS:
        for match in itertools.islice(pattern.finditer(line), _MOST):
            before = line[max(0, match.start() - _LONGEST) : match.start()]
            if before and (before[-1].isalnum() or (before[-1] in "-_./" and not before.endswith("/bin/"))):
                continue
            rest = line[match.end() : match.end() + _LONGEST]
            end = _ENDS_COMMAND.search(_without_quoted(rest))
            typed = _TYPED.fullmatch(before) is not None or before.rstrip().endswith(("&&", ";", "`"))
            words = _words(rest[: end.start()] if end else rest)
            for kind, values in reader(match, words, typed):
                yield Shown(kind, values, typed, match[0])


def _without_quoted(text: str) -> str:
    """Return a text of the same length in which quoted parts can't end a command."""
    return re.sub(r"\"[^\"]*\"|'[^']*'", lambda quoted: "x" * len(quoted[0]), text)


def _words(text: str) -> list[str]:
    """Return the words of a command without their quotes. (`shlex` fails at an apostrophe.)"""
    return [word.replace('"', "").replace("'", "") for word in _WORD.findall(text)]


def _container(match: re.Match[str], words: Sequence[str], typed: bool) -> Iterator[_Values]:
    engine = (match["engine"] or match["apptainer"]).lower()
    apptainer = match["apptainer"] is not None
    gpus = "yes" if engine.startswith("nvidia-docker") else "no"
    image, position = "", 0
    while position < len(words):
        word = words[position]
        following = words[position + 1] if position + 1 < len(words) else ""
        if not word.startswith("-"):
            image = word
            break
        name, equals, value = word.partition("=")
        takes = name in _WITH_VALUE or (name[:2] in _WITH_VALUE and len(name) == 2)
        if not equals and takes:
            value, position = following, position + 1
        if _gives_gpus(name, value, apptainer):
            gpus = "yes"
        position += 1
    if match["compose"]:
        # The service's definition decides about its GPUs.
        if gpus == "yes":
            yield "docker_run", {"gpus": gpus, "engine": "compose"}
        return
    marked = any(sign in image for sign in "/:_.") or image.lower() in _PLAIN_IMAGES
    if gpus == "yes":
        values = {"gpus": gpus, "engine": engine}
        yield "docker_run", {**values, "image": image} if _IMAGE.fullmatch(image) else values
    elif _IMAGE.fullmatch(image) and (marked or (typed and position > 0)):
        yield "docker_run", {"gpus": gpus, "engine": engine, "image": image}


def _gives_gpus(name: str, value: str, apptainer: bool) -> bool:
    if apptainer:
        return name in ("--nv", "--nvccli")
    if name == "--gpus":
        return value.strip("\"'") not in ("0", "none", "")
    return (name == "--runtime" and value == "nvidia") or (
        name == "--device" and value.startswith(("nvidia.com/gpu", "/dev/nvidia"))
    )


def _pip(match: re.Match[str], words: Sequence[str], typed: bool) -> Iterator[_Values]:
    skip = False
    for word in words:
        if skip or word.startswith("-"):
            skip = not skip and word in ("-r", "-c", "-i", "--index-url", "--extra-index-url", "-t", "-f")
            continue
        requirement = _REQUIREMENT.fullmatch(word.strip("\"',.()"))
        if requirement is None:
            # The words of a sentence go on after the package's name.
            if not typed:
                return
            continue
        name = normalized(requirement["name"])
        if not _PACKAGES.match(name):
            if not typed:
                return
            continue
        spec = requirement["spec"].replace(" ", "")
        pinned = re.fullmatch(r"===?([\w.+!]+)", spec)
        values = {
            "name": name,
            "version": pinned[1] if pinned else "",
            "spec": "" if pinned else spec,
            "extra": requirement["extra"] or "",
        }
        yield "pip_install", {key: value for key, value in values.items() if value}


def _conda(match: re.Match[str], words: Sequence[str], typed: bool) -> Iterator[_Values]:
    channel, skip = "", ""
    found: list[dict[str, str]] = []
    for word in words:
        if skip:
            channel = channel or (word if skip in ("-c", "--channel") else "")
            skip = ""
            continue
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            if name == "--channel" and equals:
                channel = channel or value
            elif name in ("-c", "--channel", "-n", "--name", "-p", "--prefix", "-f", "--file"):
                skip = name
            continue
        spec = _CONDA_SPEC.fullmatch(word.strip("\"',.()").lower())
        if spec is not None and _PACKAGES.match(spec["name"]):
            found.append({name: value for name, value in spec.groupdict().items() if value})
        elif not typed:
            break
    for values in found:
        yield "conda_install", {**({"channel": channel} if channel else {}), **values}


_Reader = Callable[[re.Match[str], Sequence[str], bool], Iterator[_Values]]
_READERS: tuple[tuple[re.Pattern[str], _Reader], ...] = (
    (_CONTAINER, _container),
    (_PIP, _pip),
    (_CONDA, _conda),
)


# Read compose files and Kubernetes manifests in a text: which containers are given a GPU.
#
# They are read line by line, by their indentation: YAML's parser is not part of the standard library, and
# what people paste is often a piece of a file.


_KEY = re.compile(r"(?P<indent>\s*(?:- )?)(?P<name>[\w./-]+|\"[^\"]+\"):(?:\s+(?P<value>.*\S))?\s*")
#: Lines of a service or a manifest that give it a GPU.
_GPU_OF_SERVICE = re.compile(
    r"^\s*(?:gpus:|runtime: *[\"']?nvidia|-? *driver: *[\"']?nvidia|- *[\"']?(?:/dev/nvidia|nvidia\.com/gpu))"
    r"|capabilities: *\[[^\]]*gpu|^\s*- *\[? *[\"']?gpu\b",
    re.MULTILINE,
)
_GPU_OF_POD = re.compile(r"^\s*-? *[\"']?nvidia\.com/(?:gpu|mig-)[\w.-]*[\"']? *: *[\"']?[1-9]", re.MULTILINE)
_WORKLOADS = frozenset(
    {
        "Pod",
        "Job",
        "CronJob",
        "Deployment",
        "StatefulSet",
        "DaemonSet",
        "ReplicaSet",
        "PyTorchJob",
        "TFJob",
        "MPIJob",
        "JobSet",
        "Notebook",
    }
)
#: Images of services that are meant to use the GPU.
_MEANT_FOR_GPU = re.compile(r"tensorflow|cuda|nvidia|nvcr|gpu", re.IGNORECASE)
#: Ends a file that was pasted among other words.
_END = re.compile(r"\s*(?:```|~~~|---\s*$|\$ |#{2,} )")

Placed = tuple[Shown, Line]


def read_manifests(lines: Sequence[Line]) -> Iterator[Placed]:
    """Yield what the files show, each with the line that it begins at."""
    done = 0
    for position, line in enumerate(lines):
        key = _KEY.fullmatch(line.text) if position >= done and ":" in line.text else None
        if key is None:
            continue
        if key["name"] == "services" and not key["value"]:
            done = _end_of_block(lines, position)
            yield from _compose(lines[position:done])
        elif (key["name"] == "kind" and key["value"] in _WORKLOADS) or (
            # A piece of a manifest, without its kind.
            key["name"] == "containers" and not key["value"]
        ):
            start, done = _manifest_around(lines, position, done)
            yield from _manifest(lines[start:done])


def _compose(block: Sequence[Line]) -> Iterator[Placed]:
    services = list(_services(block))
    given = [service for service in services if _GPU_OF_SERVICE.search(_joined(service))]
    for service in given:
        yield _shown("yes", "compose", _value(service, "image")), service[0]
    if given:
        return
    for service in services:
        image = _value(service, "image")
        if len(services) == 1 or _MEANT_FOR_GPU.search(image):
            yield _shown("no", "compose", image), service[0]


def _services(block: Sequence[Line]) -> Iterator[Sequence[Line]]:
    """Yield the lines of each service."""
    inner = [line for line in block[1:] if line.text.strip()]
    if not inner:
        return
    width = _indent(inner[0].text)
    starts = [position for position, line in enumerate(inner) if _indent(line.text) == width]
    for start, end in zip(starts, [*starts[1:], len(inner)], strict=True):
        if _KEY.fullmatch(inner[start].text):
            yield inner[start:end]


def _manifest(lines: Sequence[Line]) -> Iterator[Placed]:
    content = _joined(lines)
    if "containers:" not in content:
        return
    gpus = "yes" if _GPU_OF_POD.search(content) else "no"
    shown = _shown(gpus, "kubernetes", _value(lines, "image"))
    runtime_class = _value(lines, "runtimeClassName")
    values = {"runtime_class": runtime_class} if runtime_class else {}
    yield shown._replace(values={**shown.values, **values}), lines[0]
    yield Shown("container", {"kind": "kubernetes"}, True, ""), lines[0]


def _shown(gpus: str, engine: str, image: str) -> Shown:
    values = {"gpus": gpus, "engine": engine}
    return Shown("docker_run", {**values, "image": image} if image else values, True, "")


def _end_of_block(lines: Sequence[Line], start: int) -> int:
    """Return the end of the block below a line: the lines that are indented more than it."""
    width = _indent(lines[start].text)
    end = start + 1
    while end < len(lines):
        text = lines[end].text
        if _END.match(text) or (text.strip() and not text.strip().startswith("#") and _indent(text) <= width):
            break
        end += 1
    return end


def _manifest_around(lines: Sequence[Line], position: int, first: int) -> tuple[int, int]:
    """Return the start and the end of the manifest that contains a line of its outermost level. It does
    not start before the line `first`."""
    width = _indent(lines[position].text)

    def belongs(text: str) -> bool:
        if not text.strip():
            return True
        is_inner = _indent(text) > width or text.lstrip().startswith(("-", "#"))
        return (is_inner or _KEY.fullmatch(text) is not None) and not _END.match(text)

    start, end = position, position + 1
    while start > first and belongs(lines[start - 1].text):
        start -= 1
    while end < len(lines) and belongs(lines[end].text):
        end += 1
    return start, end


def _value(lines: Sequence[Line], name: str) -> str:
    """Return the first value of a key, or an empty text."""
    for line in lines:
        key = _KEY.fullmatch(line.text)
        if key is not None and key["name"] == name and key["value"]:
            value: str = key["value"]
            return value.partition(" #")[0].strip().strip("\"'")
    return ""


def _joined(lines: Sequence[Line]) -> str:
    return "\n".join(line.text for line in lines)


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


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
#: A computation whose result is printed. TensorFlow 1 computes it only in a session.
_COMPUTED = re.compile(r"print\((?P<computation>tf\.nn\.\w+\(.*\))\.shape\)")


def for_release(command: str, release: Sequence[int]) -> str:
    """Return a command with the functions that a release before 2.1 has. release: its numbers, if known."""
    if not release or tuple(release) >= (2, 1):
        return command
    if release[0] == 1:
        command = _GROWTH.sub(_GROWTH_1, command).replace(_HIDE_GPUS, _HIDE_GPUS_1)
        command = _COMPUTED.sub(r"print(tf.Session().run(\g<computation>).shape)", command)
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
#: Directories for the loader. In a notebook, the variable comes too late for the loader of its kernel.
_LIBRARY_PATH = re.compile(
    r"export LD_LIBRARY_PATH=(?P<value>(?:(?!LD_LIBRARY_PATH).)+?)(?::\$LD_LIBRARY_PATH)?"
)
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
    if path := _LIBRARY_PATH.fullmatch(command):
        conf = "/etc/ld.so.conf.d/00-tensorflow.conf"
        return f"!echo {path['value']} | tr ':' '\\n' > {conf} && ldconfig   # then restart the session"
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
