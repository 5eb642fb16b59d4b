"""Parse bundles: exactly format 0.3, and always back to the same bytes."""

from __future__ import annotations

import base64
import copy
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.certify.signatures import BUNDLE, IN_TOTO, LARGEST, BundleError, parse_bundle


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def by_key(payload: bytes = b"{}") -> dict[str, Any]:
    return {
        "mediaType": BUNDLE,
        "verificationMaterial": {"publicKey": {"hint": "a key"}},
        "dsseEnvelope": {"payload": b64(payload), "payloadType": IN_TOTO, "signatures": [{"sig": "c2ln"}]},
    }


def by_identity() -> dict[str, Any]:
    """Return a bundle with every field of the format."""
    entry = {
        "logIndex": "12",
        "logId": {"keyId": b64(b"log")},
        "kindVersion": {"kind": "dsse", "version": "0.0.1"},
        "integratedTime": "1795312800",
        "inclusionPromise": {"signedEntryTimestamp": b64(b"promise")},
        "inclusionProof": {
            "logIndex": "3",
            "rootHash": b64(b"root"),
            "treeSize": "4",
            "hashes": [b64(b"one"), b64(b"two")],
            "checkpoint": {"envelope": "log.example\n4\nroot\n\n\u2014 log.example sig\n"},
        },
        "canonicalizedBody": b64(b"body"),
    }
    document = by_key()
    document["verificationMaterial"] = {
        "certificate": {"rawBytes": b64(b"certificate")},
        "tlogEntries": [entry],
        "timestampVerificationData": {"rfc3161Timestamps": [{"signedTimestamp": b64(b"timestamp")}]},
    }
    document["dsseEnvelope"]["signatures"][0]["keyid"] = ""
    return document


def refused(document: Any) -> str:
    with pytest.raises(BundleError) as caught:
        parse_bundle(document if isinstance(document, bytes) else json.dumps(document).encode())
    assert len(str(caught.value)) < 400
    return str(caught.value)


@given(st.binary(min_size=1))
def test_the_payload_is_that_of_the_canonical_form(payload: bytes) -> None:
    bundle = parse_bundle(json.dumps(by_key(payload), indent=2).encode())
    assert bundle.payload == payload
    assert base64.b64decode(json.loads(bundle.canonical)["dsseEnvelope"]["payload"]) == payload
    assert parse_bundle(bundle.canonical) == bundle


@pytest.mark.parametrize(("document", "key"), [(by_key(), True), (by_identity(), False)])
def test_every_field_of_the_format_is_kept_and_none_is_added(document: dict[str, Any], key: bool) -> None:
    bundle = parse_bundle(json.dumps(document).encode())
    assert json.loads(bundle.canonical) == document
    assert bundle.by_key is key


def _places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    entries = document.items() if isinstance(document, dict) else enumerate(document)
    found = [path]
    for key, entry in entries:
        found += _places(entry, (*path, key)) if isinstance(entry, dict | list) else [(*path, key)]
    return found


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


PLACES = _places(by_identity())
OBJECTS = [path for path in PLACES if isinstance(_at(by_identity(), path), dict)]
VALUES = [path for path in PLACES if path and not isinstance(_at(by_identity(), path), dict)]


@pytest.mark.parametrize("path", OBJECTS, ids=str)
@pytest.mark.parametrize("key", ["more", "base64Signature", "media_type", "Payload"])
def test_another_key_is_refused_in_every_object(path: tuple[Any, ...], key: str) -> None:
    document = by_identity()
    _at(document, path)[key] = ""
    assert f"unknown field `{key}`" in refused(document)


def test_an_error_is_one_line_whatever_it_quotes() -> None:
    document = by_key()
    document["\n::error::" + "x" * 1000] = ""
    assert "\n" not in refused(document)


@pytest.mark.parametrize("path", OBJECTS, ids=str)
def test_a_key_that_stands_twice_is_refused_in_every_object(path: tuple[Any, ...]) -> None:
    document = by_identity()
    target = _at(document, path)
    name = next(iter(target))
    target["first of two"] = target[name]
    text = json.dumps(document).replace('"first of two"', json.dumps(name))
    assert refused(text.encode()) == f"it is not a bundle of format 0.3: it has the key {name!r} twice"


