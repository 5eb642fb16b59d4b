"""The inputs that are mutated, one target for each kind, and how the program reads them."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import io
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path

from rich.console import Console

from validator.certify.provenance import Inputs, NoProvenance, read_provenance
from validator.certify.provenance import statement as provenance_statement
from validator.certify.signatures import BUNDLE, IN_TOTO, BundleError, parse_bundle
from validator.certify.statement import NoCertificate, read_statement, statement
from validator.certify.trust import Party, Signatory, read_challenges
from validator.certify.trust_file import read_trust_file
from validator.cli.records import read_refused
from validator.diagnosis import diagnose_file, diagnose_report
from validator.errors import ValidatorError
from validator.locks import lock_files as locks
from validator.matrix.load import parse_matrix
from validator.model import codec
from validator.model.codec import DocumentError
from validator.model.record import (
    BaseOrigin,
    Measurement,
    MeasurementError,
    Outside,
    Record,
    RecordError,
    measurement_of,
    read_record,
    read_verification,
    statement_of,
)
from validator.model.report import ReportError, read_report
from validator.model.verdict import judge
from validator.pipeline.measuring import record_of_report
from validator.records import record_files
from validator.records.history import Entry, changed_checks, changes, wrong_time
from validator.registry.client import ImageConfig, Manifest, Tags
from validator.registry.client import parse as parse_document
from validator.reports.diagnosis import markdown
from validator.reports.diagnosis import text as diagnosis_text
from validator.reports.overview import junit
from validator.reports.page.measurements import gather
from validator.reports.printable import json_text
from validator.reports.terminal import checks_table, record_text, records_table

from ..certify import fixtures
from ..corpus.reader import REPORTS
from ..records.values import record
from . import foreign
from . import http_targets as servers
from . import machine_targets as machines
from .mutators import Mutator, mutate_json, mutate_text, spliced

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 12, 1, tzinfo=timezone.utc)
DIGEST = "sha256:" + "1" * 64
#: What the rooms raise for input that they refuse. The command line turns each into a line and an exit code.
DOCUMENTED = (
    ValidatorError, DocumentError, ReportError, RecordError, BundleError, MeasurementError, NoCertificate,
    NoProvenance,
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """One kind of input.

    seeds: valid inputs. read: reads one as the program does, and raises one of `DOCUMENTED` or nothing.
    commands: reads it through the command line; `{}` is the file.
    """

    seeds: Callable[[], Sequence[bytes]]
    mutate: Mutator
    read: Callable[[bytes, Path], object]
    commands: tuple[str, ...] = ()
    suffix: str = ".json"

    def input(self, chance: random.Random) -> bytes:
        seeds = _seeds(self.seeds)
        if chance.random() < 0.03:
            return spliced(chance, seeds)
        return self.mutate(chance, chance.choice(seeds))


@cache
def _seeds(make: Callable[[], Sequence[bytes]]) -> Sequence[bytes]:
    return make()


# Reports.


def _report_seeds() -> list[bytes]:
    captured = [path.read_bytes() for path in sorted(REPORTS.glob("*.json"))]
    small = sorted(captured, key=len)[:4]
    return [*small, json.dumps(fixtures.report()).encode()]


def _read_report(data: bytes, _: Path) -> None:
    report = read_report(data)
    judgement = judge(report)
    assert judgement.sentence is not None
    diagnosis = diagnose_report(report)
    diagnosis_text(diagnosis, 80)
    markdown(diagnosis)
    junit(report)
    _show(checks_table(report.checks))
    json_text(report.raw)
    try:
        record_of_report(report)
    except ValueError as error:
        # As `records import --report` does.
        raise ReportError(str(error)) from error


def _show(content: object) -> None:
    Console(file=io.StringIO(), width=200, markup=False, highlight=False, emoji=False).print(content)


# Records.


def _record_seeds() -> list[bytes]:
    measured = fixtures.record(DIGEST)
    bundles = [record(1), measured, record(3, layers=(), measurement=_bundle_seeds()[0].decode())]
    return [json.dumps(each.document()).encode() for each in bundles]


def _mutate_record(chance: random.Random, data: bytes) -> bytes:
    """Mutate a record, and mostly give it the id that its content has, as whoever forges one would."""
    changed = mutate_json(chance, data)
    if chance.random() < 0.2:
        return gzip.compress(changed, 1) if chance.random() < 0.1 else changed
    try:
        content = json.loads(changed)
        content.pop("id", None)
        content["id"] = hashlib.sha256(codec.canonical(content)).hexdigest()[:32]
        return json.dumps(content).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return changed


def _read_record(data: bytes, _: Path) -> None:
    stream: io.BufferedReader = io.BufferedReader(io.BytesIO(data))
    for found in record_files.read(stream, "records.jsonl", None, record_files.Limits(1 << 20, 100)):
        wrong_time(found, NOW)
        Entry.of(found)
        before = _known_record()
        changes(before, found), changed_checks(found, before)
        _show(records_table([found]))
        _show(record_text(found))
        gather([before, found], NOW)
        record_files.write([found], io.StringIO())
        try:
            report = found.read_report()
        except ReportError:
            continue
        if report is not None:
            judge(report)


@cache
def _known_record() -> Record:
    return read_record(_seeds(_record_seeds)[1])


# What is signed.


def _measurement() -> Measurement:
    return Measurement(
        image_digest=DIGEST, image="tf2.21.0-cuda12.5-cudnn9.3-py312", host_class="r580-h100",
        cell="tf2.21.0-cuda12.5-cudnn9.3-py312@r580-h100", lock_digest=DIGEST, report_digest=DIGEST,
        challenge="0" * 64, outside=Outside("580.65.06", "580.65.06", ()), probe_version="1",
        started="2026-11-20T01:00:00Z", finished="2026-11-20T01:02:00Z", depth="quick", fixture=True,
    )  # fmt: skip


def _provenance() -> bytes:
    added = ("git:amd64=1:2.39.5-0+deb12u2",)
    base = BaseOrigin("registry", "debian", DIGEST).with_packages(["git"], added)
    inputs = Inputs(
        image="tf2.21.0-cuda12.5-cudnn9.3-py312", lock_digest=DIGEST, recipe_digest=DIGEST, base=base,
        source_commit="0" * 40, version="1", added=added,
    )  # fmt: skip
    builder = Signatory(identity="x", issuer="y")
    return provenance_statement(
        DIGEST, inputs, "registry.example/tf", builder, finished="2026-11-20T01:02:00Z"
    )


def _certificate() -> bytes:
    made = fixtures.record(DIGEST)
    report = made.read_report()
    assert report is not None
    times = {"issued": "2026-11-20T02:00:00Z", "expires": "2026-12-04T02:00:00Z"}
    return statement(made, report, _measurement(), "registry.example/tf", **times)


def _statement_seeds() -> list[bytes]:
    return [statement_of(_measurement()), _provenance(), _certificate()]


def _read_statement(data: bytes, _: Path) -> None:
    """Read a statement as each of the three, whichever it is. At most two refuse it without being asked."""
    builder = Party("ci", Signatory(identity="x", issuer="y"), NOW + timedelta(days=9), None)
    readers: tuple[Callable[[], object], ...] = (
        lambda: measurement_of(data),
        lambda: read_provenance(data, DIGEST, builder),
        lambda: read_statement(data, DIGEST, "signer"),
    )
    refused = 0
    for read in readers:
        try:
            read()
        except DOCUMENTED:
            refused += 1
    assert refused >= 2, "a statement is of one kind"


def _bundle_seeds() -> list[bytes]:
    def b64(data: bytes) -> str:
        return base64.b64encode(data).decode()

    proof = {"logIndex": "1", "rootHash": b64(b"r" * 32), "treeSize": "2", "hashes": [b64(b"h" * 32)]}
    entry = {
        "logIndex": "1", "logId": {"keyId": b64(b"k" * 32)},
        "kindVersion": {"kind": "dsse", "version": "0.0.1"},
        "integratedTime": "1763600000", "inclusionPromise": {"signedEntryTimestamp": b64(b"s" * 70)},
        "inclusionProof": {**proof, "checkpoint": {"envelope": "x\n"}}, "canonicalizedBody": b64(b"{}"),
    }  # fmt: skip
    materials: tuple[dict[str, object], ...] = (
        {"publicKey": {"hint": "x"}},
        {
            "certificate": {"rawBytes": b64(b"c" * 300)},
            "tlogEntries": [entry],
            "timestampVerificationData": {"rfc3161Timestamps": [{"signedTimestamp": b64(b"t" * 99)}]},
        },
    )
    return [
        json.dumps(
            {
                "mediaType": BUNDLE,
                "verificationMaterial": material,
                "dsseEnvelope": {
                    "payload": b64(payload),
                    "payloadType": IN_TOTO,
                    "signatures": [{"sig": b64(b"s" * 70)}],
                },
            }
        ).encode()
        for material in materials
        for payload in _statement_seeds()
    ]


def _read_bundle(data: bytes, place: Path) -> None:
    bundle = parse_bundle(data)
    assert parse_bundle(bundle.canonical).payload == bundle.payload, "what cosign gets is what is read"
    _read_statement(bundle.payload, place)


# Files of a person or a registry.


def _manifest_seeds() -> list[bytes]:
    layer = {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": DIGEST, "size": 1000}
    platform = {"os": "linux", "architecture": "amd64"}
    manifest = {"schemaVersion": 2, "config": layer, "layers": [layer, layer], "annotations": {"a": "b"}}
    index = {"schemaVersion": 2, "manifests": [{**layer, "platform": platform}], "mediaType": "x"}
    configuration = {"os": "linux", "architecture": "amd64", "config": {"Labels": {"a": "b"}, "Env": ["A=b"]}}
    referrers = {"manifests": [{**layer, "artifactType": "x", "annotations": {"a": "b"}}]}
    tags = {"name": "team/tensorflow", "tags": ["latest", "2.21"]}
    return [json.dumps(each).encode() for each in (manifest, index, configuration, referrers, tags)]


def _read_manifest(data: bytes, _: Path) -> None:
    readers: tuple[Callable[[], object], ...] = (
        lambda: parse_document(data, Manifest, "the manifest").for_platform(),
        lambda: parse_document(data, ImageConfig, "the configuration").labels,
        lambda: parse_document(data, Tags, "the list of tags"),
    )
    for read in readers:
        with contextlib.suppress(*DOCUMENTED):
            read()


def _matrix_seeds() -> list[bytes]:
    small = b"""images:
  - {tensorflow: ["2.21.0", "2.20.0"], python: "3.12", cuda: "12.5", cudnn: "9.3"}
  - tensorflow: "2.18"
    python: ["3.11", "3.12"]
    variant: cpu
