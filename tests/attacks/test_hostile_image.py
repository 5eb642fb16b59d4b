"""Attacks by an image: what is measured lies about where it runs, and looks for what it can take.

Protected are the verdict, which needs a GPU that the host itself confirms, and the machine that measures: its
key, its variables, its network.
"""

from __future__ import annotations

import dataclasses
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from validator.engines.docker import DockerEngine
from validator.engines.endpoint import Endpoint, connect
from validator.engines.protocol import Built, ProbeRequest
from validator.errors import MissingError
from validator.locks.lock_files import LockDirectory
from validator.model.record import GpuIdentity, Measurement, Outside, Record, Unread, Verdict, measurement_of
from validator.model.spec import Choice, ImageSpec, Lock, Variant
from validator.pipeline.measuring import measure, targets
from validator.pipeline.run import Options, Run, Runner
from validator.records.store import Store
from validator.system.files import make_machine_directory
from validator.system.package_sources import host_sources

from ..certify.fixtures import report
from ..certify.measuring import outside_of
from ..emulation import cdi
from ..emulation.stubs import RELEASE, Stubs, build
from ..engines.docker.base_image import base_image
from ..loop import tiers

SPEC = ImageSpec("2.21.0", "3.11", Variant.GPU, Choice("12.5", "12.5"), Choice("9.3", "9.3"))
CPU = ImageSpec("2.21.0", "3.11", Variant.CPU)
LOCK = Lock(SPEC.identifier, SPEC.python, "x", (), ())
CHALLENGE = "c" * 64
PATH = "/hostile:/usr/local/bin:/usr/bin:/bin"
#: What the hostile images say: every check passed on an H100.
PERFECT = report()
#: What a host says that has this H100, and what another says.
TRUE_HOST = outside_of(PERFECT["host"])
OTHER_GPU = Outside(TRUE_HOST.driver, TRUE_HOST.driver, (GpuIdentity("GPU-1", "Tesla T4", "7.5"),))
OTHER_DRIVER = Outside("570.26", "570.26", TRUE_HOST.gpus)

#: The image's `python3`: it claims to have TensorFlow, and prints a report instead of running the probe. The
#: word CHALLENGE in the report becomes the challenge of the command line.
LIAR = """#!/bin/sh
if [ "$1" = -c ]; then exit 0; fi
challenge=
for word in "$@"; do if [ "$last" = --challenge ]; then challenge=$word; fi; last=$word; done
exec sed "s/CHALLENGE/$challenge/" /report.json
"""
#: The image's `python3` is a thief: it prints what it found of the host.
THIEF = """#!/bin/sh
if [ "$1" = -c ]; then exit 0; fi
echo "== environment"; env
echo "== environment of all processes"; cat /proc/[0-9]*/environ | tr '\\0' '\\n'
echo "== keys"; find / -xdev -name runner.key -o -xdev -name '*.key' 2>/dev/null | grep -v '^/proc'
echo "== content"; cat "$STATE/runner.key" 2>&1
echo "== socket"; ls -l /var/run/docker.sock /run/docker.sock 2>&1
echo "== network"; ls /sys/class/net; cat /proc/net/route
echo "== status"; cat /proc/self/status
echo "== mounts"; cat /proc/self/mountinfo
mknod /tmp/disk b 8 0 2>&1; chroot / true 2>&1; mount -t tmpfs none /mnt 2>&1
"""


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a separate state directory, with a key."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    directory = make_machine_directory()
    (directory / "runner.key").write_text("-----BEGIN the key of this machine-----")
    return directory


@pytest.fixture(scope="module")
@tiers.docker
def endpoint() -> Iterator[Endpoint]:
    try:
        endpoint = connect()
    except MissingError as error:
        pytest.skip(str(error))
    if not endpoint.is_local:
        pytest.skip("the engine is remote")
    yield endpoint
    endpoint.client.close()
    endpoint.quick.close()


@pytest.fixture(scope="module")
def base(endpoint: Endpoint) -> str:
    return base_image(endpoint, SPEC)


Make = Callable[..., Built]


