"""Read what a Dockerfile installs: an environment for each stage, with the software of its base image."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from .._vendor.packaging.specifiers import SpecifierSet
from ..compat import known_issues
from ..diagnosis.commands import read_commands
from ..errors import InputError
from ..versions import major, numbers_in
from . import containers, projects, requirements
from .containers import (
    MOST_VARIABLES,
    BaseImage,
    BuildContext,
    Copy,
    Instruction,
    absolute,
    assignments,
    base_image,
    commands,
    instructions,
    split_options,
    substituted,
)
from .pins import (
    TENSORFLOW,
    VISIBLE_DEVICES,
    Collected,
    Environment,
    Pin,
    Source,
    Stated,
    exact_pin,
    normalized,
    not_a_version,
    read_source,
    specifier,
)
from .requirements import CUDA_PACKAGES, from_other_index, is_other_index, read_requirements

# Read the commands of uv, Poetry, PDM, Pipenv, pixi and conda that install what files of a project say.


@dataclass(frozen=True)
class ProjectCommand:
    """A command that installs a project.

    directory: that of the project, absolute or relative to the one in which the command runs. files: those
    that say what is installed; the first one that is there counts. names: the extras, groups or environments
    that are installed, empty for the project alone; None for all. without_default: True if the project's own
    environment is not installed then. added: the packages that the command adds, as pip would be asked for
    them. environment: the directory that holds the installed packages, None if it is not in the project.
    """

    directory: PurePosixPath
    files: tuple[str, ...]
    names: frozenset[str] | None = frozenset()
    without_default: bool = False
    added: str = ""
    environment: PurePosixPath | None = None

    def installs(self, name: str) -> bool:
        """Return True if the command installs the environment of this name."""
        if name == "":
            return not self.without_default
        return self.names is None or normalized(name) in self.names


@dataclass(frozen=True)
class _Manager:
    """A program. install, add: its verbs. environment: the directory of the installed packages in a project.

    setting: the variable that puts it there; empty if it always is.
    """

    install: tuple[str, ...]
    files: tuple[str, ...]
    environment: str
    add: tuple[str, ...] = ("add",)
    setting: str = ""


_MANAGERS: Mapping[str, _Manager] = {
    "uv": _Manager(("sync",), ("uv.lock", "pyproject.toml"), ".venv"),
    "poetry": _Manager(
        ("install", "sync"),
        ("poetry.lock", "pyproject.toml"),
        ".venv",
        setting="POETRY_VIRTUALENVS_IN_PROJECT",
    ),
    "pdm": _Manager(("install", "sync"), ("pdm.lock", "pyproject.toml"), ".venv"),
    "pipenv": _Manager(
        ("install", "sync"), ("Pipfile.lock", "Pipfile"), ".venv", ("install",), "PIPENV_VENV_IN_PROJECT"
    ),
    "pixi": _Manager(("install",), ("pixi.lock", "pixi.toml", "pyproject.toml"), ".pixi", ()),
}
_CONDAS = ("conda", "mamba", "micromamba")
_CONDA_VERBS = ("create", "install", "update")
#: Options that name extras, groups or environments.
_NAMING = "--extra --extras -E --group --groups -G --with --optional --environment -e --categories"
_NAMES = frozenset(_NAMING.split())
#: Options with a value that is no package.
_VALUED = (
    "--index --default-index --index-url --extra-index-url -i --source --find-links -f --platform --python"
    " -p --tag --branch --rev --package --marker -m --bounds --constraint --constraints -c --requirement"
    " --requirements -r --lockfile -L --resolution --link-mode --without --only"
)
_WITH_VALUE = _NAMES.union(_VALUED.split())
_DIRECTORY = ("--directory", "--project", "-C", "--manifest-path")
#: Options after which not even the project itself is installed, or not as it is locked.
_OTHERWISE = re.compile(r"--(?:only-group|only-dev|no-install-package|package|all-packages|lockfile)\b.*|-L")
_POETRY_AT = re.compile(r"(?P<name>[\w.-]+(?:\[[\w,.-]*\])?)@(?P<version>\^|~|)(?P<number>\d[\w.]*)")


def project_command(command: str, values: Mapping[str, str | None]) -> ProjectCommand | None:
    """Return what a shell command installs of a project, or None if it is another command.

    values: the variables that are set.
    """
    words = [word.strip("\"'") for word in command.split()]
    if len(words) > 2 and re.fullmatch(r"(?:\S*/)?python[\d.]*", words[0]) and words[1] == "-m":
        words = words[2:]
    program = words[0].rpartition("/")[2] if words else ""
    if program in _CONDAS:
        return _conda(words[1:])
    manager = _MANAGERS.get(program)
    if manager is None:
        return None
    verbs = {*manager.install, *manager.add}
    position = next((at for at, word in enumerate(words) if at and word in verbs), None)
    if position is None:
        return None
    for before, word in itertools.pairwise(words[:position]):
        # Before the verb, there are only options and their values.
        if not word.startswith("-") and (not before.startswith("-") or "=" in before):
            return None
    after = words[position + 1 :]
    options = _options(words[1:position] + after)
    added = _packages(after) if words[position] in manager.add else []
    if words[position] not in manager.install and not added:
        return None
    only = [value for name, value in options if name == "--only"]
    if any(_OTHERWISE.fullmatch(name) for name, _ in options) or any(one != "main" for one in only):
        return None
    named = (*_DIRECTORY, "-p") if program == "pdm" else _DIRECTORY
    directory = next((PurePosixPath(value) for name, value in options if name in named and value), None)
    directory = directory or PurePosixPath()
    if directory.suffix == ".toml":
        directory = directory.parent
    names = _names(program, options)
    return ProjectCommand(
        directory,
        manager.files,
        names,
        without_default=program == "pixi" and bool(names),
        added=" ".join(added),
        environment=_environment(program, manager, directory, values),
    )


def _options(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the options with their values: the text after `=`, or else the next word."""
    options = []
    for word, following in itertools.pairwise([*words, ""]):
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            options.append((name, value if equals else following))
    return options


