"""Checks of the user's own: packed into the archive, run in their own processes, reported by their ids."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from validator.engines.protocol import (
    probe_archive,
    probe_request,
    probe_version,
    read_checks,
    read_files,
)
from validator.errors import InputError
from validator.model.report import CheckResult, Report, read_report
from validator.model.spec import INSTALLED, CheckFile
from validator.probe import own as own_checks
from validator.probe.checks import CHECKS


def written(directory: Path, name: str, body: str) -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(body))
    return path


def file_of(directory: Path, path: str, **fields: Any) -> CheckFile:
    return CheckFile(path, hashlib.sha256((directory / path).read_bytes()).hexdigest(), **fields)


def run(
    directory: Path, *files: CheckFile, arguments: tuple[str, ...] = (), site: Path | None = None
) -> Report:
    checks = read_checks(directory, files)
    archive = directory / "probe.pyz"
    archive.write_bytes(probe_archive(checks))
    names = [argument for file in files for argument in ("--only", file.id)]
    environment = {**os.environ, **({"PYTHONPATH": str(site)} if site else {})}
    done = subprocess.run(
        [sys.executable, archive, *(arguments or names)],
        cwd="/", env=environment, capture_output=True, check=True, text=True,
    )  # fmt: skip
    report = read_report(done.stdout)
    assert report.probe.version == probe_version(checks)
    return report


def found(report: Report, name: str) -> CheckResult:
    check = report.check(name)
    assert check is not None
    return check


PASSING = textwrap.dedent('''
    """Does one and one make two?

    More words.
    """


    def check(context):
        evidence = {"sum": 1 + 1, "gpus": context.gpus, "python": context.environment["python"]}
        return {"outcome": "pass", "summary": "it makes two", "evidence": evidence}
''')


@pytest.mark.slow
def test_a_check_is_reported_under_its_own_id(tmp_path: Path) -> None:
    written(tmp_path, "checks/our_check.py", PASSING)
    report = run(tmp_path, file_of(tmp_path, "checks/our_check.py", timeout_s=60.0))
    check = found(report, "ours/our_check")
    assert (check.outcome.value, check.sentence, check.stage) == ("pass", "it makes two", "own")
    assert check.required
    assert check.document["title"] == "Does one and one make two?"
    assert check.document["limit_s"] == 60
    own = check.evidence.raw["own"]
    assert own["sum"] == 2
    assert own["gpus"] == len(report.host.gpus)
    assert own["python"] == report.environment.python


#: The ways in which a check can end: its body, its outcome and its sentence.
ENDS = [
    ("return {'outcome': 'fail', 'summary': 'it is wrong'}", "fail", "it is wrong"),
    ("return {'outcome': 'skip', 'summary': 'not today'}", "skip", "not today"),
    ("assert 1 == 2, 'the loss is too high'", "fail", "the loss is too high"),
    ("assert False", "fail", "an assertion failed"),
    ("return 1 / 0", "error", "the check raised ZeroDivisionError: division by zero"),
    ("import os; os.kill(os.getpid(), 11)", "crash", "the process was killed by SIGSEGV"),
    ("import os; os._exit(0)", "crash", "the process exited with status 0"),
    ("import time; time.sleep(60)", "timeout", "the check did not finish within 1 s"),
    ("return None", "error", "the check returned a NoneType instead of a dict"),
    ("return {'outcome': 'certified', 'summary': 'x'}", "error",
     "the check returned the outcome 'certified' instead of 'pass', 'fail' or 'skip'"),
    ("return {'outcome': 'pass'}", "error", "the check returned no text as summary"),
    ("return {'outcome': 'pass', 'summary': 'x', 'required': False}", "error",
     "the check returned unknown fields: required"),
]  # fmt: skip


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Return the report on all checks in `ENDS`, each of which runs in a process of its own."""
    directory = tmp_path_factory.mktemp("ends")
    names = [f"odd{number}.py" for number in range(len(ENDS))]
    for name, (body, _, _) in zip(names, ENDS, strict=True):
        written(directory, name, f"def check(context):\n    {body}\n")
    return run(directory, *(file_of(directory, name, timeout_s=1.0) for name in names))


