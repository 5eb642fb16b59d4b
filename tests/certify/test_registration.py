"""Register machines in `trust.yaml`, and revoke them, without changing anything else in the file."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from validator import cli
from validator.certify.trust import Party, Signatory, TrustFile
from validator.certify.trust_file import (
    BUILDERS,
    RUNNERS,
    add,
    entry_line,
    make_own_key,
    own_signer,
    read_trust_file,
    register,
    revoke,
)
from validator.errors import InputError
from validator.model.codec import now_utc

from ..loop import tiers
from .test_trust_file import pem

UNTIL = datetime(2027, 11, 22, tzinfo=timezone.utc)
THEN = datetime(2026, 12, 1, 6, 30, tzinfo=timezone.utc)
BLOCK = f"""# Our machines.
runners:   # who measures
  - name: gpu-1
    key: {pem("gpu-1")}
    host_classes: ["*-h100"]  # in room 5
    until: 2027-11-22

  # The old one.
  - {{name: gpu-2, key: {pem("gpu-2")}, host_classes: ["*-t4"], until: 2027-11-22}}  # soon to go

# Nobody builds yet.
"""
LITERAL = """runners:
- host_classes: "*-t4"
  name: gpu-1
  until: 2027-11-22
  key: |
    -----BEGIN PUBLIC KEY-----
    Z3B1LTE=
    -----END PUBLIC KEY-----

builders: []
release: {identity: a, issuer: b}"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trust.yaml"


def party(name: str = "new", **changes: object) -> Party:
    key = pem(name).strip('"').replace("\\n", "\n")
    made = Party(name, Signatory(key=key), UNTIL, host_classes=("r580-a100", "*-h200"))
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", [None, "# Nothing yet.\n", "runners: []\n", "builders: []\nrunners: []  # none", BLOCK, LITERAL]
)
def test_an_entry_is_added_and_the_rest_stays(path: Path, text: str | None) -> None:
    before = TrustFile()
    if text is not None:
        path.write_text(text)
        before = read_trust_file(path) if "runners" in text else before
    builder = party("ci", host_classes=())
    add(path, RUNNERS, party())
    add(path, BUILDERS, builder)
    found = read_trust_file(path)
    assert found == replace(before, runners=(*before.runners, party()), builders=(*before.builders, builder))
    lines = path.read_text().splitlines()
    empty = {"runners: []", "builders: []", "runners: []  # none"}
    assert all(line in lines for line in (text or "").splitlines() if line not in empty)
    assert len(lines) <= len((text or "# header").splitlines()) + 5


@pytest.mark.parametrize(("text", "name"), [(BLOCK, "gpu-1"), (BLOCK, "gpu-2"), (LITERAL, "gpu-1")])
def test_revoking_changes_one_entry(path: Path, text: str, name: str) -> None:
    path.write_text(text)
    before = read_trust_file(path)
    revoked = revoke(path, name, THEN)
    assert (revoked.name, revoked.revoked) == (name, THEN)
    after = read_trust_file(path)
    assert after == replace(
        before, runners=tuple(revoked if entry.name == name else entry for entry in before.runners)
    )
    changed = set(path.read_text().splitlines()) - set(text.splitlines())
    assert len(changed) == 1 and "revoked: 2026-12-01T06:30:00Z" in changed.pop()
    # Only an earlier time changes anything.
    with pytest.raises(InputError, match="already revoked from 2026-12-01T06:30:00Z on"):
        revoke(path, name, THEN + timedelta(hours=1))
    assert revoke(path, name, THEN - timedelta(days=1)).revoked == THEN - timedelta(days=1)
    assert len(path.read_text().splitlines()) <= len(text.splitlines()) + 1


def test_nobody_is_revoked_by_a_wrong_name(path: Path) -> None:
    path.write_text(BLOCK)
    with pytest.raises(InputError, match="gpu-3 is not registered") as caught:
        revoke(path, "gpu-3", THEN)
    assert caught.value.hint == "the file has gpu-1, gpu-2"
    assert path.read_text() == BLOCK


def test_a_file_in_another_style_is_left_alone(path: Path) -> None:
    text = f"{{runners: [{entry_line(party('a'))}]}}"
    path.write_text(text)
    with pytest.raises(InputError, match="written in") as caught:
        add(path, RUNNERS, party())
    assert "name: new" in str(caught.value.hint), "the line to add by hand"
    with pytest.raises(InputError, match="can't be changed automatically"):
        add(path, BUILDERS, party())
    assert path.read_text() == text
    assert list(path.parent.iterdir()) == [path]


