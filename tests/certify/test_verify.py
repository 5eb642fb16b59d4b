"""Verify certificates with a real cosign and a real registry: which ones count, and which do not."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

from validator.certify import signatures, verify
from validator.certify.signatures import Signer
from validator.certify.trust import Terms, Trust
from validator.certify.verify import certificates
from validator.errors import InputError, MissingError
from validator.model.codec import format_timestamp
from validator.model.record import Certificate, OwnCheck, Record, Verdict
from validator.model.verdict import REQUIRED_CHECKS
from validator.registry.client import Registry
from validator.registry.names import Repository

from ..registry.images import push_image
from ..registry.proxy import Fault, Proxy
from ..registry.stock import Stock
from .attestations import attach_by_hand, cosign_attest, payload, with_payload
from .conftest import TAG, put_image
from .fixtures import MEASURED, MEASURED_AT, record, report
from .measuring import certify_measured


def why_refused(registry: Registry, image: str, trust: Trust, **rules: Any) -> list[str]:
    """Return the reasons, and check that no certificate counts."""
    found = certificates(registry, image, Terms(trust, **rules))
    assert found.certificates == ()
    return [refused.why for refused in found.refused]


def test_an_image_without_certificates(registry: Registry, image: str, trust: Trust) -> None:
    found = certificates(registry, image, Terms(trust))
    assert (found.certificates, found.refused) == ((), ())


def test_an_attestation_by_cosign_counts(
    registry: Registry, repository: Repository, image: str, certificate: bytes, signer: Signer, trust: Trust,
    tmp_path: Path,
) -> None:  # fmt: skip
    other = push_image(repository, "another-image")
    cosign_attest(repository, other, payload(certificate)["predicate"], signer, tmp_path)
    found = certificates(registry, other, Terms(trust))
    assert [entry.image_digest for entry in found.certificates] == [other]
    assert found.refused == ()


def test_an_attestation_in_the_place_of_cosign_2_is_ignored(
    registry: Registry, repository: Repository, image: str, certificate: bytes, signer: Signer, trust: Trust,
    tmp_path: Path,
) -> None:  # fmt: skip
    """cosign 2 kept bare envelopes under the tag `sha256-<digest>.att`. Only bundles count."""
    other = push_image(repository, "another-image")
    cosign_attest(repository, other, payload(certificate)["predicate"], signer, tmp_path, older=True)
    assert registry.digest_of(f"{other.replace(':', '-')}.att")
    found = certificates(registry, other, Terms(trust))
    assert (found.certificates, found.refused) == ((), ())


def test_attestations_of_other_kinds_are_ignored(
    registry: Registry, repository: Repository, image: str, signer: Signer, trust: Trust, tmp_path: Path
) -> None:
    cosign_attest(repository, image, {"a": 1}, signer, tmp_path, kind="https://cyclonedx.org/bom")
    found = certificates(registry, image, Terms(trust))
    assert (found.certificates, found.refused) == ((), ())


def test_a_test_result_of_another_project_is_rejected(
    registry: Registry, repository: Repository, image: str, signer: Signer, trust: Trust, tmp_path: Path
) -> None:
    predicate = {"result": "PASSED", "configuration": [], "passedTests": ["theirs"]}
    cosign_attest(repository, image, predicate, signer, tmp_path)
    assert why_refused(registry, image, trust) == [
        "it is not a certificate of this project: predicate.failedTests: missing"
    ]


@pytest.mark.usefixtures("certificate")
def test_a_certificate_by_another_key_is_listed_with_the_reason(
    registry: Registry, image: str, trust: Trust, foreign: tuple[Signer, Trust]
) -> None:
    assert why_refused(registry, image, foreign[1]) == ["it is not signed by the trusted key"]
    certify_measured(registry, record(image), *foreign)
    assert len(certificates(registry, image, Terms(foreign[1])).certificates) == 1
    found = certificates(registry, image, Terms(trust))
    assert len(found.certificates) == 1
    assert [refused.why for refused in found.refused] == ["it is not signed by the trusted key"]


@pytest.mark.usefixtures("certificate")
def test_a_key_does_not_count_for_an_identity(registry: Registry, image: str, tmp_path: Path) -> None:
    roots = tmp_path / "roots"
    roots.write_text('{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}')
    identity = Trust(identity="someone@example.org", issuer="https://issuer.example", trusted_root=roots)
    assert why_refused(registry, image, identity) == ["it is signed by a key, but an identity is trusted"]


@pytest.mark.usefixtures("certificate")
def test_a_fixture_counts_only_on_request(registry: Registry, image: str, trust: Trust) -> None:
    assert why_refused(registry, image, Trust(key=trust.key)) == ["it was made by a test and proves nothing"]


def test_a_release_key_never_accepts_a_fixture(release: tuple[Signer, Trust]) -> None:
    with pytest.raises(InputError, match="throw-away key"):
        Trust(key=release[1].key, fixtures=True).check()
    with pytest.raises(InputError, match="throw-away key"):
        Trust(identity="a", issuer="b", fixtures=True).check()


def test_a_fixture_signed_by_a_release_key_is_rejected(
    registry: Registry, repository: Repository, image: str, certificate: bytes, release: tuple[Signer, Trust],
    tmp_path: Path,
) -> None:  # fmt: skip
    """cosign signs anything, so only the mark in the statement is left."""
    other = push_image(repository, "another-image")
    cosign_attest(repository, other, payload(certificate)["predicate"], release[0], tmp_path)
    assert why_refused(registry, other, release[1]) == ["it was made by a test and proves nothing"]


@pytest.mark.parametrize("fixtures", [False, True])
def test_an_unmarked_statement_by_a_throw_away_key_is_rejected(
    registry: Registry, repository: Repository, image: str, certificate: bytes, signer: Signer, trust: Trust,
    tmp_path: Path, fixtures: bool,
) -> None:  # fmt: skip
    statement = payload(certificate)
    _certificate(statement["predicate"])["fixture"] = False
    other = push_image(repository, "another-image")
    attach_signed(repository, other, statement, signer, tmp_path)
    assert why_refused(registry, other, Trust(key=trust.key, fixtures=fixtures)) == [
        "it is signed by a throw-away key"
    ]


def attach_signed(
    repository: Repository, image: str, statement: dict[str, Any], signer: Signer, directory: Path
) -> None:
    """Attach a statement, made to be about this image, that the signer signs."""
    statement["subject"][0]["digest"]["sha256"] = image.removeprefix("sha256:")
    attach_by_hand(repository, image, signer.sign(json.dumps(statement).encode()))


def _certificate(predicate: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(e for e in predicate["configuration"] if e["name"] == "certificate")
    return found["annotations"]  # type: ignore[no-any-return]


def _host(predicate: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(e for e in predicate["configuration"] if e["name"] == "host")
    return found["annotations"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "change",
    [
        lambda document: _host(document["predicate"]).update(driver="535.183.01"),
        lambda document: document["subject"][0]["digest"].update(sha256="0" * 64),
        lambda document: document["predicate"]["passedTests"].append("more"),
    ],
)
def test_an_altered_statement_is_rejected(
    registry: Registry, repository: Repository, image: str, certificate: bytes, trust: Trust, tmp_path: Path,
    change: Callable[[dict[str, Any]], object],
) -> None:  # fmt: skip
    other = push_image(repository, "another-image")
    statement = copy.deepcopy(payload(certificate))
    statement["subject"][0]["digest"]["sha256"] = other.removeprefix("sha256:")
    change(statement)
    attach_by_hand(repository, other, with_payload(certificate, statement))
    assert why_refused(registry, other, trust) == ["it is not signed by the trusted key"]


def test_a_certificate_is_valid_only_for_its_own_image(
    registry: Registry, repository: Repository, image: str, certificate: bytes, trust: Trust, tmp_path: Path
) -> None:
    other = push_image(repository, "another-image")
    attach_by_hand(repository, other, certificate)
    assert why_refused(registry, other, trust) == ["it is about another image"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"no JSON", b"[]", b"[" * 100_000, b'{"dsseEnvelope": {"payload": "!"}}', b"\xff\xfe"],
)
def test_anything_but_a_bundle_is_rejected_and_the_rest_still_counts(
    registry: Registry, repository: Repository, image: str, certificate: bytes, trust: Trust, tmp_path: Path,
    content: bytes,
) -> None:  # fmt: skip
    what = attach_by_hand(repository, image, content)
    found = certificates(registry, image, Terms(trust))
    assert len(found.certificates) == 1
    assert [refused.what for refused in found.refused] == [what]


def test_a_bundle_with_two_payloads_is_rejected(
    registry: Registry, repository: Repository, image: str, certificate: bytes, trust: Trust, tmp_path: Path
) -> None:
    """If cosign verified one of them, this project might read the other."""
    other = json.dumps(json.loads(certificate)["dsseEnvelope"] | {"payload": "e30="})
    twice = certificate.decode().replace('"dsseEnvelope":', f'"dsseEnvelope":{other},"dsseEnvelope":', 1)
    assert twice.count("dsseEnvelope") == 2
    attach_by_hand(repository, image, twice.encode())
    found = certificates(registry, image, Terms(trust))
    assert len(found.certificates) == 1
    assert [refused.why for refused in found.refused] == [
        "it is not a bundle of format 0.3: it has the key 'dsseEnvelope' twice"
    ]


def test_a_huge_attachment_is_not_downloaded(
    registry: Registry, repository: Repository, image: str, trust: Trust, tmp_path: Path
) -> None:
    attach_by_hand(repository, image, b" " * (5 << 20))
    assert why_refused(registry, image, trust) == ["it has 5242880 bytes"]


@pytest.mark.usefixtures("certificate")
def test_a_certificate_altered_in_transit_is_rejected(
    through: Registry, proxy: Proxy, image: str, trust: Trust
) -> None:
    proxy.faults = [Fault(path="/blobs/", replace=(b"dsseEnvelope", b"dsseEnvelopf"))]
    (why,) = why_refused(through, image, trust)
    assert "digest" in why


@pytest.mark.usefixtures("certificate")
@pytest.mark.parametrize(
    ("now", "max_age", "why"),
    [
        (MEASURED_AT, None, "it was issued in the future"),
        (datetime(2020, 1, 1, tzinfo=timezone.utc), timedelta(days=1), "it was issued in the future"),
        (MEASURED_AT + timedelta(days=3), timedelta(days=2), "it is too old"),
        (MEASURED_AT + timedelta(days=14), None, "it expired on"),
        (MEASURED_AT + timedelta(days=15), timedelta(days=30), "it expired on"),
    ],
)
def test_a_clock_far_off_and_an_old_measurement(
    registry: Registry, image: str, trust: Trust, now: datetime, max_age: timedelta | None, why: str
) -> None:
    (found,) = why_refused(registry, image, trust, now=now, max_age=max_age)
    assert why in found


@pytest.mark.usefixtures("certificate")
def test_an_expired_certificate_counts_only_on_request(registry: Registry, image: str, trust: Trust) -> None:
    def count(days: float, **rules: Any) -> int:
        now = MEASURED_AT + timedelta(days=days)
        return len(certificates(registry, image, Terms(trust, now=now, **rules)).certificates)

    assert (count(13.99), count(14)) == (1, 0)
    assert count(3650, accept_expired=True) == 1
    assert count(99, accept_expired=True, max_age=timedelta(days=100)) == 1
    assert count(101, accept_expired=True, max_age=timedelta(days=100)) == 0


def test_a_certificate_that_lacks_a_check_of_today_does_not_count(
    registry: Registry, image: str, trust: Trust, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate was signed before the check was required."""
    certify_measured(registry, record(image), signer, trust)
    monkeypatch.setattr(verify, "REQUIRED_CHECKS", (*REQUIRED_CHECKS, "tomorrow", "after_that"))
    assert why_refused(registry, image, trust) == [
        "it lacks checks that are required today: tomorrow, after_that"
    ]


