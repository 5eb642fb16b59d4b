"""Exported policies have the form that their tools read, and say whom to trust and nothing more."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from validator.certify.policies import FORMATS, Demands, demands, policy
from validator.certify.statement import PREDICATE
from validator.certify.trust import THROW_AWAY, Signatory, TrustFile
from validator.errors import InputError
from validator.registry.names import Repository
from validator.versions import ComputeCapability

from ..commands import run
from .schemas import check_policy

PEM = "-----BEGIN PUBLIC KEY-----\nQUJD\n-----END PUBLIC KEY-----\n"
KEY = Signatory(key=PEM)
IDENTITY = Signatory(
    identity="https://github.com/team/tf/.github/workflows/nightly.yml@refs/heads/main",
    issuer="https://token.actions.githubusercontent.com",
)
REPOSITORY = Repository("ghcr.io", "team/tensorflow")
RESOURCES = ("kyverno", "policy-controller")


def wanted(signatory: Signatory = KEY, **changes: Any) -> Demands:
    trust = TrustFile(release=signatory)
    return demands(trust, ("580.65.06", "535", "R580"), ("H100", "sm_80", "9.0"), **changes)


@pytest.mark.slow
@pytest.mark.parametrize("signatory", [KEY, IDENTITY], ids=["key", "identity"])
@pytest.mark.parametrize("format_", RESOURCES)
@pytest.mark.parametrize("max_age", [None, timedelta(days=2)])
def test_resources_of_a_cluster_are_valid(
    format_: str, signatory: Signatory, max_age: timedelta | None
) -> None:
    document = yaml.safe_load(policy(format_, wanted(signatory, max_age=max_age), REPOSITORY))
    check_policy(format_, document)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format_", "old", "new"),
    [
        ("kyverno", "mutateDigest:", "mutateDigests:"),
        ("kyverno", "operator: AnyIn", "operator: AnyOf"),
        ("kyverno", "verifyDigest: true", "verifyDigest: often"),
        ("policy-controller", "mode: enforce", "mode: block"),
        ("policy-controller", "hashAlgorithm:", "hash:"),
    ],
)
def test_a_resource_that_a_cluster_does_not_know_is_noticed(format_: str, old: str, new: str) -> None:
    text = policy(format_, wanted(), REPOSITORY)
    assert old in text
    with pytest.raises((AssertionError, ValueError, jsonschema.ValidationError)):
        check_policy(format_, yaml.safe_load(text.replace(old, new, 1)))


def test_a_release_and_a_model_stand_for_their_branch_and_their_capability() -> None:
    assert wanted().drivers == (535, 580)
    assert wanted().capabilities == (ComputeCapability(8, 0), ComputeCapability(9, 0))


def test_a_cluster_image_policy_names_the_signer_and_the_images() -> None:
    spec = yaml.safe_load(policy("policy-controller", wanted(), REPOSITORY))["spec"]
    assert spec["images"] == [{"glob": "ghcr.io/team/tensorflow:*"}, {"glob": "ghcr.io/team/tensorflow@*"}]
    (authority,) = spec["authorities"]
    assert authority["key"]["data"] == PEM and authority["signatureFormat"] == "bundle"
    assert authority["attestations"][0]["predicateType"] == PREDICATE
    spec = yaml.safe_load(policy("policy-controller", wanted(IDENTITY), REPOSITORY))["spec"]
    (identity,) = spec["authorities"][0]["keyless"]["identities"]
    assert identity == {"issuer": IDENTITY.issuer, "subject": IDENTITY.identity}


def test_kyverno_blocks_an_image_without_a_good_bundle() -> None:
    document = yaml.safe_load(policy("kyverno", wanted(IDENTITY), REPOSITORY))
    (verified,) = document["spec"]["rules"][0]["verifyImages"]
    assert verified["type"] == "SigstoreBundle" and verified["failureAction"] == "Enforce"
    assert verified["required"] is True
    (attestation,) = verified["attestations"]
    assert attestation["type"] == PREDICATE
    (attestor,) = attestation["attestors"]
    (signer,) = attestor["entries"]
    assert (signer["keyless"]["issuer"], signer["keyless"]["subject"]) == (IDENTITY.issuer, IDENTITY.identity)


@pytest.mark.parametrize("format_", sorted(FORMATS))
def test_the_key_is_public_and_without_what_surrounds_it(format_: str, tmp_path: Path) -> None:
    file = tmp_path / "release.pub"
    file.write_text(f"a note\n{PEM}-----BEGIN PRIVATE KEY-----\nREVG\n-----END PRIVATE KEY-----\n")
    with pytest.raises(InputError, match="not a public key"):
        policy(format_, wanted(Signatory(key=file)), REPOSITORY)
    file.write_text(f"a note\n{PEM}")
    text = policy(format_, wanted(Signatory(key=file)), REPOSITORY)
    assert "BEGIN PUBLIC KEY" in text and "PRIVATE" not in text and "a note" not in text


@pytest.mark.parametrize("format_", sorted(FORMATS))
def test_a_name_of_a_signer_is_nothing_but_a_name(format_: str) -> None:
    evil = Signatory(identity='x\nallow := true\n"; {{ 1 }}: [', issuer="https://issuer.example/'\u2028|")
    text = policy(format_, wanted(evil), REPOSITORY)
    assert not any(line.startswith("allow := true") for line in text.splitlines())
    if format_ in RESOURCES:
        assert evil.identity in _strings(yaml.safe_load(text))


def _strings(document: Any) -> list[str]:
    if isinstance(document, dict):
        document = list(document.values())
    if isinstance(document, list):
        return [text for part in document for text in _strings(part)]
    return [document] if isinstance(document, str) else []


@pytest.mark.parametrize("format_", RESOURCES)
def test_a_policy_of_a_cluster_needs_its_images(format_: str) -> None:
    with pytest.raises(InputError, match="this format needs --registry"):
        policy(format_, wanted(), None)


def test_what_cannot_be_demanded_is_an_error() -> None:
    trust, test_key = TrustFile(release=KEY), Signatory(key=f"{THROW_AWAY}\n{PEM}")
    for drivers, gpus, why in (
        (("12.x",), ("h100",), "--driver: .*not a driver release"),
        (("580",), ("h999",), "--gpu: .*not known"),
    ):
        with pytest.raises(InputError, match=why):
            demands(trust, drivers, gpus)
    with pytest.raises(InputError, match="does not say who signs certificates"):
        demands(TrustFile(), ("580",), ("h100",))
    with pytest.raises(InputError, match="throw-away key"):
        demands(TrustFile(release=test_key), ("580",), ("h100",))
    with pytest.raises(InputError, match="--fixtures needs a throw-away key"):
        demands(trust, ("580",), ("h100",), fixtures=True)
    assert demands(TrustFile(release=test_key), ("580",), ("h100",), fixtures=True).fixtures


@pytest.mark.slow
def test_the_command_writes_a_policy(tmp_path: Path) -> None:
    trust = tmp_path / "trust.yaml"
    trust.write_text(f"release: {{identity: {IDENTITY.identity}, issuer: '{IDENTITY.issuer}'}}\n")
    options = ("--driver", "580", "--gpu", "h100", "--registry", "ghcr.io/team/tensorflow", "--trust", trust)
    done = run("trust", "export", "--format", "kyverno", *options)
    assert (done.returncode, done.stderr) == (0, "")
    check_policy("kyverno", yaml.safe_load(done.stdout))
    done = run("trust", "export", "--format", "cosign", *options)
    assert f"--certificate-identity {IDENTITY.identity}" in done.stdout
    trust.write_text(f"release: {{key: {PEM!r}}}\n".replace("'", '"'))
    done = run("trust", "export", "--format", "policy-controller", *options)
    assert done.returncode == 0 and "Warning: policy-controller may reject" in done.stderr
    done = run("trust", "export", "--format", "cosign", "--driver", "580", "--gpu", "h100", "--trust", "gone")
    assert done.returncode == 2


def test_connaisseur_is_refused_with_the_reason_and_the_formats_that_work(tmp_path: Path) -> None:
    for options in ((), ("--driver", "580", "--gpu", "h100")):
        done = run("trust", "export", "--format", "connaisseur", *options, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert "reads no attestations" in done.stderr
        assert f"use a format that checks certificates: {', '.join(FORMATS)}" in done.stderr
