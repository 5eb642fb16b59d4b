"""The layer for JupyterLab: it has everything that `%gpu_doctor` needs, and opens a notebook."""

from __future__ import annotations

import ast
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from validator.__main__ import NEEDED
from validator.assemble.configuration import notebooks
from validator.assemble.wheel_layers import recipe_digest
from validator.matrix.images import JUPYTER_PACKAGES
from validator.model.spec import Variant
from validator.resources import images_directory

ROOT = Path(__file__).parents[2]
CONFIG = images_directory() / "notebooks" / "jupyter_lab_config.py"
NOTEBOOK = images_directory() / "notebooks" / "check-the-gpu.ipynb"
#: The dependencies of this tool that no image with JupyterLab has to have.
ABSENT = sorted({*NEEDED} - {"click", "jinja2", "markupsafe", "msgspec"})


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("image")
    for entry in notebooks().entries():
        path = root / entry.path
        if entry.content is None:
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(b"".join(entry.content.chunks()))
            path.chmod(entry.mode)
    return root


@pytest.mark.service
def test_the_extension_works_with_what_is_in_the_image(unpacked: Path, tmp_path: Path) -> None:
    """No other module of this project is there, and no other dependency of it."""
    assert set(JUPYTER_PACKAGES) == {"jupyterlab", "click", "msgspec"}
    python = unpacked / "opt/tensorflow-gpu-matrix/python"
    cells = [
        f"import sys; sys.modules.update(dict.fromkeys({ABSENT}))",
        "%load_ext validator",
        "%gpu_doctor",
        "import validator; validator.__file__",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.embedded.run_cells"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{python}:{ROOT}", "IPYTHONDIR": str(tmp_path / "ipython")},
        input=json.dumps(cells),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    _, load, doctor, place = json.loads(done.stdout.rpartition("\nSHOWN ")[2])
    assert load["error"] == doctor["error"] == ""
    assert "tensorflow_not_installed" in doctor["text/html"]
    assert place["text/plain"] == repr(str(python / "validator/__init__.py"))


@pytest.mark.slow
def test_every_module_of_this_project_that_they_import_is_there(unpacked: Path) -> None:
    """Also what is imported only if TensorFlow is installed, which the cells above don't reach."""
    python = unpacked / "opt/tensorflow-gpu-matrix/python"
    absent = set()
    for path in python.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in set(ast.walk(tree)) - set(_only_for_types(tree)):
            if isinstance(node, ast.ImportFrom) and node.level:
                origin = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
                names = [origin, *(origin / alias.name for alias in node.names)]
                absent |= {name.relative_to(python) for name in names if _is_missing(name, python)}
    assert absent == set()
    assert not [name for name in ("elf", "inspect") if (python / f"validator/compat/{name}.py").exists()]


def _only_for_types(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield everything that only a type checker imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from ast.walk(node)


def _is_missing(module: Path, python: Path) -> bool:
    """Return True if this project has a module of this name, and the image does not."""
    ours = ROOT / module.relative_to(python)
    return any(
        (ours / name if name else ours.with_suffix(".py")).is_file()
        and not (module / name if name else module.with_suffix(".py")).is_file()
        for name in ("", "__init__.py")
    )


def test_the_image_finds_them_after_its_own_packages(unpacked: Path) -> None:
    (file,) = (unpacked / "opt/venv/lib/python3/site-packages").iterdir()
    assert (file.suffix, file.read_text()) == (".pth", "/opt/tensorflow-gpu-matrix/python\n")
    assert not any(
        stat.S_IMODE(path.stat().st_mode) & 0o022 for path in unpacked.rglob("*") if path.is_file()
    )


def test_only_images_with_jupyterlab_depend_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {variant: recipe_digest(variant) for variant in Variant}
    changed = SimpleNamespace(made_from=("notebooks 1", "other"))
    monkeypatch.setattr("validator.assemble.wheel_layers.notebooks", lambda: changed)
    assert {variant for variant in Variant if recipe_digest(variant) != before[variant]} == {Variant.JUPYTER}


def test_the_notebook_has_no_outputs_and_its_code_is_valid() -> None:
    document = json.loads(NOTEBOOK.read_text())
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    cells = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    source = "\n".join("".join(cell["source"]) for cell in cells)
    assert source.startswith("%load_ext validator\n") and source.endswith("\n%gpu_doctor")
    compile("\n".join(line for line in source.splitlines() if not line.startswith("%")), NOTEBOOK, "exec")


def opened(directory: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str | None:
    """Run JupyterLab's settings in a directory, and return the address that it then opens."""
    monkeypatch.chdir(directory)
    monkeypatch.setattr(sys, "argv", ["jupyter-lab", *arguments])
    lab: Any = SimpleNamespace(default_url=None)
    text = CONFIG.read_text().replace("/opt/tensorflow-gpu-matrix/notebooks", str(NOTEBOOK.parent))
    exec(compile(text, CONFIG, "exec"), {"c": SimpleNamespace(LabApp=lab)})
    address: str | None = lab.default_url
    return address


def test_jupyterlab_opens_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".bashrc").write_text("")
    assert opened(tmp_path, monkeypatch) == "/lab/tree/check-the-gpu.ipynb"
    copy = tmp_path / NOTEBOOK.name
    assert copy.read_bytes() == NOTEBOOK.read_bytes()
    copy.write_text("mine")
    assert opened(tmp_path, monkeypatch) == "/lab/tree/check-the-gpu.ipynb"
    assert copy.read_text() == "mine"


def test_a_directory_of_the_user_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("")
    assert opened(tmp_path, monkeypatch) is None
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.parametrize("argument", ["--ServerApp.root_dir=/data", "--notebook-dir=/data"])
def test_another_root_directory_has_no_such_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argument: str
) -> None:
    assert opened(tmp_path, monkeypatch, argument) is None
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_can_not_be_written_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*paths: str) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr("shutil.copyfile", refuse)
    assert opened(tmp_path, monkeypatch) is None
