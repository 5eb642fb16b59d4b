"""Read the user's own checks, and pack them into the probe."""

from __future__ import annotations

import ast
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from ..model.additions import CheckFile
from ..model.own_checks import is_own
from ..resources import manual

#: In the archive: a package that lists them and imports one by its name.
_PACKAGE = "validator/probe/own"
#: Bytes of a check's file: much more is not a check.
_LARGEST = 1 << 20
_MANUAL = f"{manual('reference/matrix.md')} describes checks of your own"


@dataclass(frozen=True)
class PackedCheck:
    """A check with its source. title: the first line of its docstring, or its path."""

    file: CheckFile
    source: bytes
    title: str

    @property
    def timeout_s(self) -> float:
        return self.file.timeout_s


def read_checks(directory: Path, files: Iterable[CheckFile]) -> tuple[PackedCheck, ...]:
    """Return the checks of an image. directory: of the matrix file, for their paths.

    Raises InputError if one can't be read, is not a check, or has changed since the matrix was read.
    """
    found = tuple(_read(directory / file.path, file) for file in files)
    for identifier, count in Counter(check.file.id for check in found).items():
        if count > 1:
            raise InputError(
                f"{count} checks are named {identifier}", hint="rename one of their files: the id is its name"
            )
    return found


def read_files(paths: Iterable[Path]) -> tuple[PackedCheck, ...]:
    """Return the checks in files, each of them required. Raises InputError as `read_checks` does."""
    files = (CheckFile(str(path), hashlib.sha256(_content(path)).hexdigest()) for path in paths)
    return read_checks(Path(), files)


def _read(path: Path, file: CheckFile) -> PackedCheck:
    if path.suffix != ".py" or not is_own(file.id):
        raise InputError(
            f"{path}: the name of a check's file has only lower-case letters, digits and underscores, begins"
            " with a letter and ends in .py",
            hint="rename it, such as to our_check.py",
        )
    source = _content(path)
    if hashlib.sha256(source).hexdigest() != file.sha256:
        raise InputError(f"{path} has changed while it was used", hint="run the same command again")
    return PackedCheck(file, source, _title(path, source) or file.path)


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: the check can't be read: {error.strerror}", hint=_MANUAL) from error
    if len(content) > _LARGEST:
        raise InputError(f"{path}: a check with more than {_LARGEST >> 20} MiB is not accepted", hint=_MANUAL)
    return content


def _title(path: Path, source: bytes) -> str | None:
    """Return the first line of the docstring. Raises InputError if the file has no function `check`."""
    try:
        module = ast.parse(source, str(path))
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{path} is not valid Python: {error}", hint=_MANUAL) from error
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    if not functions:
        raise InputError(f"{path} has no function `check`", hint=_MANUAL)
    lines = (ast.get_docstring(module) or "").strip().splitlines()
    return lines[0] if lines else None


def members(checks: Sequence[PackedCheck]) -> dict[str, bytes]:
    """Return the files to add to the archive, by name."""
    if not checks:
        return {}
    listed = [
        {
            "id": check.file.id,
            "module": Path(check.file.path).stem,
            "title": check.title,
            "required": check.file.required,
            "limit_s": check.file.timeout_s,
        }
        for check in checks
    ]
    modules = {f"{_PACKAGE}/{Path(check.file.path).name}": check.source for check in checks}
    return {f"{_PACKAGE}/checks.json": json.dumps(listed, indent=1).encode(), **modules}
