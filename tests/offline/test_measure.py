"""`./measure` on a machine without a network, in every way that it has, with Python 3.9."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from validator.engines.protocol import probe_archive
from validator.fleet.slurm_job import succeeds

from ..integration.podman.conftest import limited
from ..loop import tiers
from ..support import small_disk
from .making import (
    CHALLENGE,
    LOCK_DIGEST,
    SPEC,
    TAG,
    Layers,
    add_tool,
    command,
    frames_of,
    leftovers,
    measure,
    python_of,
    received,
    records_of,
)

ENGINES = ("docker", "podman")
ROOTS = ("namespace", "chroot")
#: Debian 12 has no Apptainer, so CI skips it.
ALL = (*ENGINES, "apptainer", *ROOTS)
#: Tells what a probe sees. It is not a report, so no verdict can follow from it.
SPY = """
import json, os, sys
def lines(path):
    return open(path).read().splitlines() if os.path.exists(path) else []
print(json.dumps({
    "arguments": sys.argv[1:], "lock": open("lock.txt").read(), "uid": os.getuid(),
    "root": sorted(os.listdir("/")), "home": os.listdir("/root") if os.path.isdir("/root") else [],
    "status": [one.split() for one in lines("/proc/self/status")],
    "interfaces": os.listdir("/sys/class/net") if os.path.isdir("/sys/class") else [],
    "variables": dict(os.environ), "mounts": [one.split()[1] for one in lines("/proc/self/mounts")],
}))
"""
#: Never ends by itself, ignores SIGTERM, and leaves a child that has left its session.
ENDLESS = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 3)
while True:
    time.sleep(0.1)
"""

