"""Attacks by a machine that measures, and by somebody who pretends to be one.

Protected is the certificate: it says what a registered machine measured tonight, on its own kind of GPU. All
records here are fixtures, and all keys are thrown away.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from validator import cli
from validator.certify.acceptance import NotCertifiable, accepted
from validator.certify.signatures import Signer
from validator.certify.trust import Terms, Trust
from validator.certify.verify import certificates
from validator.errors import InputError
from validator.model.codec import format_timestamp, now_utc
from validator.model.record import Outside, Record, Source, labelled
from validator.records import record_files
from validator.registry.client import Registry
from validator.registry.names import Repository

from ..certify.fixtures import MEASURED_AT, record
from ..certify.measuring import Desk, Runner, builder, make_runner, measured, prove, trust_yaml
from ..loop import tiers
from ..registry.images import push_image

DIGEST, OTHER_DIGEST = "sha256:" + "d" * 64, "sha256:" + "e" * 64
CELL = "tf2.21.0-cuda12.5-cudnn9.3-py312@r580-h100"


@pytest.fixture(scope="module")
@tiers.service
def runners(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Runner]:
    """Return two registered machines, a stranger, and one whose key is not marked as made for tests."""
    directory = tmp_path_factory.mktemp("runners")
    return {
        "h100": make_runner(directory, "gpu-1", "*-h100"),
        "t4": make_runner(directory, "gpu-2", "*-t4"),
        "stranger": make_runner(directory, "gpu-3", "*-h100"),
        "real": make_runner(directory, "gpu-4", "*-h100", throw_away=False),
    }


@pytest.fixture
def desk(runners: dict[str, Runner]) -> Desk:
    return Desk((runners["h100"], runners["t4"]))


def refused(made: Record, desk: Desk, now: datetime | None = None) -> str:
    """Return why the record is not certified."""
    with pytest.raises(NotCertifiable) as caught:
        accepted(made, desk.certifier, now or now_utc())
    assert str(caught.value).startswith(f"record {made.id} ({made.cell}) can't be certified: ")
    return str(caught.value)


def test_an_honest_measurement_is_accepted(desk: Desk) -> None:
    """Without this test the others would prove nothing."""
    made = desk.measured(record(DIGEST))
    found = accepted(made, desk.certifier, now_utc())
    assert (found.image_digest, found.cell, found.host_class) == (DIGEST, CELL, "r580-h100")
    assert accepted(made, desk.certifier, now_utc()) == found, "an interrupted `certify` can be repeated"


def test_a_record_typed_by_hand(desk: Desk) -> None:
    """Only what a machine signed is certified, however good the record looks."""
    assert "no runner signed its measurement" in refused(record(DIGEST), desk)


@pytest.mark.parametrize("bundle", ["{}", "certified", '{"mediaType": 1}', "\ud800"])
def test_a_record_with_a_made_up_signature(desk: Desk, bundle: str) -> None:
    """Anything but exactly one bundle is rejected."""
    assert "its signed measurement can't be read" in refused(record(DIGEST, measurement=bundle), desk)


def test_a_key_that_nobody_registered(desk: Desk, runners: dict[str, Runner]) -> None:
    """Anybody can make a key. Only those of the trust file count."""
    made = desk.measured(record(DIGEST), runners["stranger"])
    assert "not signed by a registered runner" in refused(made, desk)


def test_a_runner_of_another_host_class(desk: Desk, runners: dict[str, Runner]) -> None:
    """A T4 can't certify an H100, whatever its report says."""
    made = desk.measured(record(DIGEST), runners["t4"])
    assert "gpu-2 may not sign for r580-h100, only for *-t4" in refused(made, desk)


def test_an_h100_in_the_report_of_a_t4(desk: Desk, runners: dict[str, Runner]) -> None:
    """A runner can't reach another host class by calling it its own: the GPU it names must belong to it."""
    found = record(DIGEST)
    claimed = msgspec.structs.replace(found, host_class="r580-t4", cell=found.cell.replace("h100", "t4"))
    made = desk.measured(claimed, runners["t4"])
    assert "NVIDIA H100 80GB HBM3 is not of the host class r580-t4" in refused(made, desk)


LABELS = labelled("580.65.06", "NVIDIA-H100-80GB-HBM3", "9.0", 1)