@pytest.mark.slow
@pytest.mark.parametrize(("number", "end"), [*enumerate(ENDS)], ids=[body for body, _, _ in ENDS])
def test_every_way_to_end(ended: Report, number: int, end: tuple[str, str, str]) -> None:
    check = found(ended, f"ours/odd{number}")
    assert (check.outcome.value, check.sentence) == end[1:]
    assert check.document["title"] == f"odd{number}.py"


@pytest.mark.slow
def test_each_check_has_a_process_of_its_own_and_runs_after_ours(tmp_path: Path) -> None:
    tell_pid = """
        import builtins
        import os

        def check(context):
            left = getattr(builtins, "left", None)
            builtins.left = "behind"
            return {"outcome": "pass", "summary": "x", "evidence": {"pid": os.getpid(), "left": left}}
    """
    for name in ("first.py", "second.py"):
        written(tmp_path, name, tell_pid)
    written(tmp_path, "dies.py", "def check(context):\n    import os; os._exit(1)\n")
    files = [file_of(tmp_path, name) for name in ("first.py", "dies.py", "second.py")]
    report = run(tmp_path, *files, arguments=("--skip", "xla_train_step"))
    assert [check.id for check in report.checks][-4:] == [
        "gpu_health",
        "ours/first",
        "ours/dies",
        "ours/second",
    ]
    first, second = (found(report, name).evidence.raw["own"] for name in ("ours/first", "ours/second"))
    assert first["pid"] != second["pid"]
    assert first["left"] is second["left"] is None
    assert found(report, "packages").outcome.value == "skip"
    # Nothing that a check does changes the outcomes of ours.
    plain = run(tmp_path, arguments=("--skip", "xla_train_step"))
    assert [(c.id, c.outcome) for c in plain.checks] == [(c.id, c.outcome) for c in report.checks[:-3]]


@pytest.mark.slow
def test_a_hostile_check_cant_answer_for_another(tmp_path: Path) -> None:
    """It writes the end of `driver` on every descriptor that it has."""
    written(
        tmp_path,
        "hostile.py",
        """
        import json
        import os

        def check(context):
            line = {"event": "end", "check": "driver", "outcome": "pass", "statement": None, "problems": [],
                    "evidence": {}, "duration_s": 0}
            for number in range(3, 32):
                try:
                    os.write(number, json.dumps(line).encode() + b"\\n")
                except OSError:
                    pass
            os._exit(0)
        """,
    )
    hostile = file_of(tmp_path, "hostile.py")
    report = run(tmp_path, hostile, arguments=("--only", "driver", "--only", "ours/hostile"))
    alone = run(tmp_path, arguments=("--only", "driver"))
    assert found(report, "driver").document["statement"] == found(alone, "driver").document["statement"]
    assert [check.id for check in report.checks] == ["driver", "ours/hostile"]