def _names(program: str, options: Sequence[tuple[str, str]]) -> frozenset[str] | None:
    given = {name for name, _ in options}
    if given & {"--all-extras", "--all-groups", "--all"}:
        return None
    names = {
        normalized(one)
        for name, value in options
        if name in _NAMES
        for one in re.split(r"[\s,]+", value)
        if one
    }
    if (program == "uv" and not given & {"--no-dev", "--no-default-groups"}) or "--dev" in given:
        names.add("dev")
    return frozenset(names)


def _packages(words: Sequence[str]) -> list[str]:
    """Return the packages among the words after a verb, as pip would be asked for them."""
    packages = []
    for before, word in itertools.pairwise(["", *words]):
        if word.startswith("-") or before in _WITH_VALUE:
            continue
        match = _POETRY_AT.fullmatch(word)
        if match is None:
            packages.append(word)
        else:
            packages.append(match["name"] if match["version"] else f"{match['name']}=={match['number']}")
    return packages


def _environment(
    program: str, manager: _Manager, directory: PurePosixPath, values: Mapping[str, str | None]
) -> PurePosixPath | None:
    if program == "uv" and values.get("UV_PROJECT_ENVIRONMENT"):
        return PurePosixPath(directory, str(values["UV_PROJECT_ENVIRONMENT"]))
    if manager.setting and (values.get(manager.setting) or "").lower() not in ("1", "true"):
        return None
    return directory / manager.environment


def _conda(words: Sequence[str]) -> ProjectCommand | None:
    verbs = [word for word in words if not word.startswith("-")][:2]
    if not (verbs[:1] and (verbs[0] in _CONDA_VERBS or (verbs[0] == "env" and verbs[-1] in _CONDA_VERBS))):
        return None
    options = _options(words)
    file = next((value for name, value in options if name in ("-f", "--file")), "")
    if not re.fullmatch(r".+\.ya?ml", file):
        return None
    path = PurePosixPath(file)
    return ProjectCommand(path.parent, (path.name,))


