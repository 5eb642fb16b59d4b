"""Each room imports only what the picture in docs/architecture.md allows."""

from __future__ import annotations

import pytest

from .structure import ROOT, imports_of, room_of, selected_tests

#: Room -> the rooms and top-level modules it may import besides itself.
ALLOWED = {
    "_vendor": set(),
    "model": {"versions", "errors", "problems"},
    "compat": {"_vendor", "model", "versions", "conditions", "errors", "resources"},
    "matrix": {
        "_vendor", "model", "versions", "conditions", "compat", "redaction", "system", "errors", "resources",
        "__init__",
    },
    "system": {"errors"},
    "locks": {"_vendor", "model", "versions", "compat", "matrix", "system", "errors", "resources"},
    "registry": {"model", "versions", "system", "errors"},
    "assemble": {
        "_vendor", "model", "versions", "compat", "locks", "registry",
        "system", "errors", "resources",
    },
    "sbom": {"model", "compat", "assemble", "errors", "__init__"},
    "engines": {
        "model", "versions", "compat", "locks", "registry", "assemble",
        "system", "errors", "resources",
    },
    "fleet": {"model", "versions", "compat", "matrix", "engines", "system", "errors", "resources"},
    "supply": {
        "_vendor", "model", "versions", "compat", "locks", "assemble", "engines",
        "system", "errors", "resources",
    },
    "probe": {"problems", "version_numbers", "_vendor"},
    "records": {"model", "system", "errors"},
    "certify": {
        "model", "versions", "compat", "matrix", "records", "registry", "redaction",
        "system", "errors", "resources", "problems",
    },
    "diagnosis": {"model", "versions", "conditions", "compat", "errors", "resources", "problems"},
    "lint": {"_vendor", "model", "versions", "compat", "matrix", "diagnosis", "system", "errors"},
    "pipeline": {
        "model", "versions", "compat", "matrix", "locks", "assemble", "engines", "fleet", "records",
        "registry", "certify", "sbom", "offline", "system", "errors", "resources", "_vendor", "__init__",
    },
    "delivery": {
        "model", "versions", "compat", "assemble", "engines", "registry", "certify",
        "system", "errors", "resources",
    },
    "embedded": {"model", "diagnosis", "engines", "reports", "redaction", "errors"},
    "dataset": {
        "model", "conditions", "compat", "diagnosis", "redaction", "reports", "system", "errors", "resources",
        "__init__",
    },
    "offline": {"fleet"},
    "redaction": set(),
    "reports": {"model", "versions", "compat", "records", "redaction", "errors"},
    "answers": {"model", "versions", "compat", "diagnosis", "reports", "errors"},
    "serve": {"model", "reports", "errors"},
    "cli": {
        "model", "versions", "compat", "matrix", "locks", "registry", "assemble", "engines", "records",
        "fleet", "certify", "delivery", "pipeline", "diagnosis", "lint", "reports", "dataset",
        "redaction", "sbom", "answers", "serve", "supply", "offline",
        "system", "errors", "resources", "__init__",
    },
}  # fmt: skip
#: tensorflow lives in images and environments; the host side never imports it.
NEVER = {"tensorflow", "keras", "numpy"}


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_a_room_has_only_allowed_imports(room: str) -> None:
    file = ROOT / f"{room}.py"
    modules = [file] if file.exists() else sorted((ROOT / room).rglob("*.py"))
    assert modules, f"there is no room {room}"
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in modules
        for name, line in imports_of(path)
        if name.split(".")[0] == "validator" and room_of(name) not in ALLOWED[room] | {room}
    ]
    assert wrong == []


def test_every_room_is_in_the_picture() -> None:
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert rooms == {room for room in ALLOWED if not (ROOT / f"{room}.py").exists()}


def test_the_host_side_never_imports_tensorflow() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in ROOT.rglob("*.py")
        if path.relative_to(ROOT).parts[0] != "probe"
        for name, line in imports_of(path)
        if name.split(".")[0] in NEVER
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        (["README.md"], ["tests/test_docs.py"]),
        (["validator/serve.py"], ["tests/cli", "tests/serve", "tests/test_layers.py"]),
        (["tests/serve/test_gone.py"], []),
        (["tests/serve/test_host.py", "tests/support.py"], ["tests"]),
        (["validator/redaction/redact.py", "tests/redaction/conftest.py"], [
            "tests/certify", "tests/cli", "tests/dataset", "tests/embedded", "tests/matrix",
            "tests/redaction", "tests/reports", "tests/test_layers.py",
        ]),
    ],
)  # fmt: skip
def test_a_change_needs_the_selected_tests_its_rooms_and_of_those_that_import_them(
    changed: list[str], tests: list[str]
) -> None:
    assert selected_tests(changed, ALLOWED) == tests
