"""The exported policies, asked by a real cosign and a real jq about images in a registry."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import jq
import pytest
import yaml

from validator.certify import signatures
from validator.certify.policies import demands, policy
from validator.certify.signatures import Signer
from validator.certify.statement import PREDICATE
from validator.certify.trust import Trust, TrustFile
from validator.registry.client import Registry
from validator.registry.names import Repository

from ..registry.images import push_image
from .attestations import cosign, payload
from .predicates import REJECTED, Change, Predicate, at, part, with_more_checks
from .sigstore import IDENTITY, ISSUER, Sigstore

pytestmark = pytest.mark.service


class Cluster:
    """A cluster with R580 and H100, that asks about one image."""

    def __init__(
        self, registry: Registry, certificate: bytes, signer: Signer, trust: Trust, directory: Path
    ) -> None:
        self.registry, self.trust = registry, trust
        self.sign: Callable[[bytes], bytes] = signer.sign
        self.directory = directory
        self.statement = payload(certificate)

    def attach(self, image: str, *changes: Change) -> None:
        """Attach a certificate, changed in these ways."""
        statement = copy.deepcopy(self.statement)
        statement["subject"][0]["digest"]["sha256"] = image.removeprefix("sha256:")
        for change in changes:
            change(statement["predicate"])
        bundle = self.sign(json.dumps(statement).encode())
        signatures.attach(self.registry, image, bundle, PREDICATE)

    def policy(self, format_: str, gpus: Sequence[str] = ("h100",), **changes: Any) -> str:
        wanted = demands(TrustFile(release=self.trust), ("580.65.06",), gpus, fixtures=True, **changes)
        return policy(format_, wanted, self.registry.repository)

    def accepts(self, image: str, **changes: Any) -> tuple[bool, bool]:
        """Return whether cosign and jq accept an image."""
        file = self.directory / "policy.rego"
        file.write_text(self.policy("cosign", **changes))
        by_rego, _ = self._cosign(image, "--policy", file)
        good, printed = self._cosign(image)
        if not good:
            return by_rego, False
        lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        try:
            return by_rego, jq.compile(self.policy("jq", **changes)).input_value(lines).first() is True
        except ValueError:
            # jq ends with an error.
            return by_rego, False

    def _cosign(self, image: str, *options: str | Path) -> tuple[bool, str]:
        done = cosign(
            "verify-attestation", "--key", str(self.trust.key), "--type", PREDICATE, "--insecure-ignore-tlog",
            "--allow-http-registry", *options, self.registry.repository.at(image),
        )  # fmt: skip
        return done.returncode == 0, done.stdout


@pytest.fixture
def cluster(registry: Registry, certificate: bytes, signer: Signer, trust: Trust, tmp_path: Path) -> Cluster:
    return Cluster(registry, certificate, signer, trust, tmp_path)


@pytest.fixture
def other(cluster: Cluster, repository: Repository) -> str:
    """Return an image to which nothing is attached yet."""
    return push_image(repository, "another-image")


def test_an_image_with_a_good_certificate_is_accepted(cluster: Cluster, other: str) -> None:
    cluster.attach(other)
    assert cluster.accepts(other) == (True, True)
    assert cluster.accepts(other, max_age=timedelta(hours=2)) == (True, True)
    assert cluster.accepts(other, max_age=timedelta(minutes=30)) == (False, False)


@pytest.mark.parametrize("change", REJECTED)
def test_an_image_with_another_certificate_is_rejected(cluster: Cluster, other: str, change: Change) -> None:
    cluster.attach(other, change)
    assert cluster.accepts(other) == (False, False)


def test_a_certificate_of_a_host_with_different_gpus_is_rejected(cluster: Cluster, other: str) -> None:
    a100 = {"name": "A100", "compute_capability": "8.0"}
    cluster.attach(other, lambda p: part(p, "host")["gpus"].append(a100))
    assert cluster.accepts(other, gpus=("h100", "a100")) == (False, False)


def test_an_image_without_a_certificate_of_the_signer_is_rejected(
    cluster: Cluster, other: str, foreign: tuple[Signer, Trust]
) -> None:
    assert cluster.accepts(other) == (False, False)
    cluster.sign = foreign[0].sign
    cluster.attach(other)
    assert cluster.accepts(other) == (False, False)


def test_required_checks_of_the_user_s_own_count_when_they_passed(cluster: Cluster, other: str) -> None:
    cluster.attach(other, with_more_checks)
    assert cluster.accepts(other) == (True, True)


def test_with_several_statements_jq_decides_as_this_project_does(cluster: Cluster, other: str) -> None:
    """cosign asks its policy about each statement, and all of them have to satisfy it."""

    def failed(hours: float) -> Change:
        def change(predicate: Predicate) -> None:
            predicate["result"] = "FAILED"
            part(predicate, "record")["finished"] = at(hours)

        return change

    cluster.attach(other)
    cluster.attach(other, lambda p: part(p, "host").update({"driver": "535.183.01", "class": "r535-h100"}))
    assert cluster.accepts(other) == (False, True)
    cluster.attach(other, failed(-1))
    assert cluster.accepts(other) == (False, True)
    cluster.attach(other, failed(0))
    assert cluster.accepts(other) == (False, False)


def test_policy_controller_is_given_the_same_rules(cluster: Cluster) -> None:
    rego = cluster.policy("cosign").split("\n\n", 1)[1]
    expected = rego.replace("default allow", "default isCompliant").replace("\nallow if", "\nisCompliant if")
    document = yaml.safe_load(cluster.policy("policy-controller"))
    (attestation,) = document["spec"]["authorities"][0]["attestations"]
    assert attestation["policy"]["data"] == f"package sigstore\n\n{expected}"


def test_an_identity_may_have_signed(
    cluster: Cluster, other: str, sigstore: Sigstore, tmp_path: Path
) -> None:
    trust = sigstore.trust(tmp_path)
    wanted = demands(TrustFile(release=trust), ("580",), ("h100",))
    file = tmp_path / "policy.rego"
    file.write_text(policy("cosign", wanted, None))
    cluster.sign = sigstore.sign
    cluster.attach(other, lambda p: part(p, "certificate").update(fixture=False))

    def accepted(identity: str) -> bool:
        done = cosign(
            "verify-attestation", "--certificate-identity", identity, "--certificate-oidc-issuer", ISSUER,
            "--trusted-root", str(trust.trusted_root), "--type", PREDICATE, "--allow-http-registry",
            "--policy", file, cluster.registry.repository.at(other),
        )  # fmt: skip
        return done.returncode == 0

    assert accepted(IDENTITY)
    assert not accepted("https://github.example/somebody/else")
    file.write_text(policy("cosign", demands(TrustFile(release=trust), ("535",), ("h100",)), None))
    assert not accepted(IDENTITY)
