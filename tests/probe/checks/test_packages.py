"""Added packages that import, fail, crash or hang, and those that take the GPUs from TensorFlow.

TensorFlow is a fake that shows two GPUs, unless another module hides some or comes first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from validator.probe.check import Context, Result
from validator.probe.checks import packages
from validator.probe.installed import import_names

TENSORFLOW = """
import sys

if "breaks" in sys.modules:
    raise ImportError("libcudnn.so.9: version 9.1.0 is loaded already\\nand more")
_first = "sooner" not in sys.modules


class config:
    @staticmethod
    def list_physical_devices(kind):
        return ["GPU:0", "GPU:1"][: 1 if "hides" in sys.modules or not _first else 2]
"""


class Site:
    """A directory with distributions, that this process and its children import from."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        self.path = path
        patch.syspath_prepend(str(path))
        patch.setenv("PYTHONPATH", str(path))
        self.add("tensorflow", {"tensorflow/__init__.py": TENSORFLOW})

    def add(
        self, name: str, files: dict[str, str], top_level: str | None = None, record: bool = True
    ) -> None:
        metadata = self.path / f"{name.replace('-', '_')}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        if top_level is not None:
            (metadata / "top_level.txt").write_text(top_level)
        for file, text in files.items():
            (self.path / file).parent.mkdir(parents=True, exist_ok=True)
            (self.path / file).write_text(text)
        if record:
            listed = [*files, f"{metadata.name}/METADATA", f"{metadata.name}/RECORD"]
            (metadata / "RECORD").write_text("".join(f"{file},,\n" for file in listed))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def run(facts: dict[str, Any], *added: str) -> Result:
    facts["tensorflow"] = {"version": "2.21.0"}
    facts["environment"]["packages"] = dict.fromkeys(added, "1.0")
    return packages.packages.run(Context(facts, dict.fromkeys(added, "1.0"), added=added))


def test_nothing_runs_where_nothing_was_added(facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_imports", None)
    result = run(facts)
    assert (result.outcome, result.sentence) == ("pass", "the lock adds no packages to TensorFlow's")


@pytest.mark.slow
def test_packages_that_leave_tensorflow_alone_pass(site: Site, facts: dict[str, Any]) -> None:
    site.add("good", {"good/__init__.py": "import os"})
    site.add("no-modules", {"bin/tool": ""})
    result = run(facts, "good", "no-modules")
    assert result.outcome == "pass", result
    assert result.sentence.startswith("2 added packages can be imported before and after TensorFlow, which")
    assert result.evidence["gpus"] == 2
    good, empty = result.evidence["packages"]
    assert good["before"] == good["after"] == {
        "gpus": 2, "module": None, "failure": None, "detail": None, "last_lines": [],
    }  # fmt: skip
    assert (empty["modules"], empty["before"]) == ([], None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("raise ImportError('libfoo.so.1: cannot open')",
         "odd: import odd fails: ImportError: libfoo.so.1: cannot open"),
        ("raise SystemExit(3)", "odd: import odd fails: SystemExit: 3"),
        ("import os; os._exit(5)", "odd: import odd fails: exit status 5"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
         "odd: import odd kills the process (SIGSEGV)"),
        ("import time; time.sleep(60)", "odd: import odd did not end within 2 s"),
        ("import sys\nif 'tensorflow' in sys.modules: raise ImportError('protobuf')",
         "odd: import odd after TensorFlow fails: ImportError: protobuf"),
    ],
)  # fmt: skip
def test_an_import_that_fails_is_told_with_its_end(
    site: Site, facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch, source: str, sentence: str
) -> None:
    monkeypatch.setattr(packages, "_LIMIT_S", 2.0)
    site.add("odd", {"odd.py": source})
    site.add("good", {"good.py": ""})
    result = run(facts, "good", "odd")
    assert (result.outcome, result.sentence) == ("fail", sentence)
    assert {problem["package"] for problem in result.problems} == {"odd"}


@pytest.mark.slow
def test_a_package_that_hides_a_gpu_fails(site: Site, facts: dict[str, Any]) -> None:
    site.add("good", {"good.py": ""})
    site.add("hides", {"hides.py": ""})
    result = run(facts, "good", "hides")
    assert result.sentence == "hides: imported, it leaves TensorFlow 1 of 2 GPUs"
    assert [entry["modules"] for entry in result.evidence["packages"]] == [["good"], ["hides"]]