def test_labels_of_a_node_that_nobody_trusts(desk: Desk, runners: dict[str, Runner]) -> None:
    """Whoever may change the nodes of a cluster writes their labels, so the certifier has to allow them."""
    made = record(DIGEST)
    assert "count only if trust.yaml gives `outside: [node-labels]` to its runner gpu-1" in refused(
        desk.measured(made, outside=LABELS), desk
    )
    trusting = Desk((runners["h100"].changed(outside=(Source.NODE_LABELS,)),))
    assert accepted(trusting.measured(made, outside=LABELS), trusting.certifier, now_utc()).outside == LABELS


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        (labelled("570.26", "NVIDIA-H100-80GB-HBM3", "9.0", 1), "driver 570.26 is not of the host class"),
        (labelled("570", "NVIDIA-H100-80GB-HBM3", "9.0", 1), "driver 570 is not of the host class r580-h100"),
        (labelled("580", "Tesla-T4", "7.5", 1), "Tesla-T4 is not of the host class r580-h100"),
        (labelled("580", "NVIDIA-H100-80GB-HBM3", "9.0", 0), "the runner saw no driver or no GPU"),
    ],
)
def test_trusted_labels_of_another_host_class(runners: dict[str, Runner], labels: Outside, why: str) -> None:
    """A cluster can't reach another host class, whatever its report says."""
    trusting = Desk((runners["h100"].changed(outside=(Source.NODE_LABELS,)),))
    assert why in refused(trusting.measured(record(DIGEST), outside=labels), trusting)


@pytest.mark.parametrize(
    ("gpu", "host_class", "why"),
    [
        # People choose images by the compute capability.
        ({"name": "Tesla T4", "compute_capability": "9.0"}, "r580-t4", "has compute capability 7.5, not 9.0"),
        ({"name": "NVIDIA H100 T4", "compute_capability": "9.0"}, "r580-h100-t4", "may not sign for"),
        ({"name": "T4", "compute_capability": "7.5"}, "r535-t4", "driver 580.65.06 is not of the host class"),
        ({"name": "Tesla T4", "compute_capability": "7.5"}, "no-gpu", "may not sign for no-gpu"),
    ],
)
def test_a_gpu_that_does_not_exist(
    desk: Desk, runners: dict[str, Runner], gpu: dict[str, str], host_class: str, why: str
) -> None:
    """A made-up model must not open the host classes of a real one."""
    found = record(DIGEST)
    assert found.report is not None
    host = {**found.host, "gpus": [{**found.host["gpus"][0], **gpu}]}
    claimed = msgspec.structs.replace(
        found,
        host=host, report={**found.report, "host": host}, host_class=host_class,
        cell=f"{found.image}@{host_class}",
    )  # fmt: skip
    assert why in refused(desk.measured(claimed, runners["t4"]), desk)


def test_an_unknown_model_needs_its_compute_capability_in_the_trust_file(
    runners: dict[str, Runner],
) -> None:
    """A new model may be measured, by a machine that is trusted with its compute capability."""
    found = record(DIGEST)
    assert found.report is not None
    host = {
        **found.host,
        "gpus": [{**found.host["gpus"][0], "name": "NVIDIA X900", "compute_capability": "13.0"}],
    }
    claimed = msgspec.structs.replace(
        found,
        host=host, report={**found.report, "host": host}, host_class="r580-x900",
        cell=f"{found.image}@r580-x900",
    )  # fmt: skip
    model_only = Desk((runners["h100"].changed(host_classes=("*-x900",)),))
    assert "registered for its compute capability as well (*-sm130)" in refused(
        model_only.measured(claimed), model_only
    )
    both = Desk((runners["h100"].changed(host_classes=("*-x900", "*-sm130")),))
    assert accepted(both.measured(claimed), both.certifier, now_utc()).host_class == "r580-x900"


def test_the_measurement_of_another_night(runners: dict[str, Runner]) -> None:
    """A measurement of last night can't be used tonight, because tonight's challenges are different."""
    last_night, tonight = Desk((runners["h100"],)), Desk((runners["h100"],))
    made = last_night.measured(record(DIGEST))
    tonight.ask(CELL)
    assert "its challenge was not made here" in refused(made, tonight)


def test_a_challenge_that_was_never_made(desk: Desk) -> None:
    """Without a challenge nobody knows when something was measured."""
    assert "it answers no challenge" in refused(measured(record(DIGEST), desk.runners[0], None), desk)


def test_two_records_for_one_challenge(desk: Desk) -> None:
    """A challenge is accepted once: the better of two runs can't be shown in place of the other."""
    challenge = desk.ask(CELL)
    first = measured(record(DIGEST), desk.runners[0], challenge)
    second = measured(record(DIGEST, reason="again"), desk.runners[0], challenge)
    accepted(first, desk.certifier, now_utc())
    assert f"its challenge was used before, by record {first.id}" in refused(second, desk)


