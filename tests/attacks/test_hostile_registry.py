"""A hostile registry, or somebody who may write to one: forged attachments, answers without end or sense."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import pytest

from validator.certify.signatures import BUNDLE, Signer
from validator.certify.statement import statement
from validator.certify.trust import Trust
from validator.errors import MissingError, ValidatorError
from validator.model.codec import format_timestamp, now_utc
from validator.registry import session as session_module
from validator.registry.client import Registry
from validator.registry.names import Repository

from ..certify.attestations import attach_by_hand
from ..certify.fixtures import record, report
from ..certify.measuring import measurement_of_record
from ..certify.sigstore import IDENTITY, ISSUER, Sigstore, legacy
from ..commands import ROOT, Done, run
from ..registry.hostile import MANIFEST, Endless, HostileRegistry, Silence, as_bytes, running_hostile_registry
from ..registry.images import push_image
from ..registry.server import RunningRegistry

TAG = "2.21.0-cuda12.5-cudnn9.3-py3.12"
NAMED = "tf2.21.0-cuda12.5-cudnn9.3-py312"
HERE = ("--driver", "580.95.05", "--gpu", "h100")


@pytest.fixture
def repository(server: RunningRegistry) -> Repository:
    return Repository(server.address, f"team/hostile-{uuid4().hex}")


def signed_statement(repository: Repository, digest: str, gpu: str) -> bytes:
    """Return the statement of a certificate for a GPU, which no mark calls a fixture."""
    found = report(gpu=gpu) | {"fixture": False}
    measured = format_timestamp(now_utc() - timedelta(hours=1))
    made = record(digest, gpu=gpu, found=found, finished=measured)
    read = made.read_report()
    assert read is not None
    issued, expires = (format_timestamp(now_utc() + age) for age in (timedelta(), timedelta(days=14)))
    measurement = measurement_of_record(made, None)
    return statement(made, read, measurement, str(repository), issued=issued, expires=expires)


class NoEngine:
    """An engine that must not be asked to pull anything."""

    info: ClassVar[dict[str, Any]] = {}
    is_local = True

    def pull(self, *_: object) -> None:
        pytest.fail("the image was pulled")

    def close(self) -> None:
        pass


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("validator.cli.images.connect_engine", lambda driver, gpus: NoEngine())
    yield


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("command", ["verify", "recommend", "promote", "pull"])
def test_a_bundle_in_the_older_format_of_cosign_says_what_nobody_signed(
    command: str, repository: Repository, sigstore: Sigstore, tmp_path: Path
) -> None:
    """Protects what a certificate says: the statement that is read is the one that was signed.

    The identity certified the image for a T4. The attacker wraps that signature in the format that cosign
    falls back to, next to a statement about an H100 in the format that is read here.
    """
    image = push_image(repository, TAG)
    genuine = sigstore.sign(signed_statement(repository, image, "t4"))
    forged = legacy(genuine, signed_statement(repository, image, "h100"))
    attach_by_hand(repository, image, forged)
    trusted = ("--registry", repository, "--identity", IDENTITY, "--issuer", ISSUER)
    environment = {**os.environ, **sigstore.environment(tmp_path), "HOME": str(tmp_path)}
    host = () if command in ("verify", "promote") else HERE
    names = (NAMED,) if command == "verify" else ()
    done = run(command, *trusted, *host, *names, environment=environment)
    assert "Traceback" not in done.stderr
    assert Registry(repository).digest_of("latest") is None
    assert refusal(command, done), (done.stdout, done.stderr)


def refusal(command: str, done: Done) -> bool:
    """Tell whether a command has refused the only attachment of the only image."""
    why = "it is not a bundle of format 0.3"
    if command == "promote":
        return done.returncode == 0 and done.stdout == ""
    return done.returncode == 1 and why in done.stdout + done.stderr


@pytest.mark.usefixtures("no_engine")
def test_the_same_statement_counts_when_the_identity_signed_it(
    repository: Repository, sigstore: Sigstore, tmp_path: Path
) -> None:
    """The test above rejects the form and not the signer: what the identity signed for the T4 counts."""
    image = push_image(repository, TAG)
    attach_by_hand(repository, image, sigstore.sign(signed_statement(repository, image, "t4")))
    trusted = ("--registry", repository, "--identity", IDENTITY, "--issuer", ISSUER)
    roots = ("--trusted-root", sigstore.trusted_root(tmp_path))
    done = run("verify", *trusted, *roots, "--json", NAMED)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["certificates"]
    assert (found["signer"], found["host_class"]) == (IDENTITY, "r580-t4")


# Answers without an end, and answers that never come.

MIB = 1 << 20


@pytest.fixture
def hostile() -> Iterator[HostileRegistry]:
    with running_hostile_registry() as running:
        yield running


#: Starts a command and prints its largest memory in KiB, its children's included. A process counts the memory
#: of the one that started it, so that must be a small one.
LAUNCHER = """
import resource, subprocess, sys
print(subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def cost_of(*arguments: object) -> tuple[int, str]:
    """Run a command in a process of its own. Return its largest memory in KiB and what it printed."""
    command = [sys.executable, "-m", "validator", *map(str, arguments)]
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, *command],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    output, _, most = done.stdout.rstrip().rpartition("\n")
    assert "Traceback" not in output, output
    return int(most), output


