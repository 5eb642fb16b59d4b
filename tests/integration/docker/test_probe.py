"""Running a probe in a container: what it sees, how it ends, and that nothing stays behind."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from typing import Any

import pytest

from validator.engines.containers import CONTAINER, intend, new_name, remove_container
from validator.engines.docker import DockerEngine
from validator.engines.endpoint import Endpoint
from validator.engines.protocol import Built, ProbeRequest
from validator.errors import InputError, MissingError, ValidatorError
from validator.system import runs

from .conftest import quiet

LOOK = """
import json, os, pathlib, sys
limit = pathlib.Path("/sys/fs/cgroup/pids/pids.max")
limit = limit if limit.exists() else pathlib.Path("/sys/fs/cgroup/pids.max")
print("said on stderr", file=sys.stderr)
print(json.dumps({
    "arguments": sys.argv[1:],
    "lock": pathlib.Path("lock.txt").read_text(),
    "uid": os.getuid(),
    "interfaces": sorted(os.listdir("/sys/class/net")),
    "pids": limit.read_text().strip() if limit.exists() else None,
    "executable": sys.executable,
}))
"""


def request(source: str, *arguments: str, timeout_s: float = 60.0, **files: bytes) -> ProbeRequest:
    """Return a probe that is this Python source."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("__main__.py", source)
    return ProbeRequest(buffer.getvalue(), arguments, {"lock.txt": b"the lock", **files}, timeout_s)


def containers(endpoint: Endpoint) -> list[Any]:
    """Return our containers, running or not."""
    return list(
        endpoint.client.containers.list(
            all=True,
            filters={"name": f"validator-probe-{runs.current().directory.name}-"},
            ignore_removed=True,
        )
    )


@pytest.fixture(autouse=True)
def no_container_stays(endpoint: Endpoint) -> Any:
    yield
    assert containers(endpoint) == []


def test_the_report_comes_only_from_stdout(tiny_engine: DockerEngine, cpu_image: Built) -> None:
    said: list[str] = []
    report = json.loads(tiny_engine.probe(cpu_image, request(LOOK, "--lock", "lock.txt"), said.append))
    assert report["arguments"] == ["--lock", "lock.txt"]
    assert report["lock"] == "the lock"
    assert said == ["said on stderr"]


def test_the_probe_is_confined(tiny_engine: DockerEngine, endpoint: Endpoint, cpu_image: Built) -> None:
    report = json.loads(tiny_engine.probe(cpu_image, request(LOOK), quiet))
    assert report["uid"] == 10001
    assert [name for name in report["interfaces"] if not name.startswith("ifb")] == ["lo"]
    assert not endpoint.info.get("PidsLimit") or report["pids"].isdigit()
    assert report["executable"] == "/opt/venv/bin/python3"


def test_a_probe_is_ended_at_its_limit(tiny_engine: DockerEngine, cpu_image: Built) -> None:
    with pytest.raises(ValidatorError, match="exceeded its time limit of 2 s"):
        tiny_engine.probe(cpu_image, request("import time; time.sleep(600)", timeout_s=2), quiet)


def test_the_output_of_a_probe_without_a_report_is_shown(tiny_engine: DockerEngine, cpu_image: Built) -> None:
    source = "import sys; sys.exit('the last word')"
    with pytest.raises(ValidatorError, match="status 1 without a report: the last word"):
        tiny_engine.probe(cpu_image, request(source), quiet)


def test_a_probe_that_runs_out_of_memory_is_recognized(endpoint: Endpoint, cpu_image: Built) -> None:
    if not endpoint.info.get("MemoryLimit"):
        pytest.skip("the engine can't limit memory")
    small = dict(endpoint.info, MemTotal=80 * 2**20)
    engine = DockerEngine(dataclasses.replace(endpoint, info=small))
    with pytest.raises(ValidatorError, match="ran out of memory"):
        engine.probe(cpu_image, request("x = b'1' * 2**30"), quiet)


def test_a_flood_on_stderr_does_no_harm(tiny_engine: DockerEngine, cpu_image: Built) -> None:
    source = """
import os
for _ in range(2000):
    os.write(2, b"x" * 16384)
os.write(2, b"\\nend\\n")
print("{}")
"""
    said: list[str] = []
    assert tiny_engine.probe(cpu_image, request(source), said.append).strip() == b"{}"
    assert said[-1] == "end"
    assert sum(map(len, said)) < 2**20


def test_endless_stdout_is_cut_off(tiny_engine: DockerEngine, cpu_image: Built) -> None:
    source = "import os\nwhile True: os.write(1, b'x' * 65536)"
    with pytest.raises(ValidatorError, match="wrote more than 64 MB"):
        tiny_engine.probe(cpu_image, request(source), quiet)


