"""recommend, pull and run as a person runs them, with a real registry, real signatures and a real engine."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import docker
import pytest
from docker.errors import ImageNotFound

from tests.emulation import cdi
from tests.registry.proxy import Fault, Proxy
from validator.certify.signer import Signer
from validator.certify.times import now_utc
from validator.certify.trust import Trust
from validator.cli.hosting import engine_for
from validator.engines.docker.endpoint import Reached, reach
from validator.errors import EXIT_FAILED, EXIT_INPUT, EXIT_MISSING, EXIT_OK, MissingError, ValidatorError
from validator.pull.engine import Engine
from validator.pull.take import local_ids, named

from .shelf import A100, H100, Shelf
from .values import TAG, digest_of, host

pytestmark = pytest.mark.docker

OLDER = "2.20.0-cuda12.5-cudnn9.3-py3.12"
HERE = ("--driver", "580.95.05", "--gpu", "h100")
#: Says where it is, who it is and what it was given; leaves a file; ends with 7.
PROGRAM = """
#include <stdio.h>
#include <unistd.h>
int main(int count, char **words)
{
    char here[4096];
    FILE *file = fopen("left", "w");
    printf("%s\\n%d:%d\\n", getcwd(here, sizeof here), getuid(), getgid());
    printf("%s\\n", access("/gpu", R_OK) ? "no GPU" : "GPU");
    for (int i = 1; i < count; i++) printf("%s\\n", words[i]);
    if (file) fclose(file);
    return 7;
}
"""


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def engine() -> Iterator[Reached]:
    try:
        reached = reach()
    except MissingError as error:
        pytest.skip(str(error))
    if not reached.is_local:
        pytest.skip("the engine is remote: it can't reach a registry on this machine")
    yield reached
    reached.quick.close()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("program")
    (directory / "program.c").write_text(PROGRAM, encoding="ascii")
    subprocess.run(["gcc", "-O1", "-static", "-o", "program", "program.c"], cwd=directory, check=True)
    return directory / "program"


@pytest.fixture
def held(engine: Reached, shelf: Shelf, proxy: Proxy) -> Iterator[Callable[[], list[str]]]:
    """The names that the engine has for images of the test's repository, straight or through the proxy."""

    def names() -> list[str]:
        path = shelf.registry.repository.path
        return sorted(
            {
                name
                for image in engine.quick.api.images()
                for name in (*(image["RepoTags"] or ()), *(image["RepoDigests"] or ()))
                if f"/{path}:" in name or f"/{path}@" in name
            }
        )

    assert names() == []
    yield names
    for name in names():
        # The last name takes the image with it, and what else it was called.
        with contextlib.suppress(ImageNotFound):
            engine.quick.images.remove(name, force=True)


