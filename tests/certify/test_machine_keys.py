"""The keys of a machine: made once, readable by their owner only, without a password."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from validator.certify.trust import Signatory
from validator.certify.trust_file import BUILDERS, RUNNERS, make_own_key, own_signer, public_key_of
from validator.errors import InputError, MissingError


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "tensorflow-gpu-matrix"


@pytest.mark.service
@pytest.mark.parametrize(("section", "name"), [(RUNNERS, "runner"), (BUILDERS, "builder")])
def test_a_key_is_made_once_and_only_its_owner_can_read_it(state: Path, section: str, name: str) -> None:
    assert own_signer(section) is None
    made = make_own_key(section)
    assert own_signer(section) == made
    file = state / f"{name}.key"
    assert made.key == str(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert public_key_of(made) == (state / f"{name}.pub").read_text()
    assert not Signatory(key=public_key_of(made)).throw_away
    with pytest.raises(InputError, match="never overwritten"):
        make_own_key(section)
    # It signs without a password, as nobody is there at night to type it.
    assert b"dsseEnvelope" in made.sign(
        b'{"_type": "https://in-toto.io/Statement/v1", "subject": [{"name": "x", "digest": {"sha256": "'
        + b"0" * 64
        + b'"}}], "predicateType": "https://example.org/x", "predicate": {}}'
    )


@pytest.mark.service
def test_a_key_for_tests_is_marked() -> None:
    made = make_own_key(RUNNERS, throw_away=True)
    assert made.throw_away
    assert Signatory(key=public_key_of(made)).throw_away


@pytest.mark.parametrize(("section", "name"), [(RUNNERS, "runner"), (BUILDERS, "builder")])
def test_a_key_that_others_can_read_is_refused(state: Path, section: str, name: str) -> None:
    state.mkdir(parents=True)
    (state / f"{name}.key").write_text("a key")
    (state / f"{name}.key").chmod(0o640)
    with pytest.raises(InputError, match=r"other users of this machine can use this key \(mode 0640\)"):
        own_signer(section)
    (state / f"{name}.key").chmod(0o600)
    assert own_signer(section) is not None


def test_there_are_keys_only_for_the_two_sections_of_the_file(state: Path) -> None:
    for use in (own_signer, make_own_key):
        with pytest.raises(KeyError):
            use("builder")


def test_without_cosign_no_key_is_made(state: Path) -> None:
    with pytest.raises(MissingError, match="cosign is not installed"):
        make_own_key(RUNNERS)
    assert own_signer(RUNNERS) is None


def test_a_directory_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(MissingError, match="can't be created"):
        make_own_key(RUNNERS)