@pytest.fixture
def image(endpoint: Endpoint, base: str) -> Iterator[Make]:
    """Make an image whose `python3` is a script, with other files."""
    made: list[str] = []

    def make(python: str, **files: str) -> Built:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name, text in {"hostile/python3": python, **files}.items():
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(text.encode()), 0o755
                archive.addfile(member, io.BytesIO(text.encode()))
        container = endpoint.client.containers.create(base, ["true"], network_mode="none")
        try:
            container.put_archive("/", buffer.getvalue())
            path = "ENV PATH=/hostile:/usr/local/bin:/usr/bin:/bin"
            committed = container.commit(changes=[path, "USER root"])
        finally:
            container.remove(force=True)
        made.append(str(committed.id))
        return Built(SPEC, str(committed.id), LOCK.digest, str(committed.id))

    yield make
    for identifier in made:
        endpoint.client.images.remove(identifier, force=True)


@pytest.fixture
def liar(image: Make) -> Built:
    return image(LIAR, **{"report.json": json.dumps({**PERFECT, "challenge": "CHALLENGE"})})


@dataclass
class Machine:
    """A machine that measures. signed: the statements that its key signed."""

    engine: DockerEngine
    signed: list[bytes] = field(default_factory=list)

    def measure(self, built: Built) -> Record:
        def sign(statement: bytes) -> str:
            self.signed.append(statement)
            return "{}"

        with Store(":memory:") as store:
            run = Run(
                self.engine, store, host_sources(), LockDirectory(Path()), (), Options(), lambda _: None,
                runner=Runner(sign, lambda cell: CHALLENGE),
            )  # fmt: skip
            [target] = targets(self.engine.outside(), (), by_model=True)
            return measure(target, built, LOCK, run, PERFECT["started"], lambda _: None)

    @property
    def statement(self) -> Measurement:
        [statement] = self.signed
        return measurement_of(statement)


@pytest.fixture
def stubs(tmp_path: Path) -> Stubs:
    return build(tmp_path / "stubs")


Offering = Callable[[Outside | Unread | None], Machine]


@pytest.fixture
def offering(endpoint: Endpoint, stubs: Stubs) -> Iterator[Offering]:
    """Yield a machine whose engine offers an emulated GPU.

    Only this test's own code can say what the host sees; with None, the host itself is asked.
    """
    if cdi.offers_gpus(endpoint.client):
        pytest.skip("this engine has GPUs of its own")
    place = stubs.place("driver")
    libraries = {
        f"{cdi.LIBRARIES}/{name}.so.1": place / f"{name}.so.{RELEASE}" for name in ("libcuda", "libnvidia-ml")
    }
    engines: list[DockerEngine] = []

    def offer(host: Outside | Unread | None) -> Machine:
        own = connect()
        given: dict[str, Any] = {} if host is None else {"host": lambda: host}
        engines.append(DockerEngine(own, **given))
        return Machine(engines[-1])

    with cdi.offered(endpoint.client, cdi.Offer(libraries, nodes=cdi.FALSE_NODES)):
        yield offer
    for engine in engines:
        engine.close()


def test_a_perfect_report_on_a_machine_without_a_gpu(endpoint: Endpoint, liar: Built) -> None:
    """An image that prints a perfect report is not certified by an engine that offers no GPU."""
    if cdi.offers_gpus(endpoint.client):
        pytest.skip("this engine has GPUs of its own")
    machine = Machine(DockerEngine(endpoint))
    record = machine.measure(liar)
    assert record.verdict is Verdict.UNPROVEN
    assert record.reason.endswith("the host was not asked: the engine offers no GPU")
    assert record.measurement is None and machine.signed == []


def test_a_perfect_report_of_an_image_without_cuda(endpoint: Endpoint, image: Make) -> None:
    """An image without CUDA can lie about what ran on the CPU. Nobody signs it, and it certifies nothing."""
    machine = Machine(DockerEngine(endpoint))
    found = json.dumps({**PERFECT, "challenge": "CHALLENGE"})
    liar = image(LIAR, **{"report.json": found.replace('"device_type": "GPU"', '"device_type": "CPU"')})
    record = machine.measure(dataclasses.replace(liar, spec=CPU))
    assert record.verdict is Verdict.WORKS_ON_CPU
    assert record.measurement is None and machine.signed == []


