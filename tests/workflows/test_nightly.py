"""Three nights of the nightly workflow on this machine: a real engine, registry and cosign, and no GPU.

The steps are those of the workflow's file, in its order. What a night can't have here, a GPU runner, is shown
by records that a fixture made up; they are marked as such and signed by a key that is thrown away.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from validator import cli
from validator.certify.signatures import make_key_pair
from validator.certify.trust import Challenge, Party, Signatory, new_challenge
from validator.certify.trust_file import entry_line
from validator.engines.endpoint import Endpoint, connect
from validator.engines.images import list_images
from validator.errors import MissingError
from validator.model.codec import format_timestamp, now_utc
from validator.model.record import Record, Verdict
from validator.model.spec import LABEL_LOCK, LABEL_SPEC, image_reference
from validator.pipeline.makers import ImageSettings, assembler
from validator.records import record_files
from validator.registry.client import Registry
from validator.registry.names import Repository
from validator.system.package_sources import host_sources

from ..certify.building import Builder, make_builder
from ..certify.fixtures import PASSWORD, record, report
from ..certify.measuring import Runner, make_runner, measured, trust_yaml
from ..integration.docker.conftest import PYTHON
from ..integration.docker.private_engine import dockerd, private_engine
from ..loop import tiers
from ..registry.images import push_image
from ..registry.server import RunningRegistry, running_registry
from ..support import said
from .gh import State
from .night import Machine, Night
from .support import workflow

IMAGE = f"tf2.21.0-cpu-py{PYTHON.replace('.', '')}"
CELL, TAG = f"{IMAGE}@no-gpu", f"2.21.0-cpu-py{PYTHON}"
ELSEWHERE = "tf2.21.0-cuda12.5-cudnn9.3-py312@r580-h100"
ALIASES = {"latest", "2.21", "2.21-driver580"}
#: A documentation of one page. The third night has the whole one, which takes long.
ONE_PAGE = """\
site_name: one page
exclude_docs: "*\\n!/index.md"
theme: mkdocs
validation: {links: {not_found: ignore, unrecognized_links: ignore}}
"""
# The credentials of `nobody` with the password `token`.
HTPASSWD = "nobody:$2b$04$Mea8jLP9KCGnYx4.Sp9V7uvm8Ur1CnJ2qroXAsRwqrW0PTBRiOFZ.\n"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nights")


@pytest.fixture(scope="module")
def registry(directory: Path) -> Iterator[RunningRegistry]:
    """Yield a registry that requires a password."""
    users = directory / "htpasswd"
    users.write_text(HTPASSWD)
    with running_registry(directory / "registry", htpasswd=users) as registry:
        yield registry


@pytest.fixture(scope="module")
def repository(registry: RunningRegistry) -> Repository:
    return Repository.parse(f"{registry.address}/team/tf")


@pytest.fixture(scope="module")
@(tiers.engine if dockerd() else tiers.docker)
def endpoint() -> Iterator[Endpoint]:
    """Yield an engine of these tests' own, while others use the machine's; without root, it is that one."""
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        if dockerd():
            root = Path(tempfile.mkdtemp(prefix="own-engine-"))
            stack.callback(shutil.rmtree, root, ignore_errors=True)
            patch.setenv("DOCKER_HOST", stack.enter_context(private_engine(root, root / "data")).url)
        try:
            endpoint = connect()
        except MissingError as error:
            pytest.skip(str(error))
        if reason := assembler(host_sources(), ImageSettings(), endpoint).bases.provides(PYTHON):
            pytest.skip(reason)
        yield endpoint
        endpoint.client.close()
        endpoint.quick.close()


@pytest.fixture(scope="module")
def runner(directory: Path) -> Runner:
    """Return a registered runner with an H100, somewhere else."""
    return make_runner(directory, "gpu-1", "*-h100")


@pytest.fixture(scope="module")
def builder(directory: Path) -> Builder:
    """Return a registered builder, somewhere else."""
    return make_builder(directory)


@pytest.fixture(scope="module")
def machine(
    directory: Path, repository: Repository, endpoint: Endpoint, runner: Runner, builder: Builder
) -> Iterator[Machine]:
    make_key_pair(directory / "key", PASSWORD, throw_away=True)
    _, public = make_key_pair(directory / "builder", PASSWORD, throw_away=True)
    own = Party("nightly", Signatory(key=public.read_text()), now_utc() + timedelta(days=1))
    builders = [f"  - {entry_line(party)}" for party in (own, builder.party)]
    tags = {tag for image in list_images(endpoint.client) for tag in image.tags}

    def forget() -> None:
        """The machine that validates is not the one that built."""
        subprocess.run(["docker", "image", "rm", image_reference(IMAGE)], capture_output=True)

    yield Machine(
        directory,
        variables={
            "NIGHTLY_PROFILE": "full",
            "NIGHTLY_SELECT": f"tensorflow=2.21.0 variant=cpu python={PYTHON}",
            "NIGHTLY_HOSTS": "no-gpu",
            "NIGHTLY_DEPTH": "quick",
            "NIGHTLY_REGISTRY": str(repository),
            "COSIGN_PUBLIC_KEY": (directory / "key.pub").read_text(),
        },
        secrets={
            "COSIGN_PRIVATE_KEY": (directory / "key.key").read_text(),
            "COSIGN_PASSWORD": PASSWORD,
            "BUILDER_PRIVATE_KEY": (directory / "builder.key").read_text(),
            "BUILDER_PASSWORD": PASSWORD,
        },
        environment={"EVERY_S": "0", "IDLE_MINUTES": "0"},
        files={
            "trust.yaml": "\n".join([trust_yaml(runner), "builders:", *builders, ""]),
            "mkdocs.yml": ONE_PAGE,
        },
        token="token",
        before={"validate": forget},
    )
    for image in list_images(endpoint.client):
        for tag in set(image.tags) - tags:
            if tag.startswith((image_reference(IMAGE), str(repository))):
                endpoint.client.images.remove(tag, force=True)


@pytest.fixture(scope="module")
def state(directory: Path) -> State:
    return State(directory / "github.json")


def results(night: Night) -> dict[str, str]:
    return {name: job.result for name, job in night.jobs.items()}


def logs(night: Night) -> str:
    return "\n".join(f"===== {name}: {job.result}\n{job.log}" for name, job in night.jobs.items())


def records(night: Night) -> list[Record]:
    with open(night.artifacts / "records" / "records.jsonl", "rb") as stream:
        return list(record_files.read(stream, "records"))


def text_of(page: Path) -> str:
    return "\n".join(path.read_text(errors="replace") for path in page.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def first(machine: Machine, state: State) -> Night:
    """Run a night without a GPU anywhere."""
    return Night(workflow("nightly.yml"), machine, state, 1).run()


def test_without_a_gpu_a_night_certifies_nothing(first: Night, registry: RunningRegistry) -> None:
    assert set(results(first).values()) == {"success"}, logs(first)
    validated = [f"build {IMAGE}", "part 1 / cells", f"part 1 / validate {CELL}"]
    assert first.ran == ["plan", *validated, "merge", "certify", "page", "publish", "regressions", "end"]
    [found] = records(first)
    assert (found.cell, found.verdict) == (CELL, Verdict.WORKS_ON_CPU)
    tags = registry.tags("team/tf")
    assert {tag for tag in tags if not tag.startswith("sha256-")} == {TAG}, "no alias: nothing is certified"
    assert found.image_digest == tags[TAG]
    assert "nothing to certify" in first.jobs["certify"].log
    assert "has no certified images and no aliases" in first.jobs["certify"].log
    assert "None." in first.jobs["merge"].summary


def test_the_image_was_pulled_by_its_digest(first: Night, endpoint: Endpoint, repository: Repository) -> None:
    [found] = records(first)
    there = endpoint.client.images.get(repository.at(str(found.image_digest)))
    assert image_reference(IMAGE) not in there.tags, "it was not built on the machine that validates"


def test_the_page_shows_the_cell_and_no_certificate(first: Night) -> None:
    assert first.published is not None
    matrix = first.published / "matrix"
    assert (matrix / "index.html").is_file()
    assert IMAGE in text_of(matrix)
    table = (matrix / "table.md").read_text()
    assert f"| `{CELL}` | works | **works-on-cpu** |" in table
    assert "**certified**" not in table


def test_the_data_is_published_next_to_the_page_with_the_record(first: Night) -> None:
    assert first.published is not None
    data = first.published / "dataset"
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=data, check=True)
    [row] = json.loads((data / "records.json").read_bytes())
    [found] = records(first)
    assert (row["id"], row["cell"], row["verdict"]) == (found.id, CELL, "works-on-cpu")
    assert (data / "predictions.parquet").is_file()


def test_no_issue_is_opened_without_regressions(first: Night, state: State) -> None:
    found = State.read(state.path)
    assert found.issues == [] and found.cancelled == []


def test_no_secret_is_in_a_log_or_an_artifact(first: Night, machine: Machine) -> None:
    no_secret_is_in(first, machine)


def no_secret_is_in(night: Night, machine: Machine) -> None:
    shown = logs(night).encode()
    for path in night.artifacts.rglob("*"):
        shown += path.read_bytes() if path.is_file() else b""
    keys = [machine.secrets[name].splitlines()[3] for name in ("COSIGN_PRIVATE_KEY", "BUILDER_PRIVATE_KEY")]
    for secret in (PASSWORD, *keys, HTPASSWD.strip()):
        assert secret.encode() not in shown


@pytest.fixture(scope="module")
def fixture_image(
    directory: Path, machine: Machine, repository: Repository, first: Night, builder: Builder
) -> str:
    """Return the digest of an image that only a runner with a GPU can measure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_CONFIG", str(directory / "docker"))
        login = ["docker", "login", "--username", "nobody", "--password-stdin", repository.host]
        subprocess.run(login, input="token", text=True, check=True, capture_output=True)
        made = record("sha256:" + "0" * 64)
        labels = {LABEL_SPEC: made.image, LABEL_LOCK: str(made.lock_digest)}
        digest = push_image(repository, "2.21.0-cuda12.5-cudnn9.3-py3.12", labels, credentials="nobody:token")
        builder.prove(Registry(repository), digest)
        return digest


