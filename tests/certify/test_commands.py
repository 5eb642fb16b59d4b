"""The commands as a person calls them: keygen, certify, verify, promote."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from validator.certify.signatures import Signer
from validator.certify.trust import THROW_AWAY, Trust, is_throw_away
from validator.certify.verify import Move
from validator.cli.verify import VerificationDocument
from validator.model.record import Certificate, Record
from validator.records.store import Store
from validator.registry.client import Registry
from validator.registry.names import Repository

from ..commands import ROOT, Done, run, run_alone
from ..documented import misfits
from .attestations import cosign, cosign_verify
from .conftest import NAMED
from .fixtures import PASSWORD, record
from .measuring import as_measured, trust_file


def validator(*arguments: object, password: str | None = PASSWORD, alone: bool = False) -> Done:
    """Run a command. alone: in a separate process."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VALIDATOR_")}
    environment.pop("COSIGN_PASSWORD", None)
    environment["VALIDATOR_TRUST"] = str(trust_file())
    if password is not None:
        environment["COSIGN_PASSWORD"] = password
    return (run_alone if alone else run)(*arguments, environment=environment)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "records.db"


def keep(store: Path, *records: Record) -> None:
    with Store(str(store)) as opened:
        opened.add_all(as_measured(record) if record.image_digest else record for record in records)


def test_from_a_new_key_to_an_alias(repository: Repository, image: str, store: Path, tmp_path: Path) -> None:
    made = validator("certify", "keygen", "--throw-away", "--output-prefix", tmp_path / "a")
    assert made.returncode == 0, made.stderr
    assert made.stdout == ""
    keep(store, record(image), record(image, python="3.11", engine="venv", image_digest=None))
    where = ("--registry", repository)
    sign = ("certify", *where, "--store", store, "--signing-key", tmp_path / "a.key")
    trust = (*where, "--key", tmp_path / "a.pub", "--fixtures")

    refused = validator("verify", *trust)
    assert (refused.returncode, "no valid certificate" in refused.stdout) == (1, True)

    done = validator(*sign, "-v", alone=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        f"certified (fixture)  tf2.21.0-cuda12.5-cudnn9.3-py312@r580-h100  {repository.at(image)}\n"
    )
    assert "Skipped tf2.21.0-cuda12.5-cudnn9.3-py311@r580-h100" in done.stderr
    assert "cosign attest-blob" in done.stderr
    assert PASSWORD not in done.stderr
    assert validator(*sign).stdout.startswith("unchanged (fixture)")
    assert cosign_verify(repository, image, tmp_path / "a.pub").returncode == 0

    shown = validator("verify", *trust, NAMED)
    assert shown.returncode == 0, shown.stderr
    assert "r580-h100 (fixture)" in shown.stdout
    document = json.loads(validator("verify", *trust, "--json").stdout)
    assert document["images"] == {NAMED: image}
    assert [entry["image_digest"] for entry in document["certificates"]] == [image]
    assert document["refused"] == []
    assert list(misfits(document, VerificationDocument)) == []
    assert list(misfits(document["certificates"], list[Certificate])) == []

    dry = validator("promote", *trust, "--dry-run")
    assert f"latest: would move from nothing to {image}" in dry.stdout
    assert Registry(repository).digest_of("latest") is None
    moved = validator("promote", *trust)
    assert (moved.returncode, Registry(repository).digest_of("latest")) == (0, image)
    assert f"latest: moved from nothing to {image}" in moved.stdout
    again = validator("promote", *trust, "--json")
    moves = json.loads(again.stdout)
    assert [move["moves"] for move in moves] == [False, False, False]
    assert list(misfits(moves, list[Move])) == []
    assert validator("verify", *trust, "latest", image).returncode == 0


def test_a_fixture_is_rejected_without_the_option(
    repository: Repository, image: str, store: Path, signer: Signer, trust: Trust
) -> None:
    keep(store, record(image))
    sign = ("certify", "--registry", repository, "--store", store, "--signing-key", str(signer.key))
    assert validator(*sign).returncode == 0
    seen = ("--registry", repository, "--key", trust.key)
    verified = validator("verify", *seen, NAMED)
    assert verified.returncode == 1
    assert "made by a test and proves nothing" in verified.stderr
    promoted = validator("promote", *seen)
    assert promoted.stdout == ""
    assert Registry(repository).digest_of("latest") is None


