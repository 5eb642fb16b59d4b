"""Limits of a certified image: who names them, and who refuses the image if the trust file refuses them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import jq
import pytest
import yaml

from validator.certify.policies import FORMATS
from validator.certify.statement import PREDICATE
from validator.certify.trust import read_key
from validator.cli import COMMANDS, group
from validator.errors import EXIT_FAILED, EXIT_INPUT, EXIT_OK
from validator.model.codec import encode
from validator.registry.names import identifier_of

from ..certify.attestations import cosign
from ..certify.fixtures import LIMIT
from ..certify.kyverno import holds
from ..certify.measuring import trust_file
from .commands import HERE, run
from .shelf import A100, H100, Shelf
from .values import NAMED, TAG

NEWER = "2.21.0-cuda12.9-cudnn9.24-py3.12"
DEVICES = ("--devices", "gpus")

#: Asks a place that decides on certificates about the images of a shelf, given a trust file. Returns whether
#: it accepts one, and what it says.
Place = Callable[[Shelf, Path], tuple[bool, str]]


def _asked(*words: str) -> Place:
    def ask(shelf: Shelf, trust: Path) -> tuple[bool, str]:
        done = run(shelf, words[0], "--fixtures", "--trust", str(trust), *words[1:])
        assert done.code in (EXIT_OK, EXIT_FAILED), done.err
        return done.code == EXIT_OK, done.out + done.err

    return ask


def _run_uncertified(shelf: Shelf, trust: Path) -> tuple[bool, str]:
    started, said = _asked("run", "--uncertified", *HERE, *DEVICES)(shelf, trust)
    assert started
    return "NOT CERTIFIED" not in said, said


def _promote(shelf: Shelf, trust: Path) -> tuple[bool, str]:
    digest = shelf.registry.digest_of(TAG)
    assert digest is not None
    shelf.registry.tag(digest, "latest")
    return _asked("promote")(shelf, trust)


def _policy(shelf: Shelf, trust: Path, format_: str) -> str:
    options = ("--format", format_, "--driver", "580", "--gpu", "h100")
    done = run(shelf, "trust", "export", "--fixtures", "--trust", str(trust), *options)
    assert done.code == EXIT_OK, done.err
    return done.out


def _statements(shelf: Shelf, *options: str | Path) -> list[dict[str, Any]] | None:
    """Return what cosign prints about the image, or None if it rejects it."""
    done = cosign(
        "verify-attestation", "--key", str(shelf.trust.key), "--insecure-ignore-tlog",
        "--allow-http-registry", "--type", PREDICATE, *options,
        shelf.registry.repository.at(str(shelf.registry.digest_of(TAG))),
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return found if done.returncode == 0 else None


def _rego(shelf: Shelf, trust: Path, text: str) -> tuple[bool, str]:
    file = trust.with_name("policy.rego")
    file.write_text(text, encoding="utf-8")
    return _statements(shelf, "--policy", file) is not None, text


def _by_cosign(shelf: Shelf, trust: Path) -> tuple[bool, str]:
    return _rego(shelf, trust, _policy(shelf, trust, "cosign"))


def _by_policy_controller(shelf: Shelf, trust: Path) -> tuple[bool, str]:
    (authority,) = yaml.safe_load(_policy(shelf, trust, "policy-controller"))["spec"]["authorities"]
    text: str = authority["attestations"][0]["policy"]["data"]
    return _rego(
        shelf, trust, text.replace("package sigstore", "package signature").replace("isCompliant", "allow")
    )


def _by_jq(shelf: Shelf, trust: Path) -> tuple[bool, str]:
    text = _policy(shelf, trust, "jq")
    return jq.compile(text).input_value(_statements(shelf)).first() is True, text


def _by_kyverno(shelf: Shelf, trust: Path) -> tuple[bool, str]:
    text = _policy(shelf, trust, "kyverno")
    (verified,) = yaml.safe_load(text)["spec"]["rules"][0]["verifyImages"]
    (attestation,) = verified["attestations"]
    statements = [json.loads(base64.b64decode(one["payload"])) for one in _statements(shelf) or ()]
    assert statements
    return all(holds(attestation["conditions"], one["predicate"]) for one in statements), text


#: Every place that decides on a certificate, by the command or the format of `trust export`.
PLACES: dict[str, tuple[Place, ...]] = {
    "verify": (_asked("verify"), _asked("verify", NAMED)),
    "recommend": (_asked("recommend", *HERE), _asked("recommend", "--json", *HERE)),
    "pull": (_asked("pull", *HERE), _asked("pull", *HERE, "--image", NAMED)),
    "run": (
        _asked("run", *HERE, *DEVICES),
        _asked("run", *HERE, *DEVICES, "--image", NAMED),
        _run_uncertified,
    ),
    "promote": (_promote,),
    "cosign": (_by_cosign,),
    "policy-controller": (_by_policy_controller,),
    "jq": (_by_jq,),
    "kyverno": (_by_kyverno,),
}


class _Engine:
    """An engine that has nothing to do."""

    def close(self) -> None:
        pass


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose and verify images as `pull` does, but pull none."""
    monkeypatch.setattr("validator.cli.images.connect_engine", lambda driver, gpus: _Engine())
    monkeypatch.setattr("validator.cli.images.pull_selected", lambda engine, registry, selected: None)