@pytest.fixture(scope="module")
def second(machine: Machine, state: State, fixture_image: str, runner: Runner) -> Night:
    """Run a night in which another runner delivers what it measured, with records that somebody else typed.

    All are marked as fixtures, since there is no GPU here.
    """

    def deliver(challenge: Challenge) -> list[Record]:
        now = format_timestamp(now_utc())
        typed = record(fixture_image, finished=now)
        assert typed.report is not None
        forged = msgspec.structs.replace(typed, report={**typed.report, "challenge": challenge.value})
        of_last_night = measured(typed, runner, new_challenge(ELSEWHERE))
        return [measured(typed, runner, challenge), forged, of_last_night]

    night = dataclasses.replace(machine, elsewhere={ELSEWHERE: deliver})
    return Night(workflow("nightly.yml"), night, state, 2).run()


def test_the_plan_asks_for_each_cell_with_a_challenge_that_its_measurement_repeats(first: Night) -> None:
    [row] = json.loads((first.artifacts / "plan/cells.json").read_text())["include"]
    assert (row["id"], len(row["challenge"])) == (CELL, 64)
    [found] = records(first)
    assert found.report is not None
    assert found.report["challenge"] == row["challenge"]


def test_in_the_second_night_only_what_a_registered_runner_signed_is_certified(
    first: Night,
    second: Night,
    machine: Machine,
    fixture_image: str,
    registry: RunningRegistry,
    repository: Repository,
) -> None:
    no_secret_is_in(second, machine)
    assert set(results(second).values()) == {"success"}, logs(second)
    said = second.jobs["certify"].log
    assert said.count("certified (fixture)") == 1
    assert f"certified (fixture)  {ELSEWHERE}  {repository.at(fixture_image)}" in said
    # Somebody typed one more, which no runner signed. The merge made it a claim, so nothing rejects it here.
    assert "Rejected: " not in said
    typed = [found for found in records(second) if "claimed, but not proven" in found.reason]
    assert [found.verdict for found in typed] == [Verdict.UNPROVEN]
    # It is not an image of this tool, so it can't be made again. A record that somebody typed names it, too.
    assert said.count(f"::warning::{fixture_image} could not be made again from its lock") == 1
    assert not ALIASES & set(registry.tags("team/tf")), (
        "certificates of fixtures count for nobody who does not ask"
    )
    assert {found.cell for found in records(second)} == {CELL, ELSEWHERE}
    assert len(records(second)) == 5, "tonight's four, and that of the night before"
    # The image of the night before is not made again.
    assert f"{IMAGE}: push" in first.jobs["build"].log
    assert f"{IMAGE}: push" not in second.jobs["build"].log
    assert "0 built" in second.jobs["build"].log