@pytest.mark.slow
def test_the_order_matters(site: Site, facts: dict[str, Any]) -> None:
    site.add("sooner", {"sooner.py": ""})
    result = run(facts, "sooner")
    assert result.sentence == "sooner: imported before TensorFlow, it leaves TensorFlow 1 of 2 GPUs"


@pytest.mark.slow
def test_a_package_that_breaks_tensorflows_import_is_named(site: Site, facts: dict[str, Any]) -> None:
    site.add("breaks", {"breaks.py": ""})
    assert run(facts, "breaks").sentence == (
        "breaks: imported before TensorFlow, it breaks TensorFlow:"
        " ImportError: libcudnn.so.9: version 9.1.0 is loaded already"
    )


@pytest.mark.slow
def test_a_package_may_have_the_name_of_the_probes_own(site: Site, facts: dict[str, Any]) -> None:
    site.add("validator", {"validator/__init__.py": "raise ImportError('the right one')"})
    assert run(facts, "validator").sentence == "validator: import validator fails: ImportError: the right one"


@pytest.mark.slow
def test_a_locked_package_that_is_not_installed_fails(site: Site, facts: dict[str, Any]) -> None:
    assert run(facts, "absent").problems == [
        {"code": "locked_package_missing", "severity": "fault", "package": "absent", "locked": "1.0"}
    ]


@pytest.mark.slow
def test_without_a_tensorflow_that_works_there_is_nothing_to_ask(site: Site, facts: dict[str, Any]) -> None:
    (site.path / "tensorflow/__init__.py").write_text("raise ImportError('broken')")
    site.add("good", {"good.py": ""})
    assert run(facts, "good").outcome == "skip"
    facts["tensorflow"] = None
    assert packages.packages.run(Context(facts, {"good": "1.0"}, added=("good",))).outcome == "skip"


@pytest.mark.parametrize(
    ("files", "top_level", "names"),
    [
        (["a/__init__.py", "a/b/__init__.py", "a/b/c.py"], "a\n", ["a"]),
        (["six.py"], None, ["six"]),
        (["fast.cpython-312-x86_64-linux-gnu.so", "_fast.abi3.so"], None, ["fast"]),
        (["_only.abi3.so"], None, ["_only"]),
        (["google/cloud/storage/__init__.py", "google/cloud/storage/a/__init__.py"], "google\n",
         ["google.cloud.storage"]),
        (["a/__init__.py", "tests/__init__.py"], "a\ntests\n", ["a"]),
        (["tests/__init__.py"], None, ["tests"]),
        (["a-b/__init__.py", "share/x.py", "bin/tool"], None, []),
        (["__editable__.ours.pth"], "ours\n", ["ours"]),
    ],
)  # fmt: skip
def test_import_names(site: Site, files: list[str], top_level: str | None, names: list[str]) -> None:
    site.add("any", dict.fromkeys(files, ""), top_level)
    assert import_names("any") == names


def test_import_names_without_a_list_of_files(site: Site) -> None:
    site.add("any", {"a.py": ""}, "a\nb\n", record=False)
    assert import_names("any") == ["a", "b"]
    assert import_names("absent") is None


def test_the_lock_says_what_was_added() -> None:
    lock = """\
# Lock of tf2.21.0-cuda12.5-cudnn9.3-py312_ours; written by `python -m validator lock`, not by hand.
# requires: tensorflow[and-cuda]==2.21.0
# requires: nvidia-cudnn-cu12==9.3.0.75
# requires: nvidia-cuda-nvcc==13.0.48
# requires: pip==26.0
# requires: pandas[parquet]>=2
# requires: Keras_Hub
# requires: nvidia-dali-cuda120
# requires: ours @ wheels/ours-1.0-py3-none-any.whl#sha256=00
# requires: colorama; sys_platform == "win32"
"""
    names = ["tensorflow", "nvidia-cudnn-cu12", "pip", "pandas", "keras-hub", "nvidia-dali-cuda120", "ours"]
    lock += "".join(f"{name}==1.0\n" for name in (*names, "numpy", "nvidia-cuda-nvcc"))
    assert packages.added(lock) == ["keras-hub", "nvidia-dali-cuda120", "ours", "pandas"]