def _trust(directory: Path, shelf: Shelf, *refused: str) -> Path:
    """Write a trust file with everybody who signs for the shelf, and the limits that it refuses."""
    path = directory / "trust.yaml"
    assert shelf.trust.key is not None
    release = f"release: {{key: {json.dumps(read_key(shelf.trust.key))}}}\n"
    limits = f"refuse_limits: {json.dumps(refused)}\n" if refused else ""
    path.write_text(trust_file().read_text(encoding="ascii") + release + limits, encoding="ascii")
    return path


def test_the_list_of_places_is_complete() -> None:
    context = click.Context(group, **group.context_settings)
    found = {
        name
        for name in COMMANDS
        if (command := group.get_command(context, name)) is not None
        and {"max_age", "trust_path"} <= {parameter.name for parameter in command.params}
    }
    assert found | set(FORMATS) == set(PLACES)


@pytest.mark.service
@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(
    "place",
    [
        pytest.param(place, id=f"{name}-{number}")
        for name, places in PLACES.items()
        for number, place in enumerate(places)
    ],
)
def test_every_place_that_decides_on_a_certificate_refuses_a_limit_that_the_trust_file_refuses(
    place: Place, shelf: Shelf, tmp_path: Path
) -> None:
    shelf.certify(shelf.push(), H100, limits=[LIMIT])
    for refused in ((), ("keras_jit_float32",)):
        accepted, said = place(shelf, _trust(tmp_path, shelf, *refused))
        assert accepted, said
    accepted, said = place(shelf, _trust(tmp_path, shelf, LIMIT.code))
    assert not accepted, said
    assert LIMIT.code in said


@pytest.mark.service
@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("name", ["verify", "recommend", "pull", "promote", "jq"])
def test_an_older_certificate_without_the_limit_does_not_count_either(
    name: str, shelf: Shelf, tmp_path: Path
) -> None:
    """An older probe did not look for limits. A newer measurement without the limit counts."""
    digest = shelf.push()
    shelf.certify(digest, H100, age=timedelta(hours=3))
    place, trust = PLACES[name][0], _trust(tmp_path, shelf, LIMIT.code)
    assert place(shelf, trust)[0]
    shelf.certify(digest, H100, limits=[LIMIT], age=timedelta(hours=2))
    assert not place(shelf, trust)[0]
    # What was measured on another kind of machine is not affected.
    shelf.certify(digest, A100, age=timedelta(hours=3))
    assert run(shelf, "verify", "--fixtures", "--trust", str(trust), NAMED).code == EXIT_OK
    shelf.certify(digest, H100, age=timedelta(hours=1))
    assert place(shelf, trust)[0]


