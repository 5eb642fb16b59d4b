"""Find the files that this tool comes with besides its code, and the pages of its manual.

In a checkout, `images/`, `measurements/`, `matrix.yaml`, `CITATION.cff` and `LICENSE` are next to this
package. `setup.py` copies them into the package when a wheel is built, so that an installed tool works in an
empty directory.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from . import __version__

_PACKAGE = Path(__file__).resolve().parent
#: Where `setup.py` puts the copies; a checkout does not have it.
_SHIPPED = _PACKAGE / "shipped"
#: What is copied there, as setup.py has it.
SHIPPED = ("CITATION.cff", "LICENSE", "images", "matrix.yaml", "measurements")
_CONTENT = "https://raw.githubusercontent.com/tensorflow-gpu-matrix/tensorflow-gpu-matrix"
_NAME = "tensorflow-gpu-matrix"
_REPOSITORY = f"https://github.com/{_NAME}/{_NAME}"
_MANUAL = f"{_REPOSITORY}/blob"
#: What a link names as long as nothing else is known to be there.
_BRANCH = "main"


def revision() -> str:
    """Return the tag, commit or branch with this version's files: a tag only for a release (PEP 610)."""
    if not is_installed():
        return _BRANCH
    found = _direct_url()
    return f"v{__version__}" if found is None else found.get("vcs_info", {}).get("commit_id", _BRANCH)


def requirement(commit: str | None) -> str:
    """Return what pip installs to get this version again. commit: of a checkout, if others have it too."""
    found = revision()
    if found == f"v{__version__}":
        return f"{_NAME}=={__version__}"
    return f"git+{_REPOSITORY}@{commit or found}"


@functools.cache
def _direct_url() -> dict[str, Any] | None:
    """Return where an installed package is from, or None if that is an index."""
    # It loads `email`, which few commands need, and which the page's Python does not have.
    from importlib import metadata

    text = metadata.distribution(_NAME).read_text("direct_url.json")
    return json.loads(text) if text else None


def source(path: str) -> str:
    """Return the link to the content of a file of this version. path: relative to the checkout."""
    return f"{_CONTENT}/{revision()}/{path}"


def newest_source(path: str) -> str:
    """Return the link to the newest content of a file, for what must not change with each version."""
    return f"{_CONTENT}/{_BRANCH}/{path}"


def is_installed() -> bool:
    """Return whether this is an installed package and not a checkout. Nothing may be written into it."""
    return _SHIPPED.is_dir()


def refresh_hint(part: str, where: str = "") -> str:
    """Return the hint for a wrong pinned file. part: as `refresh` calls it. where: ends the sentence."""
    if is_installed():
        return "install a newer version of this tool"
    return f"write it again with scripts/refresh {part}{where}"


def install_hint(extra: str) -> str:
    """Return the command that installs this tool with an extra of pyproject.toml."""
    if is_installed():
        return f'pip install "tensorflow-gpu-matrix[{extra}]"'
    return f"./scripts/environment {extra}"


def root_directory() -> Path:
    """Return the root of the checkout, or the directory of the copies in an installed package."""
    return _SHIPPED if is_installed() else _PACKAGE.parent


def images_directory() -> Path:
    """Return the directory with the Dockerfile, the entry point, the pinned bases and their locks."""
    return root_directory() / "images"


def shipped_matrix() -> Path:
    """Return the matrix of this project. Its locks are in `images/locks` next to it."""
    return root_directory() / "matrix.yaml"


def manual(page: str) -> str:
    """Return the link to this version's page of the manual. page: in `docs/`, with an anchor if it helps."""
    return f"{_MANUAL}/{revision()}/docs/{page}"


def newest_manual(page: str) -> str:
    """Return the link to a page of the newest manual. page: as for `manual`."""
    return f"{_MANUAL}/{_BRANCH}/docs/{page}"