def test_a_release_key_does_not_sign_a_fixture(
    repository: Repository, image: str, store: Path, release: tuple[Signer, Trust]
) -> None:
    keep(store, record(image))
    sign = ("certify", "--registry", repository, "--store", store, "--signing-key", str(release[0].key))
    done = validator(*sign)
    assert (done.returncode, done.stdout) == (1, "")
    assert "made up by a test" in done.stderr
    key = ("--key", release[1].key, "--fixtures")
    assert validator("verify", "--registry", repository, *key, NAMED).returncode == 2


def test_a_named_record_that_may_not_be_certified_is_rejected(
    repository: Repository, image: str, store: Path, signer: Signer
) -> None:
    made = record(image, engine="venv", image_digest=None)
    keep(store, made)
    sign = ("certify", "--registry", repository, "--store", store, "--signing-key", str(signer.key))
    done = validator(*sign, "--record", made.id)
    assert done.returncode == 1
    assert "without an image" in done.stderr
    done = validator(*sign)
    assert (done.returncode, "measured without an image (engine venv)" in done.stderr) == (1, True)


@pytest.mark.service
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("certify",), "--registry"),
        (("certify", "--registry", "localhost/a"), "--signing-key"),
        (("certify", "--registry", "localhost/a", "--identity", "a"), "--issuer"),
        (
            (
                "certify",
                "--registry",
                "localhost/a",
                "--signing-key",
                "k",
                "--identity",
                "a",
                "--issuer",
                "b",
            ),
            "--signing-key",
        ),
        (("verify",), "--registry"),
        (("verify", "--registry", "localhost/a"), "--key"),
        (("verify", "--registry", "localhost/a", "--key", "/none.pub"), "/none.pub"),
        (("verify", "--registry", "tensorflow", "--identity", "a", "--issuer", "b"), "tensorflow"),
        (("promote", "--registry", "localhost/a", "--max-age", "old"), "length of time"),
        (("promote", "--registry", "localhost/a", "--identity", "a"), "--issuer"),
    ],
)
def test_wrong_usage_is_reported(arguments: tuple[str, ...], says: str) -> None:
    done = validator(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.service
def test_keys_have_cosign_s_format_and_only_their_owner_can_read_them(tmp_path: Path) -> None:
    assert validator("certify", "keygen", "--output-prefix", tmp_path / "cosign").returncode == 0
    private, public = tmp_path / "cosign.key", tmp_path / "cosign.pub"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert "ENCRYPTED" in private.read_text()
    assert not is_throw_away(private) and not is_throw_away(public)
    assert cosign("public-key", "--key", private).stdout.strip() == public.read_text().strip()
    before = private.read_bytes()
    again = validator("certify", "keygen", "--output-prefix", tmp_path / "cosign")
    assert (again.returncode, "never overwritten" in again.stderr) == (2, True)
    assert private.read_bytes() == before


@pytest.mark.service
def test_throw_away_keys_are_marked_and_cosign_ignores_the_mark(tmp_path: Path) -> None:
    made = validator("certify", "keygen", "--throw-away", "--output-prefix", tmp_path / "a")
    assert made.returncode == 0
    for name in ("a.key", "a.pub"):
        assert (tmp_path / name).read_text().splitlines()[0] == THROW_AWAY
    assert "PUBLIC KEY" in cosign("public-key", "--key", tmp_path / "a.key").stdout


@pytest.mark.service
def test_an_empty_password_must_be_requested_explicitly(tmp_path: Path) -> None:
    prefix = ("--output-prefix", tmp_path / "a")
    empty = validator("certify", "keygen", *prefix, password="")
    assert (empty.returncode, "the password is empty" in empty.stderr) == (2, True)
    unknown = validator("certify", "keygen", *prefix, password=None)
    assert (unknown.returncode, "COSIGN_PASSWORD" in unknown.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []
    assert validator("certify", "keygen", *prefix, "--no-password", password=None).returncode == 0


@pytest.mark.service
def test_a_person_at_a_terminal_is_asked(tmp_path: Path) -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.environ.pop("COSIGN_PASSWORD", None)
        os.chdir(ROOT)
        command = [sys.executable, "-m", "validator", "certify", "keygen", "--output-prefix"]
        os.execv(sys.executable, [*command, str(tmp_path / "a")])
    said = b""
    # What is typed before the question is thrown away by the terminal.
    for question in (b"a.key: ", b"confirmation: "):
        while question not in said:
            said += os.read(terminal, 1024)
        os.write(terminal, b"typed\n")
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 1024):
            said += part
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, said
    assert b"typed" not in said
    key = str(tmp_path / "a.key")
    environment = os.environ | {"COSIGN_PASSWORD": "typed"}
    assert subprocess.run(["cosign", "public-key", "--key", key], env=environment).returncode == 0
