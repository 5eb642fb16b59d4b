"""Read what a Dockerfile installs: an environment for each stage, with the software of its base image."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from ..compat import known_issues
from ..compat.loose_values import numbers
from ..diagnosis import commands as shown
from ..errors import InputError
from ..model.finding import Place
from ..versions import major
from .base_images import BaseImage, base_image
from .build_context import BuildContext, Copy, absolute
from .environment import (
    TENSORFLOW,
    VISIBLE_DEVICES,
    Collected,
    Environment,
    Pin,
    Stated,
    normalized,
    not_a_version,
    specifier,
)
from .instructions import Instruction, assignments, commands, flags, instructions, substituted, without_flags
from .managers import ProjectCommand, project_command
from .project_files import reader
from .requirements import from_other_index, is_other_index, read_requirements
from .source_file import Source, read_source

#: A Dockerfile may have this many stages.
MAX_STAGES = 500

#: Variables that the NVIDIA runtime reads.
_FOR_GPU = re.compile(r"NVIDIA_(?:VISIBLE_DEVICES|DRIVER_CAPABILITIES|REQUIRE_CUDA)")
#: Values of NVIDIA_VISIBLE_DEVICES with which the runtime adds no GPU.
_NO_GPU = ("", "none", "void")
_NAMED_FOR_GPU = re.compile(r"(?:^|[._-])(?:gpu|cuda)(?:$|[._-])", re.IGNORECASE)
#: Directories that hold the packages of a Python, so that copying them copies an environment.
_PACKAGES = re.compile(
    r"site-packages|dist-packages|venv|/env\b|/usr/local\b|\.local\b|conda|mamba|/opt/?$|^/$"
)
_SOMETHING_OF_CUDA = re.compile(r"cuda|cudnn|nvidia|libcu(?!rl)", re.IGNORECASE)
_INSTALLS = re.compile(
    r"(?:apt|apt-get|yum|dnf|aptitude|microdnf|zypper)\b.*\binstall\b|\bwget\b|\bcurl\b|\bdpkg\b"
)
_CUDA_PACKAGE = re.compile(r"\bcuda(?:-[a-z]{1,30}){0,6}-(?P<major>\d+)[-.](?P<minor>\d+)\b")
_CUDNN_PACKAGE = re.compile(r"\blibcudnn(?P<major>\d+)(?:-cuda-\d+)?=(?P<version>\d+(?:\.\d+)+)")
_PIP = re.compile(
    r"(?P<directory>\S*/)?(?:python(?P<python>[\d.]*)\s+-m\s+)?(?:uv\s+pip|pip[\d.]*)\s+(?:\S+\s+)??"
    r"(?P<verb>install|sync)\b"
)
_PREFIX = re.compile(r"(?:(?:sudo|time|exec|nohup|env|-\w+|[A-Za-z_]\w*=\S*)\s+)+")
_REQUIREMENTS = re.compile(
    r"(?:^|\s)(?:-r|--requirements?)(?:\s*=?\s*)(?P<file>[^\s\"']+)|\bsync\s+(?P<sync>\S+)"
)
#: Options of pip with a path that is no project, and projects in directories: `.`, `-e ./lib[gpu]`.
_WITH_PATH = re.compile(
    r"\s(?:-[trcf]|--(?:target|prefix|root|cache-dir|src|log|requirements?|constraint|find-links|report|cert))"
    r"[\s=]+\S+"
)
_LOCAL = re.compile(
    r"(?<!\S)[\"']?(?P<path>\.{1,2}(?:/[\w./-]*)?|/[\w/-][\w./-]*)(?:\[(?P<extras>[\w,.-]+)\])?[\"']?(?!\S)"
)
#: A directory whose name depends on what only the image knows.
_UNKNOWN = PurePosixPath("/(unknown)")
_ROOT = PurePosixPath("/")
#: What comes before an option.
_OPTION = re.compile(r"\s+(?=-)")
_NAMED = re.compile(r"\s(?:-n|--name|-p|--prefix)[\s=]+(?P<name>\S+)")
_CONDA_CUDA = ("cudatoolkit", "cuda-toolkit", "cuda-runtime", "cuda", "cuda-version", "cuda-cudart")


@dataclass
class Stage:
    """A stage of a Dockerfile, as far as it was read.

    installed: what is installed, by the environment that the command names. pythons: the Pythons that such
    commands name. projects: what files of the project install, by the directory of the installed packages.
    directory: in which commands run. copied: files of the build context. copies: where they are in the image.
    copied_from: stages whose packages it copies, with the paths. used: True if another stage copies from it.
    extended: True if another stage is based on it. visible_devices: the value of CUDA_VISIBLE_DEVICES.
    cuda_unclear: True if a command may have installed a CUDA or a cuDNN that is not known.
    cuda_named: True if a command, a copied file or a variable names CUDA, so that the image may have one even
    if its base has none.
    """

    name: str
    base: BaseImage
    place: Place
    values: dict[str, str | None]
    installed: dict[str, Collected] = field(default_factory=dict)
    pythons: dict[str, Stated | None] = field(default_factory=dict)
    python: Stated | None = None
    cuda: Stated | None = None
    cudnn: Stated | None = None
    for_gpu: bool = False
    cuda_unclear: bool = False
    cuda_named: bool = False
    projects: dict[str, list[Environment]] = field(default_factory=dict)
    directory: PurePosixPath = _ROOT
    copied: list[str] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    copied_from: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    used: bool = False
    extended: bool = False
    visible_devices: Stated | None = None

    def environments(self) -> Iterator[Environment]:
        """Yield what is installed together."""
        # What another stage copies runs on the base of that stage.
        alone = self.used
        system = Environment(
            (),
            cuda=None if alone or self.cuda_unclear else self.cuda,
            cudnn=None if alone or self.cuda_unclear else self.cudnn,
            without_cuda=self.base.without_cuda and not (self.cuda_unclear or self.cuda_named or alone),
            for_gpu=self.for_gpu,
            visible_devices=None if alone or self.extended else self.visible_devices,
        )
        if not self.installed and not self.projects:
            yield system
        for key, collected in self.installed.items():
            yield replace(system, pins=collected.all(), python=self.pythons.get(key, self.python))
        for one in (one for environments in self.projects.values() for one in environments):
            if one.for_gpu:
                # An environment of conda with CUDA of its own.
                yield replace(one, visible_devices=system.visible_devices)
            else:
                yield replace(system, pins=one.pins, python=one.python, complete=one.complete)


def environments(path: Path) -> tuple[list[Environment], list[Source]]:
    """Return what each stage installs, and the files that were read. Raises InputError."""
    source = read_source(path)
    reader = _Reader(path, source)
    for instruction in instructions(source.text):
        reader.read(instruction)
    return [one for stage in reader.finished() for one in stage.environments()], reader.sources


class _Reader:
    def __init__(self, path: Path, source: Source) -> None:
        self.context = BuildContext.of(path)
        self.name = source.name
        self.sources = [source]
        self.arguments: dict[str, str | None] = {}
        self.stages: list[Stage] = []
        self.for_gpu = _NAMED_FOR_GPU.search(path.name) is not None

    def read(self, instruction: Instruction) -> None:
        """Read one instruction."""
        keyword, rest = instruction.keyword, instruction.rest
        if keyword == "FROM":
            self._from(instruction)
        elif keyword == "ARG" and not self.stages:
            for name, value in assignments(rest):
                self.arguments[name] = value and substituted(value, self.arguments)
        elif self.stages:
            stage = self.stages[-1]
            if keyword == "ARG":
                for name, value in assignments(rest):
                    given = self.arguments.get(name) if value is None else substituted(value, stage.values)
                    stage.values[name] = given
            elif keyword == "ENV":
                for name, value in assignments(rest):
                    stage.values[name] = substituted(value or "", stage.values)
                    if name == VISIBLE_DEVICES:
                        stage.visible_devices = self._visible_devices(instruction, stage.values[name])
                    if _FOR_GPU.fullmatch(name) is None:
                        stage.cuda_named |= _SOMETHING_OF_CUDA.search(value or "") is not None
                    elif stage.values[name] not in _NO_GPU:
                        stage.for_gpu = True
            elif keyword in ("COPY", "ADD"):
                self._copy(stage, rest)
            elif keyword == "WORKDIR":
                known = substituted(rest.strip().strip("\"'"), stage.values)
                stage.directory = absolute(stage.directory, known) if known else _UNKNOWN
            elif keyword == "RUN":
                self._commands(stage, instruction)

    def _visible_devices(self, instruction: Instruction, value: str | None) -> Stated | None:
        line, column = instruction.place_of(rf"(?<![$\w{{]){VISIBLE_DEVICES}(?=[=\s])")
        return None if value is None else Stated(value, Place(self.name, line, column))

    def finished(self) -> list[Stage]:
        """Return the stages, after the packages that were copied between them have been put in place."""
        by_name = {stage.name: stage for stage in self.stages}
        for stage in self.stages:
            for name, paths in stage.copied_from:
                origin = by_name.get(name)
                if origin is None:
                    continue
                packages = any(_PACKAGES.search(path) for path in paths)
                for directory, environments in origin.projects.items():
                    if packages or any(PurePosixPath(directory).is_relative_to(path) for path in paths):
                        stage.projects.setdefault(directory, environments)
                if not packages:
                    continue
                for key, collected in origin.installed.items():
                    if key not in stage.installed:
                        stage.installed[key] = Collected(dict(collected.pins), dict(collected.limits))
                        stage.python = stage.python if stage.base.python else origin.python
        return self.stages

    def _from(self, instruction: Instruction) -> None:
        words = without_flags(instruction.rest).split()
        if not words:
            return
        if len(self.stages) >= MAX_STAGES:
            raise InputError(f"{self.name} has more than {MAX_STAGES} stages, so it is not checked")
        reference = substituted(words[0], self.arguments)
        line, column = instruction.place_of(re.escape(words[0]))
        place = Place(self.name, line, column)
        name = words[2].lower() if len(words) == 3 and words[1].lower() == "as" else str(len(self.stages))
        parent = next((one for one in reversed(self.stages) if one.name == (reference or "").lower()), None)
        if parent is not None:
            copy = {key: Collected(dict(one.pins), dict(one.limits)) for key, one in parent.installed.items()}
            values, pythons = dict(parent.values), dict(parent.pythons)
            parent.extended = True
            self.stages.append(
                replace(
                    parent,
                    name=name,
                    values=values,
                    installed=copy,
                    pythons=pythons,
                    projects=dict(parent.projects),
                    copies=list(parent.copies),
                    copied=[],
                    copied_from=[],
                    used=False,
                    extended=False,
                )
            )
            return
        base = base_image(reference) if reference else BaseImage()
        if str(len(self.stages)) != name:
            for stage in self.stages:
                # The newest stage of a name is the one that counts.
                stage.name = f"{stage.name} (replaced)" if stage.name == name else stage.name
        self.stages.append(
            Stage(
                name,
                base,
                place,
                {},
                python=Stated(base.python, place, True) if base.python else None,
                cuda=Stated(base.cuda, place, True) if base.cuda else None,
                cudnn=Stated(base.cudnn, place, True) if base.cudnn else None,
                for_gpu=base.for_gpu or self.for_gpu,
            )
        )

    def _copy(self, stage: Stage, rest: str) -> None:
        words = (
            without_flags(rest)
            .replace('"', " ")
            .replace("[", " ")
            .replace("]", " ")
            .replace(",", " ")
            .split()
        )
        given = flags(rest).get("from")
        stage.cuda_named |= any(map(_SOMETHING_OF_CUDA.search, words))
        if given is None:
            stage.copied += words[:-1]
            known = [substituted(word, stage.values) for word in words]
            sources = tuple(one for one in known[:-1] if one)
            if len(known) > 1 and known[-1]:
                into = known[-1].endswith(("/", ".")) or len(sources) > 1
                stage.copies.append(Copy(sources, absolute(stage.directory, known[-1]), into))
            return
        origin = next(
            (
                one
                for position, one in enumerate(self.stages[:-1])
                if given.lower() == one.name or given == str(position)
            ),
            None,
        )
        if origin is not None:
            origin.used = True
            stage.copied_from.append((origin.name, tuple(words[:-1])))
        if any(_SOMETHING_OF_CUDA.search(word) for word in (*words, given)):
            stage.cuda_unclear = True

    def _commands(self, stage: Stage, instruction: Instruction) -> None:
        """Read the commands of a RUN instruction, with the files that it mounts."""
        directory, copies = stage.directory, list(stage.copies)
        options = instruction.rest.removesuffix(without_flags(instruction.rest))
        stage.cuda_named |= _SOMETHING_OF_CUDA.search(options) is not None
        for mount in re.findall(r"--mount=(\S+)", options):
            given = dict(part.partition("=")[::2] for part in mount.split(","))
            target = given.get("target") or given.get("dst") or given.get("destination")
            if given.get("type", "bind") == "bind" and "from" not in given and target:
                source = given.get("source") or given.get("src") or "."
                stage.copies.append(Copy((source,), absolute(directory, target), into=False))
        for command in commands(instruction.rest):
            changed = re.fullmatch(r"cd\s+(?P<directory>\S+)", command)
            if changed is not None:
                known = substituted(changed["directory"].strip("\"'"), stage.values)
                directory = absolute(directory, known) if known else _UNKNOWN
            else:
                self._run(stage, command, instruction, directory)
        stage.copies = copies

    def _run(self, stage: Stage, command: str, instruction: Instruction, directory: PurePosixPath) -> None:
        known = substituted(command, stage.values)
        if known is None:
            # A variable that only the shell knows is kept, so that the other words are read.
            known = command
        known = _PREFIX.sub("", known, count=1) if _PREFIX.match(known) else known
        pip = _PIP.match(known)
        project = project_command(known, stage.values)
        if pip is None and project is None:
            stage.cuda_named |= _SOMETHING_OF_CUDA.search(known) is not None
        if project is not None:
            self._project(stage, project, instruction, directory)
        if pip is not None:
            self._pip(stage, known, pip, instruction, directory)
        elif _INSTALLS.match(known):
            self._system(stage, known, instruction)
        else:
            self._conda(stage, known, instruction)

    def _pip(
        self,
        stage: Stage,
        command: str,
        pip: re.Match[str],
        instruction: Instruction,
        directory: PurePosixPath,
    ) -> None:
        named, key = pip["python"] or "", pip["directory"] or pip["python"] or ""
        collected = stage.installed.setdefault(key, Collected())
        if named not in ("", "3"):
            line, column = instruction.place_of(re.escape(f"python{named}"))
            # `python2` leaves open which one it is.
            stated = Stated(named, Place(self.name, line, column)) if "." in named else None
            stage.pythons.setdefault(key, stated)
        arguments = command[pip.end("verb") :]
        index = any(map(is_other_index, _OPTION.split(arguments)))
        asked = list(self._named(arguments, instruction))
        for match in _REQUIREMENTS.finditer(arguments):
            path = self._find(stage, match["file"] or match["sync"])
            python = stage.pythons.get(key, stage.python)
            asked += self._required(path, python.value if python else None) if path else ()
        for local in _LOCAL.finditer(_WITH_PATH.sub(" ", arguments)):
            place = absolute(directory, local["path"]) / "pyproject.toml"
            path = self.context.file_in_image(stage.copies, place)
            extras = {normalized(one) for one in (local["extras"] or "").split(",") if one.strip()}
            asked += self._of_project(path, extras) if path else ()
        if any(pin.name in TENSORFLOW for pin in asked):
            # pip replaces what was installed before in versions that TensorFlow does not accept.
            for name in known_issues.named_packages() & collected.pins.keys():
                collected.pins[name] = replace(collected.pins[name], versions=None)
        for pin in asked:
            collected.add(from_other_index(pin) if index else pin, later=True)

    def _named(self, arguments: str, instruction: Instruction) -> Iterator[Pin]:
        """Yield the packages that the arguments of pip name."""
        for one in shown.read(f"pip install {arguments.strip()}"):
            pin = self._pin(one.values, instruction)
            # A name in a variable is meant to be replaced.
            if any(re.search(_spelled(pin.name), line, re.IGNORECASE) for _, line in instruction.lines):
                yield pin

    def _required(self, path: Path, python: str | None) -> Iterable[Pin]:
        """Return what a file asks for that is given with `-r`. uv also takes a project or a lock."""
        if path.suffix == ".toml":
            return self._of_project(path, frozenset())
        read = read_requirements(path, python)
        self.sources += read.sources
        return read.pins()

    def _of_project(self, path: Path, extras: Collection[str]) -> Iterator[Pin]:
        """Yield what a project asks pip for, with some of its extras."""
        for one in self._environments(path):
            if one.name == "" or normalized(one.name) in extras:
                yield from one.pins

    def _environments(self, path: Path) -> Sequence[Environment]:
        read = reader(path.name)
        environments, sources = read(path) if read else ((), ())
        self.sources += sources
        return environments

    def _project(
        self, stage: Stage, command: ProjectCommand, instruction: Instruction, directory: PurePosixPath
    ) -> None:
        """Read a command that installs what the files of a project say, or adds packages to it."""
        place = absolute(directory, command.directory)
        key = f"({place})"
        if command.environment is not None:
            key = str(absolute(directory, command.environment))
        paths = (self.context.file_in_image(stage.copies, place / name) for name in command.files)
        path = next((path for path in paths if path is not None), None)
        if path is not None:
            stage.projects[key] = [one for one in self._environments(path) if command.installs(one.name)]
        added = list(self._named(command.added, instruction)) if command.added else []
        if added:
            changed = []
            for one in stage.projects.get(key) or [Environment(())]:
                collected = Collected({pin.name: pin for pin in one.pins})
                for pin in added:
                    collected.add(pin, later=True)
                changed.append(replace(one, pins=collected.all(), complete=False))
            stage.projects[key] = changed

    def _pin(self, values: Mapping[str, str], instruction: Instruction) -> Pin:
        name = normalized(values["name"])
        versions = specifier(f"=={values['version']}" if values.get("version") else values.get("spec", ""))
        extras = frozenset(normalized(one) for one in values.get("extra", "").split(",") if one.strip())
        invalid = not_a_version(values.get("version", ""))
        return Pin(name, versions, self._place(instruction, values["name"]), extras, invalid=invalid)

    def _place(self, instruction: Instruction, name: str) -> Place:
        line, column = instruction.place_of(_spelled(name))
        return Place(self.name, line, column)

    def _conda(self, stage: Stage, command: str, instruction: Instruction) -> None:
        named = _NAMED.search(command)
        for one in shown.read(command):
            if one.kind != "conda_install":
                continue
            collected = stage.installed.setdefault(f"conda {named['name'] if named else ''}", Collected())
            name, version = one.values["name"], one.values.get("version", "")
            if name in _CONDA_CUDA or name == "cudnn":
                # Where TensorFlow is installed with pip, its libraries may come from here or from the image.
                stage.cuda_unclear = True
            elif name == "python":
                stage.python = Stated(version, self._place(instruction, "python")) if version else None
            else:
                collected.add(
                    Pin(
                        normalized(name),
                        specifier(f"=={version}") if version else None,
                        self._place(instruction, name),
                        from_conda=True,
                    ),
                    later=True,
                )

    def _system(self, stage: Stage, command: str, instruction: Instruction) -> None:
        """Read the installation of system packages: those of CUDA decide which libraries there are."""
        cudnn = _CUDNN_PACKAGE.search(command)
        if cudnn is not None and stage.cuda is not None:
            line, column = instruction.place_of(r"libcudnn\d")
            stage.cudnn = Stated(numbers(cudnn["version"]) or "", Place(self.name, line, column))
        elif re.search(r"cudnn", command, re.IGNORECASE):
            stage.cudnn = None
        if stage.cuda is not None:
            known = major(stage.cuda.value)
            stage.cuda_unclear |= any(match["major"] != known for match in _CUDA_PACKAGE.finditer(command))

    def _find(self, stage: Stage, name: str) -> Path | None:
        """Return the file of the build context that a path in the image names, or None if it is not clear."""
        base = Path(name).name
        wanted = [one for one in stage.copied if Path(one).name == base] or [name.lstrip("/"), base]
        return next((path for one in wanted if (path := self.context.file(one))), None)


def _spelled(name: str) -> str:
    """Return the pattern of a package's name, however it is spelled."""
    parts = "[-_.]".join(re.escape(part) for part in re.split(r"[-_.]+", name))
    return rf"(?<![\w.-]){parts}(?![\w-]|\.\w)"