#: Does not end with its parent, and goes on in a process that another one follows all the time.
FUGITIVE = """
import ctypes, os, signal, sys, time
ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
end = time.monotonic() + 60
if os.fork() == 0:
    os.setsid()
    while time.monotonic() < end:
        if os.fork():
            os._exit(0)
time.sleep(0.2)
os.execv("/usr/bin/real", ["real", "-c", "import time; time.sleep(60)", "/tfm/ready"])
"""


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a directory with the wheels of the tool. Podman gets limits that root has."""
    wheels = tmp_path_factory.mktemp("tool")
    add_tool(wheels)
    with limited(tmp_path_factory.mktemp("containers")):
        yield wheels


@pytest.fixture
@tiers.docker
def place(tmp_path: Path) -> Iterator[Path]:
    """Yield a directory for a bundle. Afterwards, nothing of a measurement may be left."""
    if os.geteuid() != 0:
        pytest.skip("a network namespace needs root")
    yield tmp_path
    assert left(tmp_path) == []


def left(place: Path) -> list[str]:
    """Return what a measurement left behind, after some seconds in which it can go."""
    # Podman needs ten seconds to remove an image.
    deadline = time.monotonic() + 60
    while (found := [*leftovers(place), *in_engines(place)]) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def in_engines(place: Path, containers_only: bool = False) -> list[str]:
    """Return the names under which the engines have the images of the bundle, and their containers."""
    found = []
    # The id is the digest of the manifest or of the configuration.
    ours = {f"sha256:{path.name}" for path in place.glob("images/blobs/sha256/*")}
    for engine in filter(shutil.which, ENGINES):
        asked = [engine, "images", "--no-trunc", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}"]
        lines = subprocess.run(asked, capture_output=True, text=True).stdout.splitlines()
        for name, image in (line.split() for line in lines):
            if image in ours:
                found += [] if containers_only else [name]
                words = [engine, "ps", "--all", "--format", "{{.Names}}", "--filter", f"ancestor={image}"]
                found += subprocess.run(words, capture_output=True, text=True).stdout.split()
    return found


def usable(way: str) -> str:
    if way not in ROOTS and not (shutil.which(way) and succeeds([way, "version"])):
        pytest.skip(f"{way} does not answer here")
    return way


@pytest.mark.parametrize("way", ALL)
def test_a_probe_sees_only_its_image(way: str, place: Path) -> None:
    received(place, SPY)
    done = measure(place, "--with", usable(way))
    assert done.returncode == 0, done.stderr
    assert f"measuring with {way}" in done.stderr and "at most unproven" in done.stderr
    frames = frames_of(place)
    node, seen = json.loads(frames["node"]), json.loads(frames["report"])
    digest = json.loads((place / "bundle.json").read_text())["images"][0]["digest"]
    assert (node["engine"], node["image_digest"]) == (way, digest)
    assert seen["arguments"] == ["--lock", "lock.txt", "--challenge", CHALLENGE]
    assert seen["lock"] == "# a lock\n"
    assert "work" not in seen["root"] and seen["home"] == []
    assert seen["variables"]["OF_THE_IMAGE"] == "yes"
    # Apptainer says where the program starts.
    assert seen["variables"].get("PWD", "/tfm") == "/tfm"
    if way in ROOTS:
        # A user that no other process has.
        assert seen["uid"] > 65534
    if way != "chroot":
        assert [name for name in seen["interfaces"] if not name.startswith("ifb")] == ["lo"]
    status = {words[0]: words[1:] for words in seen["status"] if words}
    assert status["CapEff:"] == status["CapBnd:"] == ["0000000000000000"]
    assert status["NoNewPrivs:"] == ["1"]
    assert way == "chroot" or not any(mount.startswith(str(place)) for mount in seen["mounts"])


@pytest.fixture
def for_all() -> Iterator[Path]:
    """Yield a directory that others may enter: pytest makes its own private again whenever it starts."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_a_user_measures_in_a_namespace(place: Path, for_all: Path) -> None:
    place = received(for_all, SPY + LEAVES)
    for path in (place, *place.rglob("*")):
        os.chown(path, 1000, 1000)
    place.chmod(0o755)
    as_user = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--inh-caps=-all"]
    words = [*as_user, "/usr/bin/python3", str(place / "measure"), "--with", "namespace"]
    done = subprocess.run(words, capture_output=True, text=True, cwd="/")
    if "namespaces can't be created" in done.stderr:
        pytest.skip("the kernel gives users no namespaces here")
    assert done.returncode == 0, done.stderr
    seen = json.loads(frames_of(place)["report"])
    assert left(place) == []
    assert seen["uid"] == 65534
    status = {words[0]: words[1:] for words in seen["status"] if words}
    assert status["CapEff:"] == status["CapBnd:"] == ["0000000000000000"]


@pytest.mark.parametrize("way", ALL)
def test_the_probe_of_this_project_comes_back_as_a_record(way: str, place: Path) -> None:
    received(place, "# replaced below")
    (place / "probe/probe.pyz").write_bytes(probe_archive())
    document = json.loads((place / "bundle.json").read_text())
    # The check needs neither TensorFlow nor a lock.
    document["images"][0]["arguments"] = ["--only", "environment"]
    (place / "bundle.json").write_text(json.dumps(document))
    done = measure(place, "--with", usable(way))
    assert done.returncode == 0, done.stderr
    [record] = records_of(place, place / "records.db")
    assert record["report"]["challenge"] == CHALLENGE
    assert record["image_digest"] == document["images"][0]["digest"]
    assert record["cell"] == f"{SPEC.identifier}@no-gpu"
    assert (record["engine"], record["lock_digest"]) == (way, LOCK_DIGEST)
    assert (record["verdict"], record["origin"]) == ("unproven", "elsewhere")
    # What is there is not measured again, and the same file imports the same record.
    again = measure(place, "--with", way)
    assert f"{TAG}: {place / 'measured.jsonl'} has it already" in again.stderr
    assert [one["id"] for one in records_of(place, place / "records.db")] == [record["id"]]