@pytest.mark.service
def test_a_bundle_of_600_mb_costs_a_few(hostile: HostileRegistry, keys: tuple[Signer, Trust]) -> None:
    """Protects the machine that verifies: a bundle may have 4 MiB, whatever its manifest claims."""
    command = ("verify", "--registry", hostile.repository, "--key", keys[1].key, NAMED)
    hostile.push_image(TAG)
    usual, _ = cost_of(*command)
    endless = Endless(600 * MIB)
    hostile.attach(BUNDLE, endless, claimed=1000, digest="sha256:" + "b" * 64)
    most, output = cost_of(*command)
    assert "the registry sends more than 4 MiB" in output
    assert most < usual + 16 * 1024, f"{most} KiB instead of {usual} KiB"
    # What the sockets and pipes on the way hold is sent too.
    assert endless.sent < 32 * MIB


@pytest.mark.service
@pytest.mark.parametrize("what", ["manifest", "configuration", "tags"])
def test_nothing_else_without_an_end_is_read_to_the_end(what: str, hostile: HostileRegistry) -> None:
    """Protects the machine that reads: each kind of content has a limit of its own."""
    registry = Registry(Repository.parse(hostile.repository))
    endless = Endless(600 * MIB)
    digest = hostile.push_image(TAG)
    if what == "manifest":
        hostile.manifests[digest] = endless
        with pytest.raises(ValidatorError):
            registry.manifest(digest)
    elif what == "configuration":
        hostile.blobs = dict.fromkeys(hostile.blobs, endless)
        with pytest.raises(ValidatorError, match="the registry sends more than 8 MiB"):
            registry.config(digest)
    else:
        hostile.tags, hostile.more_pages = as_bytes({"name": "x", "tags": ["x" * 100] * 1000}), True
        with pytest.raises(ValidatorError, match="the registry sends more than 4 MiB"):
            registry.tags()
    assert endless.sent < 32 * MIB


@pytest.mark.service
def test_a_list_of_attachments_with_pages_without_end_is_given_up(hostile: HostileRegistry) -> None:
    """Protects the memory of the machine: all pages of a list have one limit."""
    digest = hostile.push_image(TAG)
    entry = {"mediaType": MANIFEST, "digest": digest, "size": 1, "annotations": {"a": "x" * 100_000}}
    hostile.referrers = as_bytes({"schemaVersion": 2, "manifests": [entry] * 10})
    hostile.more_pages = True
    with pytest.raises(ValidatorError, match="can't be listed: the registry sends more than 4 MiB"):
        Registry(Repository.parse(hostile.repository)).attached(digest, BUNDLE)


