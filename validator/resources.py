"""Find the files that this tool comes with besides its code, and the pages of its manual.

In a checkout, `images/`, `measurements/`, `matrix.yaml`, `CITATION.cff` and `LICENSE` are next to this
package. `setup.py` copies them into the package when a wheel is built, so that an installed tool works in an
empty directory.
"""

from __future__ import annotations

from pathlib import Path

from . import __version__

_PACKAGE = Path(__file__).resolve().parent
#: Where `setup.py` puts the copies; a checkout does not have it.
_SHIPPED = _PACKAGE / "shipped"
_CONTENT = "https://raw.githubusercontent.com/tensorflow-gpu-matrix/tensorflow-gpu-matrix"
_MANUAL = "https://github.com/tensorflow-gpu-matrix/tensorflow-gpu-matrix/blob"


def source(path: str) -> str:
    """Return the link to the content of a file of this version. path: relative to the checkout."""
    return f"{_CONTENT}/v{__version__}/{path}"


def newest_source(path: str) -> str:
    """Return the link to the newest content of a file, for what must not change with each version."""
    return f"{_CONTENT}/main/{path}"


def is_installed() -> bool:
    """Return whether this is an installed package and not a checkout. Nothing may be written into it."""
    return _SHIPPED.is_dir()


def refresh_hint(part: str, where: str = "") -> str:
    """Return the hint for a pinned file that is wrong or out of date.

    part: what `refresh` calls it. where: what a machine needs for that, as the end of the sentence.
    """
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
    """Return the link to a page of the manual as it was for this version.

    page: relative to `docs/`, with an anchor where it helps (`reference/matrix.md#hosts`).
    """
    return f"{_MANUAL}/v{__version__}/docs/{page}"


def newest_manual(page: str) -> str:
    """Return the link to a page of the newest manual. page: as for `manual`."""
    return f"{_MANUAL}/main/docs/{page}"
