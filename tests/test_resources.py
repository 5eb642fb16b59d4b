"""The files outside the package, and the files that messages may name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import validator
from validator import resources

ROOT = Path(validator.__file__).parent
DOCS = ROOT.parent / "docs"
#: These work on a checkout, and only there.
ON_A_CHECKOUT = {"resources.py", "supply", "compat/compile.py"}
#: A path that an installed package does not have. Not a URL, and not in the middle of a longer path.
NOT_INSTALLED = re.compile(r"(?<![\w/.-])(?:\./)?(?:docs|scripts|tests|requirements)/\w[\w./-]*")


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the constant texts of a module with their lines, without its docstrings.

    Most modules have no such text anywhere, and need not be parsed.
    """
    text = path.read_text(encoding="utf-8")
    if not NOT_INSTALLED.search(text):
        return
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if not name.startswith("_vendor"):
            yield name, path


def pages() -> Iterator[tuple[str, str]]:
    """Yield the pages that the code links, with the module."""
    for name, path in modules():
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "manual" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "manual":
                (argument,) = node.args
                assert isinstance(argument, ast.Constant), f"{name}: the page must be visible here"
                yield name, str(argument.value)


@pytest.mark.slow
def test_no_message_names_a_file_that_is_not_installed() -> None:
    found = [
        f"{name}:{line}: {match[0]}"
        for name, path in modules()
        if not {name, name.partition("/")[0]} & ON_A_CHECKOUT and name != "__main__.py"
        for line, text in sentences(path)
        # The first line of a file that is written in a checkout.
        if not re.search("[Ww]ritten by `?scripts/", text)
        for match in NOT_INSTALLED.finditer(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("docs/trust.md says so", True),
        ("run ./scripts/refresh", True),
        ("see https://example.org/docs/trust.md", False),
        ("images/locks/x.txt is missing", False),
    ],
)
def test_the_expression_sees_paths(text: str, named: bool) -> None:
    assert bool(NOT_INSTALLED.search(text)) == named


def test_every_linked_page_and_heading_exists() -> None:
    linked = list(pages())
    assert len(linked) >= 4
    for name, page in linked:
        file, _, anchor = page.partition("#")
        text = (DOCS / file).read_text(encoding="utf-8")
        headings = {
            re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        }
        assert not anchor or anchor in headings, f"{name} links {page}"


COMMIT = "0123456789" * 4


@pytest.mark.parametrize(
    ("direct_url", "revision", "requirement"),
    [
        (None, f"v{validator.__version__}", f"tensorflow-gpu-matrix=={validator.__version__}"),
        ({"vcs_info": {"vcs": "git", "commit_id": COMMIT}}, COMMIT, f"@{COMMIT}"),
        ({"archive_info": {}}, "main", "@main"),
    ],
)
def test_links_and_the_requirement_name_what_is_there(
    direct_url: dict[str, object] | None, revision: str, requirement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tag is there only for a release, and only an index has releases."""
    assert resources.manual("trust.md").endswith("/blob/main/docs/trust.md")
    monkeypatch.setattr(resources, "is_installed", lambda: True)
    monkeypatch.setattr(resources, "_direct_url", lambda: direct_url)
    assert resources.manual("trust.md").endswith(f"/blob/{revision}/docs/trust.md")
    assert resources.source("matrix.yaml").endswith(f"/{revision}/matrix.yaml")
    assert resources.requirement(None).endswith(requirement)


def test_an_installed_package_has_its_own_copies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resources, "_SHIPPED", tmp_path)
    assert resources.is_installed()
    assert resources.shipped_matrix() == tmp_path / "matrix.yaml"
    assert resources.images_directory() == tmp_path / "images"
    assert resources.refresh_hint("debian") == "install a newer version of this tool"
    assert resources.install_hint("parquet") == 'pip install "tensorflow-gpu-matrix[parquet]"'


def test_a_checkout_has_the_originals() -> None:
    assert not resources.is_installed()
    assert resources.shipped_matrix() == ROOT.parent / "matrix.yaml"
    assert resources.refresh_hint("debian") == "write it again with scripts/refresh debian"
    assert resources.install_hint("parquet") == "./scripts/environment parquet"
