"""Test the options, exit code and JSON of `build-matrix` with a registry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from validator.cli.build_matrix import command
from validator.cli.building import exit_code, result_json
from validator.errors import EXIT_FAILED, EXIT_INPUT, EXIT_MISSING, EXIT_OK, InputError, MissingError
from validator.pipeline.publisher import PublishedImage, TagTaken
from validator.pipeline.run import Result, Status

from ..pipeline.test_build_matrix import OTHER, SPEC


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--retag"], "--retag has no effect without --push"),
        (["--mount-from", "localhost:5000/a"], "--mount-from has no effect without --push"),
        (
            ["--push", "localhost:5000/a", "--pull-from", "localhost:5000/a"],
            "--push and --pull-from can't be combined",
        ),
        (["--pull-from", "localhost:5000/a", "--no-validate"], "nothing would be left to do"),
        (["--push", "localhost:5000/a", "--engine", "venv"], "builds no images"),
        (["--oci", "images", "--engine", "venv"], "has no effect with --engine venv"),
        (["--layers", "gzip", "--engine", "venv"], "has no effect with --engine venv"),
        (["--oci", "images", "--push", "localhost:5000/a"], "can't be combined with --oci"),
        (["--oci", "images", "--pull-from", "localhost:5000/a"], "can't be combined with --oci"),
    ],
)
def test_contradicting_options_change_nothing(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == EXIT_INPUT
    assert says in result.output


def test_a_name_that_is_not_a_repository_is_rejected() -> None:
    result = CliRunner().invoke(command, ["--push", "tensorflow"])
    assert isinstance(result.exception, InputError)


def test_the_exit_code_distinguishes_refused_from_missing(capsys: pytest.CaptureFixture[str]) -> None:
    taken = TagTaken("the tag names another image", hint="--retag moves the tag")
    gone = MissingError("the registry is down")
    refused = Result(SPEC, Status.REFUSED, detail=str(taken), error=taken)
    missing = Result(OTHER, Status.MISSING, detail=str(gone), error=gone)
    done = Result(OTHER, Status.BUILT)
    assert exit_code([done]) == EXIT_OK
    assert exit_code([done, missing]) == EXIT_MISSING
    assert exit_code([refused, missing]) == EXIT_FAILED
    printed = capsys.readouterr().err
    assert "error: the tag names another image\n  hint: --retag moves the tag" in printed


def test_skipping_every_image_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    skipped = Result(SPEC, Status.SKIPPED, detail="Python 3.11 is not installed")
    assert exit_code([skipped, skipped]) == EXIT_MISSING
    assert "every image was skipped" in capsys.readouterr().err
    assert exit_code([skipped, Result(OTHER, Status.BUILT)]) == EXIT_OK
    assert exit_code([]) == EXIT_OK


def test_the_json_names_the_image_in_the_registry() -> None:
    digest = f"sha256:{'a' * 64}"
    published = PublishedImage("2.21.0-cpu-py3.11", f"localhost:5000/tf@{digest}", digest, True)
    document = json.loads(json.dumps(result_json(Result(SPEC, Status.BUILT, published=published))))
    assert document["published"] == {
        "tag": "2.21.0-cpu-py3.11",
        "reference": f"localhost:5000/tf@{digest}",
        "digest": digest,
        "sent": True,
    }
    name = f"localhost:5000/tf:2.21.0-cpu-py3.11@{digest}"
    assert (document["digest"], document["reference"]) == (digest, name)
    without = result_json(Result(SPEC, Status.BUILT))
    assert (without["published"], without["digest"], without["reference"]) == (None, None, None)


def test_the_resultsresult_json_name_the_image_without_a_registry(tmp_path: Path) -> None:
    digest = f"sha256:{'b' * 64}"
    local = result_json(Result(SPEC, Status.BUILT, digest=digest))
    name = f"tensorflow-gpu-matrix:{SPEC.identifier}"
    assert (local["digest"], local["reference"]) == (digest, name)
    written = result_json(Result(SPEC, Status.BUILT, digest=digest), tmp_path)
    assert (written["digest"], written["reference"]) == (
        digest,
        f"{tmp_path}:2.21.0-cuda12.5-cudnn9.3-py3.11",
    )