hosts:
  - {driver: "580", gpu: h100, runner: [self-hosted, r580-h100]}
  - {driver: "535", gpu: [t4, a100], compat: "12.9"}
  - {gpu: none, runner: ubuntu-24.04}
profiles:
  quick: {select: [tensorflow=2.21.0, variant=gpu], description: Small.}
exclude:
  - {select: [python=3.11], reason: not needed}
"""
    return [small, (ROOT / "matrix.yaml").read_bytes()]


def _read_matrix(data: bytes, _: Path) -> None:
    parse_matrix(data)


#: A throw-away key, whose private half nobody has.
_KEY = """-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEtR4PzPg81ztSvKt6jmhZr4zu47jn
+yteKCX9YXmFiw1Anv+WCy7LojRkf+1v+5hsAdZVu/2odLG02HcYec53WA==
-----END PUBLIC KEY-----
"""


def _trust_seeds() -> list[bytes]:
    key = _KEY.replace("\n", "\n      ")
    return [
        f"""release: {{identity: "https://example.org/x", issuer: "https://issuer.example"}}
builders:
  - {{name: ci, identity: "https://example.org/ci", issuer: "https://issuer.example", until: 2027-11-22}}
runners:
  - name: gpu-1
    key: |
      {key}
    host_classes: ["*-h100"]
    until: 2027-11-22
    revoked: 2026-12-01T00:00:00Z
