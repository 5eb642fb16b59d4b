"""Do the Python packages fit this TensorFlow, and is the TensorFlow that is imported the installed one?

Nothing is imported to find out, so the check also answers where TensorFlow can't be imported.
"""

import importlib.util
import os
import re
import site
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Set

from ...problems import problem, statement
from ...version_numbers import leading_numbers
from ..check import HOST, PASS, SKIP, Check, Context, Result, judged, skipped
from ..collectors.installed import normalized
from ..tables import table

Facts = Dict[str, Any]
#: Packages for which a file or package with the same name that comes first on the path would be imported
#: instead.
_IMPORTED = ("tensorflow", "keras", "numpy")
#: Values that turn the use of tf_keras on (the loader of `tf.keras` in tensorflow/__init__.py).
_LEGACY = ("1", "true", "True")


def _run(context: Context) -> Result:
    facts = context.facts
    tensorflow, packages = facts["tensorflow"], facts["environment"]["packages"]
    distributions = table("stack")["same_package"]["tensorflow"]
    installed = {name: packages[name] for name in distributions if name in packages}
    if tensorflow is None and not installed:
        return skipped(statement("tensorflow_not_installed", check=None))
    required = requirements(facts)
    evidence = {
        "tensorflow": {key: tensorflow[key] for key in ("distribution", "version", "directory")}
        if tensorflow
        else None,
        "distributions": installed,
        "requirements": required,
    }
    shown = [
        {"name": name, "version": packages[name]} for name in table("stack")["shown"] if name in packages
    ]
    met = statement("requirements_met", count=len(required), shown=shown)
    result = judged(list(problems(facts, required)), lambda: met, evidence)
    if result.outcome == PASS and not required:
        return replace(result, outcome=SKIP, statement=statement("no_requirements"))
    return result


def requirements(facts: Facts) -> List[Dict[str, Any]]:
    """Return what the metadata of the installed TensorFlow requires here, without extras.

    Each entry is `{name, required, installed, fits}`; the last two are None where it is not installed.
    """
    # Imported here: the archive holds no compiled modules, and only this check needs it (0.1 s).
    from ..._vendor.packaging.requirements import Requirement

    tensorflow, packages = facts["tensorflow"], facts["environment"]["packages"]
    found = []
    for line in (tensorflow["requires"] or []) if tensorflow else []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            name = normalized(requirement.name)
            installed = packages.get(name)
            wanted = str(requirement.specifier)
            met = _fits(installed, wanted) if installed is not None else None
            found.append({"name": name, "required": wanted, "installed": installed, "fits": met})
    return found


def problems(facts: Facts, required: List[Dict[str, Any]]) -> Iterator[Dict[str, Any]]:
    """Yield packages that don't fit, the worst first within each kind."""
    yield from _unmet(required)
    yield from _known(facts, {entry["name"] for entry in required if entry["fits"] is False})
    yield from _over_one_another(facts)
    yield from _twice(facts, {entry["name"] for entry in required})
    yield from _legacy_keras(facts)
    yield from _shadowed(facts)
    yield from _user_site(facts, {entry["name"] for entry in required})


def _unmet(required: List[Dict[str, Any]]) -> Iterator[Dict[str, Any]]:
    for entry in required:
        name, wanted, installed = entry["name"], entry["required"], entry["installed"]
        if installed is None:
            yield problem("requirement_missing", package=name, required=wanted)
        elif entry["fits"] is False:
            yield problem("requirement_unmet", package=name, required=wanted, installed=installed)


def _known(facts: Facts, unmet: Set[str]) -> Iterator[Dict[str, Any]]:
    """Yield combinations that the metadata allows but that are known not to work."""
    packages = facts["environment"]["packages"]
    version = facts["tensorflow"]["version"] if facts["tensorflow"] else None
    for rule in table("stack")["rules"]:
        name = rule["package"]
        installed = packages.get(name)
        if name in unmet or not _holds(rule, version, packages):
            continue
        there = installed is not None and _fits(installed, rule["versions"])
        if there or (installed is None and rule.get("absent")):
            yield problem(rule["code"], package=name, installed=installed)


def _holds(rule: Dict[str, Any], version: Optional[str], packages: Dict[str, str]) -> bool:
    if "tensorflow" in rule and not (version and _fits(version, rule["tensorflow"])):
        return False
    others: Dict[str, str] = rule.get("with", {})
    return all(name in packages and _fits(packages[name], wanted) for name, wanted in others.items())