def ask(shelf: Shelf, command: str, *arguments: str, cwd: Path | None = None, **variables: str) -> Said:
    environment = {
        **os.environ,
        "VALIDATOR_REGISTRY": str(shelf.registry.repository),
        "VALIDATOR_KEY": str(shelf.trust.key),
        **variables,
    }
    words = [sys.executable, "-m", "validator", command, *arguments]
    done = subprocess.run(
        words, env=environment, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Said(done.returncode, done.stdout, done.stderr)


def test_recommend_lists_the_best_first(shelf: Shelf) -> None:
    newer, older = shelf.put(A100), shelf.put(H100, tag=OLDER)
    shelf.push("2.21.0-cpu-py3.12")
    said = ask(shelf, "recommend", "--fixtures", *HERE)
    assert said.code == EXIT_OK
    heading, first, second, third = said.out.splitlines()
    assert heading.split() == ["image", "digest", "for", "this", "host", "why"]
    assert first.startswith(f"{OLDER}  {older[:19]}  certified")
    assert "certified for this host: measured on NVIDIA H100 80GB HBM3 (9.0) with driver 580.65.06" in first
    assert second.startswith(f"{TAG}  {newer[:19]}  predicted") and "not certified for this host" in second
    assert third.startswith("2.21.0-cpu-py3.12") and "unfit" in third
    assert "for driver 580.95.05 with H100 (9.0)" in said.err
    assert "1 certified, 1 predicted, 1 unfit" in said.err


def test_recommend_as_json(shelf: Shelf) -> None:
    digest = shelf.put(H100)
    said = ask(shelf, "recommend", "--fixtures", "--json", *HERE, "--gpu", "9.0")
    document: dict[str, Any] = json.loads(said.out)
    assert document["host"] == {
        "driver": "580.95.05",
        "gpus": [
            {"name": "H100", "compute_capability": "9.0"},
            {"name": None, "compute_capability": "9.0"},
        ],
    }
    (image,) = document["images"]
    assert image["reference"] == f"{document['registry']}@{digest}"
    assert (image["tag"], image["standing"], image["prediction"]["outcome"]) == (TAG, "certified", "works")
    assert image["certificates"][0]["fixture"] is True


def test_recommend_ends_with_1_when_nothing_fits(shelf: Shelf) -> None:
    shelf.put(H100)
    said = ask(shelf, "recommend", *HERE)
    assert (said.code, "made by a test and proves nothing" in said.out) == (EXIT_FAILED, True)


def test_pull_takes_the_best_by_its_digest(
    shelf: Shelf, engine: Reached, held: Callable[[], list[str]]
) -> None:
    digest = shelf.put(H100)
    shelf.put(H100, tag=OLDER)
    said = ask(shelf, "pull", "--fixtures", *HERE)
    repository = shelf.registry.repository
    assert (said.code, said.out) == (EXIT_OK, f"{repository}@{digest}\n"), said.err
    assert held() == sorted([repository.tagged(TAG), repository.at(digest)])
    assert engine.quick.images.get(repository.tagged(TAG)).id in said.out + _config(shelf, digest)
    assert "measured on NVIDIA H100 80GB HBM3 (9.0) with driver 580.65.06" in said.err
    assert f"signed by {shelf.trust.signer}" in said.err
    # Pulled again, nothing changes.
    assert ask(shelf, "pull", "--fixtures", *HERE).out == said.out


def _config(shelf: Shelf, digest: str) -> str:
    manifest = shelf.registry.manifest(digest)
    assert manifest is not None
    return str(manifest["config"]["digest"])


def test_a_name_that_stood_for_another_image_moves(
    shelf: Shelf, engine: Reached, held: Callable[[], list[str]]
) -> None:
    shelf.put(H100)
    name = shelf.registry.repository.tagged(TAG)
    ask(shelf, "pull", "--fixtures", *HERE)
    first = engine.quick.images.get(name).id
    digest = shelf.push(content="the next build")
    shelf.certify(digest, H100)
    said = ask(shelf, "pull", "--fixtures", "--image", TAG, *HERE)
    assert said.out.strip().endswith(digest), said.err
    assert engine.quick.images.get(name).id != first


def _unsigned(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    shelf.push()
    return ()


def _foreign(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    shelf.certify(shelf.push(), H100, by=foreign)
    return ()


def _wrong_key(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    shelf.put(H100)
    return ("--key", str(foreign[1].key))


def _expired(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    shelf.certify(shelf.push(), H100, age=timedelta(days=31))
    return ("--max-age", "30d")


def _future(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    shelf.certify(shelf.push(), H100, now=now_utc() + timedelta(days=3))
    return ()


def _other_driver(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    shelf.put(("575.57.08", "h100"))
    return ()


def _other_gpu(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    shelf.put(("580.65.06", "a100"))
    return ()


def _other_digest(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    shelf.put(H100)
    shelf.push(content="altered")
    return ()


def _other_tag(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    digest = shelf.put(H100, tag=OLDER)
    shelf.registry.tag(digest, TAG)
    return ("--image", TAG)


def _altered_certificate(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    shelf.put(H100)
    proxy.faults.append(Fault(method="GET", path="/blobs/", status=None, replace=(b"payload", b"payl0ad")))
    return ("--registry", f"{proxy.address}/{shelf.registry.repository.path}")


def _altered_manifest(shelf: Shelf, foreign: tuple[Signer, Trust], proxy: Proxy) -> tuple[str, ...]:
    digest = shelf.put(H100)
    proxy.faults.append(
        Fault(method="GET", path=f"/manifests/{digest}", status=None, replace=(b"tar", b"tbr"))
    )
    return ("--registry", f"{proxy.address}/{shelf.registry.repository.path}")


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (_unsigned, "it is not signed: no certificate is attached to it"),
        (_foreign, "it is not signed by the key that is trusted"),
        (_wrong_key, "it is not signed by the key that is trusted"),
        (_expired, "it is too old: measured"),
        (_future, "a clock is wrong, there or here"),
        (_other_driver, "certified on driver 575.57.08"),
        (_other_gpu, "with compute capability 8.0, and this host has driver branch 580 and 9.0"),
        (_other_digest, "it is not signed: no certificate is attached to it"),
        (_other_tag, "so the tag is wrong"),
        (_altered_certificate, "not what its digest says"),
        (_altered_manifest, "not what its digest says"),
    ],
)
def test_pull_refuses(
    shelf: Shelf,
    foreign: tuple[Signer, Trust],
    proxy: Proxy,
    held: Callable[[], list[str]],
    tamper: Callable[[Shelf, tuple[Signer, Trust], Proxy], tuple[str, ...]],
    says: str,
) -> None:
    arguments = tamper(shelf, foreign, proxy)
    said = ask(shelf, "pull", "--fixtures", *HERE, *arguments)
    assert (said.code, said.out) == (EXIT_FAILED, ""), said.err
    assert f"refused: {TAG}: " in said.err and says in said.err, said.err
    assert held() == []


def test_a_fixture_is_never_pulled_as_if_it_were_real(shelf: Shelf, held: Callable[[], list[str]]) -> None:
    shelf.put(H100)
    said = ask(shelf, "pull", *HERE)
    assert (said.code, said.out, held()) == (EXIT_FAILED, "", [])
    assert "it was made by a test and proves nothing" in said.err


def test_an_altered_layer_is_noticed_by_the_engine(
    shelf: Shelf, proxy: Proxy, held: Callable[[], list[str]]
) -> None:
    # The engine asks for no layer that it had before.
    digest = shelf.push(content=f"as it was {uuid4()}")
    shelf.certify(digest, H100)
    manifest = shelf.registry.manifest(digest)
    assert manifest is not None
    layer = manifest["layers"][0]["digest"]
    altered = Fault(method="GET", path=f"/blobs/{layer}", status=None, replace=(b"as it was", b"as it is!"))
    proxy.faults.append(altered)
    through = f"{proxy.address}/{shelf.registry.repository.path}"
    said = ask(shelf, "pull", "--fixtures", "--registry", through, *HERE)
    assert altered.happened
    assert (said.code, said.out) == (EXIT_FAILED, ""), said.err
    assert "is not what its digest says" in said.err
    assert held() == []


@pytest.fixture
def into(engine: Reached) -> Iterator[Engine]:
    own = Engine()
    yield own
    own.close()


def test_a_tag_that_moves_after_the_verification_changes_nothing(
    shelf: Shelf, into: Engine, engine: Reached, held: Callable[[], list[str]]
) -> None:
    digest = shelf.put(H100)
    taken = named(shelf.registry, host(*HERE[1::2]), shelf.terms, TAG, pytest.fail)
    assert shelf.push(content="moved in between") != digest
    into.pull(taken, local_ids(shelf.registry, digest), lambda _: None)
    repository = shelf.registry.repository
    assert held() == sorted([repository.tagged(TAG), repository.at(digest)])


def test_what_the_engine_holds_is_looked_at_before_it_gets_its_name(
    shelf: Shelf, into: Engine, held: Callable[[], list[str]]
) -> None:
    digest = shelf.put(H100)
    taken = named(shelf.registry, host(*HERE[1::2]), shelf.terms, TAG, pytest.fail)
    with pytest.raises(ValidatorError, match="was pulled, but the engine holds sha256"):
        into.pull(taken, frozenset({digest_of(1)}), lambda _: None)
    assert held() == [shelf.registry.repository.at(digest)]


def test_a_registry_that_is_down_is_told_of(shelf: Shelf, held: Callable[[], list[str]]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    for command in ("recommend", "pull", "run"):
        more = ("--devices", "gpus") if command == "run" else ()
        said = ask(shelf, command, "--fixtures", "--registry", f"{address}/team/tf", *HERE, *more)
        assert (said.code, said.out) == (EXIT_MISSING, "")
        assert f"the registry {address} can't be reached" in said.err
    assert held() == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--registry", "team/tf", *HERE), "names no registry"),
        (("--key", "/nowhere", *HERE), "/nowhere: can't be read"),
        (("--driver", "twelve", "--gpu", "h100"), "is not a driver release"),
        (("--driver", "580", "--gpu", "voodoo2"), "is not known"),
        (("--max-age", "soon", *HERE), "is no length of time"),
        (("--image", TAG, "--python", "3.12", *HERE), "--image names one image"),
        (("--image", "9.9", *HERE), "is not in the registry"),
        (("--tensorflow", "2.19", *HERE), "has no image with TensorFlow 2.19"),
    ],
)
def test_wrong_input_is_told_of(shelf: Shelf, arguments: tuple[str, ...], says: str, engine: Reached) -> None:
    shelf.push()
    said = ask(shelf, "pull", "--fixtures", *arguments)
    assert (said.code, said.out) == (EXIT_INPUT, "")
    assert says in said.err


def test_without_an_engine(shelf: Shelf) -> None:
    shelf.put(H100)
    nowhere = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}
    assert ask(shelf, "recommend", "--fixtures", *HERE, **nowhere).code == EXIT_OK
    said = ask(shelf, "pull", "--fixtures", *HERE, **nowhere)
    assert said.code == EXIT_MISSING and "there is no socket at /nowhere/docker.sock" in said.err
    # The line for another machine needs none.
    said = ask(shelf, "run", "--fixtures", *HERE, "--devices", "cdi", **nowhere)
    assert said.code == EXIT_OK and "--device nvidia.com/gpu=all" in said.out


def test_an_engine_on_another_machine_has_other_gpus(
    shelf: Shelf, engine: Reached, held: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.put(H100)
    socket_file = Path(engine.quick.api.get_adapter("http+docker://localhost").socket_path)
    with _forwarded(socket_file) as address:
        with monkeypatch.context() as patch:
            patch.setenv("DOCKER_HOST", address)
            for driver, gpus in ((None, ()), ("580", ()), (None, ("h100",))):
                with pytest.raises(MissingError, match="whose driver and GPUs are not known here"):
                    engine_for(driver, gpus)
        said = ask(shelf, "pull", "--fixtures", "--driver", "580", "--gpu", "h100", DOCKER_HOST=address)
        assert said.code == EXIT_OK, said.err
        said = ask(shelf, "run", "--fixtures", "--mount", "--devices", "gpus", *HERE, DOCKER_HOST=address)
        assert said.code == EXIT_INPUT
        assert "--mount: the Docker Engine runs on another machine" in said.err


@contextlib.contextmanager
def _forwarded(path: Path) -> Iterator[str]:
    """A Unix socket as a TCP port of the loopback address, while this lasts."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as there:
                there.connect(str(path))
                back = threading.Thread(target=_copy, args=(there, self.request))
                back.start()
                _copy(self.request, there)
                back.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        # A connection that a failed test left open must not be waited for.
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"tcp://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def _copy(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)


def test_run_prints_a_line_with_the_reason_for_each_flag(shelf: Shelf) -> None:
    digest = shelf.put(H100)
    said = ask(
        shelf,
        "run",
        "--fixtures",
        *HERE,
        "--gpu",
        "h200",
        "--devices",
        "gpus",
        "--",
        "python",
        "-c",
        "print('a b')",
    )
    assert said.code == EXIT_OK, said.err
    assert shlex.split(said.out) == [
        "docker", "run", "--rm", "--gpus", "all", "--shm-size", "1g", "--ulimit", "memlock=-1",
        f"{shelf.registry.repository}@{digest}", "python", "-c", "print('a b')",
    ]  # fmt: skip
    for flag in ("--rm", "--gpus all", "--shm-size 1g", "--ulimit memlock=-1"):
        assert f"\n{flag}: " in said.err


def test_run_prints_nothing_for_an_image_that_is_refused(shelf: Shelf) -> None:
    shelf.push()
    said = ask(shelf, "run", "--fixtures", "--devices", "gpus", *HERE)
    assert (said.code, said.out) == (EXIT_FAILED, "")
    assert "it is not signed" in said.err


@pytest.fixture
def without_gpus(engine: Reached) -> docker.DockerClient:
    if os.geteuid() != 0:
        pytest.skip("CDI specifications can only be written by root")
    if cdi.offers_gpus(engine.quick) or "nvidia" in engine.info["Runtimes"]:
        pytest.skip("this engine has GPUs of its own")
    return engine.quick


def test_run_says_how_to_get_gpus_into_containers(shelf: Shelf, without_gpus: docker.DockerClient) -> None:
    shelf.put(H100)
    said = ask(shelf, "run", "--fixtures", *HERE)
    assert (said.code, said.out) == (EXIT_MISSING, "")
    assert "offers no GPUs" in said.err and "nvidia-ctk" in said.err


def test_run_pulls_and_runs(
    shelf: Shelf,
    program: Path,
    without_gpus: docker.DockerClient,
    held: Callable[[], list[str]],
    tmp_path: Path,
) -> None:
    digest = shelf.push(program=program)
    shelf.certify(digest, H100)
    directory = tmp_path / 'a "strange", name'
    directory.mkdir()
    os.chown(directory, 1234, 1234)
    given = cdi.Offer({"/gpu": program})
    with cdi.offered(without_gpus, given):
        said = ask(
            shelf, "run", "--exec", "--mount", "--fixtures", *HERE, "--", "--epochs", "two words", "$HOME",
            cwd=directory,
        )  # fmt: skip
    # docker's own exit code, which is the program's.
    assert said.code == 7, said.err
    where, user, gpu, *words = said.out.splitlines()
    assert (where, user, gpu) == ("/workspace", f"{os.getuid()}:{os.getgid()}", "GPU")
    assert words == ["--epochs", "two words", "$HOME"]
    assert (directory / "left").stat().st_uid == os.getuid()
    assert shelf.registry.repository.tagged(TAG) in held()


def test_run_does_not_start_what_is_refused(
    shelf: Shelf,
    program: Path,
    without_gpus: docker.DockerClient,
    held: Callable[[], list[str]],
    tmp_path: Path,
) -> None:
    shelf.push(program=program)
    with cdi.offered(without_gpus, cdi.Offer({"/gpu": program})):
        said = ask(shelf, "run", "--exec", "--mount", "--fixtures", *HERE, cwd=tmp_path)
    assert (said.code, said.out) == (EXIT_FAILED, "")
    assert not (tmp_path / "left").exists()
    assert held() == []