def test_a_certificate_of_an_image_with_additions_needs_its_packages_and_required_checks() -> None:
    """Whoever signed it for the images of a team may have asked for less than the identifier promises."""
    own = (OwnCheck("ours/our_check", "0" * 64, True), OwnCheck("ours/slow", "0" * 64, False))
    plain = certificate_for(passed=REQUIRED_CHECKS)
    assert against(plain) is None
    added = certificate_for(image=f"{plain.image}_ours", passed=REQUIRED_CHECKS, checks=own)
    assert against(added) == "it lacks checks that are required today: packages, ours/our_check"
    all_passed = (*REQUIRED_CHECKS, "packages", "ours/our_check")
    assert against(certificate_for(image=added.image, passed=all_passed, checks=own)) is None


def certificate_for(**changes: Any) -> Certificate:
    fields: dict[str, Any] = {
        "image_digest": "sha256:" + "0" * 64, "image": "tf2.21.0-cuda12.5-cudnn9.3-py312",
        "host_class": "r580-h100", "driver": "580.65.06", "gpus": (), "lock_digest": "", "probe_version": "",
        "tensorflow": "2.21.0", "python": "3.12", "cuda": "12.5", "cudnn": "9.3", "passed": (), "skipped": (),
        "failed": (), "record_id": "", "measured": format_timestamp(MEASURED_AT), "signer": "",
        "issued": format_timestamp(MEASURED_AT),
        "expires": format_timestamp(MEASURED_AT + timedelta(days=14)),
    }  # fmt: skip
    return Certificate(**(fields | changes))