@pytest.mark.parametrize("way", ENGINES)
def test_the_tool_itself_measures_where_python_is_new_enough(way: str, place: Path, tool: Path) -> None:
    received(place, "import sys; print('{\"fake\": true}')")
    (place / "tool").symlink_to(tool)
    done = measure(place, "--with", usable(way), python=sys.executable)
    assert done.returncode == 0, done.stderr
    assert "It can be certified" in done.stderr and "Engine: " in done.stderr
    [record] = records_of(place, place / "records.db")
    assert (record["engine"], record["origin"], record["lock_digest"]) == (way, "here", LOCK_DIGEST)
    assert record["image_digest"] == json.loads((place / "bundle.json").read_text())["images"][0]["digest"]
    # What was no report is the image's fault, as online.
    assert record["verdict"] == "failed" and "report can't be read" in record["reason"]


def hostile(archive: tarfile.TarFile, outside: Path) -> None:
    """Add what would reach the machine if it was unpacked as it says."""

    def add(
        name: str, kind: bytes = tarfile.REGTYPE, link: str = "", content: bytes = b"", mode: int = 0o644
    ) -> None:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname, entry.size, entry.mode = kind, link, len(content), mode
        entry.devmajor, entry.devminor = 1, 3
        archive.addfile(entry, io.BytesIO(content))

    for name in ("proc", "sys", "tfm", "dev/null", "dev/shm"):
        add(name, tarfile.SYMTYPE, str(outside))
    # Both of these links stay in the image.
    add("usr/out", tarfile.SYMTYPE, "../../../../../../tmp")
    add("usr/out/through-a-link", content=b"escaped")
    add("usr/bin/shadow", tarfile.LNKTYPE, "../../../../../../usr/bin/python3")
    add(f"../../../../../../{outside}/dots", content=b"escaped")
    add("usr/bin/null", tarfile.CHRTYPE)
    add("usr/bin/pipe", tarfile.FIFOTYPE)
    add("usr/bin/su", content=b"#!/bin/sh\n", mode=0o6755)
    add("tmp/kept", content=b"kept")
    add("tmp/.wh..wh..opq")
    add("usr/lib/.wh.absent")


def with_python(place: Path, program: str) -> Layers:
    """Return an image whose `python3` is a program in Python, which `real` runs."""

    def add(archive: tarfile.TarFile) -> None:
        real, python = tarfile.TarInfo("usr/bin/real"), tarfile.TarInfo("usr/bin/python3")
        real.type, real.linkname = tarfile.LNKTYPE, "usr/bin/python3"
        content = f"#!/usr/bin/real\n{program}".encode()
        python.size, python.mode = len(content), 0o755
        archive.addfile(real)
        archive.addfile(python, io.BytesIO(content))

    return Layers(place / "images").add_python().add_archive(add)


#: Leaves what can't be removed by walking through it in Python, or without changing permissions.
LEAVES = """
import os
os.makedirs("/tmp/closed/inner")
os.chmod("/tmp/closed", 0)
os.chdir("/tmp")
for _ in range(1500):
    os.mkdir("deep")
    os.chdir("deep")
"""
LOOK = """
import json, os, stat
def kind(path):
    try:
        return stat.filemode(os.lstat(path).st_mode)
    except OSError:
        return None
paths = ("/dev", "/proc", "/sys", "/tfm", "/usr/bin/null", "/usr/bin/pipe", "/usr/bin/su", "/tmp/kept",
    "/tmp/through-a-link")
print(json.dumps({path: kind(path) for path in paths}))
"""


@pytest.mark.parametrize("way", ROOTS)
def test_a_hostile_image_does_not_get_out_of_its_directory(way: str, place: Path) -> None:
    outside = place / "outside"
    outside.mkdir()
    layers = Layers(place / "images").add_python().add_archive(lambda archive: hostile(archive, outside))
    received(place, LOOK + LEAVES, layers)
    done = measure(place, "--with", way)
    assert done.returncode == 0, done.stderr
    assert list(outside.iterdir()) == []
    seen = json.loads(frames_of(place)["report"])
    assert all(seen[name].startswith("d") for name in ("/dev", "/proc", "/sys", "/tfm"))
    assert (seen["/usr/bin/null"], seen["/usr/bin/pipe"]) == (None, None)
    assert seen["/usr/bin/su"] == "-rwxr-xr-x"
    assert seen["/tmp/kept"] == seen["/tmp/through-a-link"] == "-rw-r--r--"