@pytest.fixture
def silent_port() -> Iterator[tuple[int, threading.Event]]:
    """Yield the port of a server that accepts connections and never answers, and an event for the first."""
    accepted, held = threading.Event(), []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    held.append(listening.accept())
                    # A client may try something else first, such as TLS, or finish a handshake.
                    accepted.set()

        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1], accepted
    for connection, _ in held:
        connection.close()


def interrupt(
    arguments: Sequence[object], waiting: threading.Event, *, ignored: bool, **variables: str
) -> tuple[float, Done]:
    """Start a command, press Ctrl-C once it waits, and return the seconds that it takes to end.

    ignored: start it as shells start what runs in the background, with SIGINT ignored.
    """
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if ignored else signal.getsignal(signal.SIGINT)
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "validator", *map(str, arguments)],
            cwd=ROOT, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, handler)
    try:
        assert waiting.wait(60), child.communicate(timeout=1)
        time.sleep(0.3)
        pressed = time.monotonic()
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
        return time.monotonic() - pressed, Done(child.args, child.returncode, out, err)
    finally:
        child.kill()


def stopped(took: float, done: Done) -> None:
    assert "Traceback" not in done.stderr
    assert done.returncode == 130, done.stderr
    assert done.stderr.endswith("stopped\n")
    # Without Ctrl-C, the shortest of the waits end after 10 seconds: those for the engine and PostgreSQL.
    assert took < 8


@pytest.mark.service
@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("what", ["tag", "manifest", "referrers", "bundle"])
def test_ctrl_c_ends_the_wait_for_a_registry_that_never_answers(
    what: str, ignored: bool, hostile: HostileRegistry, keys: tuple[Signer, Trust]
) -> None:
    """Protects the person at the keyboard, also where a script started the command in the background."""
    silence = Silence()
    digest = hostile.push_image(TAG)
    if what == "tag":
        hostile.manifests[TAG] = silence
    elif what == "manifest":
        hostile.attach(BUNDLE, b"{}", claimed=2, digest="sha256:" + "b" * 64)
        (artifact,) = hostile.manifests.keys() - {TAG, digest}
        hostile.manifests[artifact] = silence
    elif what == "referrers":
        hostile.referrers = silence
    else:
        hostile.attach(BUNDLE, silence, claimed=1000, digest="sha256:" + "b" * 64)
    command = ("verify", "--registry", hostile.repository, "--key", keys[1].key, NAMED)
    stopped(*interrupt(command, silence.asked, ignored=ignored))


@pytest.mark.service
def test_ctrl_c_ends_the_waits_of_several_threads(
    hostile: HostileRegistry, keys: tuple[Signer, Trust]
) -> None:
    """Protects the person at the keyboard: `recommend` asks for several images at a time."""
    silence = Silence()
    for minor in range(8):
        hostile.push_image(f"2.21.0-cuda12.5-cudnn9.{minor}-py3.12")
    hostile.referrers = silence
    command = ("recommend", "--registry", hostile.repository, "--key", keys[1].key, *HERE)
    stopped(*interrupt(command, silence.asked, ignored=False))