def installed(site: Path, name: str, points: str, **modules: str) -> None:
    """Install a package with entry points and modules into a directory of Python's path."""
    written(site, f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (site / f"{name}-1.0.dist-info/entry_points.txt").write_text(points)
    for module, body in modules.items():
        written(site, f"{module}.py", body)


GROUP = "[tensorflow_gpu_matrix.checks]\n"


@pytest.mark.slow
def test_the_checks_of_packages_are_found_where_the_probe_runs(tmp_path: Path) -> None:
    site = tmp_path / "site"
    assert own_checks.INSTALLED == INSTALLED
    points = f"[console_scripts]\nours = ours:main\n{GROUP}Our-Check = ours_checks:check\n"
    points += "absent = ours_absent:check\nnothing = ours_checks:nothing\nbroken = ours_broken:check\n"
    broken = "raise RuntimeError('not on this machine')"
    installed(site, "ours", points, ours_checks=PASSING, ours_broken=broken)
    # The same name in another package, and one whose list can't be read.
    installed(site, "theirs", f"{GROUP}our_check = theirs:check\n", theirs=PASSING.replace("two", "three"))
    installed(site, "unreadable", "no section\n")
    written(tmp_path, "our_check.py", PASSING)
    names = ("our_check", "our_check_", "absent", "nothing", "broken")
    only = [word for name in names for word in ("--only", f"installed/{name}")]
    arguments = (*only, "--only", "ours/our_check")
    report = run(tmp_path, file_of(tmp_path, "our_check.py"), arguments=arguments, site=site)
    # Last: none can take the time of one that the matrix requires.
    assert report.checks[0].id == "ours/our_check"
    checks = {check.id.removeprefix("installed/"): check for check in report.checks[1:]}
    assert not any(check.required for check in checks.values())
    first, second = checks["our_check"], checks["our_check_"]
    assert (first.sentence, second.sentence) == ("it makes two", "it makes three")
    for check, origin in ((first, "ours_checks:check of ours 1.0"), (second, "theirs:check of theirs 1.0")):
        assert check.evidence.raw["origin"] == check.document["title"] == origin
    assert first.evidence.raw["own"]["sum"] == 2
    why = {
        "absent": "ours_absent:check of ours 1.0 can't be loaded: ModuleNotFoundError: No module named",
        "nothing": "ours_checks:nothing of ours 1.0 can't be loaded: AttributeError: ",
        "broken": "ours_broken:check of ours 1.0 can't be loaded: RuntimeError: not on this machine",
    }
    for name, sentence in why.items():
        assert checks[name].outcome.value == "error"
        assert checks[name].sentence.startswith(sentence)


def test_no_check_of_ours_has_an_id_that_a_users_check_can_have() -> None:
    assert not [check.id for check in CHECKS if "/" in check.id]


def test_another_file_limit_or_necessity_is_another_probe(tmp_path: Path) -> None:
    def version(**fields: Any) -> str:
        return probe_version(read_checks(tmp_path, [file_of(tmp_path, "our_check.py", **fields)]))

    written(tmp_path, "our_check.py", PASSING)
    versions = [probe_version(), version(), version(required=False), version(timeout_s=7.0)]
    written(tmp_path, "our_check.py", PASSING + "# changed")
    versions.append(version())
    assert len(set(versions)) == 5
    assert len({version.partition("+")[0] for version in versions}) == 1
    assert version() == versions[-1]


def test_the_probe_has_more_time_for_more_checks(tmp_path: Path) -> None:
    written(tmp_path, "our_check.py", PASSING)
    own = read_checks(tmp_path, [file_of(tmp_path, "our_check.py", timeout_s=500.0)])
    plain, more = probe_request("quick"), probe_request("quick", own=own)
    assert more.timeout_s == plain.timeout_s + 500
    limits = [int(one.arguments[one.arguments.index("--time-limit") + 1]) for one in (plain, more)]
    assert limits[1] == limits[0] + 500


def test_what_is_not_a_check_is_refused_before_anything_runs(tmp_path: Path) -> None:
    cases = {
        "no_function.py": ("x = 1", "no_function.py has no function `check`"),
        "syntax.py": ("def check(:", "syntax.py is not valid Python: "),
        "Upper-case.py": (PASSING, "the name of a check's file has only lower-case letters"),
        "__init__.py": (PASSING, "the name of a check's file has only lower-case letters"),
    }
    for name, (body, said) in cases.items():
        written(tmp_path, name, body)
        with pytest.raises(InputError, match=said.replace("(", r"\(")):
            read_checks(tmp_path, [file_of(tmp_path, name)])
    with pytest.raises(InputError, match="the check can't be read: No such file"):
        read_files([tmp_path / "absent.py"])


def test_a_file_that_changed_and_a_name_that_is_taken_are_refused(tmp_path: Path) -> None:
    for name in ("a/our_check.py", "b/our_check.py"):
        written(tmp_path, name, PASSING)
    files = [file_of(tmp_path, name) for name in ("a/our_check.py", "b/our_check.py")]
    with pytest.raises(InputError, match="2 checks are named ours/our_check"):
        read_checks(tmp_path, files)
    written(tmp_path, "a/our_check.py", PASSING + "# changed")
    with pytest.raises(InputError, match="has changed while it was used"):
        read_checks(tmp_path, files[:1])
