"""`build-matrix --rehearse`: its options and its messages. Other tests run it with a real engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from validator.certify.signatures import Signer
from validator.certify.trust_file import NAME
from validator.cli import building as rehearse
from validator.cli import declared
from validator.cli.build_matrix import _NOT_REHEARSED, Request, build_matrix_command
from validator.delivery.rehearsal import Step
from validator.errors import EXIT_INPUT, MissingError
from validator.model.record import Origin, Verdict
from validator.model.spec import ImageSpec
from validator.pipeline.run import PublishedImage, Result, Status
from validator.registry.client import Registry
from validator.registry.names import Repository

from ..commands import ROOT
from ..pipeline.test_build_matrix import SPEC
from ..pipeline.test_publisher import FakeImageEngine
from ..records.values import record

DIGEST = "sha256:" + "d" * 64


def asked(*arguments: str) -> Request:
    """Return what the options of `build-matrix --rehearse` ask for."""
    given = build_matrix_command.make_context("build-matrix", ["--rehearse", *arguments]).params
    request: Request = declared(Request)[1](given)
    return request


@pytest.mark.parametrize(
    "option",
    [
        "--store records.db", "--engine venv", "--engine docker", "--oci images", "--no-validate", "--retag",
        "--mount-from localhost:5000/b",
        "--builder-key our.key", "--identity us", "--issuer https://issuer.example", "--trust trust.yaml",
        "--pull-from localhost:5000/a", "--force", "--fail-fast", f"--challenge {'a' * 64}",
        f"--challenges {__file__}",
    ],
)  # fmt: skip
def test_it_has_its_own_keys_records_and_trust(option: str) -> None:
    result = CliRunner().invoke(build_matrix_command, ["--rehearse", *option.split()])
    assert result.exit_code == EXIT_INPUT
    assert f"{option.split()[0]} can't be combined with --rehearse" in result.output.replace(
        "--keep-going can't", "--fail-fast can't"
    )


def test_without_it_there_is_nothing_to_keep() -> None:
    result = CliRunner().invoke(build_matrix_command, ["--keep"])
    assert result.exit_code == EXIT_INPUT
    assert "--keep has no effect without --rehearse" in result.output


@pytest.mark.parametrize(
    "name",
    [
        parameter.envvar
        for parameter in build_matrix_command.params
        if parameter.envvar and parameter.name in _NOT_REHEARSED
    ],
)
def test_what_the_environment_says_is_not_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "/nowhere")
    seen: list[Request] = []

    def instead(asked: Request) -> int:
        seen.append(asked)
        return 0

    monkeypatch.setattr(rehearse, "rehearse", instead)
    assert (
        CliRunner().invoke(build_matrix_command, ["--rehearse", "--push", "localhost:5000/a"]).exit_code == 0
    )
    assert "/nowhere" not in str(dataclasses.asdict(seen[0]))


def test_a_missing_registry_says_what_else_can_be_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with (
        pytest.raises(MissingError, match="docker-registry is not installed") as caught,
        rehearse._registry(None, tmp_path),
    ):
        pass
    assert str(caught.value.hint).endswith("use a registry that is running already: --push REGISTRY/NAME")


def test_a_rehearsal_uses_a_python_that_the_engine_provides(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It works like `build-matrix`: the profile `quick` does not fix the Python."""
    engine = FakeImageEngine(lacks="3.12")
    maker = SimpleNamespace(bases=SimpleNamespace(repository=lambda spec: None))
    seen: list[ImageSpec] = []

    def build(images: Sequence[ImageSpec], run: object) -> list[Result]:
        seen.extend(images)
        return []

    (tmp_path / NAME).touch()
    monkeypatch.setattr(rehearse, "open_engine", lambda *_, **__: SimpleNamespace(
        engine=engine, maker=maker, description="a fake"))  # fmt: skip
    monkeypatch.setattr(rehearse, "build_matrix", build)
    registry = Registry(Repository("localhost:5000", "a"))
    request = asked("--matrix", str(ROOT / "matrix.yaml"), "--profile", "quick")
    rehearse._measure(request, registry, tmp_path, Signer(key="none", password=""))
    assert seen and "3.12" not in {spec.python for spec in seen}
    assert {path.stem for path in (tmp_path / "locks").iterdir()} == {spec.identifier for spec in seen}


def test_the_directory_is_removed_unless_it_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    with rehearse._directory(keep=False) as directory:
        assert "REHEARSAL" in directory.name and directory.is_dir()
    assert not directory.exists()
    with pytest.raises(ValueError, match="in between"), rehearse._directory(keep=True) as directory:
        raise ValueError("in between")
    assert directory.is_dir() and directory.stat().st_mode & 0o077 == 0
    assert f"are in {directory}" in capsys.readouterr().err
    directory.rmdir()


def test_the_steps_of_an_image() -> None:
    published = PublishedImage("REHEARSAL-2.21.0", f"localhost:5000/tf@{DIGEST}", DIGEST, True)
    made = record(verdict=Verdict.UNPROVEN, reason="REHEARSAL: no GPU", origin=Origin.REHEARSAL)
    done = Result(SPEC, Status.MEASURED, made, built=True, published=published)
    image = SPEC.identifier
    signed = "a throw-away builder key signed what it was made from"
    assert list(rehearse._steps_of(done)) == [
        Step(image, "build", "assembled in the registry"),
        Step(image, "push", f"REHEARSAL-2.21.0 is {DIGEST}; {signed}"),
        Step(image, "probe", "unproven: REHEARSAL: no GPU"),
    ]  # fmt: skip
    broken = Result(SPEC, Status.MEASURED, record(verdict=Verdict.BROKEN, reason="REHEARSAL: no wheel"))
    assert list(rehearse._steps_of(broken)) == [Step(image, "build", "broken: REHEARSAL: no wheel")]
    gone = Result(SPEC, Status.MISSING, detail="the index is down")
    assert list(rehearse._steps_of(gone)) == [Step(image, "missing", "the index is down")]


def test_it_ends_with_the_commands_for_the_real_thing(capsys: pytest.CaptureFixture[str]) -> None:
    rehearse._say_the_real_thing(
        asked("--profile", "nightly", "--select", "python=3.12", "--push", "ghcr.io/team/tf")
    )
    said = capsys.readouterr().err.splitlines()
    chosen = "--profile nightly --select python=3.12"
    assert said[1:4] == [
        f"  validator build-matrix {chosen} --push ghcr.io/team/tf",
        f"  validator build-matrix {chosen} --pull-from ghcr.io/team/tf",
        "  validator certify keygen --output-prefix team",
    ]
    assert [line.split()[1] for line in said[4:]] == ["certify", "promote", "recommend", "pull"]
