"""Test the options, exit code and JSON of `build-matrix` with a registry."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
from click.testing import CliRunner

from validator.assemble.image import RegistryDestination, put_base
from validator.assemble.layer_table import LayerTable
from validator.cli import building
from validator.cli.build_matrix import build_matrix_command
from validator.cli.building import exit_code, result_json
from validator.cli.planning import load_plan
from validator.cli.predict import plan_command
from validator.compat.policies import requirements
from validator.delivery.choose import Host, parse_driver, parse_gpus
from validator.engines.endpoint import Endpoint
from validator.errors import EXIT_FAILED, EXIT_INPUT, EXIT_MISSING, EXIT_OK, InputError, MissingError
from validator.locks import lock_files
from validator.locks.resolve import PLATFORM
from validator.matrix.load import load_matrix
from validator.model.spec import Lock
from validator.pipeline import makers
from validator.pipeline.build_matrix import TagTaken
from validator.pipeline.run import PublishedImage, Result, Status
from validator.registry.names import Repository
from validator.resources import shipped_matrix

from ..assemble.bases import FILES, base_of, layer
from ..assemble.pushes import completed
from ..commands import Done, run
from ..integration.docker.package_index import TinyWheel
from ..locks.local_index import LocalIndex
from ..pipeline.test_build_matrix import OTHER, SPEC
from ..registry.server import RunningRegistry


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
        (["--oci", "images", "--push", "localhost:5000/a"], "can't be combined with --oci"),
        (["--oci", "images", "--pull-from", "localhost:5000/a"], "can't be combined with --oci"),
    ],
)
def test_contradicting_options_change_nothing(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(build_matrix_command, arguments)
    assert result.exit_code == EXIT_INPUT
    assert says in result.output


def test_a_name_that_is_not_a_repository_is_rejected() -> None:
    result = CliRunner().invoke(build_matrix_command, ["--push", "tensorflow"])
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


OWN = """\
images:
  - {tensorflow: "2.18.1", python: "3.11", variant: cpu, base: "BASE", max_size: 1MB}