def test_a_link_to_this_machine_leads_nowhere(place: Path) -> None:
    outside = place / "outside"
    outside.mkdir()

    def through(archive: tarfile.TarFile) -> None:
        link = tarfile.TarInfo("out")
        link.type, link.linkname = tarfile.SYMTYPE, str(outside)
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo("out/through"))

    received(place, SPY, Layers(place / "images").add_python().add_archive(through))
    done = measure(place, "--with", "namespace")
    assert (done.returncode, list(outside.iterdir())) == (0, [])
    # As with an engine, the link leads to a directory in the image.
    assert str(outside).split("/")[1] in json.loads(frames_of(place)["report"])["root"]


def test_whiteouts_hide_the_layers_below(place: Path) -> None:
    def below(archive: tarfile.TarFile) -> None:
        for name in ("gone/a", "gone/b", "opaque/a", "opaque/b"):
            archive.addfile(tarfile.TarInfo(name))

    def above(archive: tarfile.TarFile) -> None:
        for name in ("opaque/new", "opaque/.wh..wh..opq", "gone/.wh.a"):
            archive.addfile(tarfile.TarInfo(name))

    look = 'import json, os; print(json.dumps([os.listdir("/gone"), os.listdir("/opaque")]))'
    received(place, look, Layers(place / "images").add_python().add_archive(below).add_archive(above))
    done = measure(place, "--with", "namespace")
    assert done.returncode == 0, done.stderr
    assert json.loads(frames_of(place)["report"]) == [["b"], ["new"]]


