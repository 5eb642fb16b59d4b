"""Copies the files outside the package that an installed tool needs into wheels (see validator/resources.py).

It also gives the package index a README whose links work there.

Everything else is in pyproject.toml.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = ("CITATION.cff", "LICENSE", "images", "matrix.yaml", "measurements")
TARGET = Path("validator", "shipped")
REPOSITORY = "https://github.com/tensorflow-gpu-matrix/tensorflow-gpu-matrix"


def readme() -> str:
    """Return the README with the address of this version in front of each relative link."""
    version = re.search('^version = "(.+)"$', Path("pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert version, "pyproject.toml has no version"
    text = re.sub(
        r"!\[([^]]*)\]\((?!https:)",
        rf"![\1]({REPOSITORY}/raw/v{version[1]}/",
        Path("README.md").read_text("utf-8"),
    )
    return re.sub(r"\]\((?!https:|#)", f"]({REPOSITORY}/blob/v{version[1]}/", text)


def shipped_files() -> list[str]:
    """Return the paths of all these files, relative to this directory."""
    paths = [Path(name) for name in SHIPPED]
    return sorted(str(file) for path in paths for file in (path, *path.rglob("*")) if file.is_file())


class BuildWithShippedFiles(build_py):
    """The copying is part of building the package; an editable install uses the originals."""

    def run(self) -> None:
        """Build the package."""
        super().run()
        if self.editable_mode:
            return
        # A build directory may have files of an earlier build.
        shutil.rmtree(Path(self.build_lib) / TARGET, ignore_errors=True)
        for target, source in self._copies().items():
            self.mkpath(str(Path(target).parent))
            self.copy_file(source, target)

    def get_source_files(self) -> list[str]:
        """Return the files that a source distribution needs."""
        return [*super().get_source_files(), *shipped_files()]

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return the files that are built."""
        copies = [] if self.editable_mode else list(self._copies())
        return [*super().get_outputs(include_bytecode), *copies]

    def _copies(self) -> dict[str, str]:
        return {str(Path(self.build_lib) / TARGET / file): file for file in shipped_files()}


setup(
    cmdclass={"build_py": BuildWithShippedFiles},
    long_description=readme(),
    long_description_content_type="text/markdown",
)
