"""`pytest --require-gpu`, in a pytest of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest
import tomli

from validator.probe.check import Context
from validator.probe.checks import environment

from ..cli.test_startup import HEAVY
from ..pipeline.fakes import H100, report

pytestmark = pytest.mark.service

ROOT = Path(__file__).parents[2]
PLUGIN = "validator.pytest_plugin"
TESTS = """\
import pytest
import tomli

@pytest.fixture
def model():
    print("TRAINED")

def test_plain(model): pass

@pytest.mark.requires_gpu
def test_on_gpu(model): pass

@pytest.mark.requires_gpu
@pytest.mark.xfail(reason="not yet", strict=False)
def test_may_fail(model): assert False

@pytest.mark.requires_gpu
@pytest.mark.skip(reason="not today")
def test_skipped(model): pass

class TestClass:
    @pytest.mark.requires_gpu
    def test_method(self, model): pass
"""
SECRET = "hf_abcdefghijklmnopqrstuvwxyz0123"


@dataclass(frozen=True)
class Finished:
    """A pytest that has ended. asked: how often the probe ran."""

    code: int
    out: str
    asked: int

    def outcomes(self) -> dict[str, int]:
        """Return how many tests had each outcome: `{"failed": 3, "skipped": 1}`."""
        last = self.out.rstrip().splitlines()[-1]
        return {kind: int(number) for number, kind in re.findall(r"(\d+) (\w+)", last.partition(" in ")[0])}

    def section(self) -> str:
        """Return what follows the title of the explanation, which has to be there once."""
        _, explanation = re.split(r"^=+ TensorFlow doesn't use a GPU =+$", self.out, flags=re.MULTILINE)
        return explanation


Run = Callable[..., Finished]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run pytest over TESTS. answer: the probe's; b"" for none; None to run the real probe."""
    (tmp_path / "test_user.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers --strict-config\n")
    asked = tmp_path / "asked"

    def run(
        *arguments: str, answer: bytes | None = None, load: bool = True, autoload: bool = False
    ) -> Finished:
        asked.write_text("")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
        variables = {
            **kept, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]), "COLUMNS": "200",
            "ASKED": str(asked), "ANSWER": str(tmp_path / "answer.json"),
        }  # fmt: skip
        plugins = ["-p", PLUGIN] if load else []
        if not autoload:
            variables["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
            plugins += ["-p", "xdist"] if "-n" in arguments else []
        if answer is not None:
            plugins += ["-p", "tests.embedded.answering"]
            if answer:
                (tmp_path / "answer.json").write_bytes(answer)
        # In the shared directory, this pytest would also remove the directories of other runs.
        own = (f"--basetemp={tmp_path / 'own'}", "-p", "no:cacheprovider")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *own, *plugins, *arguments],
            cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert not done.stderr, done.stderr
        return Finished(done.returncode, done.stdout, len(asked.read_text().splitlines()))

    return run


def hidden(note: str = "") -> bytes:
    """Return a report of a machine whose GPU a variable hides."""
    document = json.loads(report(H100, gpu_visible="skip", gpu_compute="skip"))
    document["environment"]["variables"] = {"CUDA_VISIBLE_DEVICES": "-1"}
    problem = {
        "code": "visible_devices_hides_all_gpus", "severity": "fault", "variable": "CUDA_VISIBLE_DEVICES",
        "value": f"-1{note}",
    }  # fmt: skip
    for check in document["checks"]:
        if check["id"] == "environment":
            check |= {
                "outcome": "fail",
                "statement": None,
                "problems": [problem],
            }
    return json.dumps(document).encode()


def test_every_test_fails_with_the_cause_and_the_fix(run: Run, tmp_path: Path) -> None:
    """The real probe runs in this environment, which has no TensorFlow."""
    done = run("--require-gpu", "--junit-xml=junit.xml", "--verbose")
    assert done.code == 1, done.out
    assert done.outcomes() == {"failed": 4, "skipped": 1}
    assert "TRAINED" not in done.out
    assert re.search(r"^FAILED test_user.py::test_plain - .*TensorFlow doesn't use a GPU: \w", done.out, re.M)
    assert re.search(r"^To fix it( \w+)*: \w", done.out, re.M)
    explanation = done.section()
    assert "tensorflow_not_installed" in explanation
    assert "\x1b" not in explanation
    cases = ElementTree.parse(tmp_path / "junit.xml").findall(".//testcase")
    messages = {
        str(case.get("name")): failure.get("message") for case in cases for failure in case.findall("failure")
    }
    assert len(cases) == 5
    assert set(messages) == {"test_plain", "test_on_gpu", "test_may_fail", "test_method"}
    assert all("TensorFlow doesn't use a GPU: " in str(message) for message in messages.values())