def test_a_gpu_that_the_host_does_not_have(offering: Offering, liar: Built) -> None:
    """An image that claims another GPU is not certified; what the runner signs is what the host saw."""
    machine = offering(OTHER_GPU)
    record = machine.measure(liar)
    assert record.verdict is Verdict.UNPROVEN
    assert record.reason.endswith("but the host has 1 Tesla T4, not 1 NVIDIA H100 80GB HBM3")
    assert (record.host_class, machine.statement.host_class) == ("r580-t4", "r580-t4")
    assert machine.statement.outside == OTHER_GPU


def test_a_driver_that_the_host_does_not_have(offering: Offering, liar: Built) -> None:
    """An image that claims another driver is not certified."""
    record = offering(OTHER_DRIVER).measure(liar)
    assert record.verdict is Verdict.UNPROVEN
    assert record.reason.endswith(
        "but the host has driver 570.26, not 580.65.06, kernel module 570.26, not 580.65.06"
    )


def test_a_report_of_another_run(offering: Offering, image: Make) -> None:
    """An image that holds a good report of an earlier run can't show it again: the challenge is another."""
    old = json.dumps({**PERFECT, "challenge": "d" * 64})
    record = offering(TRUE_HOST).measure(image(LIAR, **{"report.json": old}))
    assert record.verdict is Verdict.UNPROVEN
    assert record.reason.endswith("but the report does not repeat the challenge")


def test_what_remains_is_for_provenance(offering: Offering, liar: Built) -> None:
    """On a machine that really has this GPU, an image can lie about its checks. So only images whose
    provenance is proven are certified. And the tests above fail for their reasons, not for another."""
    machine = offering(TRUE_HOST)
    record = machine.measure(liar)
    assert record.verdict is Verdict.CERTIFIED, record.reason
    assert machine.statement.challenge == CHALLENGE
    assert machine.statement.fixture, (
        "the report of this test is marked, so only a throw-away key may sign it"
    )


def test_an_emulated_driver_with_every_variable_that_there_is(
    offering: Offering, liar: Built, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that is emulated in the container and for this process is not one that the host has."""
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has a driver")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stubs.place("driver")))
    for name in ("VALIDATOR_HOST", "VALIDATOR_OUTSIDE", "VALIDATOR_FIXTURE", "STUB_GPUS"):
        monkeypatch.setenv(name, "1")
    machine = offering(None)
    assert machine.engine.outside() is Unread.NVML_SILENT
    record = machine.measure(liar)
    assert record.verdict is Verdict.UNPROVEN
    assert record.reason.endswith("NVML does not answer on the host")
    assert machine.signed == []


def test_the_key_the_variables_and_the_network_of_the_machine(
    endpoint: Endpoint, image: Make, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measured image, even as root, finds no key, variable, socket, network or privilege."""
    monkeypatch.setenv("COSIGN_PASSWORD", "the-password-of-the-key")
    monkeypatch.setenv("SECRET_OF_THE_HOST", "hunter2")
    engine = DockerEngine(endpoint)
    thief = image(THIEF.replace("$STATE", str(machine)))
    found = engine.probe(thief, ProbeRequest(b"", (), {}, 60.0), lambda _: None).decode()
    parts = {part.partition("\n")[0]: part.partition("\n")[2] for part in found.split("== ")[1:]}
    assert parts["environment"].strip(), "the thief ran"
    assert "HOST" not in parts["environment"].replace("HOSTNAME", "")
    for secret in ("the key of this machine", "the-password", "hunter2", "SECRET_OF_THE_HOST"):
        assert secret not in found
    assert parts["keys"].strip() == ""
    assert "No such file" in parts["content"]
    assert parts["socket"].count("cannot access") == 2
    interfaces, _, routes = parts["network"].partition("Iface")
    assert [name for name in interfaces.split() if not name.startswith("ifb")] == ["lo"]
    assert len(routes.strip().splitlines()) <= 1, "there is no route"
    status = dict(line.split(":\t", 1) for line in parts["status"].splitlines() if ":\t" in line)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert status["NoNewPrivs"] == "1"
    assert str(machine) not in parts["mounts"]
    for refused in ("mknod", "chroot", "mount"):
        assert f"{refused}: " in parts["mounts"], f"{refused} was allowed"