def test_a_name_or_a_key_is_not_registered_twice(path: Path) -> None:
    add(path, RUNNERS, party())
    text = path.read_text()
    with pytest.raises(InputError):
        add(path, RUNNERS, party())
    assert path.read_text() == text


@pytest.fixture
@tiers.service
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_the_first_run_registers_the_machine_and_says_so_once(path: Path, state: Path) -> None:
    first = register(path, RUNNERS, ("h100", "t4"))
    assert first.signer == own_signer(RUNNERS) is not None
    [runner] = read_trust_file(path).runners
    assert runner.host_classes == ("*-h100", "*-t4")
    assert timedelta(days=363) < runner.until - now_utc() <= timedelta(days=365)
    assert first.said == (
        f"Registered this machine in {path} as the runner {runner.name} for *-h100, *-t4 until"
        f" {runner.until:%Y-%m-%d}"
    )
    again = register(path, RUNNERS, ("h100", "t4"))
    assert (again.signer, again.said) == (first.signer, None)
    builder = register(path, BUILDERS)
    assert f"as the builder {read_trust_file(path).builders[0].name} until" in str(builder.said)
    assert builder.signer != first.signer
    assert register(path, BUILDERS).said is None
    assert len(read_trust_file(path).runners) == 1


def test_a_revoked_machine_does_not_register_itself_again(path: Path, state: Path) -> None:
    register(path, RUNNERS, ("h100",))
    name = read_trust_file(path).runners[0].name
    revoke(path, name, now_utc())
    again = register(path, RUNNERS, ("h100",))
    assert again.signer is None
    assert f"can't be certified: {name} was revoked from" in str(again.said)
    assert len(read_trust_file(path).runners) == 1


@pytest.mark.parametrize(("section", "models"), [(RUNNERS, ()), (BUILDERS, ("h100",))])
def test_only_a_runner_is_registered_for_gpu_models(
    path: Path, section: str, models: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(ValueError, match="a runner signs for GPU models, and a builder for none"):
        register(path, section, models)
    assert not path.exists()


def test_without_cosign_the_work_goes_on_unsigned(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = register(path, RUNNERS, ("h100",))
    assert found.signer is None
    assert "What is measured here can't be certified: the program cosign is not installed" in str(found.said)
    assert not path.exists()


def test_runner_init_prints_the_line_and_keeps_its_key(
    path: Path, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["runner", "init", "--name", "gpu-1", "--host-class", "*-h100", "--until", "2027-11-22"]
    assert cli.run(command) == 0
    line = capsys.readouterr().out
    path.write_text(f"runners:\n{line}")
    [runner] = read_trust_file(path).runners
    assert (runner.name, runner.host_classes, runner.until) == ("gpu-1", ("*-h100",), UNTIL)
    assert cli.run(command) == 0
    assert capsys.readouterr().out == line
    assert cli.run([*command, "--register", "--trust", str(path)]) == 0
    assert "has this key already, as gpu-1" in capsys.readouterr().err


def test_runner_init_refuses_a_term_that_has_ended(path: Path) -> None:
    with pytest.raises(InputError, match="this time is in the past"):
        cli.run(["runner", "init", "--host-class", "*-h100", "--until", "30d"])


def test_runner_init_registers_next_to_the_matrix(
    path: Path, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    matrix = ["--matrix", str(path.parent / "matrix.yaml")]
    assert cli.run(["runner", "init", "--host-class", "*-h100", "--register", *matrix]) == 0
    [runner] = read_trust_file(path).runners
    assert f"Registered {runner.name} in {path} for *-h100 until" in capsys.readouterr().err
    assert cli.run(["certify", "revoke", runner.name, "--at", "1h", *matrix]) == 0
    [revoked] = read_trust_file(path).runners
    assert revoked.revoked is not None and revoked.revoked <= now_utc() - timedelta(hours=1)
    assert "Commit this file" in capsys.readouterr().err


def test_runner_init_on_a_machine_without_a_gpu_asks_for_host_classes(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(InputError, match="the host classes of this machine are not known") as caught:
        cli.run(["runner", "init"])
    assert "--host-class" in str(caught.value.hint)


def test_a_throw_away_key_stays_marked_in_the_file(path: Path, state: Path) -> None:
    make_own_key(RUNNERS, throw_away=True)
    register(path, RUNNERS, ("h100",))
    assert read_trust_file(path).runners[0].signatory.throw_away
