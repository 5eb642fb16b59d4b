"""The layer for JupyterLab: `%gpu_doctor`, a first notebook, and the settings that open it.

The image has the sources of `%gpu_doctor` and not the whole tool, because a notebook does not need the tool's
other dependencies. The packages that these sources need besides TensorFlow are in the image's lock
(`JUPYTER_PACKAGES`). A `.pth` file makes Python find them after the packages of the environment, so that
`pip install` of the tool replaces them.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

from .. import resources
from .entries import Entry, InMemory
from .layers import LayerSource
from .merge import merged

_RECIPE = "notebooks 1"
_DIRECTORY = "opt/tensorflow-gpu-matrix"
_PYTHON = f"{_DIRECTORY}/python"
_VENV = "opt/venv"
_PACKAGE = Path(__file__).resolve().parent.parent
#: The sources, with the probe, which `%gpu_doctor` packs and runs in a child process.
_SOURCES = (
    "__init__.py", "conditions.py", "errors.py", "problems.py", "problems.json", "resources.py",
    "version_numbers.py", "versions.py",
    "_vendor/**/*.py", "_vendor/packaging/LICENSE*",
    "assemble/__init__.py", "assemble/progress.py",
    "compat/*.py", "compat/data/compiled.json",
    "diagnosis/**/*.py", "diagnosis/data/compiled.json",
    "embedded/__init__.py", "embedded/examine.py", "embedded/kernel_log.py", "embedded/kernel_state.py",
    "embedded/notebook.py",
    "engines/__init__.py", "engines/protocol.py", "engines/local_probe.py", "engines/own_checks.py",
    "engines/probe_archive.py",
    "model/*.py", "probe/**/*.py", "probe/data/*.json", "redaction/*.py",
    "reports/__init__.py", "reports/cell.py", "reports/diagnosis.py", "reports/diagnosis_words.py",
    "reports/printable.py",
    "reports/shareable.py", "reports/templates/diagnosis.html.j2",
    "system/__init__.py", "system/files.py", "system/orphans.py", "system/processes.py",
    "system/runs.py",
)  # fmt: skip


def notebooks() -> LayerSource:
    """Return the layer. It is the same in all images with JupyterLab."""
    files = _files()
    digest = hashlib.sha256()
    for path, content in files.items():
        digest.update(f"{path}\0{len(content)}\0".encode() + content)

    def entries() -> Iterable[Entry]:
        made = [Entry(path, 0o644, InMemory(content)) for path, content in files.items()]
        return merged([("notebooks", made)])

    return LayerSource("%gpu_doctor and a notebook", (_RECIPE, digest.hexdigest()), entries)


@functools.cache
def _files() -> dict[str, bytes]:
    """Return the files by their path in the image."""
    ours = resources.images_directory() / "notebooks"
    sources = sorted({path for pattern in _SOURCES for path in _PACKAGE.glob(pattern)})
    return {
        f"{_VENV}/etc/jupyter/jupyter_lab_config.py": (ours / "jupyter_lab_config.py").read_bytes(),
        f"{_VENV}/lib/python3/site-packages/tensorflow-gpu-matrix.pth": f"/{_PYTHON}\n".encode(),
        **{f"{_DIRECTORY}/notebooks/{path.name}": path.read_bytes() for path in sorted(ours.glob("*.ipynb"))},
        **{f"{_PYTHON}/validator/{path.relative_to(_PACKAGE)}": path.read_bytes() for path in sources},
    }
