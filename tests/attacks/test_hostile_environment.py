"""Attacks by what surrounds a run on its machine: containers, processes, files and settings of others."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from validator.engines.docker import DockerEngine
from validator.engines.endpoint import Endpoint, connect
from validator.engines.protocol import ProbeRequest
from validator.engines.venv import VenvEngine
from validator.errors import InputError, MissingError
from validator.locks import lock_files
from validator.model.spec import ImageSpec, Lock, Variant
from validator.system import runs
from validator.system.files import machine_directory
from validator.system.package_sources import PackageSources

from ..commands import run
from ..engines.docker.base_image import base_image
from ..loop import tiers
from ..system.test_processes import gone, wait_until_gone

SECRET = "hunter2-of-the-proxy"
SPEC = ImageSpec("2.99.0", "3.11", Variant.CPU)


def quiet(_: str) -> None:
    """Ignore progress."""


def archive(source: str) -> bytes:
    """Return a probe that is this Python source."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        packed.writestr("__main__.py", source)
    return buffer.getvalue()


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set up a separate machine, with its own state directory and directory for temporary files."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    return tmp_path


@pytest.fixture(scope="module")
@tiers.docker
def endpoint() -> Iterator[Endpoint]:
    try:
        endpoint = connect()
    except MissingError as error:
        pytest.skip(str(error))
    yield endpoint
    endpoint.client.close()
    endpoint.quick.close()


@pytest.fixture(scope="module")
def image(endpoint: Endpoint) -> str:
    """Return an image with a Python and a shell: the default base."""
    return base_image(endpoint, SPEC)