def test_the_line_of_a_failure_that_the_page_shows(run: Run, tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/test-with-pytest.md").read_text(encoding="utf-8")
    [shown] = re.findall(r"^```text\n(FAILED .*)\n```$", page, re.MULTILINE)
    (tmp_path / "test_model.py").write_text("def test_train(): pass\n")
    document = json.loads(hidden())
    libraries = {"nvml": {"answered": True}, "cuda": {"path": "/usr/lib/libcuda.so.1", "gpus": []}}
    host = document["host"] | {"device_nodes": [], "driver_libraries": libraries}
    found = environment.environment.run(
        Context({"host": host, "environment": document["environment"], "tensorflow": None})
    )
    for check in document["checks"]:
        if check["id"] == "environment":
            check |= {"problems": found.problems, "evidence": found.evidence}
    done = run("--require-gpu", "test_model.py", answer=json.dumps(document).encode())
    assert done.code == 1
    assert shown in done.out.splitlines(), re.findall("FAILED .*", done.out)


def test_only_marked_tests_fail_without_the_option(run: Run) -> None:
    done = run(answer=hidden())
    assert (done.code, done.asked) == (1, 1)
    assert done.outcomes() == {"failed": 3, "passed": 1, "skipped": 1}
    assert "visible_devices_misset" in done.section()


def test_with_a_gpu_the_tests_run(run: Run) -> None:
    done = run("--require-gpu", answer=report(H100))
    assert (done.code, done.asked) == (0, 1)
    assert done.outcomes() == {"passed": 3, "xfailed": 1, "skipped": 1}


@pytest.mark.parametrize("gate", ["gpu_visible", "gpu_compute"])
def test_a_gpu_that_is_seen_has_to_compute(run: Run, gate: str) -> None:
    done = run("--require-gpu", "-k", "plain", answer=report(H100, **{gate: "fail"}))
    assert done.outcomes() == {"failed": 1, "deselected": 4}


def test_the_workers_of_xdist_ask_once(run: Run) -> None:
    done = run("--require-gpu", "-n", "2", answer=hidden())
    assert (done.code, done.asked) == (1, 1)
    assert done.outcomes() == {"failed": 4, "skipped": 1}
    assert "visible_devices_misset" in done.section()


def test_the_ini_option_and_its_opposite(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nrequire_gpu = true\n")
    assert run("-k", "plain", answer=hidden()).outcomes() == {"failed": 1, "deselected": 4}
    done = run("-k", "plain", "-o", "require_gpu=false", answer=hidden())
    assert (done.outcomes(), done.asked) == ({"passed": 1, "deselected": 4}, 0)


def test_nothing_is_asked_where_no_test_would_run(run: Run) -> None:
    assert run("--require-gpu", "--collect-only", answer=hidden()).asked == 0
    done = run("-m", "not requires_gpu", answer=hidden())
    assert (done.outcomes(), done.asked) == ({"passed": 1, "deselected": 4}, 0)


def test_a_probe_that_fails_proves_no_gpu(run: Run) -> None:
    done = run("--require-gpu", "-k", "plain", answer=b"")
    assert done.code == 1
    assert "It is not known whether TensorFlow uses a GPU: the probe exited with status 7" in done.out
    assert "run it yourself" in done.out


def test_hostile_text_and_credentials_stay_out(run: Run) -> None:
    done = run("--require-gpu", "-k", "plain", answer=hidden(f" \x1b]0;title\x07 {SECRET}"))
    assert "hides every GPU" in done.section()
    assert "\x1b" not in done.out
    assert SECRET not in done.out


def test_an_unused_plugin_loads_nothing_else(run: Run, tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(
        "import sys\n"
        "def test_modules():\n"
        f"    assert [name for name in {(*HEAVY, 'msgspec', 'click')} if name in sys.modules] == []\n"
        "    ours = sorted(name for name in sys.modules if name.split('.')[0] == 'validator')\n"
        "    assert ours == ['validator', 'validator.embedded', 'validator.embedded.gpu_requirement',"
        " 'validator.pytest_plugin']\n"
    )
    done = run()
    assert done.code == 0, done.out


def test_the_entry_point_may_also_be_loaded_by_name(run: Run, tmp_path: Path) -> None:
    project = tomli.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["pytest11"]
    information = tmp_path / "tensorflow_gpu_matrix_stub-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tensorflow-gpu-matrix-stub\nVersion: 1\n"
    )
    (information / "entry_points.txt").write_text(
        "[pytest11]\n" + "".join(f"{name} = {module}\n" for name, module in points.items())
    )
    (tmp_path / "conftest.py").write_text(f"pytest_plugins = [{PLUGIN!r}]\n")
    for load in (False, True):
        done = run("--require-gpu", "-k", "plain", answer=hidden(), load=load, autoload=True)
        assert done.outcomes() == {"failed": 1, "deselected": 4}, done.out


def test_a_conftest_may_load_it_late(run: Run, tmp_path: Path) -> None:
    below = tmp_path / "below"
    below.mkdir()
    (below / "test_below.py").write_text(TESTS)
    (below / "conftest.py").write_text(
        f"def pytest_collection_modifyitems(config):\n    import {PLUGIN} as plugin\n"
        "    config.pluginmanager.register(plugin, plugin.__name__)\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = requires_gpu\n")
    done = run("--ignore=test_user.py", answer=hidden(), load=False)
    assert done.outcomes() == {"failed": 3, "passed": 1, "skipped": 1}, done.out


def test_it_can_be_imported_without_pytest() -> None:
    program = f"import sys; sys.modules['pytest'] = None; import {PLUGIN}"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
