"""Make the files with which the page answers questions in the browser.

The browser runs this project's own Python (`validator/answers/`) with Pyodide, which is CPython compiled to
WebAssembly. There are two files: `runtime` has Pyodide and changes only with its version, `rules` has the
memory of a Python that has imported this project's code and facts, which would take a browser seconds.

Each file is a script that gives its parts to the page, compressed and in base64. A page that was opened from
disk can load scripts, but it can't fetch other files. For the same reason the page needs no permission to
connect to anything, so its policy forbids it, and a static host need not compress anything.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import tarfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import markupsafe

from ...compat.hardware import branches, gpu_names
from ...compat.offers import image_of
from ...compat.releases import older_releases, releases
from ...errors import InputError
from ...versions import Version
from ..diagnosis import TEMPLATES
from ..printable import script_json
from .measurements import Measurements

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DATA = Path(__file__).parent / "pyodide.json"
_PACKAGE = Path(__file__).parent.parent.parent
#: The table of answers, which `answers/table.py` makes, after the digest of what it was made from.
TABLE = _PACKAGE / "answers/table.bin"
_DIGITS = 32
#: The largest package of Pyodide that is read. The pinned one has 6.5 MB.
_LARGEST = 64 << 20
#: Replacements in Pyodide's module, with how often each text is there. A page from disk can't start a module
#: as a worker.
_CHANGES = (
    ("import.meta.url", '"https://answers.invalid/"', 3),
    ("export default _createPyodideModule;", "", 1),
)
#: What the answers consist of, relative to `validator/`.
_RULES = (
    "__init__.py", "errors.py", "versions.py", "version_numbers.py", "conditions.py", "problems.py",
    "problems.json", "resources.py",
    "_vendor/__init__.py", "_vendor/packaging", "compat", "diagnosis", "answers",
    "model/__init__.py", "model/diagnosis.py", "model/prediction.py", "model/spec.py",
    "reports/__init__.py", "reports/printable.py",
)  # fmt: skip
#: The files among these that only people edit, or that need packages that a browser does not have.
_NOT_RULES = re.compile(
    r"__pycache__|\.yaml$|README|/(compile|elf|inspect|table)\.py$|\.bin$"
    r"|/packaging/(?!__init__|version|LICENSE)"
)


@dataclass(frozen=True)
class Pyodide:
    """The pinned version of the npm package `pyodide`. integrity: as npm writes it, `sha512-…`."""

    version: str
    integrity: str

    @property
    def hint(self) -> str:
        return f"`npm pack pyodide@{self.version}` downloads it"


@dataclass(frozen=True)
class Answers:
    """The files that answer questions.

    runtime, rules: the paths of what Python needs, relative to the page. table: that of the answers to usual
    questions, which need no Python; None if there is no current table.
    """

    runtime: str
    rules: str
    files: Mapping[str, bytes]
    table: str | None = None

    @property
    def size(self) -> int:
        """The bytes to load before Python answers."""
        return sum(len(content) for path, content in self.files.items() if path != self.table)


def context(answers: Answers, registry: str | None, measurements: Measurements) -> dict[str, Any]:
    """Return the values for the template of the questions."""
    digests: dict[str, str | None] = {}
    verdicts: dict[str, dict[str, Any]] = {}
    for record in sorted(measurements.latest.values(), key=lambda record: record.finished):
        digest = record.image_digest
        known = digest is not None and _DIGEST.fullmatch(digest)
        verdicts[record.cell] = {"verdict": record.verdict.value, "digest": digest if known else None}
        if limits := record.limits:
            verdicts[record.cell]["limits"] = [asdict(limit) for limit in limits]
        if known:
            digests[record.image] = digest
    data = {
        "files": [answers.runtime, answers.rules],
        "size": answers.size,
        "table": answers.table,
        "registry": registry,
        "images": digests if registry else {},
        # A GPU without measurements is offered only images with CUDA and without additions.
        "pullable": bool(registry)
        and any(getattr(image_of(one), "identifier", "") == one for one in digests),
        "verdicts": verdicts,
    }
    return {
        "gpus": gpu_names(),
        "branches": [(branch.number, str(branch.cuda)) for branch in reversed(branches())],
        "pythons": sorted(
            {python for release in (*older_releases(), *releases()) for python in release.pythons},
            key=Version,
        ),
        "data": markupsafe.Markup(script_json(data)),
    }


def pinned() -> Pyodide:
    """Return the version of Pyodide that this version of the page works with."""
    document = json.loads(_DATA.read_bytes())
    return Pyodide(document["version"], document["integrity"])


def make_answers(package: Path, mark: str, table: str | None, run: Callable[[bytes], bytes]) -> Answers:
    """Return the files that answer questions.

    package: what `npm pack` wrote for the pinned version of Pyodide. mark: a text for the beginning of each
    file. table: what `read_table` returns. run: runs a program of Node.js and returns what it writes. Raises
    InputError if the package is another file.
    """
    pin = pinned()
    try:
        with package.open("rb") as stream:
            content = stream.read(_LARGEST + 1)
    except OSError as error:
        raise InputError(f"{package}: {error.strerror}", hint=pin.hint) from error
    algorithm, _, wanted = pin.integrity.partition("-")
    if base64.b64encode(hashlib.new(algorithm, content).digest()).decode() != wanted:
        raise InputError(
            f"{package} is not pyodide {pin.version} as npm publishes it: its SHA-512 differs", hint=pin.hint
        )
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = {
            member.name.removeprefix("package/"): part.read()
            for member in archive
            if (part := archive.extractfile(member)) is not None
        }
    pyodide = _encoded({
        "pyodide.asm.wasm": members["pyodide.asm.wasm"],
        "pyodide.js": _script(members["pyodide.asm.mjs"].decode(), members["pyodide.mjs"].decode()).encode(),
        # The list of Pyodide's packages without the packages, none of which are used.
        "pyodide-lock.json": json.dumps(json.loads(members["pyodide-lock.json"]) | {"packages": {}}).encode(),
    })  # fmt: skip
    library = {"python_stdlib.zip": members["python_stdlib.zip"]}
    parts = pyodide | _encoded(library | {"rules.json": json.dumps(rule_files()).encode()})
    snapshot = run((TEMPLATES / "snapshot.js").read_bytes() + f"begin({json.dumps(parts)});\n".encode())
    runtime = _file(
        f"{mark}: Pyodide {pin.version}, MPL-2.0, https://github.com/pyodide/pyodide;"
        " CPython, PSF-2.0, https://www.python.org",
        pyodide,
    )
    worker = _encoded({"worker.js": (TEMPLATES / "worker.js").read_bytes()})
    rules = _file(mark, worker | {"snapshot": base64.b64encode(snapshot).decode()})
    files = [runtime, rules, *([_file(mark, _encoded({"table.json": table.encode()}))] if table else [])]
    return Answers(runtime[0], rules[0], dict(files), files[2][0] if table else None)


def rule_files() -> dict[str, str]:
    """Return the texts of this project's files that run in the browser, by path, in order."""
    paths = sorted(
        path.relative_to(_PACKAGE.parent).as_posix()
        for name in _RULES
        for path in (_PACKAGE / name, *(_PACKAGE / name).rglob("*"))
        if path.is_file()
    )
    return {
        name: (_PACKAGE.parent / name).read_text("utf-8") for name in paths if not _NOT_RULES.search(name)
    }


