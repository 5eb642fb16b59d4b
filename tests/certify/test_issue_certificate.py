"""Certify with a real cosign and a real registry, and check what is attached."""

from __future__ import annotations

import dataclasses
import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from validator.certify import signatures
from validator.certify.acceptance import Issued, NotCertifiable, certify
from validator.certify.signatures import Signer, candidates
from validator.certify.statement import PREDICATE
from validator.certify.trust import Terms, Trust
from validator.certify.verify import certificates
from validator.errors import InputError, MissingError, ValidatorError
from validator.model.codec import format_timestamp
from validator.model.record import Origin, Record, Verdict
from validator.registry import client as registry_module
from validator.registry.client import Registry
from validator.registry.names import Repository

from ..registry.images import push_image
from ..registry.proxy import Fault, Proxy
from .attestations import cosign_verify, payload
from .fixtures import MEASURED, MEASURED_AT, record, report
from .measuring import as_measured, certifier, certify_measured


def issue(registry: Registry, made: Record, signer: Signer) -> Issued:
    with signer.trust() as trust:
        return certify_measured(registry, made, signer, trust)


def test_cosign_accepts_an_issued_certificate(
    repository: Repository, registry: Registry, image: str, by_cosign: Signer, trust: Trust
) -> None:
    made = record(image)
    done = issue(registry, made, by_cosign)
    assert done.attached is not None
    assert trust.key is not None
    verified = cosign_verify(repository, image, trust.key)
    assert verified.returncode == 0, verified.stderr
    statement = payload(json.dumps({"dsseEnvelope": json.loads(verified.stdout)}).encode())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"] == [
        {"name": str(repository), "digest": {"sha256": image.removeprefix("sha256:")}}
    ]
    found = certificates(registry, image, Terms(trust))
    assert found.refused == ()
    (certificate,) = found.certificates
    assert (certificate.record_id, certificate.fixture) == (as_measured(made).id, True)
    assert certificate.signer == trust.signer
    assert (done.failed, done.fixture) == (False, True)


def test_cosign_rejects_it_for_another_key(
    repository: Repository, registry: Registry, image: str, by_cosign: Signer, foreign: tuple[Signer, Trust]
) -> None:
    issue(registry, record(image), by_cosign)
    assert foreign[1].key is not None
    assert cosign_verify(repository, image, foreign[1].key).returncode != 0


def test_the_same_record_is_certified_once(
    registry: Registry, image: str, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach, types = signatures.attach, []

    def count(registry: Registry, digest: str, bundle: bytes, predicate_type: str) -> str:
        types.append(predicate_type)
        return attach(registry, digest, bundle, predicate_type)

    monkeypatch.setattr(signatures, "attach", count)
    first = issue(registry, record(image), signer)
    assert types.count(PREDICATE) == 1
    second = issue(registry, record(image), signer)
    assert first.attached is not None and second.attached is None
    with signer.trust() as trust:
        assert len(certificates(registry, image, Terms(trust)).certificates) == 1


def test_an_image_has_a_certificate_for_each_host_class(
    registry: Registry, image: str, signer: Signer
) -> None:
    issue(registry, record(image), signer)
    issue(registry, record(image, driver="535.183.01", gpu="a100"), signer)
    newer = format_timestamp(MEASURED_AT + timedelta(minutes=20))
    issue(registry, record(image, finished=newer), signer)
    with signer.trust() as trust:
        found = certificates(registry, image, Terms(trust)).certificates
    # The newest measurement first.
    assert [entry.measured for entry in found] == [newer, MEASURED, MEASURED]
    assert {entry.host_class for entry in found} == {"r580-h100", "r535-a100"}


def test_two_processes_certify_at_once_without_losing_a_certificate(
    registry: Registry, through: Registry, proxy: Proxy, image: str, signer: Signer, trust: Trust,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(registry_module, "_SETTLE_S", 0.6)
    proxy.faults = [Fault(method="PUT", path="manifests/sha256-", status=None, delay_s=0.5, times=1)]
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(issue, through, record(image), signer)
        while not proxy.faults[0].happened:
            time.sleep(0.01)
        issue(registry, record(image, driver="535.183.01"), signer)
        first.result()
    found = certificates(registry, image, Terms(trust))
    assert {entry.host_class for entry in found.certificates} == {"r580-h100", "r535-h100"}
    assert found.refused == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": Verdict.UNPROVEN},
        {"origin": Origin.ELSEWHERE},
        {"report": None},
        {"finished": format_timestamp(MEASURED_AT + timedelta(days=2))},
        {"finished": format_timestamp(MEASURED_AT - timedelta(days=14))},
    ],
)
def test_nothing_is_attached_for_a_record_that_may_not_be_certified(
    registry: Registry, image: str, signer: Signer, trust: Trust, changes: dict[str, Any]
) -> None:
    with pytest.raises(NotCertifiable):
        issue(registry, record(image, **changes), signer)
    assert certificates(registry, image, Terms(trust)).certificates == ()


def test_a_release_key_does_not_sign_a_fixture(
    registry: Registry, image: str, release: tuple[Signer, Trust]
) -> None:
    with pytest.raises(NotCertifiable, match="made up by a test"):
        issue(registry, record(image), release[0])
    assert list(candidates(registry, image, PREDICATE)) == []


