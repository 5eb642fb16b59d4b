"""From a registry to a certificate by a bundle: write it, carry it, measure without a network, certify.

The GPU is an emulated one: NVML on the machine is a stub, and the image's Python writes the report of a
fixture. So the record is marked as made up by a test, and only throw-away keys sign it. All else is real:
the registry, the bundle and the tool in it, Docker and Podman with a device of CDI, cosign, the trust file,
the challenges, the stores.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from validator import cli
from validator.assemble.image import RegistryDestination
from validator.certify.trust import Terms, Trust
from validator.certify.trust_file import BUILDERS, RUNNERS, add, make_own_key
from validator.certify.verify import certificates
from validator.engines.endpoint import connect, connect_podman
from validator.engines.protocol import probe_version
from validator.errors import InputError, MissingError
from validator.locks import lock_files
from validator.model.spec import LABEL_LOCK, LABEL_SPEC
from validator.pipeline import bundle
from validator.registry.client import Registry
from validator.registry.names import Repository

from ..certify.building import INPUTS, make_builder
from ..certify.fixtures import PASSWORD, report
from ..certify.private_keys import KeyOwner
from ..commands import ROOT
from ..emulation import cdi
from ..emulation.stubs import RELEASE, built
from ..integration.podman.conftest import limited
from ..locks import local_index
from ..loop import tiers
from ..registry.server import RunningRegistry
from .making import SPEC, TAG, Layers, add_needed

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
CELL = f"{SPEC.identifier}@r570-a100"
MATRIX = """
images: [{tensorflow: "2.21.0", python: ["3.11", "3.12"]}]
hosts: [{driver: "570", gpu: a100}]
profiles: {quick: {select: "tensorflow=2.21.0"}}
"""
#: As the stub of NVML has it.
UUID = "GPU-07070707-0707-0707-0707-070707070707"
BUS = "0000:07:00.0"
_numbers = itertools.count()

#: Every Python runs it at its start. For the probe, it writes a report instead.
INSTEAD = """
import json, os, sys
words = sys.orig_argv
if any(word.endswith("probe.pyz") for word in words[:2]):
    found = json.loads(REPORT)
    found["challenge"] = words[words.index("--challenge") + 1] if "--challenge" in words else None
    print(json.dumps(found), flush=True)
    os._exit(0)
"""
#: Starts a command on a machine with that GPU and without a network.
EMULATED = """
set -e
ldconfig -X -C "$1/cache" "$1/driver"
mount --bind "$1/cache" /etc/ld.so.cache
mount --bind "$1/kernel" /proc/driver
shift
exec "$@"
"""


@dataclasses.dataclass(frozen=True)
class Site:
    """Where somebody certifies, with its registry; and the received bundle on the machine with the GPU."""

    place: Path
    registry: Registry
    digest: str
    signer: KeyOwner
    trust: Trust

    @property
    def received(self) -> Path:
        return self.place / "bundle" / "received"

    def run(self, *words: object, state: str = "state") -> int:
        """Run a command there. state: the directory with the challenges."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.place)
            patch.setenv("XDG_STATE_HOME", str(self.place / state))
            patch.setenv("COSIGN_PASSWORD", PASSWORD)
            return cli.run([str(word) for word in words])

    def certify(self, measured: Path, store: str) -> int:
        """Import what was measured into a new store, and certify it: nobody has used the challenge before."""
        shutil.copytree(self.place / "state", self.place / f"{store}-state")
        assert self.run("records", "import", measured, "--store", store) == 0
        where = ("--registry", self.registry.repository, "--signing-key", self.signer.key)
        return self.run("certify", *where, "--store", store, state=f"{store}-state")

    def records(self, store: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "validator", "records", "export", "--store", store],
            check=True, capture_output=True, cwd=self.place, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