def test_an_exception_in_progress_ends_the_probe(tiny_engine: DockerEngine, cpu_image: Built) -> None:
    """Ctrl-C can come at any line; the fixture checks that the container is gone."""

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny_engine.probe(
            cpu_image, request("import sys, time; print('x', file=sys.stderr); time.sleep(60)"), interrupt
        )


def test_any_image_with_a_python_can_be_probed(
    tiny_engine: DockerEngine, endpoint: Endpoint, cpu_image: Built
) -> None:
    """The image has its own entry point and user, as other people's images do."""
    container = endpoint.client.containers.create(cpu_image.reference, user="root")
    foreign = container.commit(
        "validator-test-foreign",
        conf={
            "Entrypoint": ["/bin/false"],
            "User": "12345",
            "WorkingDir": "/nowhere",
            "Env": ["PATH=/usr/bin:/bin"],
        },
    )
    container.remove()
    assert foreign.id is not None
    try:
        report = json.loads(tiny_engine.probe_image("validator-test-foreign", request(LOOK), quiet))
    finally:
        endpoint.client.images.remove(foreign.id, force=True)
    assert report["uid"] == 12345
    # The system's Python comes first on this PATH, but TensorFlow is in the other one.
    assert report["executable"] == "/opt/venv/bin/python"


def test_an_image_without_python_is_named(
    tiny_engine: DockerEngine, endpoint: Endpoint, cpu_image: Built
) -> None:
    remove = "rm -rf /opt/venv /usr/bin/python3* /usr/local/bin/python*"
    container = endpoint.client.containers.create(
        cpu_image.reference, ["sh", "-c", remove], user="root", network_mode="none"
    )
    container.start()
    container.wait()
    foreign = container.commit("validator-test-no-python", conf={"Cmd": ["sh"]})
    container.remove()
    assert foreign.id is not None
    try:
        with pytest.raises(InputError, match="the image has no Python"):
            tiny_engine.probe_image("validator-test-no-python", request(LOOK), quiet)
    finally:
        endpoint.client.images.remove(foreign.id, force=True)


def test_an_image_without_a_shell_is_named(tiny_engine: DockerEngine, endpoint: Endpoint) -> None:
    endpoint.client.api.import_image_from_data(b"\0" * 1024, repository="validator-test-empty", tag="latest")
    try:
        with pytest.raises(InputError, match="has no /bin/sh"):
            tiny_engine.probe_image("validator-test-empty", request(LOOK), quiet)
    finally:
        endpoint.client.images.remove("validator-test-empty", force=True)


def test_a_missing_image_is_an_error(tiny_engine: DockerEngine) -> None:
    with pytest.raises(MissingError, match="the engine has no image nowhere/at-all:1") as caught:
        tiny_engine.probe_image("nowhere/at-all:1", request(LOOK), quiet)
    assert (
        caught.value.hint
        == "pull it with `docker pull nowhere/at-all:1`, or list the local images with `docker images`"
    )


def test_the_name_of_an_image_spec_is_not_an_image(tiny_engine: DockerEngine) -> None:
    identifier = "tf2.99.0-cuda99.9-cudnn99.9-py312"
    with pytest.raises(MissingError, match=f"the engine has no image {identifier}") as caught:
        tiny_engine.probe_image(identifier, request(LOOK), quiet)
    assert caught.value.hint == f"the local image of this specification is tensorflow-gpu-matrix:{identifier}"


def test_leftovers_of_a_killed_run_are_removed_but_not_those_of_a_live_one(
    endpoint: Endpoint, cpu_image: Built
) -> None:
    def container() -> tuple[runs.Note, Any]:
        note = intend(endpoint, CONTAINER, new_name())
        made = endpoint.client.containers.create(cpu_image.reference, name=note.content["name"])
        note.write(container=str(made.id))
        return note, made

    run = runs.current()
    (dead, gone), (alive, kept), (elsewhere, other) = container(), container(), container()
    elsewhere.write(engine="another engine")
    # As if they had been taken over from a run that was killed.
    run._inherited += [dead, elsewhere]
    try:
        DockerEngine(endpoint)
        left = {each.id for each in endpoint.client.containers.list(all=True, ignore_removed=True)}
        assert gone.id not in left
        assert {kept.id, other.id} <= left
        assert not dead.path.exists()
        assert elsewhere.path.exists()
    finally:
        run._inherited.clear()
        assert remove_container(endpoint.client, alive)
        assert remove_container(endpoint.client, elsewhere)