def against(certificate: Certificate) -> str | None:
    return verify._against(certificate, Terms(Trust()), MEASURED_AT + timedelta(hours=1))


class TestTheNewestStatementOfAHostClassDecides:
    @staticmethod
    def failed(image: str, minutes: int, **changes: Any) -> Record:
        found = copy.deepcopy(
            report(**{name: changes[name] for name in changes if name in ("driver", "gpu")})
        )
        next(check for check in found["checks"] if check["id"] == "gpu_compute")["outcome"] = "fail"
        finished = format_timestamp(MEASURED_AT + timedelta(minutes=minutes))
        return record(image, found=found, verdict=Verdict.FAILED, finished=finished, **changes)

    @pytest.fixture(autouse=True)
    def on_two_host_classes(
        self, stock: Stock, repository: Repository, image: str, signer: Signer, trust: Trust
    ) -> None:
        def fill(place: Repository) -> None:
            put_image(stock, place)
            certify_measured(Registry(place), record(image), signer, trust)
            certify_measured(Registry(place), record(image, driver="535.183.01", gpu="a100"), signer, trust)

        stock.put(repository, "on two host classes", fill)

    def test_a_newer_failure_takes_the_certificate_of_its_host_class_back(
        self, registry: Registry, image: str, signer: Signer, trust: Trust
    ) -> None:
        assert certify_measured(registry, self.failed(image, 10), signer, trust).failed
        found = certificates(registry, image, Terms(trust))
        assert [entry.host_class for entry in found.certificates] == ["r535-a100"]
        (failure,) = found.failures
        assert failure.why.startswith("it failed on r580-h100 (gpu_compute, xla_speedup), measured ")
        assert [refused.why for refused in found.refused] == [
            f"a newer failure invalidates it: {failure.why}"
        ]
        # It does not run out, even where people accept old certificates.
        late = MEASURED_AT + timedelta(days=400)
        found = certificates(registry, image, Terms(trust, accept_expired=True, now=late))
        assert [entry.host_class for entry in found.certificates] == ["r535-a100"]

    def test_an_image_that_breaks_the_probe_loses_its_certificate_too(
        self, registry: Registry, image: str, signer: Signer, trust: Trust
    ) -> None:
        made = self.failed(image, 10)
        broken = msgspec.structs.replace(made, report=None, checks=[], versions={})
        assert certify_measured(registry, broken, signer, trust).failed
        found = certificates(registry, image, Terms(trust))
        assert [entry.host_class for entry in found.certificates] == ["r535-a100"]
        assert "(the probe wrote no report)" in found.failures[0].why

    def test_a_newer_certificate_outweighs_the_failure(
        self, registry: Registry, image: str, signer: Signer, trust: Trust
    ) -> None:
        certify_measured(registry, self.failed(image, 10), signer, trust)
        again = format_timestamp(MEASURED_AT + timedelta(minutes=11))
        certify_measured(registry, record(image, finished=again), signer, trust)
        found = certificates(registry, image, Terms(trust))
        assert [entry.measured for entry in found.certificates] == [again, MEASURED]
        assert found.failures == ()

    def test_what_was_measured_last_counts_not_what_was_signed_last(
        self, registry: Registry, image: str, signer: Signer, trust: Trust
    ) -> None:
        certify_measured(registry, self.failed(image, -10), signer, trust)
        assert len(certificates(registry, image, Terms(trust)).certificates) == 2
        certify_measured(registry, self.failed(image, 0), signer, trust)
        assert [entry.host_class for entry in certificates(registry, image, Terms(trust)).certificates] == [
            "r535-a100"
        ]

    def test_a_failure_that_somebody_else_signed_takes_nothing_back(
        self, registry: Registry, image: str, foreign: tuple[Signer, Trust], trust: Trust
    ) -> None:
        certify_measured(registry, self.failed(image, 10), *foreign)
        found = certificates(registry, image, Terms(trust))
        assert (len(found.certificates), found.failures) == (2, ())
        assert [refused.why for refused in found.refused] == ["it is not signed by the trusted key"]

    def test_the_same_failure_is_signed_once(
        self, registry: Registry, image: str, signer: Signer, trust: Trust
    ) -> None:
        made = self.failed(image, 10)
        assert certify_measured(registry, made, signer, trust).attached
        assert certify_measured(registry, made, signer, trust).attached is None

    def test_an_image_that_has_lost_its_tag_can_still_be_marked_as_failed(
        self, registry: Registry, image: str, signer: Signer, trust: Trust
    ) -> None:
        push_image(registry.repository, TAG, content="a newer build")
        assert certify_measured(registry, self.failed(image, 10), signer, trust).attached