def test_the_challenge_of_another_cell(desk: Desk) -> None:
    """In a workflow, a job measures the cell that it was asked for."""
    challenge = desk.ask(CELL.replace("h100", "a100"))
    made = measured(record(DIGEST), desk.runners[0], challenge)
    assert f"its challenge was made for {challenge.asked}" in refused(made, desk)


def test_a_finish_time_in_the_future(desk: Desk) -> None:
    """A measurement of next year would stay the newest."""
    future = format_timestamp(now_utc() + timedelta(days=365))
    made = desk.measured(record(DIGEST, finished=future, started=format_timestamp(MEASURED_AT)))
    assert "it was signed as finished in the future" in refused(made, desk)


def test_a_measurement_older_than_its_challenge(desk: Desk) -> None:
    """An old run can't answer a new challenge: the report repeats it."""
    hour = timedelta(hours=1)
    challenge = desk.ask(CELL, MEASURED_AT + hour / 2)
    assert "before its challenge was made" in refused(
        measured(record(DIGEST), desk.runners[0], challenge), desk
    )


def test_a_challenge_that_waited_too_long(desk: Desk) -> None:
    """A challenge that was kept for later can't be answered much later."""
    made = desk.measured(record(DIGEST))
    assert "more than 14 days ago" in refused(made, desk, MEASURED_AT + timedelta(days=14, minutes=1))


def test_a_runner_whose_term_has_ended(desk: Desk, runners: dict[str, Runner]) -> None:
    """A forgotten key must not speak for ever."""
    made = desk.measured(record(DIGEST))
    ended = Desk((runners["h100"].changed(until=MEASURED_AT - timedelta(hours=1)),), desk.challenges)
    assert "its runner gpu-1 was registered until" in refused(made, ended)


EDITS: dict[str, Callable[[Record], dict[str, Any]]] = {
    "report": lambda made: {"report": {**(made.report or {}), "duration_s": 0.5}},
    "image digest": lambda made: {"image_digest": OTHER_DIGEST},
    "cell": lambda made: {"cell": made.cell.replace("h100", "a100")},
    "host class": lambda made: {"host_class": "r580-a100"},
    "image": lambda made: {"image": made.image.replace("py312", "py313")},
    "lock": lambda made: {"lock_digest": OTHER_DIGEST},
    "probe": lambda made: {"probe_version": "2.0"},
    "finish time": lambda made: {"finished": format_timestamp(now_utc())},
    "start time": lambda made: {"started": format_timestamp(now_utc())},
}


@pytest.mark.parametrize("part", EDITS)
def test_a_record_that_was_edited_after_it_was_signed(desk: Desk, part: str) -> None:
    """Whoever carries a record can't change what it says."""
    made = desk.measured(record(DIGEST))
    edited = msgspec.structs.replace(made, **EDITS[part](made))
    assert f"it differs from what its runner signed ({part}" in refused(edited, desk)


def test_a_statement_that_was_edited_after_it_was_signed(desk: Desk) -> None:
    """The signature covers every byte of the statement."""
    made = desk.measured(record(DIGEST))
    other = measured(record(OTHER_DIGEST), desk.runners[0], desk.ask(CELL))
    bundle, foreign = json.loads(str(made.measurement)), json.loads(str(other.measurement))
    bundle["dsseEnvelope"]["payload"] = foreign["dsseEnvelope"]["payload"]
    forged = msgspec.structs.replace(other, measurement=json.dumps(bundle))
    assert "not signed by a registered runner" in refused(forged, desk)


def test_a_statement_of_another_kind(desk: Desk) -> None:
    """A runner's key signs measurements only: its signature under something else is not one."""
    made = desk.measured(record(DIGEST))
    statement = b'{"_type":"https://in-toto.io/Statement/v1","subject":[],"predicateType":"x","predicate":{}}'
    other = msgspec.structs.replace(made, measurement=desk.runners[0].sign(statement))
    assert "its signed measurement can't be read" in refused(other, desk)


def test_fixtures_and_real_measurements_do_not_mix(runners: dict[str, Runner]) -> None:
    """A key that was made for a test never vouches for a real machine, nor the other way round."""
    real, throw_away = Desk((runners["real"],)), Desk((runners["h100"],))
    assert "it was made up by a test" in refused(real.measured(record(DIGEST)), real)
    unmarked = record(DIGEST)
    assert unmarked.report is not None
    unmarked = msgspec.structs.replace(unmarked, report={**unmarked.report, "fixture": False})
    assert "is a throw-away key" in refused(throw_away.measured(unmarked), throw_away)
    marked_only_in_the_statement = throw_away.measured(unmarked, fixture=True)
    assert "(mark of a fixture)" in refused(marked_only_in_the_statement, throw_away)


