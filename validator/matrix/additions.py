"""Read what an image entry adds to its images: packages, files and settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ..model.spec import NAME, Additions, CheckFile, LocalWheel, Requirements, Variant, is_name
from ..redaction.identifiers import CREDENTIALS
from .document import Document
from .document import Path as Place
from .problems import quote
from .requirements import (
    file_hash,
    read_package,
    read_project,
    read_pylock,
    read_requirements_txt,
    relative_to,
)
from .schema import CheckEntry, ImageEntry, ProjectEntry

#: What the variant jupyter adds: JupyterLab, and what `%gpu_doctor` needs in addition.
JUPYTER = "jupyter"
JUPYTER_PACKAGES = ("jupyterlab", "msgspec", "click")

#: The keys of an entry that add something to its images.
_KEYS = ("packages", "requirements", "system_packages", "environment", "checks")

_SYSTEM_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIZE = re.compile(r"(?P<number>\d{1,6}(?:\.\d{1,3})?) ?(?P<unit>[MG]i?B)")
_UNITS = {"MB": 1000**2, "GB": 1000**3, "MiB": 1024**2, "GiB": 1024**3}

#: Variables that belong to the image -> the reason.
_OWNED = (
    (re.compile(r"PATH|VIRTUAL_ENV|PYTHONHOME"), "it makes the image's Python the one that runs"),
    (
        re.compile(r"LD_LIBRARY_PATH|LD_PRELOAD"),
        "it would come before the loader's cache, through which TensorFlow finds the image's CUDA and cuDNN",
    ),
    (re.compile(r"NVIDIA_.*"), "the NVIDIA runtime reads it, and the image sets it for its CUDA"),
    (re.compile(r"VALIDATOR_.*"), "the entry point reads it"),
)


def resolve_additions(
    entry: ImageEntry, variant: Variant, path: Place, document: Document
) -> Additions | None:
    """Return what an entry adds to its images of a variant, or None if that is nothing.

    Files are read relative to the matrix file. Problems are reported to `document`.
    """
    jupyter = variant is Variant.JUPYTER
    adds = any(getattr(entry, key) for key in _KEYS)
    if not adds and not jupyter:
        if entry.name:
            document.report(
                (*path, "name"), "has no effect on an image to which nothing is added", at_key=True
            )
        return None
    if entry.name and not is_name(entry.name):
        document.report(
            (*path, "name"),
            f"{quote(entry.name)} is not a name: use up to 32 lower-case letters, digits, dots and dashes"
            " (eight hexadecimal digits are the names of images without one)",
        )

    def package(text: str) -> str | LocalWheel:
        try:
            return read_package(text, document.directory, document.directory)
        except ValueError as error:
            raise ValueError(f"{quote(text)} {error}") from None

    requirements, from_file = _requirements(entry, (*path, "requirements"), document)
    packages = [found for _, found in document.read_each(entry.packages, (*path, "packages"), package)]
    for index, name in enumerate(entry.system_packages):
        if not _SYSTEM_PACKAGE.fullmatch(name):
            message = f"{quote(name)} is not the name of a Debian or Ubuntu package"
            document.report((*path, "system_packages", index), message)
    wheels = [one for one in (*packages, *from_file) if isinstance(one, LocalWheel)]
    return Additions(
        name=entry.name or (JUPYTER if jupyter and not adds else None),
        packages=(*(JUPYTER_PACKAGES if jupyter else ()), *(one for one in packages if isinstance(one, str))),
        wheels=tuple(dict.fromkeys(wheels)),
        requirements=requirements,
        system_packages=tuple(entry.system_packages),
        environment=tuple(sorted(_environment(entry, (*path, "environment"), document))),
        checks=tuple(_checks(entry, (*path, "checks"), document)),
        directory=document.directory,
    )


def resolve_max_size(entry: ImageEntry, path: Place, document: Document) -> int | None:
    """Return the size budget of an entry in bytes, or None if it has none."""
    match = _SIZE.fullmatch(entry.max_size)
    if match is not None:
        return round(float(match["number"]) * _UNITS[match["unit"]])
    if entry.max_size:
        message = f"{quote(entry.max_size)} is not a size; write it like 3.5GB or 800MiB"
        document.report((*path, "max_size"), message)
    return None


def _requirements(
    entry: ImageEntry, path: Place, document: Document
) -> tuple[Requirements | None, list[LocalWheel]]:
    """Return the requirements of the entry's file or project, and the wheels that they name by path."""
    given = entry.requirements
    if not given:
        return None, []
    root = document.directory
    try:
        if isinstance(given, ProjectEntry):
            where = Path(given.project) / "pyproject.toml"
            origin = f"{where.as_posix()} (group {given.group})" if given.group else where.as_posix()
            found = read_project(root / given.project, given.group, root)
        elif given.endswith(".toml"):
            lock = root / given
            if lock.name == "pyproject.toml":
                raise ValueError(
                    f"a project is written as {{project: {relative_to(lock.parent, root)}}},"
                    " with a group if wanted"
                )
            origin, found = given, read_pylock(lock, root)
        else:
            origin, found = given, read_requirements_txt(root / given, root)
    except ValueError as error:
        document.report(path, str(error))
        return None, []
    return found.requirements(origin), found.wheels


def _environment(entry: ImageEntry, path: Place, document: Document) -> Iterator[tuple[str, str]]:
    for name, value in entry.environment.items():
        reason = next((reason for pattern, reason in _OWNED if pattern.fullmatch(name)), None)
        if not _VARIABLE.fullmatch(name):
            document.report((*path, name), f"{quote(name)} is not the name of a variable", at_key=True)
        elif reason is not None:
            document.report((*path, name), f"{name} belongs to the image: {reason}", at_key=True)
        else:
            if any(pattern.search(f"{name}={value}") for pattern, _ in CREDENTIALS):
                document.warn(
                    (*path, name),
                    "looks like a secret; everybody who has the image or this file can read it."
                    " Pass it when you start a container instead (docker run --env)",
                )
            yield name, value


def _checks(entry: ImageEntry, path: Place, document: Document) -> Iterator[CheckFile]:
    given = [one if isinstance(one, CheckEntry) else CheckEntry(path=one) for one in entry.checks]
    modules: dict[str, int] = {}

    def hash_of(check: CheckEntry) -> str:
        file = Path(check.path)
        if file.is_absolute():
            raise ValueError("must be a path relative to this file, so that it is the same elsewhere")
        if file.suffix != ".py" or not NAME.fullmatch(file.stem):
            raise ValueError(
                f"{quote(file.name)} is not the name of a check: use a lower-case letter, then lower-case"
                " letters, digits and _, and .py at the end"
            )
        try:
            return file_hash(document.directory / file, document.directory)[0]
        except ValueError as error:
            raise ValueError(f"{quote(check.path)} {error}") from None

    for index, sha256 in document.read_each(given, path, hash_of):
        check = given[index]
        module = Path(check.path).name
        if modules.setdefault(module, index) != index:
            document.report((*path, index), f"another check is in a file with the name {module}")
        relative = relative_to(document.directory / check.path, document.directory)
        yield CheckFile(relative, sha256, check.required, check.timeout)