# The kinds of files in which a project says what it installs, apart from Dockerfiles, and their readers.


Read = Callable[[Path], "tuple[Sequence[Environment], Sequence[Source]]"]


#: The name of a file -> what reads it. The first one that matches counts.
_READERS: tuple[tuple[re.Pattern[str], Read], ...] = (
    (re.compile(r"pyproject\.toml"), projects.of_pyproject),
    (re.compile(r"(?:uv|poetry|pdm)\.lock|pylock(?:\..+)?\.toml"), projects.of_lock),
    (re.compile(r"Pipfile"), projects.of_pipfile),
    (re.compile(r"Pipfile\.lock"), projects.of_pipfile_lock),
    (re.compile(r"pixi\.toml"), requirements.of_pixi_toml),
    (re.compile(r"pixi\.lock"), requirements.of_pixi_lock),
    (re.compile(r"(?is)(?:docker-)?compose(?:[._-].+)?\.ya?ml"), containers.of_compose),
    (re.compile(r"(?is).+\.ya?ml"), requirements.of_conda),
    (re.compile(r"(?is).+\.(?:txt|in)|[^/]*requirements[^/]*\.lock"), requirements.of_requirements),
)


def reader(name: str) -> Read | None:
    """Return what reads a file of this name, or None for a kind that is not known."""
    return next((read for pattern, read in _READERS if pattern.fullmatch(name)), None)


#: A Dockerfile may have this many stages.
MAX_STAGES = 500
#: Linux accepts no longer path.
_LONGEST_PATH = 4096