def test_a_damaged_layer_is_not_measured(place: Path) -> None:
    received(place, SPY)
    largest = max((place / "images/blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[-1] ^= 1
    largest.write_bytes(content)
    done = measure(place, "--with", "namespace")
    assert done.returncode == 1
    assert "not measured" in done.stderr and "damaged" in done.stderr
    assert not (place / "measured.jsonl").exists()


@pytest.mark.parametrize("way", ALL)
def test_a_probe_that_never_ends_is_ended(way: str, place: Path) -> None:
    received(place, ENDLESS, timeout_s=1)
    done = measure(place, "--with", usable(way))
    assert done.returncode == 0, done.stderr
    assert json.loads(frames_of(place)["ending"])["timed_out"]
    assert left(place) == []


@pytest.mark.parametrize(
    "program",
    ["while True: print('y' * 4000)", "import os; os.ftruncate(1, 1 << 40); os.ftruncate(2, 1 << 40)"],
)
@pytest.mark.parametrize("way", ROOTS)
def test_a_python_that_writes_without_end_is_ended(way: str, program: str, place: Path) -> None:
    received(place, SPY, with_python(place, program), timeout_s=30)
    done = measure(place, "--with", way)
    assert done.returncode == 1
    assert "more output than a report can have" in done.stderr
    assert left(place) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("way", ALL)
def test_nothing_is_left_if_it_is_killed(
    way: str, number: int, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a machine of a cluster, the container has the number of the job in its name.
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    layers = with_python(place, FUGITIVE) if way in ROOTS else None
    received(place, ENDLESS, layers, timeout_s=120)
    sign = "/tfm/ready" if layers else "inside.py"
    kill(
        command(place, "--with", usable(way)), number, lambda: any(sign in line for line in leftovers(place))
    )
    # Whoever is followed by a new process all the time is not seen every time.
    assert [found for _ in range(30) for found in left(place)] == []
    assert not (place / "measured.jsonl").exists()


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("way", ENGINES)
def test_nothing_is_left_if_the_tool_is_killed(way: str, early: bool, place: Path, tool: Path) -> None:
    """early: while its wheels are unpacked, and not while its container runs."""
    received(place, ENDLESS, timeout_s=120)
    (place / "tool").symlink_to(tool)

    def reached() -> bool:
        unpacking = any("parse_wheel_filename" in line for line in leftovers(place))
        return unpacking if early else bool(in_engines(place, containers_only=True))

    kill(command(place, "--with", usable(way), python=sys.executable), signal.SIGKILL, reached)
    assert left(place) == []


def kill(words: list[str], number: int, reached: Callable[[], bool]) -> None:
    """Start a measurement, and kill it at a moment."""
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as child:
        deadline = time.monotonic() + 240
        while not (there := reached()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert there
        os.kill(child.pid, number)
        assert child.wait(60) != 0


@pytest.mark.parametrize("way", ROOTS)
def test_a_full_disk_is_named(way: str, place: Path) -> None:
    with small_disk("90m") as disk:
        received(disk, SPY)
        done = measure(disk, "--with", way)
        assert done.returncode == 1
        assert "No space left on device" in done.stderr
        assert left(disk) == []


def test_it_says_what_each_way_proves(place: Path) -> None:
    received(place, SPY)
    done = measure(place, "--explain")
    assert done.returncode == 0, done.stderr
    for way in ("docker", "podman", "apptainer", "namespace", "chroot"):
        assert f"{way}: " in done.stderr
    assert done.stderr.count("It proves:") == done.stderr.count("can be used") >= 2


def test_damaged_documents_of_an_image_reach_nothing_else(place: Path) -> None:
    received(place, SPY)
    document = json.loads((place / "bundle.json").read_text())
    [image] = document["images"]
    found = json.loads((place / "images/blobs/sha256" / image["digest"].partition(":")[2]).read_text())
    found["layers"][0]["digest"] = "sha256:/dev/zero"
    document["images"] = []
    for number, manifest in enumerate((found, [], {**found, "config": {}})):
        content = json.dumps(manifest).encode()
        digest = hashlib.sha256(content).hexdigest()
        (place / "images/blobs/sha256" / digest).write_bytes(content)
        document["images"].append({**image, "tag": f"image-{number}", "digest": f"sha256:{digest}"})
    (place / "bundle.json").write_text(json.dumps(document))
    done = measure(place, "--with", "namespace")
    assert done.returncode == 1
    assert done.stderr.count(": not measured: ") == 3
    assert "'sha256:/dev/zero', which is not a digest" in done.stderr


def test_unpacking_never_imports_from_the_image(place: Path) -> None:
    """A damaged layer ends the unpacking with an error, for which Python 3.13 imports `traceback`."""
    python = python_of("3.13")
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"]
    library = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip("/\n")

    def add(archive: tarfile.TarFile) -> None:
        for name in ("traceback", "linecache", "warnings", "pwd", "bz2"):
            content = b"import os\nos.write(2, b'hostile code ran')\nos._exit(1)\n"
            entry = tarfile.TarInfo(f"{library}/{name}.py")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))

    received(place, SPY, Layers(place / "images").add_python().add_archive(add).add_damaged())
    done = measure(place, "--with", "chroot", python=python)
    assert done.returncode == 1
    assert "not measured" in done.stderr and "hostile code ran" not in done.stderr


def test_apptainer_gets_the_layout_and_the_request(place: Path) -> None:
    """Debian has no Apptainer, so a program in its place notes how it is called and runs nothing."""
    received(place, SPY)
    programs = place / "programs"
    programs.mkdir()
    (programs / "apptainer").write_text(
        f'#!/bin/sh\necho "$@" >>{place}/calls\n[ "$1" = build ] && : >"$2"\nexit 0\n', encoding="utf-8"
    )
    (programs / "apptainer").chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    done = measure(place, "--with", "apptainer", variables={"PATH": path})
    assert done.returncode == 1 and "apptainer ended with status 0" in done.stderr
    calls = [line.split() for line in (place / "calls").read_text().splitlines()]
    build, run = (next(call for call in calls if call[0] == word) for word in ("build", "exec"))
    layout = Path(build[2].removeprefix("oci:"))
    assert (layout.name, layout.parent.parent) == ("layout", place)
    assert "--containall" in run and "--no-home" in run
    assert run[run.index("python3") + 1] == "/tfm/inside.py"