def _over_one_another(facts: Facts) -> Iterator[Dict[str, Any]]:
    packages = facts["environment"]["packages"]
    for package, names in table("stack")["same_package"].items():
        found = [{"name": name, "version": packages[name]} for name in names if name in packages]
        if len(found) > 1:
            yield problem("several_distributions", package=package, distributions=found)


def _twice(facts: Facts, names: Set[str]) -> Iterator[Dict[str, Any]]:
    """Yield each name with two versions: after an update that left the old one, or in two directories."""
    tensorflow = facts["tensorflow"]
    if tensorflow and tensorflow["distribution"]:
        names = names | {tensorflow["distribution"]}
    for name, versions in facts["environment"]["packages"].items():
        if name in names and ", " in versions:
            yield problem("several_versions", package=name, versions=versions.split(", "))


def _legacy_keras(facts: Facts) -> Iterator[Dict[str, Any]]:
    packages = facts["environment"]["packages"]
    if facts["environment"]["variables"].get("TF_USE_LEGACY_KERAS") not in _LEGACY:
        return
    installed = packages.get("tf-keras")
    version = facts["tensorflow"]["version"] if facts["tensorflow"] else None
    if installed is None:
        yield problem("legacy_keras_missing", package="tf-keras")
    elif version and leading_numbers(installed)[:2] != leading_numbers(version)[:2]:
        yield problem(
            "legacy_keras_of_another_release", package="tf-keras", installed=installed, tensorflow=version
        )


def _shadowed(facts: Facts) -> Iterator[Dict[str, Any]]:
    """Yield each file or directory that is imported instead of what is installed."""
    packages = facts["environment"]["packages"]
    same = table("stack")["same_package"]
    for module in _IMPORTED:
        installed = [name for name in same.get(module, [module]) if name in packages]
        if not installed:
            continue
        name, version = installed[0], packages[installed[0]]
        origin, shadows = _origin(module), _shadow(module, os.getcwd())
        if origin is None:
            yield problem("package_missing", package=name, installed=version, module=module)
        elif not _beside_metadata(origin, installed):
            yield problem("package_shadowed", package=name, installed=version, module=module, path=origin)
        elif shadows is not None and os.path.realpath(shadows) != os.path.realpath(origin):
            yield problem("package_shadowed_in_current_directory", package=name, module=module, path=shadows)


def _origin(package: str) -> Optional[str]:
    """Return what `import` would take: the directory of a package or the file of a module."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return None
    locations = list(spec.submodule_search_locations or [])
    return str(locations[0]) if locations else spec.origin


def _shadow(package: str, directory: str) -> Optional[str]:
    """Return the file or package that code started in a directory would import first, or None."""
    for name in (package, f"{package}.py"):
        path = os.path.join(directory, name)
        if os.path.isfile(os.path.join(path, "__init__.py")) or (name != package and os.path.isfile(path)):
            return path
    return None


def _beside_metadata(origin: str, names: List[str]) -> bool:
    """Return whether the metadata of one of the distributions is in the same directory as the package."""
    directory = Path(origin).parent
    entries = (
        entry.name for entry in directory.glob("*-info") if entry.suffix in (".dist-info", ".egg-info")
    )
    return any(normalized(entry.partition("-")[0]) in names for entry in entries)


def _user_site(facts: Facts, names: Set[str]) -> Iterator[Dict[str, Any]]:
    """Yield packages in the user's own site-packages, which come before those of the environment."""
    directory = site.getusersitepackages() if site.ENABLE_USER_SITE else None
    tensorflow = facts["tensorflow"]
    if directory is None or not os.path.isdir(directory) or tensorflow is None:
        return
    if os.path.realpath(tensorflow["directory"]).startswith(os.path.realpath(directory) + os.sep):
        return
    entries = (re.match(r"([^-]+)-.*\.dist-info$", name) for name in os.listdir(directory))
    mixed = sorted({normalized(match[1]) for match in entries if match} & names)
    if mixed:
        yield problem("packages_from_user_site", package=mixed[0], packages=mixed, directory=directory)


def _fits(versions: str, specifiers: str) -> bool:
    """Return whether the first of the installed versions meets the specifiers.

    A pre-release counts as any other version: it is installed already. So does text that is not a version.
    """
    # Imported here as in `requirements`.
    from ..._vendor.packaging.specifiers import SpecifierSet
    from ..._vendor.packaging.version import InvalidVersion

    try:
        return SpecifierSet(specifiers).contains(versions.partition(", ")[0], prereleases=True)
    except InvalidVersion:
        return True


CHECK = Check(
    id="python_stack",
    title="Do the Python packages fit this TensorFlow, and is the installed TensorFlow imported?",
    stage=HOST,
    run=_run,
    limit_s=20,
)
