"""The download and the first start of Pyodide, with programs that stand in for npm and Node.js."""

from __future__ import annotations

import base64
import hashlib
import sys
from pathlib import Path

import pytest

from validator.cli.report import NPM, pyodide_of
from validator.errors import MissingError
from validator.system.package_sources import pyodide_package, run_by_node

#: It runs programs that are named npm and node.
pytestmark = pytest.mark.service

CONTENT = b"a package"
INTEGRITY = f"sha512-{base64.b64encode(hashlib.sha512(CONTENT).digest()).decode()}"
#: Writes what npm would, and notes its arguments.
PACK = """
import pathlib, sys
words = sys.argv[1:]
place = pathlib.Path(words[words.index("--pack-destination") + 1])
(place / "pyodide-1.2.3.tgz").write_bytes(CONTENT)
with open(CALLS, "a") as file:
    print(*words, file=file)
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file with npm's calls. The cache and the PATH are empty but for npm."""
    monkeypatch.setenv("VALIDATOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    npm(tmp_path, PACK, CONTENT)
    return tmp_path / "calls"


def npm(tmp_path: Path, program: str, content: bytes = b"", name: str = "npm") -> None:
    (tmp_path / "bin").mkdir(exist_ok=True)
    file = tmp_path / "bin" / name
    head = f"#!{sys.executable}\nCONTENT, CALLS = {content!r}, {str(tmp_path / 'calls')!r}\n"
    file.write_text(head + program, encoding="utf-8")
    file.chmod(0o755)


def test_the_package_is_downloaded_once(calls: Path, tmp_path: Path) -> None:
    found = {pyodide_package("1.2.3", INTEGRITY) for _ in range(2)}
    assert found == {tmp_path / "cache" / "pyodide-1.2.3.tgz"}
    assert found.pop().read_bytes() == CONTENT
    (call,) = calls.read_text().splitlines()
    assert call.startswith("pack ") and call.endswith(" pyodide@1.2.3") and "--ignore-scripts" in call
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["pyodide-1.2.3.tgz"]


def test_a_damaged_file_in_the_cache_is_replaced(calls: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "pyodide-1.2.3.tgz").write_bytes(CONTENT[:-1])
    assert pyodide_package("1.2.3", INTEGRITY).read_bytes() == CONTENT


def test_another_package_is_refused_and_not_kept(calls: Path, tmp_path: Path) -> None:
    npm(tmp_path, PACK, b"something else")
    with pytest.raises(MissingError, match="SHA-512 differs"):
        pyodide_package("1.2.3", INTEGRITY)
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_npm_says_is_the_reason(calls: Path, tmp_path: Path) -> None:
    npm(tmp_path, "import sys\nsys.exit('npm error network: no route')\n")
    with pytest.raises(MissingError, match=r"can't download pyodide@1\.2\.3: npm error network: no route"):
        pyodide_package("1.2.3", INTEGRITY)


def test_a_page_without_npm_says_how_to_get_the_answers(
    calls: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bin" / "npm").unlink()
    assert pyodide_of(NPM) is None
    said = capsys.readouterr().err
    assert "The page can't answer questions: npm, which downloads pyodide@" in said
    assert "To change that, install Node.js, or run `npm pack pyodide@" in said


def test_a_file_is_taken_as_it_is_named(calls: Path) -> None:
    assert pyodide_of("package.tgz") == Path("package.tgz")
    assert pyodide_of("none") is None
    assert not calls.exists()


def test_a_cache_that_cannot_be_written_is_named(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("VALIDATOR_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(MissingError, match="cache: can't be written"):
        pyodide_package("1.2.3", INTEGRITY)


def test_what_a_program_of_node_writes_is_kept_until_another_program_runs(
    calls: Path, tmp_path: Path
) -> None:
    copy = "import pathlib, sys\nfirst, made = map(pathlib.Path, sys.argv[1:])\n"
    copy += "made.write_bytes(first.read_bytes()[::-1])\nprint(1, file=open(CALLS, 'a'))\n"
    npm(tmp_path, copy, name="node")
    assert [run_by_node(program) for program in (b"one", b"one", b"two")] == [b"eno", b"eno", b"owt"]
    assert calls.read_text() == "1\n1\n"
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_program_of_node_needs_node(calls: Path) -> None:
    with pytest.raises(
        MissingError, match=r"Node\.js, which starts the Python of the page once, is not installed"
    ):
        run_by_node(b"")


def test_what_a_program_of_node_says_is_the_reason(calls: Path, tmp_path: Path) -> None:
    npm(tmp_path, "import sys\nsys.exit('first\\nWebAssembly is too old')\n", name="node")
    with pytest.raises(
        MissingError, match="can't start the Python of the page: WebAssembly is too old"
    ) as raised:
        run_by_node(b"")
    assert raised.value.hint == "install Node.js 20 or newer"
    assert list((tmp_path / "cache").iterdir()) == []