hosts: [{gpu: none}]
profiles: {quick: {description: All.}}
"""


@pytest.mark.service
def test_an_image_over_its_budget_is_not_published(
    server: RunningRegistry, index: LocalIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(_: object) -> Endpoint:
        raise MissingError("no engine is needed for this")

    monkeypatch.setattr("validator.pipeline.makers.connect_any", absent)
    # The base is a few files without a Python that runs.
    monkeypatch.setattr(makers, "compiler", lambda *_: None)
    monkeypatch.setattr(building, "host_sources", lambda: index.sources)
    monkeypatch.setenv("VALIDATOR_CACHE", str(tmp_path / "cache"))
    base, *targets = (Repository(server.address, f"budget/{name}") for name in ("base", "one", "two"))
    table = LayerTable(tmp_path / "other")
    put_base(base_of(table, layer(FILES)), RegistryDestination(base, "1"), table)

    def pushed(repository: Repository) -> Done:
        return run("build-matrix", "--no-validate", "--push", repository, cwd=tmp_path)

    (tmp_path / "matrix.yaml").write_text(OWN.replace("BASE", base.tagged("1")))
    [spec] = load_matrix(tmp_path / "matrix.yaml").images
    wheels = []
    for number, line in enumerate(requirements(spec)):
        name, _, version = line.partition("==")
        content = random.Random(number).randbytes(2_000_000)
        tiny = TinyWheel.make(name, version or "1.0", {f"{name.replace('-', '_')}/data": content})
        index.add(tiny.wheel.filename, content=tiny.content)
        wheels.append(tiny.wheel)
    lock = Lock(spec.identifier, spec.python, PLATFORM, requirements(spec), tuple(wheels))
    lock_files.write(tmp_path / lock_files.DIRECTORY, lock)

    refused = pushed(targets[0])
    assert refused.returncode == 1
    assert re.search(rf"{spec}: the image has at least [24]\.0 MB, but max_size is 1\.0 MB\.", refused.stderr)
    assert "The largest wheels are tensorflow-cpu 2 MB" in refused.stderr
    assert server.tags(targets[0].path) == {} and completed(server, targets[0].path)
    # The sizes are known now, so nothing is downloaded or sent to find out.
    shutil.rmtree(tmp_path / "cache/wheels")
    index.asked.clear()
    again = pushed(targets[1])
    assert (again.returncode, "but max_size is 1.0 MB" in again.stderr) == (1, True)
    assert index.downloads() == [] and not completed(server, targets[1].path)


# -- the image for this machine ----------------------------------------------------------------------------


class Stopped(Exception):
    """A run that ended before it built anything. prepared: what it would have built."""

    def __init__(self, prepared: building.Prepared) -> None:
        self.prepared = prepared


@pytest.fixture
def on_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[building.Prepared, str]]:
    """Return a function that types `build-matrix` on a machine, and returns what is built and was printed."""

    def stop(asked: object, prepared: building.Prepared, store: object) -> NoReturn:
        raise Stopped(prepared)

    engine = SimpleNamespace(provides=lambda python: True, existing=lambda spec, lock: None, name="test")
    place = SimpleNamespace(description="a test", maker=None, engine=engine)
    monkeypatch.setattr(building, "open_engine", lambda *_, **__: place)
    monkeypatch.setattr(building, "runner_of", lambda *_, **__: None)
    monkeypatch.setattr(building, "build", stop)
    monkeypatch.chdir(tmp_path)

    def typed(host: Host | None, *arguments: str) -> tuple[building.Prepared, str]:
        def this_host() -> Host:
            if host is None:
                raise MissingError("this machine has no NVIDIA driver")
            return host

        monkeypatch.setattr("validator.delivery.choose.this_host", this_host)
        with pytest.raises(Stopped) as stopped:
            build_matrix_command.main([*arguments], standalone_mode=False)
        return stopped.value.prepared, capsys.readouterr().err

    return typed


def typed_host(driver: str, *models: str) -> Host:
    return Host(parse_driver(driver), parse_gpus(models))


@pytest.mark.slow
def test_without_options_the_image_fits_this_machine(
    on_machine: Callable[..., tuple[building.Prepared, str]],
) -> None:
    [usual] = load_plan(shipped_matrix(), None, ()).images
    prepared, said = on_machine(typed_host("580.159.04", "h200"))
    assert prepared.plan.images == (usual,) and prepared.profile is None
    assert f"This builds {usual} for this machine (driver 580.159.04 with H200 (9.0)).\n" in said
    assert "Recommended for TensorFlow" in said
    prepared, said = on_machine(typed_host("580.65.06", "v100"))
    [image] = prepared.plan.images
    assert image != usual and f"This builds {image} for this machine" in said
    assert prepared.profile is not None, "the command for another machine selects it there"
    assert image in load_plan(shipped_matrix(), prepared.profile, (f"image={image}",)).images
    assert {cell.cell.image for cell in prepared.plan.cells} == {image}
    prepared, said = on_machine(None)
    assert prepared.plan.images == (usual,) and prepared.profile is None
    assert (
        f"No GPU was found: this machine has no NVIDIA driver. This builds {usual}, for data-center" in said
    )


def test_the_python_that_is_used_is_the_one_that_plan_names_or_explained(
    on_machine: Callable[..., tuple[building.Prepared, str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan_command.main([], standalone_mode=False)
    planned = capsys.readouterr().err
    assert (
        "Where Python 3.12 is not available, `build-matrix` uses the next of these that is: 3.11, " in planned
    )
    engine = SimpleNamespace(
        provides=lambda python: "no base" if python == "3.12" else None,
        existing=lambda spec, lock: None, name="test",
    )  # fmt: skip
    place = SimpleNamespace(description="a test", maker=None, engine=engine)
    monkeypatch.setattr(building, "open_engine", lambda *_, **__: place)
    prepared, said = on_machine(None)
    assert [image.python for image in prepared.plan.images] == ["3.11"]
    assert "Python 3.11 is used instead of 3.12: no base.\n" in said
    prepared, said = on_machine(None, "--select", "python=3.12")
    assert [image.python for image in prepared.plan.images] == ["3.12"] and "is used instead" not in said
    plan_command.main(["--select", "python=3.12"], standalone_mode=False)
    assert "is not available" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [("--profile", "quick"), ("--select", "tensorflow=2.21"), ("--profile", "jupyter")]
)
def test_a_selection_is_built_as_it_is(
    on_machine: Callable[..., tuple[building.Prepared, str]], arguments: tuple[str, str]
) -> None:
    profile = arguments[1] if arguments[0] == "--profile" else None
    select = (arguments[1],) if arguments[0] == "--select" else ()
    prepared, said = on_machine(typed_host("580.65.06", "v100"), *arguments)
    assert prepared.plan.images == load_plan(shipped_matrix(), profile, select).images
    assert prepared.profile == profile and "This builds" not in said