@pytest.fixture(scope="module")
def promoted(
    second: Night,
    machine: Machine,
    directory: Path,
    repository: Repository,
    registry: RunningRegistry,
    fixture_image: str,
) -> None:
    """Move the aliases by hand: the night's own step rejects certificates of fixtures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_CONFIG", str(directory / "docker"))
        trust = directory / "trust.yaml"
        trust.write_text(machine.files["trust.yaml"])
        key = ["--trust", str(trust), "--key", str(directory / "key.pub")]
        assert cli.run(["promote", "--registry", str(repository), *key]) == 0
        assert cli.run(["promote", "--registry", str(repository), *key, "--fixtures"]) == 0
    tags = registry.tags("team/tf")
    assert {alias: tags.get(alias) for alias in ALIASES} == dict.fromkeys(ALIASES, fixture_image)


@pytest.fixture(scope="module")
def third(machine: Machine, state: State, promoted: None, fixture_image: str, runner: Runner) -> Night:
    """Run a night in which our runner is offline, and the other one sends a failure."""
    found = report()
    check = next(check for check in found["checks"] if check["id"] == "cudnn_load")
    check |= {"outcome": "fail", **said("cuDNN does not load", "fail")}

    def deliver(challenge: Challenge) -> list[Record]:
        failed = record(
            fixture_image,
            found=found, finished=format_timestamp(now_utc()),
            verdict=Verdict.FAILED, reason="cudnn_load: cuDNN does not load; asks @team",
        )  # fmt: skip
        return [measured(failed, runner, challenge)]

    files = {name: text for name, text in machine.files.items() if name != "mkdocs.yml"}
    night = dataclasses.replace(
        machine, files=files, elsewhere={ELSEWHERE: deliver}, offline=frozenset({"no-gpu"})
    )
    return Night(workflow("nightly.yml"), night, state, 3).run()


def test_in_the_third_night_a_cell_gets_worse_and_a_runner_is_offline(
    third: Night, state: State, registry: RunningRegistry, fixture_image: str
) -> None:
    # The offline runner does not delay the night, and its cell is missing.
    assert results(third)["merge"] == "success", logs(third)
    assert f"part 1 / validate {CELL}" not in third.ran
    assert "continuing with 0 of 2 validations; 0 running, 2 waiting for a runner" in third.jobs["merge"].log
    assert f"- `{CELL}`" in third.jobs["merge"].summary
    assert State.read(state.path).cancelled == ["3"]
    assert len([found for found in records(third) if found.cell == CELL]) == 2, "those of the nights before"
    # Regressions are in one issue with the last good image.
    [issue] = State.read(state.path).issues
    assert issue["state"] == "open"
    assert f"`{ELSEWHERE}` | certified | failed" in issue["body"]
    assert fixture_image in issue["body"]
    assert "```text\ncudnn_load: cuDNN does not load; asks @team\n```" in issue["body"]
    # Aliases without a valid certificate fail the job but not the page. They were moved by one of a fixture.
    found = results(third)
    assert [job for job, result in found.items() if result != "success"] == ["certify"], logs(third)
    assert f"failed (fixture)  {ELSEWHERE}" in third.jobs["certify"].log, "the failure is signed as well"
    assert "latest: stale, but stays at" in third.jobs["certify"].log
    assert third.published is not None and ELSEWHERE.partition("@")[0] in text_of(third.published / "matrix")
    assert "doctor" in (third.published / "how-to/diagnose-a-gpu.html").read_text()
    tags = registry.tags("team/tf")
    assert {tags[alias] for alias in ALIASES} == {fixture_image}
