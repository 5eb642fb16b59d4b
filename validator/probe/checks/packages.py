"""The Python packages: do they fit TensorFlow and the lock, and do those that were added work with it?"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import site
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...problems import ADVISORY, FAULT, problem, statement
from ...version_numbers import leading_numbers
from .. import child, table
from ..check import HOST, OWN, PASS, SKIP, Context, Result, check, gpu_count, judged, skipped
from ..child import SIGNAL, TIMED_OUT, tail
from ..installed import import_names, normalized

Facts = dict[str, Any]
#: Packages for which a file or package with the same name that comes first on the path would be imported
#: instead.
_IMPORTED = ("tensorflow", "keras", "numpy")
#: Values that turn the use of tf_keras on (the loader of `tf.keras` in tensorflow/__init__.py).
_LEGACY = ("1", "true", "True")


@check(
    "Do the Python packages fit this TensorFlow, and is the installed TensorFlow imported?", HOST, limit_s=20
)
def python_stack(context: Context) -> Result:
    """Judge the metadata. Nothing is imported, so the check also answers where TensorFlow can't be."""
    facts = context.facts
    tensorflow, packages = facts["tensorflow"], facts["environment"]["packages"]
    distributions = table("stack")["same_package"]["tensorflow"]
    present = {name: packages[name] for name in distributions if name in packages}
    if tensorflow is None and not present:
        return skipped(statement("tensorflow_not_installed", check=None))
    required = requirements(facts)
    kept = ("distribution", "version", "directory")
    chosen = {key: tensorflow[key] for key in kept} if tensorflow else None
    evidence = {"tensorflow": chosen, "distributions": present, "requirements": required}
    names = {entry["name"] for entry in required}
    problems = [*_unmet(facts, required), *_installed_twice(facts, names), *_legacy_keras(facts)]
    problems += [*_shadowed(facts), *_from_user_site(facts, names)]
    there = [name for name in table("stack")["shown"] if name in packages]
    shown = [{"name": name, "version": packages[name]} for name in there]
    result = judged(problems, statement("requirements_met", count=len(required), shown=shown), evidence)
    if result.outcome == PASS and not required:
        return replace(result, outcome=SKIP, statement=statement("no_requirements"))
    return result


def requirements(facts: Facts) -> list[dict[str, Any]]:
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
            version, wanted = packages.get(name), str(requirement.specifier)
            fits = _fits(version, wanted) if version is not None else None
            found.append({"name": name, "required": wanted, "installed": version, "fits": fits})
    return found


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


