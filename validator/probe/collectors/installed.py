"""Describe the Python environment: interpreter, distributions, variables, and TensorFlow (not imported)."""

import ast
import importlib.util
import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, Dict, List, Optional, Set, Tuple

from ..tables import table

#: Variables that change what TensorFlow, XLA, CUDA or the loader do.
VARIABLES = re.compile(
    r"(CUDA|CUDNN|CUBLAS|NVIDIA|NCCL|TF|XLA|XRT|TPU|KERAS|LD)_|PYTHON(PATH|HOME|NOUSERSITE|USERBASE)$"
    r"|(PATH|COLAB_TPU_ADDR|KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS|GCE_METADATA_(HOST|IP))$"
)
#: Another program's variables that share the prefix `TF_` (Terraform's), and names that hold credentials.
FOREIGN = re.compile(
    r"TF_(VAR|CLI|TOKEN|LOG|INPUT|DATA|WORKSPACE|PLUGIN|REATTACH)|.*(TOKEN|SECRET|PASSW|CREDENTIAL|KEY$)",
    re.IGNORECASE,
)


def normalized(name: str) -> str:
    """Return a distribution's name in lower case with runs of `-_.` as one dash (PyPA's normalization)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def packages() -> Dict[str, List[str]]:
    """Return versions by normalized name. A broken upgrade can leave two for one name."""
    found: Dict[str, List[str]] = {}
    for distribution in metadata.distributions():
        # A dist-info directory without METADATA, left by an interrupted uninstall, has no name.
        name = distribution.metadata["Name"]
        if name:
            versions = found.setdefault(normalized(name), [])
            if distribution.version not in versions:
                versions.append(distribution.version)
    return dict(sorted(found.items()))


#: Top-level directories that some packages install by mistake; nobody imports them.
_STRAY = frozenset({"benchmarks", "docs", "examples", "scripts", "test", "tests"})


def import_names(package: str) -> Optional[List[str]]:
    """Return the names that a distribution's packages and modules are imported by, sorted.

    Of a namespace package, the first packages within it that belong to the distribution. Empty for a
    distribution without modules, None for one that is not installed.
    """
    try:
        distribution = metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return None
    names = _names_in([file.parts for file in distribution.files or []])
    if not names:
        # An editable installation lists none of its modules.
        names = set((distribution.read_text("top_level.txt") or "").split())
    usual = {name for name in names if not name.startswith("_") and name not in _STRAY}
    return sorted(usual or names)


def _names_in(files: List[Tuple[str, ...]]) -> Set[str]:
    """Return the names of the outermost packages and modules among a distribution's files."""
    packages = {parts[:-1] for parts in files if parts[-1] == "__init__.py" and _importable(parts[:-1])}
    outermost = {
        parts for parts in packages if not any(parts[:size] in packages for size in range(len(parts)))
    }
    modules = {parts[0].partition(".")[0] for parts in files if len(parts) == 1 and _is_module(parts[0])}
    return {".".join(parts) for parts in outermost} | {name for name in modules if name.isidentifier()}


def _importable(parts: Tuple[str, ...]) -> bool:
    return bool(parts) and all(part.isidentifier() for part in parts)


def _is_module(name: str) -> bool:
    return name.endswith((".py", ".so"))


def environment(found: Dict[str, List[str]], tensorflow: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    """Return the report's `environment`."""
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "tensorflow": tensorflow["version"] if tensorflow else None,
        "packages": {name: ", ".join(versions) for name, versions in found.items()},
        "variables": {
            name: value
            for name, value in sorted(os.environ.items())
            if VARIABLES.match(name) and not FOREIGN.match(name)
        },
    }


def tensorflow(found: Dict[str, List[str]]) -> Optional[Dict[str, Any]]:
    """Return the TensorFlow that `import tensorflow` would take, or None.

    requires: the lines of its metadata that say what it requires; None without metadata.
    build: its build information (`tf.sysconfig.get_build_info()`), read without importing it; None when
        that file is not there.
    built_with: for each NVIDIA wheel that its metadata names, the version it was built and tested with:
        the pin, or the lower bound, of the `and-cuda` extra. Empty for releases without that extra.
    """
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        return None
    directory = Path(next(iter(spec.submodule_search_locations)))
    distribution = _owner(directory, found)
    built_with = _built_with(distribution.requires or []) if distribution else {}
    return {
        "version": distribution.version if distribution else None,
        "distribution": normalized(distribution.metadata["Name"]) if distribution else None,
        "directory": str(directory),
        "requires": distribution.requires if distribution else None,
        "build": _build_information(directory / "python" / "platform" / "build_info.py"),
        "built_with": built_with,
        "built_with_source": "and-cuda" if built_with else None,
    }


def _owner(directory: Path, found: Dict[str, List[str]]) -> Optional[metadata.Distribution]:
    """Return the distribution next to the package; any of several names may have installed it."""
    for name in (name for name in table("stack")["same_package"]["tensorflow"] if name in found):
        distribution = metadata.distribution(name)
        if Path(str(distribution.locate_file("tensorflow"))).resolve() == directory.resolve():
            return distribution
    return None


def _build_information(path: Path) -> Optional[Dict[str, Any]]:
    """Read `build_info = collections.OrderedDict([...])` out of the generated module without running it."""
    try:
        module = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return None
    for statement in module.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            return dict(ast.literal_eval(statement.value.args[0]))
    return None


def _built_with(requirements: List[str]) -> Dict[str, str]:
    floors: Dict[str, str] = {}
    for requirement in requirements:
        match = re.match(r"(nvidia-[a-z0-9-]+)\s*\(?([^;)]*)\)?\s*;.*and-cuda", requirement)
        bound = re.search(r"(?:==|>=)\s*([0-9.]+)", match[2]) if match else None
        if match and bound:
            floors[match[1]] = bound[1]
    return floors
