"""`check --own-check`, and the commands that show the user's own checks in certificates."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from validator.certify.verify import Verified
from validator.cli import verify as verify_command
from validator.cli.doctor import check_command
from validator.model.record import OwnCheck
from validator.model.report import read_report

from ..certify.test_verify import certificate_for

CHECK = '"""Is it so?"""\n\ndef check(context):\n    return {"outcome": "%s", "summary": "it is so"}\n'


@pytest.mark.slow
@pytest.mark.parametrize(("outcome", "status"), [("pass", 0), ("fail", 1)])
def test_a_check_of_ones_own_can_be_tried(tmp_path: Path, outcome: str, status: int) -> None:
    path = tmp_path / "our_check.py"
    path.write_text(CHECK % outcome)
    arguments = ["--own-check", str(path), "--only", "ours/our_check", "--python", sys.executable]
    done = CliRunner().invoke(check_command, [*arguments, "--format", "json"], standalone_mode=False)
    assert done.return_value == status, done.output
    [check] = read_report(done.stdout).checks
    assert (check.id, check.outcome.value, check.sentence) == ("ours/our_check", outcome, "it is so")


def test_a_file_that_is_not_a_check_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "our_check.py"
    path.write_text("x = 1")
    done = CliRunner().invoke(check_command, ["--own-check", str(path)])
    assert "has no function `check`" in str(done.exception)


@pytest.mark.slow
def test_the_saved_probe_holds_the_check(tmp_path: Path) -> None:
    (tmp_path / "our_check.py").write_text(CHECK % "pass")
    saved = tmp_path / "probe.pyz"
    arguments = ["--save-probe", str(saved), "--own-check", str(tmp_path / "our_check.py")]
    assert CliRunner().invoke(check_command, arguments, standalone_mode=False).return_value == 0
    listed = json.loads(subprocess.run([sys.executable, saved, "--list"], capture_output=True).stdout)
    assert (listed[-1]["id"], listed[-1]["title"]) == ("ours/our_check", "Is it so?")


def test_verify_names_the_checks_of_the_users_own_that_passed(capsys: pytest.CaptureFixture[str]) -> None:
    own = (OwnCheck("ours/our_check", "0" * 64, True), OwnCheck("ours/slow", "0" * 64, False))
    certificate = certificate_for(passed=("driver", "ours/our_check"), failed=("ours/slow",), checks=own)
    verify_command._show({"ours": certificate.image_digest}, {"ours": Verified((certificate,), ())})
    assert "2 passed with ours/our_check, 1 optional failed" in " ".join(capsys.readouterr().out.split())