@pytest.mark.parametrize(
    "times",
    [
        {"issued": format_timestamp(MEASURED_AT - timedelta(days=1))},
        {"issued": "today"},
        {"issued": format_timestamp(MEASURED_AT - timedelta(days=1)).removesuffix("+00:00")},
        {"expires": "never"},
    ],
)
def test_impossible_times_are_rejected(
    registry: Registry, repository: Repository, image: str, certificate: bytes, signer: Signer, trust: Trust,
    tmp_path: Path, times: dict[str, str],
) -> None:  # fmt: skip
    statement = payload(certificate)
    _certificate(statement["predicate"]).update(times)
    other = push_image(repository, "another-image")
    attach_signed(repository, other, statement, signer, tmp_path)
    (why,) = why_refused(registry, other, trust)
    assert "before its measurement" in why or "not timestamps" in why


@pytest.mark.usefixtures("certificate")
@pytest.mark.parametrize("status", [0, 401, 403])
def test_a_registry_error_is_not_a_missing_certificate(
    through: Registry, proxy: Proxy, image: str, trust: Trust, status: int
) -> None:
    proxy.faults = [Fault(path="/blobs/", status=status)]
    with pytest.raises(MissingError):
        certificates(through, image, Terms(trust))


@pytest.mark.usefixtures("certificate")
def test_without_cosign_nothing_is_verified(
    registry: Registry, image: str, trust: Trust, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(signatures, "_accepted", set())
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(MissingError, match="cosign is not installed"):
        certificates(registry, image, Terms(trust))


@pytest.mark.usefixtures("certificate")
def test_cosign_verifies_a_bundle_once_for_each_key(
    registry: Registry, image: str, trust: Trust, foreign: tuple[Signer, Trust],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert len(certificates(registry, image, Terms(trust)).certificates) == 1
    monkeypatch.setattr(signatures, "is_installed", lambda: False)
    assert len(certificates(registry, image, Terms(trust)).certificates) == 1
    with pytest.raises(MissingError, match="cosign is not installed"):
        certificates(registry, image, Terms(foreign[1]))


def test_unreachable_sigstore_is_not_a_rejection(
    registry: Registry, repository: Repository, image: str, certificate: bytes,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    """An identity is verified with sigstore's roots. The proxy simulates a missing network."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("HOME", str(tmp_path))
    other = push_image(repository, "another-image")
    document = json.loads(certificate) | {"verificationMaterial": {"certificate": {"rawBytes": "MAA="}}}
    attach_by_hand(repository, other, json.dumps(document).encode())
    with pytest.raises(MissingError, match="can't be verified"):
        certificates(
            registry, other, Terms(Trust(identity="someone@example.org", issuer="https://issuer.example"))
        )


def test_an_identity_does_not_count_for_a_key(
    registry: Registry, repository: Repository, image: str, certificate: bytes, trust: Trust, tmp_path: Path
) -> None:
    other = push_image(repository, "another-image")
    document = json.loads(certificate) | {"verificationMaterial": {"certificate": {"rawBytes": "MAA="}}}
    attach_by_hand(repository, other, json.dumps(document).encode())
    assert why_refused(registry, other, trust) == ["it is signed by an identity, but a key is trusted"]


def test_a_trust_needs_a_signer(trust: Trust, tmp_path: Path) -> None:
    (tmp_path / "bad.pub").write_text("no key")
    for wrong in (
        Trust(),
        Trust(identity="a"),
        Trust(key=trust.key, identity="a", issuer="b"),
        Trust(key=tmp_path / "none.pub"),
        Trust(key=tmp_path / "bad.pub"),
    ):
        with pytest.raises(InputError):
            wrong.check()