@tiers.docker
def site(
    tmp_path_factory: pytest.TempPathFactory, server: RunningRegistry, keys: tuple[KeyOwner, Trust]
) -> Iterator[Site]:
    """Write a bundle with the image of a registered builder and the challenges of whoever certifies."""
    if os.geteuid() != 0:
        pytest.skip("a network namespace needs root")
    place = tmp_path_factory.mktemp("site")
    registry = Registry(Repository(server.address, f"team/carried-{next(_numbers)}"))
    locks = place / lock_files.DIRECTORY
    locks.mkdir(parents=True)
    for name in (SPEC.identifier, SPEC.identifier.replace("py312", "py311")):
        shutil.copy(ROOT / lock_files.DIRECTORY / f"{name}.txt", locks)
    lock = lock_files.read(locks, SPEC.identifier)
    assert lock is not None
    (place / "matrix.yaml").write_text(MATRIX)
    labels = {LABEL_SPEC: SPEC.identifier, LABEL_LOCK: lock.digest}
    layers = Layers(RegistryDestination(registry.repository, TAG), labels).add_python()
    digest = layers.add_archive(_reporting).finish()
    builder = make_builder(place)
    inputs = dataclasses.replace(INPUTS, image=SPEC.identifier, lock_digest=lock.digest)
    builder.prove(registry, digest, inputs)
    add(place / "trust.yaml", BUILDERS, builder.party)
    wheels = place / "wheels"
    wheels.mkdir()
    add_needed(wheels)
    made = Site(place, registry, digest, *keys)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("XDG_STATE_HOME", str(place / "runner"))
        make_own_key(RUNNERS, throw_away=True)
        assert cli.run(["runner", "init", "--name", "gpu-1", "--host-class", "*-a100", "--register"]) == 0
    with (place / "cells.json").open("w") as cells, contextlib.redirect_stdout(cells):
        assert made.run("certify", "challenges") == 0
    with local_index.running() as index, pytest.MonkeyPatch.context() as patch:
        patch.setenv("VALIDATOR_CACHE", str(place / "cache"))
        patch.setattr("validator.cli.bundle.host_sources", lambda: index.sources)
        patch.setattr(bundle, "supported_pythons", lambda: (PYTHON,))
        index.files.update({path.name: path.read_bytes() for path in wheels.iterdir()})
        options = ("--registry", registry.repository, "--challenges", "cells.json", "--volume-size", "20M")
        assert made.run("bundle", SPEC.identifier, *options, "bundle") == 0
    yield made


def _reporting(archive: tarfile.TarFile) -> None:
    """Add what writes the report of a fixture in place of the probe's."""
    found = report(driver=RELEASE, gpu="a100")
    found["probe"]["version"] = probe_version()
    found["host"]["gpus"][0]["uuid"] = UUID
    asked = ["/usr/bin/python3", "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"]
    library = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip("/\n")
    content = f"REPORT = {json.dumps(found)!r}\n{INSTEAD}".encode()
    entry = tarfile.TarInfo(f"{library}/sitecustomize.py")
    entry.size = len(content)
    archive.addfile(entry, BytesIO(content))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what makes this machine one with an A100: the driver's library, and what the kernel says."""
    place, stubs = tmp_path_factory.mktemp("machine"), built()
    shutil.copytree(stubs.place("driver"), place / "driver", symlinks=True)
    information = place / "kernel/nvidia/gpus" / BUS / "information"
    information.parent.mkdir(parents=True)
    information.write_text(f"Model: \t\t NVIDIA A100-SXM4-40GB\nGPU UUID: \t {UUID}\n")
    version = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {RELEASE}  Release Build\n"
    (place / "kernel/nvidia/version").write_text(version)
    return place