# Through the command, as a job would run it.


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the checkout in which somebody certifies, with an artifact in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "night").mkdir()
    return tmp_path


def certify(place: Path, registry: Registry, signer: Signer, desk: Desk, records: list[Record]) -> int:
    """Import an artifact and certify what it says, for the challenges of the desk."""
    with open(place / "night" / "records.jsonl", "w", encoding="utf-8") as stream:
        record_files.write(records, stream)
    rows = [
        {"id": made.asked, "challenge": made.value, "issued": format_timestamp(made.issued)}
        for made in desk.challenges.by_value.values()
    ]
    (place / "cells.json").write_text(json.dumps({"include": rows}))
    assert cli.run(["records", "import", "--store", "store.db", "night/records.jsonl"]) == 0
    files = ["--store", "store.db", "--challenges", "cells.json", "--signing-key", str(signer.key)]
    return cli.run(["certify", *files, "--registry", str(registry.repository)])


@pytest.fixture
def signed_by_release(keys: tuple[Signer, Trust], monkeypatch: pytest.MonkeyPatch) -> tuple[Signer, Trust]:
    monkeypatch.setenv("COSIGN_PASSWORD", str(keys[0].password))
    return keys


def test_a_trust_file_inside_the_artifact(
    place: Path, registry: Registry, image: str, signed_by_release: tuple[Signer, Trust],
    runners: dict[str, Runner], capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Only the certifier's own checkout says who may sign, never a file that was delivered."""
    signer, trust = signed_by_release
    (place / "trust.yaml").write_text(trust_yaml(runners["h100"]))
    for name in ("night/trust.yaml", "night/matrix.yaml"):
        (place / name).write_text(trust_yaml(runners["stranger"]))
    desk = Desk((runners["h100"],))
    forged = desk.measured(record(image), runners["stranger"])
    assert certify(place, registry, signer, desk, [forged]) == 1
    assert "not signed by a registered runner" in capsys.readouterr().err
    assert certificates(registry, image, Terms(trust)).certificates == ()


def test_without_a_trust_file_nothing_is_certified(
    place: Path, registry: Registry, image: str, signed_by_release: tuple[Signer, Trust],
    runners: dict[str, Runner],
) -> None:  # fmt: skip
    """A forgotten file must not mean that everybody may speak."""
    desk = Desk((runners["h100"],))
    with pytest.raises(InputError, match=r"trust\.yaml: does not exist"):
        certify(place, registry, signed_by_release[0], desk, [desk.measured(record(image))])


def test_of_a_night_only_the_answers_to_its_own_challenges_are_certified(
    place: Path, registry: Registry, repository: Repository, image: str,
    signed_by_release: tuple[Signer, Trust], runners: dict[str, Runner], capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Records that others bring along are not looked at, and a digest of another night is not tonight's."""
    signer, trust = signed_by_release
    (place / "trust.yaml").write_text(trust_yaml(runners["h100"], builders=[builder()]))
    other = push_image(repository, "other")
    prove(registry, image, CELL.partition("@")[0])
    last_night, tonight = Desk((runners["h100"],)), Desk((runners["h100"],))
    old = last_night.measured(record(image))
    assert certify(place, registry, signer, tonight, [old, record(image)]) == 1
    assert "nothing to certify: there is no record that answers a challenge" in capsys.readouterr().err
    of_another_digest = tonight.measured(record(other))
    assert certify(place, registry, signer, tonight, [of_another_digest]) == 1
    assert f"is about {other}, but" in capsys.readouterr().err
    good = tonight.measured(record(image))
    assert certify(place, registry, signer, tonight, [good]) == 1, "the other one is still refused"
    [certificate] = certificates(registry, image, Terms(trust)).certificates
    assert certificate.record_id == good.id


def test_a_certifier_who_is_not_the_release_signer(
    place: Path, registry: Registry, image: str, signed_by_release: tuple[Signer, Trust],
    foreign: tuple[Signer, Trust], runners: dict[str, Runner],
) -> None:  # fmt: skip
    """The trust file also says who signs certificates."""
    (place / "trust.yaml").write_text(trust_yaml(runners["h100"], release=foreign[1]))
    desk = Desk((runners["h100"],))
    with pytest.raises(InputError, match=r"the trust file says that .* signs certificates"):
        certify(place, registry, signed_by_release[0], desk, [desk.measured(record(image))])
