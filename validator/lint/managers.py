"""Read the commands of uv, Poetry, PDM, Pipenv, pixi and conda that install what files of a project say."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from .environment import normalized


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