@pytest.fixture
def measured(site: Site, machine: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that measures on the machine with the GPU, and returns the file with the result."""

    def measure(way: str, *, key: bool = True, place: Path = site.place / "bundle") -> Path:
        output = tmp_path / f"{way}.jsonl"
        words: list[str | Path] = [sys.executable, place / "measure", "--with", way, "--output", output]
        state = site.place / ("runner" if key else "nobody")
        with _gpus_of(way, machine), limited(tmp_path):
            done = subprocess.run(
                ["unshare", "--net", "--mount", "sh", "-c", EMULATED, "sh", machine, *words],
                capture_output=True, text=True, timeout=600, env={**os.environ, "XDG_STATE_HOME": str(state)},
            )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert f"NVIDIA A100-SXM4-40GB ({UUID})" in done.stderr
        assert ("It can be certified" in done.stderr) is (way in ("docker", "podman"))
        assert not list(place.glob("**/measuring-*"))
        return output

    return measure


def _gpus_of(way: str, machine: Path) -> contextlib.AbstractContextManager[None]:
    """Give an engine a device with the stub of NVML, as NVIDIA's toolkit would."""
    if way not in ("docker", "podman"):
        return contextlib.nullcontext()
    try:
        endpoint = connect_podman() if way == "podman" else connect()
    except MissingError as error:
        pytest.skip(str(error))
    if cdi.offers_gpus(endpoint.client):
        pytest.skip("this engine has GPUs of its own")
    library = {f"{cdi.LIBRARIES}/libnvidia-ml.so.1": machine / f"driver/libnvidia-ml.so.{RELEASE}"}
    offer = cdi.Offer(library, nodes=cdi.FALSE_NODES)
    return cdi.offered(None if endpoint.is_podman else endpoint.client, offer)


@pytest.mark.parametrize("way", ["docker", "podman"])
def test_an_engine_and_the_runners_key_lead_to_a_certificate(
    way: str, site: Site, measured: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    output = measured(way)
    store = f"{way}.db"
    assert site.certify(output, store) == 0, capsys.readouterr().err
    said = capsys.readouterr()
    [record] = site.records(store)
    assert (record["cell"], record["verdict"], record["engine"]) == (CELL, "certified", way)
    assert (record["origin"], record["image_digest"]) == ("here", site.digest)
    assert f"certified (fixture)  {CELL}" in said.out
    found = certificates(site.registry, site.digest, Terms(site.trust)).certificates
    assert record["id"] in [one.record_id for one in found]
    # One byte of what the runner signed.
    changed = output.with_name("changed.jsonl")
    changed.write_bytes(output.read_bytes().replace(b"NVIDIA A100-SXM4-40GB", b"NVIDIA A100-SXM4-41GB", 1))
    with pytest.raises(InputError, match="it was altered"):
        site.run("records", "import", changed, "--store", "changed.db")


def test_without_an_engine_it_is_measured_and_not_certified(
    site: Site, measured: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.certify(measured("namespace"), "namespace.db") == 1
    assert "nothing to certify" in capsys.readouterr().err
    [record] = site.records("namespace.db")
    assert (record["cell"], record["engine"]) == (CELL, "namespace")
    assert (record["verdict"], record["origin"]) == ("unproven", "elsewhere")
    assert record["reason"].endswith("according to an imported report")
    assert record["report"]["challenge"] in (site.place / "cells.json").read_text()


def test_without_the_runners_key_it_is_not_certified(
    site: Site, measured: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.certify(measured("docker", key=False), "unsigned.db") == 1
    assert "no runner signed its measurement" in capsys.readouterr().err
    [record] = site.records("unsigned.db")
    assert (record["verdict"], record.get("measurement")) == ("unproven", None)


def test_the_answer_to_the_challenge_of_another_image_is_refused(
    site: Site, measured: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever carries the bundle takes a challenge that was made for another image."""
    subprocess.run([sys.executable, site.place / "bundle/measure", "--receive-only"], check=True)
    changed = tmp_path / "changed"
    shutil.copytree(site.received, changed, copy_function=os.link)
    document = json.loads((changed / "bundle.json").read_bytes())
    cells = json.loads((site.place / "cells.json").read_bytes())["include"]
    other = next(row for row in cells if row["id"] != CELL)
    document["images"][0]["challenges"] = {CELL: other["challenge"]}
    (changed / "bundle.json").unlink()
    (changed / "bundle.json").write_text(json.dumps(document))
    assert site.certify(measured("docker", place=changed), "other.db") == 1
    assert f"its challenge was made for {other['id']}" in capsys.readouterr().err