def _unmet(facts: Facts, required: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield unmet requirements, then what the metadata allows but is known not to work."""
    for entry in required:
        told = {"package": entry["name"], "required": entry["required"]}
        if entry["installed"] is None:
            yield problem("requirement_missing", **told)
        elif entry["fits"] is False:
            yield problem("requirement_unmet", **told, installed=entry["installed"])
    packages = facts["environment"]["packages"]
    tensorflow = {"tensorflow": facts["tensorflow"]["version"]} if facts["tensorflow"] else {}
    unmet = {entry["name"] for entry in required if entry["fits"] is False}

    def holds(wanted: dict[str, str], versions: dict[str, Any]) -> bool:
        return all(versions.get(name) and _fits(versions[name], bound) for name, bound in wanted.items())

    for rule in table("stack")["rules"]:
        name, release = rule["package"], {key: rule[key] for key in ("tensorflow",) if key in rule}
        installed = packages.get(name)
        if name not in unmet and holds(release, tensorflow) and holds(rule.get("with", {}), packages):
            there = installed is not None and _fits(installed, rule["versions"])
            if there or (installed is None and rule.get("absent")):
                yield problem(rule["code"], package=name, installed=installed)


def _installed_twice(facts: Facts, names: set[str]) -> Iterator[dict[str, Any]]:
    """Yield packages from several distributions, and names with two versions: after an update that left the
    old one, or in two directories."""
    packages, tensorflow = facts["environment"]["packages"], facts["tensorflow"]
    for package, distributions in table("stack")["same_package"].items():
        found = [{"name": name, "version": packages[name]} for name in distributions if name in packages]
        if len(found) > 1:
            yield problem("several_distributions", package=package, distributions=found)
    own = {tensorflow["distribution"]} if tensorflow else set()
    for name, versions in packages.items():
        if name in names | own and ", " in versions:
            yield problem("several_versions", package=name, versions=versions.split(", "))


def _legacy_keras(facts: Facts) -> Iterator[dict[str, Any]]:
    """Yield a problem if tf_keras was chosen, and is missing or of another release than TensorFlow."""
    if facts["environment"]["variables"].get("TF_USE_LEGACY_KERAS") not in _LEGACY:
        return
    installed = facts["environment"]["packages"].get("tf-keras")
    version = facts["tensorflow"]["version"] if facts["tensorflow"] else None
    if installed is None:
        yield problem("legacy_keras_missing", package="tf-keras")
    elif version and leading_numbers(installed)[:2] != leading_numbers(version)[:2]:
        both = {"installed": installed, "tensorflow": version}
        yield problem("legacy_keras_of_another_release", package="tf-keras", **both)


def _shadowed(facts: Facts) -> Iterator[dict[str, Any]]:
    """Yield each file or directory that is imported instead of what is installed."""
    packages = facts["environment"]["packages"]
    same = table("stack")["same_package"]
    for module in _IMPORTED:
        installed = [name for name in same.get(module, [module]) if name in packages]
        if not installed:
            continue
        name, version = installed[0], packages[installed[0]]
        origin = _origin(module)
        # What code that is started in the current directory would import first.
        here = os.path.join(os.getcwd(), module)
        files = {f"{here}/__init__.py": here, f"{here}.py": f"{here}.py"}
        shadows = next((path for file, path in files.items() if os.path.isfile(file)), None)
        if origin is None:
            yield problem("package_missing", package=name, installed=version, module=module)
        elif not _beside_metadata(origin, installed):
            yield problem("package_shadowed", package=name, installed=version, module=module, path=origin)
        elif shadows is not None and os.path.realpath(shadows) != os.path.realpath(origin):
            yield problem("package_shadowed_in_current_directory", package=name, module=module, path=shadows)


def _origin(package: str) -> str | None:
    """Return what `import` would take: the directory of a package or the file of a module."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return None
    locations = list(spec.submodule_search_locations or [])
    return str(locations[0]) if locations else spec.origin


def _beside_metadata(origin: str, names: list[str]) -> bool:
    entries = [*Path(origin).parent.glob("*.dist-info"), *Path(origin).parent.glob("*.egg-info")]
    return any(normalized(entry.name.partition("-")[0]) in names for entry in entries)


def _from_user_site(facts: Facts, names: set[str]) -> Iterator[dict[str, Any]]:
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


@check(
    "Does a TPU or another accelerator's plugin change which devices TensorFlow chooses?",
    HOST,
    10,
    required=False,
)
def tpu_interference(context: Context) -> Result:
    tensorflow, environment = context.facts["tensorflow"], context.facts["environment"]
    if tensorflow is None:
        return skipped(statement("tensorflow_not_installed", check=None))
    known, variables = table("accelerators"), environment["variables"]
    chosen = {name: variables[name] for name in known["variables"] if name in variables}
    rows = [row for row in known["packages"] if row["name"] in environment["packages"]]
    packages = {row["name"]: environment["packages"][row["name"]] for row in rows}
    # TensorFlow loads the libraries of PluggableDevices from there when it is imported.
    directory = Path(tensorflow["directory"]).parent / "tensorflow-plugins"
    plugins = sorted(file.name for file in directory.glob("*") if re.search(r"\.so(\.\d+)*$", file.name))
    problems = [problem("tpu_variable", subject=name) for name in chosen]
    for row in rows:
        # Replacing CUDA's devices is a fault only where a GPU is.
        severity = FAULT if row["severity"] == FAULT and gpu_count(context.facts) > 0 else ADVISORY
        told = {"subject": row["name"], "version": packages[row["name"]]}
        problems.append(problem(row["code"], severity, **told))
    if plugins:
        problems.append(problem("device_plugin_files", subject=plugins[0], files=plugins))
    passed = statement("nothing_replaces_cuda" if problems else "no_other_accelerator")
    evidence = {"variables": chosen, "packages": packages, "plugins": plugins}
    return judged(problems, passed, evidence)


#: Packages that are accepted without being locked, because an interpreter's distribution or `python -m venv`
#: installs them. None of them is used in a training run.
BOOTSTRAP = frozenset({"pip", "setuptools", "wheel"})
#: The lock is requirements text as `uv pip compile --generate-hashes` writes it.
_NAME = r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?"
_PIN = re.compile(rf"^{_NAME}\s*==\s*([^\s;\\]+)\s*(?:;[^\\]*)?\s*(?:\\|--hash|#|$)")
_REQUIRES = re.compile(rf"^# requires: {_NAME}", re.MULTILINE)
#: What the project itself asks for: TensorFlow, pip, and NVIDIA's libraries.
_OURS = re.compile(
    r"tensorflow(-cpu)?|pip"
    r"|nvidia-(cublas|cuda-[a-z]+|cudnn|cufft|curand|cusolver|cusparse|nccl|nvjitlink|nvshmem)(-cu\d+)?"
)


def pins(text: str) -> dict[str, str]:
    """Return a lock's versions by normalized name. Raises ValueError with the line of what is not a pin."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", "--hash=")):
            continue
        match = _PIN.match(stripped)
        if not match:
            raise ValueError(f'line {number}: "{stripped[:80]}" is not a pin (expected name==version)')
        name = normalized(match[1])
        if name in found:
            raise ValueError(f"line {number}: {name} is pinned twice")
        found[name] = match[2]
    if not found:
        raise ValueError("the lock has no pins")
    return found


def added(text: str) -> list[str]:
    """Return the pinned packages that the lock was resolved with and TensorFlow does not need, sorted."""
    pinned = pins(text)
    names = {normalized(match[1]) for match in _REQUIRES.finditer(text)}
    return sorted(name for name in names if name in pinned and not _OURS.fullmatch(name))


@check("Is what is installed exactly what the lock says?", HOST, limit_s=10, requires=("lock",))
def lock_match(context: Context) -> Result:
    packages, lock = context.facts["environment"]["packages"], context.lock or {}
    tolerated = BOOTSTRAP - lock.keys()
    problems = []
    for name in sorted((lock.keys() | packages.keys()) - tolerated):
        locked, there = lock.get(name), packages.get(name)
        if there is None:
            problems.append(problem("locked_package_missing", package=name, locked=locked))
        elif locked is None:
            problems.append(problem("package_not_locked", package=name, installed=there))
        elif locked != there:
            problems.append(problem("package_version_differs", package=name, locked=locked, installed=there))
    evidence = {"locked": len(lock), "tolerated": sorted(tolerated & packages.keys())}
    return judged(problems, statement("packages_as_locked", count=len(lock)), evidence)


#: Seconds for one interpreter: TensorFlow's import from a cold disk takes a minute.
_LIMIT_S = 180.0
#: The orders of the imports, by their names in the vocabulary `import_order`.
_BEFORE, _AFTER, _BOTH = "before", "after", "both"
_TENSORFLOW = "tensorflow"
#: Runs without the probe on `sys.path`: a package may have the name of one of its modules. The arguments are
#: the pid of the parent, the modules as JSON, and the descriptor.
_PROGRAM = """
import ctypes, importlib, json, os, sys
parent, modules, descriptor = int(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
sys.argv[1:] = []
sys.path[:] = [entry for entry in sys.path if entry]
os.set_inheritable(descriptor, False)
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
if os.getppid() != parent:
    os._exit(1)
def tell(event, **fields):
    os.write(descriptor, json.dumps({"event": event, **fields}).encode() + b"\\n")
try:
    for module in modules:
        tell("value", value={"begun": module})
        importlib.import_module(module)
    tensorflow = sys.modules["tensorflow"]
    tell("value", value={"begun": None})
    tell("value", value={"gpus": len(tensorflow.config.list_physical_devices("GPU"))})
except BaseException as error:
    import traceback
    traceback.print_exc()
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    tell("raised", raised=f"{type(error).__name__}: {lines[0][:600]}", in_tensorflow=False)
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
"""


@check(
    "Can the added packages be imported, and are the GPUs still visible then?",
    OWN,
    limit_s=1500,
    requires=("lock",),
    required=False,
)
def packages(context: Context) -> Result:
    """Import each package before TensorFlow and after it, each time in a fresh interpreter.

    The one that comes first decides which copies of the shared libraries are loaded.
    """
    if not context.added:
        return judged([], statement("no_packages_added"), {"packages": []})
    if context.facts["tensorflow"] is None:
        return skipped(statement("tensorflow_not_installed", check=None))
    alone = _imports([_TENSORFLOW])
    if alone["failure"] is not None:
        return skipped(statement("tensorflow_not_importable", check="tensorflow_build"), {"alone": alone})
    tried: list[dict[str, Any]] = []
    problems = []
    for name in context.added:
        modules = import_names(name)
        seen: dict[str, Any] = {_BEFORE: None, _AFTER: None}
        if modules:
            seen = {_BEFORE: _imports([*modules, _TENSORFLOW]), _AFTER: _imports([_TENSORFLOW, *modules])}
            problems += _import_problems(name, seen, alone["gpus"])
        elif modules is None:
            locked = (context.lock or {})[name]
            problems.append(problem("locked_package_missing", package=name, locked=locked))
        version = context.facts["environment"]["packages"].get(name)
        tried.append({"package": name, "version": version, "modules": modules, **seen})
    evidence = {"gpus": alone["gpus"], "limit_s": _LIMIT_S, "packages": tried}
    return judged(problems, statement("packages_imported", count=len(tried), gpus=alone["gpus"]), evidence)


def _imports(modules: list[str]) -> dict[str, Any]:
    """Import modules in this order, then ask TensorFlow for the GPUs.

    Return `{gpus, module, failure, detail, last_lines}`: how many there are, or which module's import failed
    (None for the question itself), and how (`failure` is a kind of `child`).
    """
    command = [sys.executable, "-u", "-c", _PROGRAM, str(os.getpid()), json.dumps(modules)]
    answer = child.ask(command, _LIMIT_S)
    begun = [value["begun"] for value in answer.values if "begun" in value]
    gpus = [value["gpus"] for value in answer.values if "gpus" in value]
    failure, seen = answer.failure, {"gpus": gpus[0] if gpus else None}
    if failure is None:
        return {**seen, "module": None, "failure": None, "detail": None, "last_lines": []}
    told = {"failure": failure.kind, "detail": str(failure)}
    lines = tail(answer.stderr, lines=20).splitlines()
    return {**seen, "module": begun[-1] if begun else None, **told, "last_lines": lines}


def _import_problems(package: str, seen: dict[str, Any], gpus: int) -> list[dict[str, Any]]:
    """Return what is wrong with a package: one problem for each order, or for both the same."""

    def wrong(order: str) -> dict[str, Any] | None:
        failure, module, detail = (seen[order][name] for name in ("failure", "module", "detail"))
        told = {"package": package, "order": order}
        visible = seen[order]["gpus"]
        if failure is None and visible < gpus:
            return problem("package_hides_gpus", visible=visible, gpus=gpus, **told)
        if failure is None:
            return None
        if module in (None, _TENSORFLOW):
            return problem("package_breaks_tensorflow", error=detail, **told)
        told["module"] = module
        if failure == TIMED_OUT:
            return problem("package_import_hangs", limit_s=_LIMIT_S, **told)
        if failure == SIGNAL:
            return problem("package_import_crashes", signal=detail, **told)
        return problem("package_import_fails", error=detail, **told)

    before, after = wrong(_BEFORE), wrong(_AFTER)
    if before is not None and after is not None and {**before, "order": _AFTER} == after:
        return [{**before, "order": _BOTH}]
    return [entry for entry in (before, after) if entry is not None]