@pytest.mark.parametrize("path", VALUES, ids=str)
@pytest.mark.parametrize("value", [None, True, 1, 1.5, {}, [1], [[]]], ids=str)
def test_a_value_of_another_type_is_refused_everywhere(path: tuple[Any, ...], value: Any) -> None:
    document = by_identity()
    _at(document, path[:-1])[path[-1]] = value
    assert refused(document)


@given(st.sampled_from(PLACES), st.recursive(st.none() | st.text() | st.integers(), st.lists, max_leaves=4))
def test_whatever_is_accepted_is_written_anew_without_a_change(path: tuple[Any, ...], value: Any) -> None:
    document = by_identity()
    if path:
        _at(document, path[:-1])[path[-1]] = value
    else:
        document = value
    try:
        bundle = parse_bundle(json.dumps(document).encode())
    except BundleError:
        return
    assert json.loads(bundle.canonical) == document


@pytest.mark.parametrize("text", ["c2ln\n", "c2l", "c2lnZ", "c2ln====", "c2-_", " c2ln", "ab==", "abd=", ""])
def test_bytes_have_exactly_one_base64_text(text: str) -> None:
    """Other readers skip line ends, accept a second alphabet or ignore unused bits, and read other bytes."""
    for path in (("dsseEnvelope", "payload"), ("verificationMaterial", "certificate", "rawBytes")):
        document = by_identity()
        _at(document, path[:-1])[path[-1]] = text
        assert path[-1] in refused(document)


def _change(where: str, value: Any) -> Callable[[dict[str, Any]], None]:
    *parents, last = where.split(".")

    def change(document: dict[str, Any]) -> None:
        _at(document, tuple(parents))[last] = copy.deepcopy(value)

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_change("mediaType", "application/vnd.dev.sigstore.bundle+json;version=0.1"), "it is of type"),
        (_change("mediaType", BUNDLE.replace("0.3", "0.2")), "it is of type"),
        (_change("mediaType", BUNDLE + " "), "it is of type"),
        (_change("dsseEnvelope.payloadType", "text/plain"), "not an in-toto statement"),
        (_change("dsseEnvelope.signatures", []), "0 signatures"),
        (_change("dsseEnvelope.signatures", [{"sig": "c2ln"}] * 2), "2 signatures"),
        (_change("verificationMaterial.publicKey", {"hint": ""}), "either a public key or a certificate"),
        (_change("verificationMaterial", {}), "either a public key or a certificate"),
        (_change("verificationMaterial", {"x509CertificateChain": {"certificates": []}}), "x509"),
        (_change("messageSignature", {"signature": "c2ln"}), "messageSignature"),
        (_change("verificationMaterial.tlogEntries", [by_identity()] * 9), "tlogEntries"),
    ],
)
def test_other_formats_and_contents_are_refused(change: Callable[[dict[str, Any]], None], why: str) -> None:
    document = by_identity()
    change(document)
    assert why in refused(document)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not JSON"),
        (b"[]", "expected `object`"),
        (b"[" * 100_000, "levels deep"),
        (b"\xff\xfe", "UTF-8"),
        (json.dumps(by_key()).encode("utf-16"), "UTF-8"),
        (b"\xef\xbb\xbf" + json.dumps(by_key()).encode(), "not JSON"),
        (json.dumps(by_key()).replace("a key", "\\ud800").encode(), "UTF-8"),
        (json.dumps(by_key()).encode() + b" " * LARGEST, "larger than 4 MiB"),
        (b'{"mediaType": ' + b"9" * 5000 + b"}", "64 bits"),
        (b'{"mediaType": NaN}', "not finite"),
    ],
)
def test_what_is_not_json_text_is_refused(data: bytes, why: str) -> None:
    assert re.search(why, refused(data))


@given(st.binary())
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    with pytest.raises(BundleError):
        parse_bundle(data)