#: Variables that the NVIDIA runtime reads.
_FOR_GPU = re.compile(r"NVIDIA_(?:VISIBLE_DEVICES|DRIVER_CAPABILITIES|REQUIRE_CUDA)")
#: Values of NVIDIA_VISIBLE_DEVICES with which the runtime adds no GPU.
_NO_GPU = ("", "none", "void")
_NAMED_FOR_GPU = re.compile(r"(?:^|[._-])(?:gpu|cuda)(?:$|[._-])", re.IGNORECASE)
#: Directories that hold the packages of a Python, so that copying them copies an environment.
_PACKAGES = re.compile(
    r"site-packages|dist-packages|venv|/env\b|/usr/local\b|\.local\b|conda|mamba|/opt/?$|^/$"
)
#: What tells the loader about directories, and scripts that may do so when the container starts.
_TELLS_LOADER = re.compile(
    r"LD_LIBRARY_PATH|ld\.so\.conf|ldconfig|^\s*(?:ENTRYPOINT|CMD)\b.*(?:\.sh\b|entrypoint)",
    re.IGNORECASE | re.MULTILINE,
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
    if its base has none. tells_loader: True if the file may tell the loader about directories of libraries.
    """

    name: str
    base: BaseImage
    values: dict[str, str | None] = field(default_factory=dict)
    installed: dict[str, Collected] = field(default_factory=dict)
    pythons: dict[str, Stated | None] = field(default_factory=dict)
    python: Stated | None = None
    cuda: Stated | None = None
    cudnn: Stated | None = None
    for_gpu: bool = False
    cuda_unclear: bool = False
    cuda_named: bool = False
    tells_loader: bool = False
    projects: dict[str, list[Environment]] = field(default_factory=dict)
    directory: PurePosixPath = _ROOT
    copied: list[str] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    copied_from: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    used: bool = False
    extended: bool = False
    visible_devices: Stated | None = None

    def based_on_it(self, name: str) -> Stage:
        """Return a new stage that begins with what this one has."""
        self.extended = True
        return replace(
            self,
            name=name,
            values=dict(self.values),
            installed={key: collected.copy() for key, collected in self.installed.items()},
            pythons=dict(self.pythons),
            projects=dict(self.projects),
            copies=list(self.copies),
            copied=[],
            copied_from=[],
            used=False,
            extended=False,
        )

    def environments(self) -> Iterator[Environment]:
        """Yield what is installed together."""
        # What another stage copies runs on the base of that stage.
        alone = self.used
        without_cuda = self.base.without_cuda and not (self.cuda_unclear or self.cuda_named or alone)
        system = Environment(
            (),
            cuda=None if alone or self.cuda_unclear else self.cuda,
            cudnn=None if alone or self.cuda_unclear else self.cudnn,
            without_cuda=without_cuda,
            for_gpu=self.for_gpu,
            visible_devices=None if alone or self.extended else self.visible_devices,
            library_path=False if without_cuda and not (self.extended or self.tells_loader) else None,
        )
        if not self.installed and not self.projects:
            yield system
        for key, collected in self.installed.items():
            yield replace(system, pins=collected.all(), python=self.pythons.get(key, self.python))
        for project in itertools.chain(*self.projects.values()):
            if project.for_gpu:
                # An environment of conda with CUDA of its own.
                yield replace(project, visible_devices=system.visible_devices)
            else:
                yield replace(system, pins=project.pins, python=project.python, complete=project.complete)


def of_dockerfile(path: Path) -> tuple[list[Environment], list[Source]]:
    """Return what each stage installs, and the files that were read. Raises InputError."""
    source = read_source(path)
    reader = _Reader(path, source)
    for instruction in instructions(source):
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
        self.tells_loader = _TELLS_LOADER.search(source.text) is not None

    def read(self, instruction: Instruction) -> None:
        """Read one instruction. Raises InputError for more variables than a stage may have."""
        keyword, rest = instruction.keyword, instruction.rest
        if max(len(self.arguments), len(self.stages[-1].values) if self.stages else 0) > MOST_VARIABLES:
            raise InputError(f"{self.name}: it sets more than {MOST_VARIABLES:,} variables")
        if keyword == "FROM":
            self._from(instruction)
        elif keyword == "ARG" and not self.stages:
            for name, value in assignments(rest):
                self.arguments[name] = value and substituted(value, self.arguments)
        elif self.stages:
            stage = self.stages[-1]
            if keyword == "ARG":
                for name, value in assignments(rest):
                    stage.values[name] = (
                        self.arguments.get(name) if value is None else substituted(value, stage.values)
                    )
            elif keyword == "ENV":
                for name, value in assignments(rest):
                    stage.values[name] = substituted(value or "", stage.values)
                    if name == VISIBLE_DEVICES:
                        place = instruction.place_of(rf"(?<![$\w{{]){VISIBLE_DEVICES}(?=[=\s])")
                        stated = stage.values[name]
                        stage.visible_devices = None if stated is None else Stated(stated, place)
                    if _FOR_GPU.fullmatch(name) is None:
                        stage.cuda_named |= _SOMETHING_OF_CUDA.search(value or "") is not None
                    elif stage.values[name] not in _NO_GPU:
                        stage.for_gpu = True
            elif keyword in ("COPY", "ADD"):
                self._copy(stage, rest)
            elif keyword == "WORKDIR":
                known = substituted(rest.strip().strip("\"'"), stage.values)
                directory = absolute(stage.directory, known) if known else _UNKNOWN
                stage.directory = directory if len(str(directory)) <= _LONGEST_PATH else _UNKNOWN
            elif keyword == "RUN":
                self._commands(stage, instruction)

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
                        stage.installed[key] = collected.copy()
                        stage.python = stage.python if stage.base.python else origin.python
        return self.stages

    def _from(self, instruction: Instruction) -> None:
        words = split_options(instruction.rest)[1].split()
        if not words:
            return
        if len(self.stages) >= MAX_STAGES:
            raise InputError(f"{self.name} has more than {MAX_STAGES} stages, so it is not checked")
        reference = substituted(words[0], self.arguments)
        number = str(len(self.stages))
        name = words[2].lower() if len(words) == 3 and words[1].lower() == "as" else number
        parent = next((one for one in reversed(self.stages) if one.name == (reference or "").lower()), None)
        if parent is not None:
            self.stages.append(parent.based_on_it(name))
            return
        if name != number:
            for stage in self.stages:
                # The newest stage of a name is the one that counts.
                stage.name = f"{stage.name} (replaced)" if stage.name == name else stage.name
        base, place = base_image(reference or ""), instruction.place_of(re.escape(words[0]))
        python, cuda, cudnn = (
            Stated(version, place, image=True) if version else None
            for version in (base.python, base.cuda, base.cudnn)
        )
        for_gpu = base.for_gpu or self.for_gpu
        stage = Stage(
            name, base, python=python, cuda=cuda, cudnn=cudnn, for_gpu=for_gpu, tells_loader=self.tells_loader
        )
        if base.tensorflow:
            pin = Pin("tensorflow", SpecifierSet(f"=={base.tensorflow}"), place)
            stage.installed.setdefault("", Collected()).add(pin)
        self.stages.append(stage)

    def _copy(self, stage: Stage, rest: str) -> None:
        options, text = split_options(rest)
        words = re.sub(r"[\"\[\],]", " ", text).split()
        given = dict(options).get("from")
        stage.cuda_named |= any(map(_SOMETHING_OF_CUDA.search, words))
        if given is None:
            stage.copied += words[:-1]
            known = [substituted(word, stage.values) for word in words]
            sources = tuple(source for source in known[:-1] if source)
            if len(known) > 1 and known[-1]:
                into = known[-1].endswith(("/", ".")) or len(sources) > 1
                stage.copies.append(Copy(sources, absolute(stage.directory, known[-1]), into))
            return
        for position, origin in enumerate(self.stages[:-1]):
            if given.lower() == origin.name or given == str(position):
                origin.used = True
                stage.copied_from.append((origin.name, tuple(words[:-1])))
                break
        stage.cuda_unclear |= any(map(_SOMETHING_OF_CUDA.search, (*words, given)))

    def _commands(self, stage: Stage, instruction: Instruction) -> None:
        """Read the commands of a RUN instruction, with the files that it mounts."""
        directory, copies = stage.directory, list(stage.copies)
        for option, value in split_options(instruction.rest)[0]:
            stage.cuda_named |= _SOMETHING_OF_CUDA.search(value) is not None
            given = dict(part.partition("=")[::2] for part in value.split(","))
            if option != "mount":
                continue
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
        # A variable that only the shell knows is kept, so that the other words are read.
        known = substituted(command, stage.values)
        command = command if known is None else known
        prefix = _PREFIX.match(command)
        command = command[prefix.end() :] if prefix else command
        pip = _PIP.match(command)
        project = project_command(command, stage.values)
        if pip is None and project is None:
            stage.cuda_named |= _SOMETHING_OF_CUDA.search(command) is not None
        if project is not None:
            self._project(stage, project, instruction, directory)
        if pip is not None:
            self._pip(stage, pip, instruction, directory)
        elif _INSTALLS.match(command):
            self._system(stage, command, instruction)
        else:
            self._conda(stage, command, instruction)

    def _pip(
        self, stage: Stage, pip: re.Match[str], instruction: Instruction, directory: PurePosixPath
    ) -> None:
        named, key = pip["python"] or "", pip["directory"] or pip["python"] or ""
        collected = stage.installed.setdefault(key, Collected())
        if named not in ("", "3"):
            place = instruction.place_of(re.escape(f"python{named}"))
            # `python2` leaves open which one it is.
            stage.pythons.setdefault(key, Stated(named, place) if "." in named else None)
        arguments = pip.string[pip.end("verb") :]
        index = any(map(is_other_index, _OPTION.split(arguments)))
        asked = list(self._named(arguments, instruction))
        for match in _REQUIREMENTS.finditer(arguments):
            path = self._find(stage, match["file"] or match["sync"])
            python = stage.pythons.get(key, stage.python)
            asked += self._required(path, python.value if python else None) if path else ()
        for local in _LOCAL.finditer(_WITH_PATH.sub(" ", arguments)):
            project = absolute(directory, local["path"]) / "pyproject.toml"
            path = self.context.file_in_image(stage.copies, project)
            asked += self._of_project(path, _extras(local["extras"])) if path else ()
        if any(pin.name in TENSORFLOW for pin in asked):
            # pip replaces what was installed before in versions that TensorFlow does not accept.
            for name in known_issues.named_packages() & collected.pins.keys():
                collected.pins[name] = replace(collected.pins[name], versions=None)
        for pin in asked:
            collected.add(from_other_index(pin) if index else pin, later=True)

    def _named(self, arguments: str, instruction: Instruction) -> Iterator[Pin]:
        """Yield the packages that the arguments of pip name."""
        for read in read_commands(f"pip install {arguments.strip()}"):
            name, version = normalized(read.values["name"]), read.values.get("version", "")
            # A name in a variable is meant to be replaced.
            if any(re.search(_spelled(name), line, re.IGNORECASE) for _, line in instruction.lines):
                yield Pin(
                    name,
                    specifier(f"=={version}" if version else read.values.get("spec", "")),
                    instruction.place_of(_spelled(read.values["name"])),
                    _extras(read.values.get("extra")),
                    invalid=not_a_version(version),
                )

    def _required(self, path: Path, python: str | None) -> Iterable[Pin]:
        """Return what a file asks for that is given with `-r`. uv also takes a project or a lock."""
        if path.suffix == ".toml":
            return self._of_project(path, frozenset())
        read = read_requirements(path, python)
        self.sources += read.sources
        return read.pins()

    def _of_project(self, path: Path, extras: Collection[str]) -> Iterator[Pin]:
        """Yield what a project asks pip for, with some of its extras."""
        for environment in self._environments(path):
            if environment.name == "" or normalized(environment.name) in extras:
                yield from environment.pins

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
            for environment in stage.projects.get(key) or [Environment(())]:
                collected = Collected({pin.name: pin for pin in environment.pins})
                for pin in added:
                    collected.add(pin, later=True)
                changed.append(replace(environment, pins=collected.all(), complete=False))
            stage.projects[key] = changed

    def _conda(self, stage: Stage, command: str, instruction: Instruction) -> None:
        named = _NAMED.search(command)
        for read in read_commands(command):
            if read.kind != "conda_install":
                continue
            collected = stage.installed.setdefault(f"conda {named['name'] if named else ''}", Collected())
            name, version = read.values["name"], read.values.get("version", "")
            place = instruction.place_of(_spelled(name))
            if name in (*CUDA_PACKAGES, "cudnn"):
                # Where TensorFlow is installed with pip, its libraries may come from here or from the image.
                stage.cuda_unclear = True
            elif name == "python":
                stage.python = Stated(version, place) if version else None
            else:
                collected.add(exact_pin(name, version, place, from_conda=True), later=True)

    def _system(self, stage: Stage, command: str, instruction: Instruction) -> None:
        """Read the installation of system packages: those of CUDA decide which libraries there are."""
        cudnn = _CUDNN_PACKAGE.search(command)
        if cudnn is not None and stage.cuda is not None:
            place = instruction.place_of(r"libcudnn\d")
            stage.cudnn = Stated(numbers_in(cudnn["version"]) or "", place)
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


def _extras(text: str | None) -> frozenset[str]:
    """Return the names in a list of extras, such as `gpu,dev`."""
    return frozenset(normalized(extra) for extra in (text or "").split(",") if extra.strip())


def _spelled(name: str) -> str:
    """Return the pattern of a package's name, however it is spelled."""
    parts = "[-_.]".join(re.escape(part) for part in re.split(r"[-_.]+", name))
    return rf"(?<![\w.-]){parts}(?![\w-]|\.\w)"