@pytest.mark.service
@pytest.mark.usefixtures("no_engine")
def test_a_limit_is_named_by_everybody_who_chooses_an_image(shelf: Shelf) -> None:
    shelf.certify(shelf.push(), H100, limits=[LIMIT])
    line = f"limit: {LIMIT.sentence}"
    started = run(shelf, "run", "--fixtures", *HERE, *DEVICES)
    assert started.code == EXIT_OK and started.err.splitlines().count(line) == 1
    assert line in " ".join(started.out.replace("\n#", "").split())
    uncertified = run(shelf, "run", "--fixtures", "--uncertified", *HERE, *DEVICES)
    assert uncertified.err.count(line) == 1
    pulled = run(shelf, "pull", "--fixtures", *HERE)
    assert pulled.code == EXIT_OK and line in pulled.err.splitlines()
    assert line in run(shelf, "recommend", "--fixtures", *HERE).out
    (image,) = json.loads(run(shelf, "recommend", "--fixtures", "--json", *HERE).out)["images"]
    assert image["limits"] == image["certificates"][0]["limits"] == [encode(LIMIT)]
    assert f"Limit: {NAMED} on r580-h100: {LIMIT.sentence}" in run(shelf, "verify", "--fixtures").err
    (verified,) = json.loads(run(shelf, "verify", "--fixtures", "--json").out)["certificates"]
    assert verified["limits"] == [encode(LIMIT)]
    # It is about the GPU that it was seen on.
    shelf.certify(str(shelf.registry.digest_of(TAG)), A100)
    there = run(shelf, "pull", "--fixtures", "--driver", "535", "--gpu", "a100")
    assert there.code == EXIT_OK and "limit" not in there.err


@pytest.mark.service
@pytest.mark.usefixtures("no_engine")
def test_pull_prefers_an_image_without_limits_as_recommend_does(shelf: Shelf) -> None:
    limited, free = shelf.push(NEWER), shelf.push_certified(H100)
    shelf.certify(limited, H100, tag=NEWER, limits=[LIMIT])
    done = run(shelf, "pull", "--fixtures", *HERE)
    assert done.out.strip() == shelf.registry.repository.at(free)
    newer = identifier_of(NEWER)
    assert f"rejected: {newer}: {NAMED} has no limits here; limit: {LIMIT.sentence}" in done.err
    shown = run(shelf, "recommend", "--fixtures", *HERE).out.splitlines()
    assert [line.split()[0] for line in shown[1:]] == [NAMED, newer]
    # An older Python is not as good, whatever its limits.
    better = shelf.push("2.21.0-cuda12.5-cudnn9.3-py3.13")
    shelf.certify(better, H100, tag="2.21.0-cuda12.5-cudnn9.3-py3.13", limits=[LIMIT])
    done = run(shelf, "pull", "--fixtures", *HERE)
    assert done.out.strip() == shelf.registry.repository.at(better)


def test_a_trust_file_that_was_named_has_to_be_there(shelf: Shelf, tmp_path: Path) -> None:
    shelf.push()
    done = run(shelf, "verify", "--fixtures", "--trust", str(tmp_path / "gone.yaml"))
    assert done.code == EXIT_INPUT and "gone.yaml: does not exist" in done.err


def test_the_trust_file_in_the_current_directory_counts(shelf: Shelf, tmp_path: Path) -> None:
    shelf.certify(shelf.push(), H100, limits=[LIMIT])
    assert run(shelf, "recommend", "--fixtures", *HERE, cwd=tmp_path).code == EXIT_OK
    _trust(tmp_path, shelf, LIMIT.code)
    done = run(shelf, "recommend", "--fixtures", *HERE, cwd=tmp_path)
    assert done.code == EXIT_FAILED and f"the trust file refuses its limit {LIMIT.sentence}" in done.out
