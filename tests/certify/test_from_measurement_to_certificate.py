"""From `build-matrix` to a certificate, with the commands that a person runs on a single machine.

The engine is a fake whose GPU a test made up, so the report is marked as a fixture, and all keys are thrown
away. Everything else is real: the registry, cosign, the trust file, the ledger of challenges, the store.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from validator import cli
from validator.certify.signatures import Signer
from validator.certify.trust import Terms, Trust
from validator.certify.trust_file import BUILDERS, RUNNERS, add, make_own_key, own_signer, read_trust_file
from validator.certify.verify import certificates
from validator.cli import building
from validator.engines.protocol import Built, ProbeRequest, probe_version
from validator.locks import lock_files
from validator.model.record import Outside, Record, Verdict
from validator.model.spec import Choice, ImageSpec, Variant
from validator.pipeline.makers import OpenedEngine
from validator.records.store import Store
from validator.registry.client import Registry
from validator.system.processes import Progress

from ..commands import ROOT
from ..pipeline.fakes import FakeEngine
from .building import INPUTS, make_builder
from .fixtures import PASSWORD, report
from .measuring import outside_of

SPEC = ImageSpec("2.21.0", "3.12", Variant.GPU, Choice("as-built", "12.5"), Choice("as-built", "9.3"))
CELL = f"{SPEC.identifier}@r580-h100"
MATRIX = """
images: [{tensorflow: "2.21.0", python: "3.12"}]
hosts: [{driver: "580", gpu: h100}]
profiles: {quick: {select: "tensorflow=2.21.0"}}
"""


@dataclasses.dataclass
class Emulated(FakeEngine):
    """An engine with the GPU of a fixture. gpu: what the probe says inside the image."""

    gpu: str = "h100"
    seen: Outside = dataclasses.field(default_factory=lambda: outside_of(report()["host"]))

    def probe(self, built: Built, request: ProbeRequest, progress: Progress) -> bytes:
        super().probe(built, request, progress)
        document = report(gpu=self.gpu)
        document["probe"]["version"] = probe_version()
        words = list(request.arguments)
        if "--challenge" in words:
            document["challenge"] = words[words.index("--challenge") + 1]
        return json.dumps(document).encode()


@pytest.fixture
def place(
    tmp_path: Path,
    registry: Registry,
    image: str,
    keys: tuple[Signer, Trust],
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """Return a checkout with a matrix, whose image a registered builder pushed.

    This machine has a key for tests.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COSIGN_PASSWORD", PASSWORD)
    # The line that starts the image is not for the engine of this machine.
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")
    make_own_key(RUNNERS, throw_away=True)
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    locks = tmp_path / lock_files.DIRECTORY
    locks.mkdir(parents=True)
    shutil.copy(ROOT / lock_files.DIRECTORY / f"{SPEC.identifier}.txt", locks)
    lock = lock_files.read(locks, SPEC.identifier)
    assert lock is not None
    builder = make_builder(tmp_path)
    add(tmp_path / "trust.yaml", BUILDERS, builder.party)
    inputs = dataclasses.replace(INPUTS, image=SPEC.identifier, lock_digest=lock.digest)
    builder.prove(registry, image, inputs)
    return tmp_path


def measure(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    place = OpenedEngine(engine, None, engine.describe())
    monkeypatch.setattr(building, "open_engine", lambda *_, **__: place)
    return cli.run(["build-matrix", *options])


def certify(registry: Registry, signer: Signer) -> int:
    where = ["--registry", str(registry.repository), "--signing-key", str(signer.key)]
    return cli.run(["certify", *where])


def newest(place: Path) -> Record:
    with Store(str(place / ".validator" / "records.db")) as store:
        return store.latest()[CELL]


def test_two_commands_lead_to_a_certificate(
    place: Path, registry: Registry, image: str, keys: tuple[Signer, Trust],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    signer, trust = keys
    assert measure(Emulated(digest=image), monkeypatch) == 0
    [runner] = read_trust_file(place / "trust.yaml").runners
    said = capsys.readouterr().err
    assert said.count("Registered this machine in trust.yaml as the runner") == 1
    assert (runner.host_classes, runner.signatory.throw_away) == (("*-h100",), True)
    record = newest(place)
    assert record.verdict is Verdict.CERTIFIED and record.measurement is not None

    assert certify(registry, signer) == 0, capsys.readouterr().err
    assert capsys.readouterr().out.startswith(f"certified (fixture)  {CELL}")
    [certificate] = certificates(registry, image, Terms(trust)).certificates
    assert certificate.record_id == record.id

    # Again: nothing to measure, nothing to register, nothing to sign.
    assert measure(Emulated(digest=image), monkeypatch) == 0
    assert "Registered" not in capsys.readouterr().err
    assert certify(registry, signer) == 0
    assert capsys.readouterr().out.startswith(f"unchanged (fixture)  {CELL}")

    # A thief of the key gets nothing more from here on, and nor do we.
    assert cli.run(["certify", "revoke", runner.name]) == 0
    assert measure(Emulated(digest=image), monkeypatch, "--force") == 0
    assert f"can't be certified: {runner.name} was revoked" in capsys.readouterr().err
    assert certify(registry, signer) == 1
    assert "no runner signed its measurement" in capsys.readouterr().err


def test_an_image_that_names_another_gpu_than_the_host_has_is_not_certified(
    place: Path, registry: Registry, image: str, keys: tuple[Signer, Trust],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert measure(Emulated(digest=image, gpu="a100"), monkeypatch) == 0
    record = newest(place)
    assert record.verdict is Verdict.UNPROVEN
    assert "the host has" in record.reason
    assert certify(registry, keys[0]) == 1
    said = capsys.readouterr().err
    assert "nothing to certify: none of these records is about an image on a real GPU" in said
    assert f"1 unproven: {record.reason} ({record.cell})" in said


def test_a_runner_answers_the_challenges_of_somebody_else(
    place: Path, registry: Registry, image: str, keys: tuple[Signer, Trust],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The runner has another checkout and another state directory than the one who certifies."""
    assert cli.run(["runner", "init", "--name", "gpu-1", "--host-class", "*-h100", "--register"]) == 0
    certifier = place / "certifier"
    certifier.mkdir()
    for name in ("matrix.yaml", "trust.yaml"):
        (certifier / name).write_text((place / name).read_text())
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(certifier / "state"))
        patch.chdir(certifier)
        assert cli.run(["certify", "challenges"]) == 0
    (place / "cells.json").write_text(capsys.readouterr().out)

    assert measure(Emulated(digest=image), monkeypatch, "--challenges", "cells.json") == 0
    assert own_signer(RUNNERS) is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(certifier / "state"))
        patch.setenv("VALIDATOR_STORE", str(place / ".validator" / "records.db"))
        patch.chdir(certifier)
        assert certify(registry, keys[0]) == 0
    assert "certified (fixture)" in capsys.readouterr().out
    # Our own ledger did not ask for it.
    assert certify(registry, keys[0]) == 0
    assert "unchanged (fixture)" in capsys.readouterr().out