def digest() -> str:
    """Return the digest of the facts and the code that the table of answers is made from."""
    used = {name: text for name, text in rule_files().items() if not name.startswith("validator/diagnosis/")}
    used["table"] = TABLE.with_suffix(".py").read_text("utf-8")
    return hashlib.sha256(json.dumps(used).encode()).hexdigest()[:_DIGITS]


def read_table() -> str | None:
    """Return the table as JSON; None if it was made from other facts or other code than what is there."""
    content = TABLE.read_bytes() if TABLE.exists() else b""
    if content[:_DIGITS] != digest().encode():
        return None
    return zlib.decompress(content[_DIGITS:]).decode()


def _script(module: str, loader: str) -> str:
    """Return Pyodide's two modules as one script."""
    for old, new, count in _CHANGES:
        module = _replaced(module, old, new, count)
    exports = re.search(r"export\{(\w+) as loadPyodide,\w+ as version\};", loader)
    if exports is None:
        raise ValueError("pyodide.mjs does not export loadPyodide in the expected way")
    loader = _replaced(loader, exports[0], f"globalThis.loadPyodide={exports[1]};", 1)
    # Pyodide calls this to find out what kind of worker it runs in, and refuses to start if it is there.
    head = "globalThis.importScripts = undefined;"
    loader = re.sub(r"//# sourceMappingURL=.*", "", loader)
    return f"{head}\n{module}\n{{{loader}}}\n"


def _replaced(text: str, old: str, new: str, count: int) -> str:
    if text.count(old) != count:
        raise ValueError(f"Pyodide has {old!r} {text.count(old)} times instead of {count}")
    return text.replace(old, new)


def _encoded(parts: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(zlib.compress(part, 9)).decode() for name, part in parts.items()}


def _file(head: str, parts: Mapping[str, str]) -> tuple[str, bytes]:
    """Return a file's path and content. The name is a digest, so that caches never mix versions."""
    text = json.dumps(parts, separators=(",", ":"))
    name = hashlib.sha256(text.encode()).hexdigest()[:20]
    return f"answers/{name}.js", f'// {head}\nanswersPart("{name}",{text});\n'.encode()
