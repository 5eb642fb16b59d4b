"""What does not fit in the Python packages around TensorFlow, told without importing any of them."""

import importlib.util
import os
import re
import site
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Set

from .requirements import Requirement, RequirementError, fits, markers
from .tables import table
from .text import normalized
from .variables import FAULT, NOTICE

Facts = Dict[str, Any]
#: Packages whose place matters: another one of the name, found first, would be taken instead.
_IMPORTED = ("tensorflow", "keras", "numpy")
#: What turns the use of tf_keras on (the loader of `tf.keras` in tensorflow/__init__.py).
_LEGACY = ("1", "true", "True")


@dataclass(frozen=True)
class Problem:
    """problem: a stable name. package: the distribution it is about. wrong: one sentence."""

    problem: str
    package: str
    severity: str
    wrong: str


def requirements(facts: Facts) -> List[Dict[str, Any]]:
    """What the metadata of the installed TensorFlow requires here, without extras: one entry each.

    `{name, required, installed, fits}`; installed and fits are None where it is not installed.
    """
    tensorflow, packages = facts["tensorflow"], facts["environment"]["packages"]
    here = markers()
    found = []
    for line in (tensorflow["requires"] or []) if tensorflow else []:
        requirement = Requirement.parse(line)
        if requirement.applies(here):
            name = normalized(requirement.name)
            installed = packages.get(name)
            met = _fits(installed, requirement.specifiers) if installed is not None else None
            entry = {"name": name, "required": requirement.specifiers, "installed": installed, "fits": met}
            found.append(entry)
    return found


def problems(facts: Facts, required: List[Dict[str, Any]]) -> Iterator[Problem]:
    """What does not fit, worst first within each kind."""
    yield from _unmet(required)
    yield from _known(facts, {entry["name"] for entry in required if entry["fits"] is False})
    yield from _over_one_another(facts)
    yield from _twice(facts, {entry["name"] for entry in required})
    yield from _legacy_keras(facts)
    yield from _shadowed(facts)
    yield from _user_site(facts, {entry["name"] for entry in required})


def _unmet(required: List[Dict[str, Any]]) -> Iterator[Problem]:
    for entry in required:
        wanted = f"TensorFlow requires {entry['name']}{entry['required']}"
        if entry["installed"] is None:
            yield Problem("requirement_missing", entry["name"], FAULT, f"{wanted}, which is not installed")
        elif entry["fits"] is False:
            said = f"{wanted}; {entry['installed']} is installed"
            yield Problem("requirement_unmet", entry["name"], FAULT, said)


def _known(facts: Facts, unmet: Set[str]) -> Iterator[Problem]:
    """What metadata leaves open and is known not to work."""
    packages = facts["environment"]["packages"]
    version = facts["tensorflow"]["version"] if facts["tensorflow"] else None
    for rule in table("stack")["rules"]:
        name = rule["package"]
        installed = packages.get(name)
        if name in unmet or not _holds(rule, version, packages):
            continue
        if rule.get("absent") and installed is None:
            yield Problem(rule["problem"], name, rule["severity"], f"{rule['wrong']}; none is installed")
        elif installed is not None and _fits(installed, rule["versions"]):
            said = f"{rule['wrong']}; {name} {installed} is installed"
            yield Problem(rule["problem"], name, rule["severity"], said)


def _holds(rule: Dict[str, Any], version: Optional[str], packages: Dict[str, str]) -> bool:
    if "tensorflow" in rule and not (version and _fits(version, rule["tensorflow"])):
        return False
    beside: Dict[str, str] = rule.get("with", {})
    return all(name in packages and _fits(packages[name], wanted) for name, wanted in beside.items())


def _over_one_another(facts: Facts) -> Iterator[Problem]:
    packages = facts["environment"]["packages"]
    for package, names in table("stack")["same_package"].items():
        found = [f"{name} {packages[name]}" for name in names if name in packages]
        if len(found) > 1:
            said = (
                f"{' and '.join(found)} both install the package {package}: files of one lie over the other's"
            )
            yield Problem("several_distributions", package, FAULT, said)