@contextlib.contextmanager
def running(*command: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def start() -> None:
    """Start the next run."""
    program = "from validator.system import runs; runs.current()"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def is_running(endpoint: Endpoint, identifier: str) -> bool:
    found = endpoint.client.containers.list(filters={"id": identifier}, ignore_removed=True)
    return [container.status for container in found] == ["running"]


def containers_of(endpoint: Endpoint, run: str) -> list[str]:
    found = endpoint.client.containers.list(
        all=True, filters={"name": f"validator-probe-{run}-"}, ignore_removed=True
    )
    return [str(container.id) for container in found]


#: Probes an image, and prints a line when the probe runs in its container.
PROBE_IMAGE = """
import sys
from validator.engines.protocol import ProbeRequest
from validator.engines.docker import DockerEngine
from validator.engines.endpoint import connect
from validator.system import runs
from validator.system.files import machine_directory
engine = DockerEngine(connect())
request = ProbeRequest(bytes.fromhex(sys.argv[2]), timeout_s=600)
engine.probe_image(sys.argv[1], request, lambda _: print(runs.current().directory.name, flush=True))
"""
SAY_AND_WAIT = archive("import sys, time; print('x', file=sys.stderr, flush=True); time.sleep(600)")


def test_a_container_with_a_copied_label_and_name_is_not_removed(endpoint: Endpoint, image: str) -> None:
    """Protects: other people's containers. Labels and names can be copied into any image or container."""
    foreign = endpoint.client.containers.run(
        image,
        ["sleep", "600"],
        detach=True,
        name=f"validator-probe-{os.getpid()}-{time.time_ns():x}",
        labels={"tensorflow-gpu-matrix.probe-of": f"{socket.gethostname()}:999999999:1"},
    )
    try:
        DockerEngine(endpoint)
        assert is_running(endpoint, str(foreign.id))
    finally:
        foreign.remove(force=True)


def test_two_validators_in_different_pid_namespaces_keep_their_containers(
    endpoint: Endpoint, image: str
) -> None:
    """Protects: a running measurement of another validator with the same host name and state directory."""
    inside = (sys.executable, "-c", PROBE_IMAGE, image, SAY_AND_WAIT.hex())
    with running("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *inside) as other:
        run = line_of(other)
        (container,) = containers_of(endpoint, run)
        DockerEngine(endpoint)
        assert is_running(endpoint, container)
    # It is dead now, and what it left is removed.
    wait_until(lambda: not is_alive(run))
    fresh_run(endpoint)
    assert containers_of(endpoint, run) == []


def is_alive(run: str) -> bool:
    return not runs.is_dead(machine_directory() / "runs" / run)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def fresh_run(endpoint: Endpoint) -> None:
    """Start the next run with this engine. (This process has a run already, so it takes another one.)"""
    program = (
        "from validator.engines.docker import DockerEngine\n"
        "from validator.engines.endpoint import connect\n"
        "DockerEngine(connect())"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_killed_probe_in_a_container_is_removed_by_the_next_start(endpoint: Endpoint, image: str) -> None:
    """Protects: the GPU and memory of the machine, which a forgotten probe would hold for an hour."""
    with running(sys.executable, "-c", PROBE_IMAGE, image, SAY_AND_WAIT.hex()) as process:
        run = line_of(process)
        (container,) = containers_of(endpoint, run)
        kill(process)
        assert is_running(endpoint, container)
        fresh_run(endpoint)
        assert containers_of(endpoint, run) == []


def test_a_run_killed_between_creation_and_note_leaves_no_container(endpoint: Endpoint, image: str) -> None:
    """Protects: the engine from containers whose id nobody wrote down. The name was written down before."""
    program = PROBE_IMAGE.replace(
        "engine = ",
        "import os, signal\n"
        "write = runs.Note.write\n"
        "def die(note, **fields):\n"
        "    if 'container' not in fields:\n"
        "        return write(note, **fields)\n"
        "    print(runs.current().directory.name, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "runs.Note.write = die\n"
        "engine = ",
    )
    with running(sys.executable, "-c", program, image, SAY_AND_WAIT.hex()) as process:
        run = line_of(process)
        process.wait(60)
        assert len(containers_of(endpoint, run)) == 1
        fresh_run(endpoint)
        assert containers_of(endpoint, run) == []


@pytest.mark.slow
def test_a_killed_probe_without_a_container_dies_with_its_children(machine: Path) -> None:
    """Protects: the machine from probes that nobody waits for, and from directories that nobody removes."""
    probe = archive(
        "import os, subprocess, sys, time\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "child = subprocess.Popen(sleep, start_new_session=True)\n"
        "print(os.getpid(), child.pid, file=sys.stderr, flush=True)\n"
        "time.sleep(600)"
    )
    program = (
        "import sys; from pathlib import Path\n"
        "from validator.engines.protocol import ProbeRequest\n"
        "from validator.engines.protocol import run_probe\n"
        "request = ProbeRequest(bytes.fromhex(sys.argv[1]), timeout_s=600)\n"
        "run_probe(Path(sys.executable), request, lambda line: print(line, flush=True))"
    )
    with running(sys.executable, "-c", program, probe.hex()) as process:
        pids = [int(pid) for pid in line_of(process).split()]
        kill(process)
        for pid in pids:
            wait_until_gone(pid)
        assert len(list((machine / "temporary").iterdir())) == 1
        start()
        assert list((machine / "temporary").iterdir()) == []


#: Runs a program that hangs, as this tool runs all programs.
RUN_PROGRAM = """
import sys
from validator.system import processes
processes.run(sys.argv[1:], on_line=lambda line: print(line, file=sys.stderr, flush=True))
"""


@pytest.fixture
def silent_server() -> Iterator[tuple[str, Callable[[], socket.socket]]]:
    """Yield a server that accepts connections and never answers: its address, and a wait for a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        connections = []

        def connected() -> socket.socket:
            connections.append(server.accept()[0])
            return connections[-1]

        yield f"127.0.0.1:{server.getsockname()[1]}", connected
        for connection in connections:
            connection.close()


def descendants(pid: int) -> set[int]:
    found = set()
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in path.read_text().split():
                found |= {int(child), *descendants(int(child))}
    return found


@pytest.mark.engine
@pytest.mark.parametrize("name", ["uv", "cosign"])
def test_a_program_that_hangs_dies_with_a_killed_run(
    name: str, machine: Path, silent_server: tuple[str, Callable[[], socket.socket]]
) -> None:
    """Protects: the machine and its credentials from programs that outlive the run that started them."""
    address, connected = silent_server
    command = {
        "uv": [
            find_uv_bin(), "pip", "install", "--no-cache", "--target", str(machine / "target"), "six",
            "--default-index", f"http://{address}/simple", "--no-config",
        ],
        "cosign": ["cosign", "tree", "--allow-http-registry", f"{address}/a/b:c"],
    }[name]  # fmt: skip
    with running(sys.executable, "-c", RUN_PROGRAM, *command, start_new_session=True) as process:
        connected()
        pids = descendants(process.pid)
        assert pids
        kill(process)
        for pid in pids:
            wait_until_gone(pid)


def test_a_killed_build_stops_in_the_engine(machine: Path, endpoint: Endpoint, image: str) -> None:
    """Protects: the engine from builds that nobody waits for."""
    seconds = f"{600 + os.getpid() / 10**7:.7f}"
    (machine / "Dockerfile").write_text(f"FROM {image}\nRUN sleep {seconds}\n")
    command = [*endpoint.buildx, "build", str(machine)]
    with running(sys.executable, "-c", RUN_PROGRAM, *command) as process:
        wait_until(lambda: bool(sleeping(seconds)))
        pids = descendants(process.pid)
        kill(process)
        for pid in pids:
            wait_until_gone(pid)
        wait_until(lambda: not sleeping(seconds))


#: Downloads a wheel from an index, to a directory.
DOWNLOAD = """
import sys
from pathlib import Path
from validator.assemble.wheels import Wheelhouse
from validator.model.spec import Wheel
from validator.system import runs
from validator.system.package_sources import PackageSources
runs.current()
wheel = Wheel("tensorflow-cpu", "2.99.0", "0" * 64, "tensorflow_cpu-2.99.0-py3-none-any.whl")
Wheelhouse(PackageSources(index_url=sys.argv[1]), Path(sys.argv[2])).path(wheel)
"""


@pytest.mark.slow
def test_the_credentials_of_the_index_are_in_no_file(
    machine: Path, silent_server: tuple[str, Callable[[], socket.socket]]
) -> None:
    """Protects: the credentials of the package index, when a build is killed while it downloads."""
    address, connected = silent_server
    index = f"http://ann:{SECRET}@{address}/simple"
    with running(sys.executable, "-c", DOWNLOAD, index, str(machine / "wheels")) as process:
        connected()
        kill(process)
        left = [path for path in machine.rglob("*") if path.is_file()]
        assert [path.suffix for path in left if "wheels" in path.parts] == [".partial"]
        assert not [path for path in left if SECRET.encode() in path.read_bytes()]


#: Installs a package of the distribution in an image.
INSTALL = """
import sys
from validator.engines.endpoint import connect
from validator.engines.docker import EngineImages
EngineImages(connect()).with_system_packages(sys.argv[1], [sys.argv[2]], lambda _: None)
"""


def test_the_secrets_of_a_killed_build_are_removed_by_the_next_start(
    machine: Path,
    image: str,
    silent_server: tuple[str, Callable[[], socket.socket]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Protects: the credentials of apt's proxy, which a build has in a file for as long as it lasts."""
    address, connected = silent_server
    (machine / "apt.conf").write_text(f'Acquire::http::Proxy "http://ann:{SECRET}@{address}/";\n')
    monkeypatch.setenv("APT_CONFIG", str(machine / "apt.conf"))
    with running(sys.executable, "-c", INSTALL, image, f"tini-{time.time_ns():x}") as process:
        connection = connected()
        pids = descendants(process.pid)
        kill(process)
        for pid in pids:
            wait_until_gone(pid)
        assert any(SECRET in path.read_text() for path in (machine / "temporary").rglob("apt"))
        start()
        assert list((machine / "temporary").iterdir()) == []
        # The step in the engine has stopped as well.
        connection.settimeout(30)
        while connection.recv(65536):
            pass


def sleeping(seconds: str) -> list[int]:
    """Return the processes of this machine that sleep for so long, in containers or not."""
    command = f"sleep\0{seconds}\0".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes() == command:
                found.append(int(path.parent.name))
    return found


def test_the_proxies_of_docker_s_client_configuration_do_not_reach_the_probe(
    machine: Path, endpoint: Endpoint, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects: the credentials of the proxy from the code that is measured, which has no network anyway."""
    proxy = f"http://user:{SECRET}@proxy.example:3128"
    configuration = {"proxies": {"default": {"httpProxy": proxy, "httpsProxy": proxy}}}
    (machine / "config.json").write_text(json.dumps(configuration))
    monkeypatch.setenv("DOCKER_CONFIG", str(machine))
    other = connect()
    try:
        # The SDK has read it, and would pass it on.
        assert SECRET in str(vars(other.client.api)["_proxy_configs"])
        request = ProbeRequest(archive("import json, os; print(json.dumps(dict(os.environ)))"))
        answer = DockerEngine(other).probe_image(image, request, quiet)
    finally:
        other.client.close()
        other.quick.close()
    assert "PATH" in json.loads(answer)
    assert SECRET not in answer.decode()
    assert "proxy" not in answer.decode().lower()


@pytest.mark.slow
def test_a_killed_run_is_not_confused_by_a_process_with_the_same_number() -> None:
    """Protects: other people's processes. Numbers are used again; the random identifier of a run is not."""
    with running(sys.executable, "-c", "import time; print(flush=True); time.sleep(600)") as bystander:
        line_of(bystander)
        state = machine_directory() / "runs" / "0123456789abcdef"
        state.mkdir(parents=True)
        (state / "lock").touch()
        owner = {"identifier": "0" * 32, "pid": str(bystander.pid), "started": "1"}
        (state / "owner").write_text(json.dumps(owner))
        start()
        assert not state.exists()
        assert not gone(bystander.pid)


@pytest.mark.slow
@pytest.mark.parametrize("planted", ["site", "site/data", "site/index.html"])
def test_the_page_is_not_written_through_planted_links(machine: Path, planted: str) -> None:
    """Protects: the files of whoever publishes the page, in a directory that others can write to."""
    victim = machine / "victim"
    victim.mkdir()
    (victim / "index.html").write_text("mine")
    link = machine / planted
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(victim / "index.html" if planted.endswith(".html") else victim)
    done = run("report", "--html", machine / "site")
    assert (done.returncode, "is a symbolic link" in done.stderr) == (2, True), done.stderr
    assert [path.read_text() for path in victim.iterdir()] == ["mine"]


@pytest.mark.parametrize("command", [("report", "--format=markdown", "--output"), ("check", "--save-probe")])
def test_a_file_is_not_written_through_a_planted_link(machine: Path, command: tuple[str, ...]) -> None:
    """Protects: the file that the link leads to, such as the shell's start file."""
    victim, link = machine / "victim", machine / "planted"
    victim.write_text("mine")
    link.symlink_to(victim)
    done = run(*command, link)
    assert (done.returncode, "is a symbolic link" in done.stderr) == (2, True), done.stderr
    assert victim.read_text() == "mine"


def test_a_lock_is_not_written_through_a_planted_link(machine: Path) -> None:
    """Protects: files outside a repository that somebody else wrote, whose locks may be links."""
    victim = machine / "victim"
    victim.write_text("mine")
    lock = Lock(SPEC.identifier, SPEC.python, "x86_64-manylinux_2_28", (), ())
    path = lock_files.path_of(machine / "locks", lock.identifier)
    path.parent.mkdir()
    path.symlink_to(victim)
    with pytest.raises(InputError, match="is a symbolic link"):
        lock_files.write(machine / "locks", lock)
    assert victim.read_text() == "mine"


def test_the_lock_of_the_cache_is_not_a_planted_link(machine: Path) -> None:
    """Protects: the file that the link leads to, where several users share a cache directory."""
    victim, cache = machine / "victim", machine / "cache"
    victim.write_text("mine")
    (cache / ".partial-planted").mkdir(parents=True)
    (cache / ".lock").symlink_to(victim)
    engine = VenvEngine(PackageSources(), cache)
    with pytest.raises(InputError, match="is a symbolic link"), engine._partial(SPEC):
        pytest.fail("nothing is built without the lock")
    assert victim.read_text() == "mine"
    assert (cache / ".partial-planted").exists(), "nothing is removed without the lock"


def test_a_long_line_does_not_hold_up_a_diagnosis(machine: Path) -> None:
    """Protects: whoever redacts somebody else's log. This line of 16 kB took 14 seconds."""
    log = machine / "log"
    log.write_text(f"serial{' ' * 16_000}x\nCould not load dynamic library 'libcudart.so.11.0'\n")
    began = time.thread_time()
    done = run("doctor", "--markdown", log)
    assert done.returncode in (0, 1), done.stderr
    assert time.thread_time() - began < 5