@pytest.mark.service
@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("what", ["index", "engine", "store"])
def test_ctrl_c_ends_every_other_wait_for_a_network(
    what: str, ignored: bool, silent_port: tuple[int, threading.Event], tmp_path: Path
) -> None:
    """Protects the person at the keyboard: package index, Docker engine and PostgreSQL may hang as well."""
    port, accepted = silent_port
    where = f"127.0.0.1:{port}"
    command: tuple[object, ...]
    variables = {}
    if what == "index":
        matrix = shutil.copy(ROOT / "matrix.yaml", tmp_path)
        command = ("lock", "--matrix", matrix, "--profile", "cpu")
        variables = {"PIP_INDEX_URL": f"http://{where}/simple", "UV_DEFAULT_INDEX": f"http://{where}/simple"}
    elif what == "engine":
        command = ("pull", "--registry", "localhost:9/x", "--identity", IDENTITY, "--issuer", ISSUER, *HERE)
        variables = {"DOCKER_HOST": f"tcp://{where}"}
    else:
        command = ("records", "list", "--store", f"postgresql+psycopg://someone@{where}/records")
    stopped(*interrupt(command, accepted, ignored=ignored, **variables))


@pytest.mark.service
def test_a_registry_that_never_answers_is_given_up_without_ctrl_c(
    hostile: HostileRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects a job that nobody watches: a silence has a limit, also in the middle of an answer."""
    monkeypatch.setattr(session_module, "SILENCE_S", 1.0)
    digest = hostile.push_image(TAG)
    hostile.blobs = {name: Silence() for name in hostile.blobs}
    started = time.monotonic()
    with pytest.raises(MissingError, match="stopped answering"):
        Registry(Repository.parse(hostile.repository)).config(digest)
    assert time.monotonic() - started < 10


# Documents of another form than the specifications say.

DIGEST = "sha256:" + "d" * 64
CONFIG = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": DIGEST, "size": 2}
LAYER = {"mediaType": BUNDLE, "digest": DIGEST, "size": 2}
DEEP = b"[" * 100_000
HUGE = b"1" + b"0" * 400


def manifest(**changes: Any) -> dict[str, Any]:
    return {"schemaVersion": 2, "mediaType": MANIFEST, "config": CONFIG, "layers": [], **changes}


#: What stands for the manifest of an image.
MANIFESTS: list[Any] = [
    [], None, "text", 5, b"", b"{", b"\xff\xfe", DEEP, b'{"config": ' + HUGE + b"}", b'{"config": NaN}',
    b'{"config": {}, "config": {}}', {}, manifest(config=None), manifest(config=[]), manifest(config={}),
    manifest(config="text"), manifest(config={**CONFIG, "digest": None}), manifest(config={"digest": DIGEST}),
    manifest(config={**CONFIG, "digest": 5}), manifest(config={**CONFIG, "digest": "md5:1"}),
    manifest(config={**CONFIG, "digest": "sha256:../../../etc"}), manifest(config={**CONFIG, "size": -1}),
    manifest(config={**CONFIG, "size": "2"}), manifest(config={**CONFIG, "size": 1e300}),
    manifest(config={**CONFIG, "size": True}), manifest(layers={}), manifest(layers=[5]),
    manifest(layers=[[]]), manifest(annotations=[]), manifest(annotations={"a": 5}),
    manifest(mediaType=5), manifest(mediaType=None),
    manifest(manifests={}), manifest(manifests=[]), manifest(manifests=[5]), manifest(manifests=[CONFIG]),
    manifest(manifests=[{**CONFIG, "platform": "linux/amd64"}]),
    manifest(manifests=[{**CONFIG, "platform": {"os": 5}}]),
    manifest(manifests=[{**CONFIG, "platform": None}]),
]  # fmt: skip
#: What stands for the configuration of an image.
CONFIGS: list[Any] = [
    [], None, "text", 5, b"", b"{", b"\xff\xfe", DEEP, b'{"config": ' + HUGE + b"}", {}, {"config": None},
    {"config": []}, {"config": "text"}, {"config": {}}, {"config": {"Labels": None}},
    {"config": {"Labels": []}},
    {"config": {"Labels": "text"}}, {"config": {"Labels": {"a": 5}}}, {"config": {"Labels": {"a": None}}},
    {"config": {"Labels": {"org.opencontainers.image.version": ["2.21.0"]}}},
    {"config": {"Labels": {"org.opencontainers.image.version": "\x1b[2J" * 9}}},
]  # fmt: skip
#: What stands for the list of artifacts that refer to an image.
REFERRERS: list[Any] = [
    [], None, "text", 5, b"", b"{", b"\xff\xfe", DEEP, {}, {"manifests": None}, {"manifests": {}},
    {"manifests": "text"}, {"manifests": [None]}, {"manifests": [5]}, {"manifests": [[]]},
    {"manifests": [{}]},
    {"manifests": [{"artifactType": BUNDLE}]}, {"manifests": [{**LAYER, "artifactType": 5}]},
    {"manifests": [{**LAYER, "artifactType": BUNDLE, "annotations": []}]},
    {"manifests": [{**LAYER, "artifactType": BUNDLE, "annotations": {"a": 5}}]},
    {"manifests": [{**LAYER, "artifactType": BUNDLE, "digest": "sha256:0"}]},
    {"manifests": [{**LAYER, "artifactType": BUNDLE, "size": -1}]},
    {"manifests": [{**LAYER, "artifactType": BUNDLE, "size": 1e300}]},
    {"manifests": [{**LAYER, "artifactType": BUNDLE}] * 3},
]  # fmt: skip
TAGS: list[Any] = [
    [],
    None,
    5,
    b"",
    {},
    {"tags": None},
    {"tags": {}},
    {"tags": [5]},
    {"tags": ["\x1b[2J", "a/b", ""]},
]
#: The commands that read each kind.
READERS = {
    "manifest": ("verify", "promote", "pull"),
    "config": ("promote", "pull"),
    "referrers": ("verify", "recommend"),
    "tags": ("recommend", "promote"),
    "artifact": ("verify",),
}
FORMS = [
    (kind, document)
    for kind, documents in (
        ("manifest", MANIFESTS), ("config", CONFIGS), ("referrers", REFERRERS), ("tags", TAGS),
        ("artifact", MANIFESTS),
    )
    for document in documents
]  # fmt: skip


@pytest.mark.usefixtures("no_engine")
@pytest.mark.service
@pytest.mark.parametrize(
    ("kind", "document"), FORMS, ids=lambda value: str(value)[:60] if not isinstance(value, str) else value
)
def test_a_document_of_another_form_is_one_clear_error(
    kind: str,
    document: Any,
    hostile: HostileRegistry,
    keys: tuple[Signer, Trust],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Protects whoever reads the message: what, where and what to do, in one line, and no traceback."""
    monkeypatch.setattr(session_module, "PAUSES", ())
    content = as_bytes(document)
    if kind == "manifest":
        hostile.push(TAG, content)
        hostile.push("latest", content)
    elif kind == "tags":
        hostile.tags = content
    else:
        digest = hostile.push_image(TAG, content if kind == "config" else None)
        hostile.manifests["latest"] = hostile.manifests[digest]
    if kind == "referrers":
        hostile.referrers = content
    if kind == "artifact":
        artifact = hostile.push("artifact", content)
        entry = {"mediaType": MANIFEST, "digest": artifact, "size": len(content), "artifactType": BUNDLE}
        hostile.referrers = as_bytes({"schemaVersion": 2, "manifests": [entry]})
    trusted = ("--registry", hostile.repository, "--key", keys[1].key)
    rest = {"verify": (NAMED,), "recommend": HERE, "promote": (), "pull": (*HERE, "--image", "latest")}
    for command in READERS[kind]:
        done = run(command, *trusted, *rest[command])
        assert done.returncode in (0, 1, 2, 3), command
        assert "Traceback" not in done.stderr
        assert "\x1b" not in done.stdout + done.stderr
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert len(errors) <= 1, errors
        assert all(len(line) < 700 for line in errors), errors
        if command != "promote":
            assert done.returncode != 0, (command, done.stdout)
        assert Registry(Repository.parse(hostile.repository)).digest_of("2.21") is None
