"""Kyverno's policy: its form, and its conditions, which accept what those in other languages accept."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import Any

import jq
import pytest
import yaml

from validator.certify.policies import demands, policy
from validator.certify.statement import PREDICATE
from validator.certify.trust import THROW_AWAY, Signatory, TrustFile
from validator.registry.names import Repository

from .kyverno import holds
from .predicates import REJECTED, Change, Predicate, changed, part, predicate, with_more_checks

PEM = "-----BEGIN PUBLIC KEY-----\nQUJD\n-----END PUBLIC KEY-----\n"
REPOSITORY = Repository("ghcr.io", "team/tensorflow")


@pytest.fixture(scope="module")
def good() -> Predicate:
    return predicate()


def accepted(found: Predicate, gpus: tuple[str, ...] = ("h100",), **changes: Any) -> tuple[bool, bool]:
    """Return whether Kyverno and jq accept a certificate in a cluster with R580."""
    trust = TrustFile(release=Signatory(key=f"{THROW_AWAY}\n{PEM}"))
    wanted = demands(trust, ("580.65.06",), gpus, fixtures=True, **changes)
    document = yaml.safe_load(policy("kyverno", wanted, REPOSITORY))
    (verified,) = document["spec"]["rules"][0]["verifyImages"]
    (attestation,) = verified["attestations"]
    statement = json.dumps({"predicateType": PREDICATE, "predicate": found}).encode()
    line = {"payload": base64.b64encode(statement).decode()}
    try:
        by_jq = jq.compile(policy("jq", wanted, REPOSITORY)).input_value([line]).first() is True
    except ValueError:
        # jq ends with an error.
        by_jq = False
    return holds(attestation["conditions"], found), by_jq


def test_a_good_certificate_is_accepted(good: Predicate) -> None:
    assert accepted(good) == (True, True)
    assert accepted(good, max_age=timedelta(hours=2)) == (True, True)
    assert accepted(changed(good, with_more_checks)) == (True, True)


def test_an_old_measurement_is_rejected(good: Predicate) -> None:
    assert accepted(good, max_age=timedelta(hours=1)) == (False, False)


@pytest.mark.parametrize("change", REJECTED)
def test_another_certificate_is_rejected(change: Change, good: Predicate) -> None:
    assert accepted(changed(good, change)) == (False, False)


@pytest.mark.parametrize("name", ["image", "host", "certificate", "record"])
def test_an_entry_that_is_missing_or_there_twice_is_rejected(name: str, good: Predicate) -> None:
    (entry,) = (one for one in good["configuration"] if one["name"] == name)
    assert accepted(changed(good, lambda p: p["configuration"].append(entry)))[0] is False
    assert accepted(changed(good, lambda p: p["configuration"].remove(entry)))[0] is False


def test_a_certificate_of_a_host_with_different_gpus_is_rejected(good: Predicate) -> None:
    """Each policy asks for one compute capability, even where the cluster has GPUs of both."""

    def gpus(*capabilities: str) -> Predicate:
        named = [{"name": "a GPU", "compute_capability": one} for one in capabilities]
        return changed(good, lambda p: part(p, "host").update(gpus=named))

    both = ("h100", "a100")
    assert accepted(gpus("9.0", "8.0"), both) == (False, False)
    assert accepted(gpus("8.0"), both) == (True, True)
    assert accepted(gpus("9.0", "9.0"), both) == (True, True)