""".encode()
    ]


def _read_trust(data: bytes, place: Path) -> None:
    path = place / "trust.yaml"
    path.write_bytes(data)
    trust = read_trust_file(path)
    for party in (*trust.builders, *trust.runners):
        party.silent_since(NOW)
        party.may_sign_for("r580-h100")


def _log_seeds() -> list[bytes]:
    files = sorted((ROOT / "tests/corpus/pasted").rglob("*")) + sorted(
        (ROOT / "tests/corpus/written").rglob("*")
    )
    texts = [
        path.read_bytes() for path in files if path.is_file() and path.suffix in (".txt", ".log", ".md", "")
    ]
    return [text for text in texts if len(text) < 3000][:60]


def _read_log(data: bytes, _: Path) -> None:
    diagnosis = diagnose_file(io.BytesIO(data), "train.log")
    diagnosis_text(diagnosis, 80)
    json_text(codec.encode(diagnosis))


def _lock_seeds() -> list[bytes]:
    return [path.read_bytes() for path in sorted((ROOT / "images/locks").glob("*.txt"))[:2]]


def _read_lock(data: bytes, _: Path) -> None:
    locks.parse(data.decode("utf-8", "replace"), "lock")


def _small_seeds() -> list[bytes]:
    refused = [{"artifact": "records-x", "reason": "it was altered"}]
    cells = {"include": [{"id": "x@y", "challenge": "0" * 64, "issued": "2026-11-20T01:00:00Z"}]}
    certificates = {"repository": "registry.example/tf", "images": [], "certificates": []}
    return [json.dumps(each).encode() for each in (refused, cells, certificates)]


def _read_small(data: bytes, place: Path) -> None:
    path = place / "small.json"
    path.write_bytes(data)
    for read in (read_refused, read_challenges, lambda path: read_verification(path.read_bytes())):
        try:
            read(path)
        except DOCUMENTED:
            continue


#: Files of other people's projects, which lint reads.
PROJECTS = {
    name: Target(
        foreign.seeds_of(name), mutate_json if name.endswith("k") and "Pip" in name else mutate_text,
        foreign.reader_of(name), suffix=f"-{name}",
    )
    for name in foreign.PROJECTS
}  # fmt: skip
TARGETS: dict[str, Target] = {
    **PROJECTS,
    "fleet": Target(
        lambda: [foreign.FLEET.encode()], mutate_text, foreign.read_fleet, suffix=".yaml"
    ),
    "notebook": Target(
        lambda: [json.dumps(foreign.NOTEBOOK).encode()], mutate_json, foreign.read_notebook,
        suffix=".ipynb",
    ),
    **{kind: Target(*made, suffix=".input") for kind, made in machines.KINDS.items()},
    "bundle": Target(_bundle_seeds, mutate_json, _read_bundle),
    "lock": Target(_lock_seeds, mutate_text, _read_lock, suffix=".txt"),
    "log": Target(_log_seeds, mutate_text, _read_log, ("doctor {}",), suffix=".log"),
    "manifest": Target(_manifest_seeds, mutate_json, _read_manifest),
    "matrix": Target(
        _matrix_seeds, mutate_text, _read_matrix, ("plan --matrix {}",), suffix=".yaml"
    ),
    "record": Target(
        _record_seeds, _mutate_record, _read_record,
        ("records import {} --store {}.db", "records import {} --any-time --store {}.db"),
        suffix=".jsonl",
    ),
    "report": Target(
        _report_seeds, mutate_json, _read_report,
        ("doctor --report {}", "doctor --markdown --report {}", "records import --report {} --store {}.db"),
    ),
    "small": Target(_small_seeds, mutate_json, _read_small),
    "statement": Target(_statement_seeds, mutate_json, _read_statement),
    "trust": Target(_trust_seeds, mutate_text, _read_trust, suffix=".yaml"),
    "apt": Target(servers.apt_seeds, mutate_text, servers.read_apt, suffix=".txt"),
    "config": Target(servers.config_seeds, mutate_json, servers.read_configuration),
    "header": Target(
        servers.header_seeds, servers.mutate_page, servers.read_headers, suffix=".txt"
    ),
    "page": Target(servers.page_seeds, servers.mutate_page, servers.read_page, suffix=".txt"),
    "token": Target(servers.token_seeds, mutate_json, servers.read_token),
    "wheel-name": Target(servers.name_seeds, mutate_text, servers.read_name, suffix=".txt"),
    "wheel-record": Target(servers.record_seeds, mutate_text, servers.read_record, suffix=".txt"),
}  # fmt: skip