def _twice(facts: Facts, names: Set[str]) -> Iterator[Problem]:
    """Two versions of one name: an update that did not remove the former, or a second directory."""
    tensorflow = facts["tensorflow"]
    if tensorflow and tensorflow["distribution"]:
        names = names | {tensorflow["distribution"]}
    for name, versions in facts["environment"]["packages"].items():
        if name in names and ", " in versions:
            said = f"{name} is installed in several versions ({versions}); the first on the path is imported"
            yield Problem("several_versions", name, FAULT, said)


def _legacy_keras(facts: Facts) -> Iterator[Problem]:
    packages = facts["environment"]["packages"]
    if facts["environment"]["variables"].get("TF_USE_LEGACY_KERAS") not in _LEGACY:
        return
    installed = packages.get("tf-keras")
    version = facts["tensorflow"]["version"] if facts["tensorflow"] else None
    if installed is None:
        said = "TF_USE_LEGACY_KERAS asks for tf_keras, which is not installed: tf.keras can't be imported"
        yield Problem("legacy_keras_missing", "tf-keras", FAULT, said)
    elif version and installed.split(".")[:2] != version.split(".")[:2]:
        said = f"tf_keras {installed} belongs to another release than TensorFlow {version}"
        yield Problem("legacy_keras_of_another_release", "tf-keras", NOTICE, said)


def _shadowed(facts: Facts) -> Iterator[Problem]:
    """Whether a file or folder of the name takes the place of what is installed."""
    packages = facts["environment"]["packages"]
    same = table("stack")["same_package"]
    for package in _IMPORTED:
        installed = [name for name in same.get(package, [package]) if name in packages]
        if not installed:
            continue
        origin, shadows = _origin(package), _shadow(package, os.getcwd())
        if origin is None:
            said = f"{installed[0]} {packages[installed[0]]} is installed, but there is no package {package}"
            yield Problem("package_missing", installed[0], FAULT, said)
        elif not _beside_metadata(origin, installed):
            name = f"{installed[0]} {packages[installed[0]]}"
            said = f"`import {package}` takes {origin}, not the installed {name}"
            yield Problem("package_shadowed", installed[0], FAULT, said)
        elif shadows is not None and os.path.realpath(shadows) != os.path.realpath(origin):
            said = f"Python code that is started in the current directory imports {shadows} for {package}"
            yield Problem("package_shadowed_in_current_directory", installed[0], NOTICE, said)


def _origin(package: str) -> Optional[str]:
    """What `import` would take: the folder of a package or the file of a module."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return None
    locations = list(spec.submodule_search_locations or [])
    return str(locations[0]) if locations else spec.origin


def _shadow(package: str, directory: str) -> Optional[str]:
    """What would come first for code that is started in a directory."""
    for name in (package, f"{package}.py"):
        path = os.path.join(directory, name)
        if os.path.isfile(os.path.join(path, "__init__.py")) or (name != package and os.path.isfile(path)):
            return path
    return None


def _beside_metadata(origin: str, names: List[str]) -> bool:
    """Whether the metadata of one of the distributions lies in the same directory as the package."""
    directory = Path(origin).parent
    entries = (
        entry.name for entry in directory.glob("*-info") if entry.suffix in (".dist-info", ".egg-info")
    )
    return any(normalized(entry.partition("-")[0]) in names for entry in entries)


def _user_site(facts: Facts, names: Set[str]) -> Iterator[Problem]:
    """The user's own site-packages come before the environment's; a half of the stack from there is a mix."""
    directory = site.getusersitepackages() if site.ENABLE_USER_SITE else None
    tensorflow = facts["tensorflow"]
    if directory is None or not os.path.isdir(directory) or tensorflow is None:
        return
    if os.path.realpath(tensorflow["directory"]).startswith(os.path.realpath(directory) + os.sep):
        return
    entries = (re.match(r"([^-]+)-.*\.dist-info$", name) for name in os.listdir(directory))
    mixed = sorted({normalized(match[1]) for match in entries if match} & names)
    if mixed:
        said = f"{', '.join(mixed)} come from the user's own packages ({directory}), TensorFlow does not"
        yield Problem("packages_from_user_site", mixed[0], NOTICE, said)


def _fits(versions: str, specifiers: str) -> bool:
    """Whether the first of the installed versions meets the specifiers; one that is no version does."""
    try:
        return fits(versions.partition(", ")[0], specifiers)
    except RequirementError:
        return True