def test_a_throw_away_key_signs_only_fixtures(registry: Registry, image: str, signer: Signer) -> None:
    unmarked = report() | {"fixture": False}
    with pytest.raises(NotCertifiable, match="real measurement"):
        issue(registry, record(image, found=unmarked), signer)
    assert list(candidates(registry, image, PREDICATE)) == []


def test_the_image_that_was_measured_must_be_the_one_under_its_tag(
    repository: Repository, registry: Registry, image: str, signer: Signer
) -> None:
    other = push_image(repository, "other")
    with pytest.raises(NotCertifiable, match=f"is about {other}, but .* is {image}"):
        issue(registry, record(other), signer)
    with pytest.raises(NotCertifiable, match="not in the registry"):
        issue(registry, record(image, tensorflow="2.20.0"), signer)
    with pytest.raises(NotCertifiable, match=f"is about sha256:{'e' * 64}, which is not in"):
        issue(registry, record("sha256:" + "e" * 64), signer)
    with pytest.raises(NotCertifiable, match="not the identifier"):
        issue(registry, record(image, image="tf2.21.0-odd", cell="tf2.21.0-odd@r580-h100"), signer)


def test_an_altered_manifest_is_not_certified(
    registry: Registry, through: Registry, proxy: Proxy, image: str, signer: Signer, trust: Trust
) -> None:
    proxy.faults = [Fault(method="GET", path=f"manifests/{image}", replace=(b"1970", b"1971"))]
    with pytest.raises(ValidatorError, match="digest"):
        issue(through, record(image), signer)
    assert certificates(registry, image, Terms(trust)).certificates == ()


def test_a_wrong_key_or_password_is_reported(
    registry: Registry, image: str, by_cosign: Signer, tmp_path: Path
) -> None:
    with pytest.raises(ValidatorError, match="wrong password for the key") as caught:
        issue(registry, record(image), dataclasses.replace(by_cosign, password="a-mistyped-one"))
    assert "a-mistyped-one" not in str(caught.value)
    with pytest.raises(InputError, match="can't be read"):
        issue(registry, record(image), Signer(key=str(tmp_path / "none.key"), password="x"))
    (tmp_path / "bad.key").write_text("no key\n")
    with pytest.raises(MissingError, match="can't be used"):
        issue(registry, record(image), Signer(key=str(tmp_path / "bad.key"), password="x"))


def test_a_key_may_come_from_a_variable(
    registry: Registry, image: str, by_cosign: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", Path(str(by_cosign.key)).read_text())
    assert issue(registry, record(image), dataclasses.replace(by_cosign, key="env://A_KEY")).attached
    monkeypatch.delenv("A_KEY")
    with pytest.raises(InputError, match="A_KEY"):
        issue(registry, record(image), dataclasses.replace(by_cosign, key="env://A_KEY"))


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault(method="P", path="/blobs/", status=401), "requires a login"),
        (Fault(method="PUT", path="/manifests/sha256-", status=401), "requires a login"),
        (Fault(method="PUT", path="/manifests/sha256:", status=403), "denies access"),
        (Fault(method="PUT", path="/manifests/sha256-", status=0), "can't be reached"),
    ],
)
def test_an_interrupted_attachment_does_not_count_and_can_be_repeated(
    registry: Registry, through: Registry, proxy: Proxy, image: str, signer: Signer, trust: Trust,
    fault: Fault, says: str,
) -> None:  # fmt: skip
    proxy.faults = [dataclasses.replace(fault)]
    with pytest.raises(MissingError, match=says):
        issue(through, record(image), signer)
    assert certificates(registry, image, Terms(trust)).certificates == ()
    proxy.faults = []
    assert issue(through, record(image), signer).attached
    assert len(certificates(registry, image, Terms(trust)).certificates) == 1


def test_a_certificate_that_its_own_signer_would_reject_is_not_attached(
    registry: Registry, image: str, signer: Signer, foreign: tuple[Signer, Trust]
) -> None:
    with pytest.raises(ValidatorError, match="not signed by the trusted key"):
        certify_measured(registry, record(image), signer, foreign[1])
    assert list(candidates(registry, image, PREDICATE)) == []


def test_a_clock_that_is_behind_prevents_certifying(registry: Registry, image: str, signer: Signer) -> None:
    with signer.trust() as trust, pytest.raises(NotCertifiable, match="the clock of that machine or"):
        certify_measured(
            registry, record(image), signer, trust, now=datetime(2025, 1, 1, tzinfo=timezone.utc)
        )


def test_layers_that_this_machine_did_not_compute_are_not_certified(
    registry: Registry, image: str, release: tuple[Signer, Trust]
) -> None:
    signer, trust = release
    made = as_measured(record(image, found=report() | {"fixture": False}))
    asked: list[str] = []

    def uncomputed(digest: str) -> tuple[str, ...]:
        asked.append(digest)
        return ("sha256:" + "1" * 64, "sha256:" + "2" * 64)

    careful = dataclasses.replace(certifier(), uncomputed_parts=uncomputed)
    with pytest.raises(NotCertifiable, match=r"neither made nor rebuilt 2 of the parts") as caught:
        certify(registry, made, signer, trust, careful)
    assert asked == [image]
    assert f"verify --rebuild --registry {registry.repository} {image}" in str(caught.value.hint)
    assert list(candidates(registry, image, PREDICATE)) == []
