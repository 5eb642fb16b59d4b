"""`./measure`: receive the bundle next to it, and measure its images with what this machine has.

The result is one file for `validator records import` on the machine that wrote the bundle. Nothing is
installed, and no network is used. With an engine and a Python that runs the tool, `cli/building.py` measures,
because only the tool can sign. Otherwise, this module runs the image as a node of Slurm does: each way is a
`Runner` that takes the image from the bundle.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import glob
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from ..fleet import slurm_job
from ..fleet.slurm_job import PLACE, Failed
from .receive import MANIFEST, Bundle, Image, Refused, read_bundle, receive
from .root import BASIC_DEVICES, die_with_parent

#: What runs outside of this archive, as files next to each other.
_TOOLS = (
    "validator/fleet/inside.py", "validator/engines/ask_nvml.py", "validator/offline/root.py", "pynvml.py",
)  # fmt: skip
#: Minutes in which an engine has to take an image, or its file system has to be unpacked.
_PREPARE_MINUTES = 120.0
_NAME = "tensorflow-gpu-matrix"
#: The driver's libraries that CUDA and NVML need, and where distributions put them.
_LIBRARIES = (
    "libcuda.so", "libcudadebugger.so", "libnvidia-ml.so", "libnvidia-cfg.so", "libnvidia-ptxjitcompiler.so",
    "libnvidia-nvvm", "libnvidia-gpucomp.so", "libnvidia-fatbinaryloader.so", "libnvidia-pkcs11",
)  # fmt: skip
_LIBRARY_PLACES = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
)  # fmt: skip
_DEVICES = ("/dev/nvidia*", "/dev/nvidia-caps/*")
#: Seconds that the probe gets to end by itself after its limit.
_SPARE_S = 60.0
_ENGINE = "engine"
_UNSIGNED = "Nobody signs, so the verdict is at most unproven, and it can't be certified."
#: What each way can prove. `tool`: docker or podman, by the tool itself. `engine`: by its command line.
_PROVES = {
    "tool": "as online: an isolated container, a host that is read from outside, and the signature of this"
    " machine's runner key if it has one (`validator runner init`). It can be certified.",
    _ENGINE: f"an isolated container, and a host that is read from outside. {_UNSIGNED}",
    "namespace": "the image's files, with processes and a network of their own, without privileges; and a"
    f" host that is read from outside. {_UNSIGNED}",
    "chroot": "only the image's files: it sees this machine's network and processes, so a failure may not be"
    f" the image's fault. {_UNSIGNED}",
}
#: Unpacks the wheels of the tool that fit the Python that runs this.
_UNPACK = """
import pathlib, sys, zipfile
if sys.version_info < (3, 10):
    sys.exit("it is older than Python 3.10")
probe, wheels, target = sys.argv[1:]
sys.path.insert(0, probe)
from validator._vendor.packaging.tags import sys_tags
from validator._vendor.packaging.utils import parse_wheel_filename
order = {tag: number for number, tag in enumerate(sys_tags())}
best = {}
for path in sorted(pathlib.Path(wheels).glob("*.whl")):
    name, _, _, tags = parse_wheel_filename(path.name)
    ranks = [order[tag] for tag in tags if tag in order]
    if ranks and min(ranks) < best.get(name, (len(order),))[0]:
        best[name] = min(ranks), path
if not best:
    sys.exit("the bundle has no wheels for it")
for _, path in best.values():
    zipfile.ZipFile(path).extractall(target)
"""

_MEASURE = """
from validator.__main__ import main
from validator.cli.building import measure_received
main(measure_received)
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit status."""
    directory = Path(sys.argv[0]).resolve().parent
    parser = argparse.ArgumentParser(prog="measure", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--receive-only", action="store_true", help="Only verify and unpack the volumes.")
    parser.add_argument("--wait", action="store_true", help="Wait for volumes that are not there yet.")
    parser.add_argument("--into", type=Path, default=directory / "received", metavar="DIRECTORY")
    parser.add_argument("--with", dest="way", choices=sorted(WAYS), help="Measure in this way.")
    parser.add_argument("--output", type=Path, default=directory / "measured.jsonl", metavar="FILE")
    parser.add_argument("--explain", action="store_true", help="Say what each way can prove, and stop.")
    given = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stopped)
    try:
        received = given.into
        if not (given.explain or given.receive_only):
            _check_output(given.output)
        if (directory / "images").is_dir():
            received = directory
        elif not given.explain:
            receive(directory, received, given.wait, _say)
        if given.receive_only:
            return 0
        return _measure_all(directory, received.resolve(), given)
    except Refused as error:
        _say(f"error: {error}\n  hint: {error.hint}")
    except (Failed, OSError) as error:
        _say(f"error: {error}")
    except KeyboardInterrupt:
        _say("stopped")
        return 130
    return 1


def _say(text: str) -> None:
    """Print a text for people. What an image has written may have control characters."""
    shown = "".join(one if one.isprintable() or one == "\n" else "?" for one in text)
    print(shown, file=sys.stderr, flush=True)


def _stopped(number: int, _frame: Any) -> NoReturn:
    raise SystemExit(128 + number)


def _check_output(output: Path) -> None:
    """Raise Refused if the records can't be written: noticed only after hours, they would be lost."""
    try:
        if output.is_symlink() or (output.exists() and not output.is_file()):
            raise OSError(errno.EINVAL, "it is not a regular file")
        tempfile.TemporaryFile(dir=output.parent).close()
    except OSError as error:
        hint = "with --output, name a file in a directory that can be written to"
        raise Refused(f"{output} can't be written: {error.strerror}", hint) from None


def _add(path: Path, new: bytes) -> None:
    """Add to a file. If this process is killed, the file has either all of it or nothing."""
    lines = path.read_bytes() if path.exists() else b""
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_bytes(lines + new)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _measure_all(directory: Path, received: Path, given: argparse.Namespace) -> int:
    """Measure the images that the output does not have from this machine. Return 0 if all were measured."""
    with _work(directory if given.explain else received) as (work, _):
        reasons = {name: _why_not(name, work) for name in WAYS}
    for name, reason in reasons.items():
        _say(f"{name}: {reason or f'can be used. It proves: {_PROVES.get(name, _PROVES[_ENGINE])}'}")
    if given.explain:
        return 0
    way = given.way or next((name for name, reason in reasons.items() if not reason), None)
    if way is None or reasons[way]:
        why = f"--with {way}: {reasons[way]}" if way else "no way works on this machine"
        raise Failed("not_started", why)
    bundle = read_bundle((received / MANIFEST).read_bytes())
    output, failed = Path(os.path.abspath(given.output)), False
    # The output may be on a disk that goes from one machine to the next. What is noted names no machine.
    notes, known = output.with_name(f".{output.name}.done"), Path("/etc/machine-id")
    machine = os.uname().nodename.encode() + (known.read_bytes() if known.exists() else b"")
    for image in bundle.images:
        tag, mark = image.tag, hashlib.sha256(machine + image.digest.encode()).hexdigest().encode() + b"\n"
        there = output.exists() and image.digest.encode() in output.read_bytes()
        if there and notes.exists() and mark in notes.read_bytes():
            _say(f"{tag}: {output} has it already, measured on this machine")
            continue
        try:
            with _work(received) as (work, cleaner):
                whole = image.question is not None and way in ("docker", "podman")
                python = _tool(received, image, work) if whole else None
                proves = _PROVES["tool"] if python else _PROVES.get(way, _PROVES[_ENGINE])
                _say(f"{tag}: measuring with {way}. It proves: {proves}")
                if way in ("docker", "podman"):
                    # Remove only the name that it gets here: an engine that had the image before keeps it.
                    _clean(cleaner, way, "rmi", f"{_NAME}:{work.name}")
                if python:
                    _by_tool(received, tag, way, python, work, cleaner, output)
                else:
                    _add(output, _by_command(received, bundle, image, way, work, cleaner))
            _add(notes, mark)
        except (Failed, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            # The documents of an image may have any form.
            _say(f"{tag}: not measured: {error or type(error).__name__}")
            failed = True
            continue
        _say(f"{tag}: measured. Give {output} to `validator records import`.")
    return int(failed)


@contextlib.contextmanager
def _work(place: Path) -> Iterator[tuple[Path, IO[str]]]:
    """Yield a directory with the tools, and where to write commands that clean up.

    A process of its own runs them when this one ends, also if it is killed.
    """
    work = Path(tempfile.mkdtemp(prefix="measuring-", dir=place))
    try:
        with zipfile.ZipFile(sys.argv[0]) as archive:
            for name in _TOOLS:
                (work / Path(name).name).write_bytes(archive.read(name))
        cleaner = subprocess.Popen(
            _root(work, "clean"), stdin=subprocess.PIPE, text=True,
            start_new_session=True, cwd="/",
        )  # fmt: skip
    except BaseException:
        shutil.rmtree(work)
        raise
    assert cleaner.stdin is not None
    # A program may leave directories of any depth, which only `rm` removes, and without permissions.
    _clean(cleaner.stdin, "rm", "-rf", str(work))
    if os.geteuid():
        _clean(cleaner.stdin, "chmod", "-R", "u+rwx", str(work))
    try:
        yield work, cleaner.stdin
    finally:
        _clean(cleaner.stdin)
        cleaner.stdin.close()
        cleaner.wait()


def _root(work: Path, *words: str) -> list[str]:
    """Return a command of `root.py`."""
    return [sys.executable, "-I", "-B", str(work / "root.py"), *words]


def _clean(cleaner: IO[str], *command: str) -> None:
    print(json.dumps(command), file=cleaner, flush=True)


def _tool(received: Path, image: Image, work: Path) -> str | None:
    """Unpack the tool for a Python of this machine and return that Python; None if there is none."""
    reason = "there is none"
    for name in (sys.executable, *(f"python3.{minor}" for minor in range(14, 9, -1))):
        python = shutil.which(name)
        if python is None:
            continue
        command: list[str | Path] = [python, "-I", "-c", _UNPACK]
        command += [received / image.probe, received / "tool", work / "tool"]
        # If it outlived this process, it would write to a directory that is being removed.
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=work,
            preexec_fn=lambda: die_with_parent(signal.SIGKILL),
        )  # fmt: skip
        if done.returncode == 0:
            return python
        reason = f"{python}: {(done.stderr.strip() or 'it ends without a message').splitlines()[0]}"
        shutil.rmtree(work / "tool", ignore_errors=True)
    _say(f"The tool itself needs Python 3.10 or newer: {reason}")
    return None


def _by_tool(
    received: Path, tag: str, way: str, python: str, work: Path, cleaner: IO[str], output: Path
) -> None:
    """Measure just as on a machine with a network. The tool adds each record to the output at once."""
    variables = {**os.environ, "PYTHONPATH": str(work / "tool"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [python, "-s", "-c", _MEASURE, str(received), tag, way, f"{_NAME}:{work.name}", str(output)]
    # It cleans up after SIGTERM, which it also gets if this process is killed. It holds the cleaner's input
    # open, so that its own files are there until it has ended.
    child = subprocess.Popen(
        command, env=variables, cwd=work / "tool", start_new_session=True, pass_fds=(cleaner.fileno(),),
        preexec_fn=lambda: die_with_parent(signal.SIGTERM),
    )  # fmt: skip
    try:
        status = child.wait()
    except BaseException:
        child.terminate()
        child.wait()
        raise
    if status:
        raise Failed("not_started", f"the tool ended with status {status}; {output} keeps its records")


def _by_command(
    received: Path, bundle: Bundle, image: Image, way: str, work: Path, cleaner: IO[str]
) -> bytes:
    """Measure without the tool, and return what `records import` turns into a record, as one line."""
    objects = {}
    (work / "objects").mkdir()
    for name, path in (("probe.pyz", image.probe), ("lock.txt", image.lock)):
        if path is not None:
            content = (received / path).read_bytes()
            objects[name] = hashlib.sha256(content).hexdigest()
            (work / "objects" / objects[name]).write_bytes(content)
    question, arguments = image.question, image.arguments
    if len(image.challenges) == 1:
        # With several, only the tool knows which one is for the GPUs of this machine.
        [challenge] = image.challenges.values()
        question, arguments = {**question, "challenge": challenge}, (*arguments, "--challenge", challenge)
    # A user that nothing else on this machine has, among those that this root can become.
    users = (line.split() for line in Path("/proc/self/uid_map").read_text().splitlines())
    last = max(int(first) + int(count) for first, _, count in users)
    request = {
        "reference": image.tag,
        "minutes": _PREPARE_MINUTES,
        "timeout_s": float(image.timeout_s),
        "arguments": arguments,
        "files": objects,
        "gpus": True,
        "user": min(0x70000000, last - 2000) + os.getpid() % 1000,
        "images": str(received / "images"),
        "digest": image.digest,
    }
    unit = f"validator-{image.digest.partition(':')[2][:16]}"
    job = slurm_job.Job(work, unit, request, work, slurm_job.Tasks(1, work, ""), work)
    if way in ("docker", "podman"):
        name = f"{unit}-{os.environ.get('SLURM_JOB_ID', 'bundle')}-{os.getpid()}"
        _clean(cleaner, way, "rm", "--force", name)
    elif os.geteuid() == 0:
        _clean(cleaner, *_root(work, "end", str(request["user"])))
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            result = slurm_job.run(job, WAYS[way])
        finally:
            _say(said.getvalue().rstrip())
    line = {"bundle": 1, "question": question, "hosts": bundle.hosts, "unit": unit}
    return json.dumps({**line, "result": result.decode("ascii")}).encode() + b"\n"


# The ways to measure without the tool.


def _blob_of(job: slurm_job.Job, digest: str) -> Path:
    """Return the path of a blob of the OCI layout. Raises Failed if it is not a digest."""
    if not re.fullmatch("sha256:[0-9a-f]{64}", digest):
        raise Failed("not_started", f"the image names a part of itself {digest!r}, which is not a digest")
    return Path(job.request["images"], "blobs", *digest.split(":"))


def _read(job: slurm_job.Job, digest: str) -> dict[str, Any]:
    """Return a document of the OCI layout. Raises Failed if it is damaged."""
    content = _blob_of(job, digest).read_bytes()
    if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
        raise Failed("not_started", f"{_blob_of(job, digest)} is damaged: receive the bundle again")
    document: dict[str, Any] = json.loads(content)
    return document


def _probe_begins(job: slurm_job.Job) -> None:
    """Count the time from here, after the image has arrived."""
    job.deadline = time.monotonic() + float(job.request["timeout_s"]) + _SPARE_S


def _layout_of_one(job: slurm_job.Job, name: str) -> tuple[Path, list[str]]:
    """Make an OCI layout with only the image, whose blobs are a link, and return it with all its files.

    name: for engines, which may read `manifest.json`.
    """
    digest = str(job.request["digest"])
    manifest = _read(job, digest)
    parts = [manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]
    blobs = [str(_blob_of(job, part).relative_to(job.request["images"])) for part in (digest, *parts)]
    entry = {
        "mediaType": manifest["mediaType"], "digest": digest, "size": _blob_of(job, digest).stat().st_size,
        "annotations": {
            "io.containerd.image.name": f"docker.io/library/{name}",
            "org.opencontainers.image.ref.name": name.partition(":")[2],
        },
    }  # fmt: skip
    documents = {
        "oci-layout": {"imageLayoutVersion": "1.0.0"},
        "index.json": {"schemaVersion": 2, "manifests": [entry]},
        "manifest.json": [{"Config": blobs[1], "RepoTags": [name], "Layers": blobs[2:]}],
    }
    layout = job.work / "layout"
    layout.mkdir()
    (layout / "blobs").symlink_to(Path(job.request["images"], "blobs"))
    for path, document in documents.items():
        (layout / path).write_text(json.dumps(document), encoding="utf-8")
    return layout, [*dict.fromkeys(blobs), *documents]


class _Engine(slurm_job.Docker):
    """Docker or Podman by its command line, with the image from the bundle."""

    def prepare(self) -> None:
        digest, name = str(self.job.request["digest"]), f"{_NAME}:{self.job.work.name}"
        layout, files = _layout_of_one(self.job, name)
        with open(self.job.work / "load", "w+b") as said:
            # If the engine ends early, its message says why.
            load = [self.name, "load"]
            with (
                contextlib.suppress(BrokenPipeError),
                subprocess.Popen(load, stdin=subprocess.PIPE, stdout=said, stderr=said) as loading,
                tarfile.open(fileobj=loading.stdin, mode="w|") as archive,
            ):
                for path in files:
                    archive.add(layout / path, path)
            said.seek(0)
            text = said.read().decode("utf-8", "replace")
        if loading.returncode:
            code = "disk_full" if slurm_job.says(text, ("no space left on device",)) else "pull_failed"
            raise Failed(code, f"{self.name} can't load the image: {slurm_job.last_line(text)}")
        found = slurm_job.output_of([self.name, "image", "inspect", "--format", "{{.Id}}", name]).strip()
        # The id is the digest of the manifest with containerd's image store, otherwise of the configuration.
        known = (digest, _read(self.job, digest)["config"]["digest"])
        if f"sha256:{found.removeprefix('sha256:')}" not in known:
            raise Failed("image_missing", f"{self.name} has another image under the name {name}: {found}")
        self.reference, self.digest = found, digest
        _probe_begins(self.job)

    def command(self) -> list[str]:
        # It ends with this process, before a client starts a container.
        return _root(self.job.tools, "start", *super().command())

    def _devices(self) -> list[str]:
        if not self.gpus:
            return []
        asked = ["docker", "info", "--format", "{{json .Runtimes}}"]
        if self.name == "docker" and '"nvidia"' in slurm_job.output_of(asked):
            return ["--gpus=all"]
        return ["--device=nvidia.com/gpu=all"]


class Docker(_Engine):
    def _own(self) -> list[str]:
        # The image's own user runs the probe, as it does on a machine with a network.
        return []


class Podman(_Engine, slurm_job.Podman):
    name = "podman"


class Apptainer(slurm_job.Apptainer):
    def prepare(self) -> None:
        # Apptainer before 1.4 names an image of a layout by its tag, and newer ones by its digest. All of
        # them take the only image of a layout.
        layout, _ = _layout_of_one(self.job, self.reference)
        self._file = self.job.work / "image.sif"
        self.pull([self.name, "build", str(self._file), f"oci:{layout}"])
        self.digest = self.job.request["digest"]
        _probe_begins(self.job)

    def command(self) -> list[str]:
        name, verb, *words = super().command()
        # For root, Apptainer would give the image's programs all privileges. Only root can always do this.
        closed = ["--no-privs", "--net", "--network", "none"] if os.geteuid() == 0 else []
        return _root(self.job.tools, "start", name, verb, *closed, *words)


class Namespace(slurm_job.Runner):
    """The image's own file system, in namespaces of its own."""

    name = "namespace"

    def prepare(self) -> None:
        digest = self.job.request["digest"]
        manifest = _read(self.job, digest)
        config = _read(self.job, manifest["config"]["digest"]).get("config") or {}
        variables = dict(one.split("=", 1) for one in config.get("Env") or () if "=" in one)
        # The files of the driver that programs with CUDA open, each from the first place that has it.
        libraries: dict[str, str] = {}
        for pattern in (f"{place}/{prefix}*" for place in _LIBRARY_PLACES for prefix in _LIBRARIES):
            for path in filter(os.path.isfile, sorted(glob.glob(pattern))):
                libraries.setdefault(os.path.basename(path), path)
        devices = [f"/dev/{name}" for name in BASIC_DEVICES]
        devices += [path for pattern in _DEVICES for path in sorted(glob.glob(pattern))]
        request = {
            "way": self.name,
            "layers": [
                (str(_blob_of(self.job, layer["digest"])), layer["digest"], layer["mediaType"])
                for layer in manifest["layers"]
            ],
            "files": {f"{PLACE}/{path.name}": str(path) for path in self.job.payload.iterdir()},
            "libraries": libraries,
            "devices": [path for path in devices if Path(path).is_char_device()],
            "user": self.job.request["user"],
            "environment": {**variables, "HOME": "/tmp"},
            "command": ["python3", *self.job.inside(PLACE)],
        }
        self._request = self.job.work / "request.json"
        self._request.write_text(json.dumps(request), encoding="utf-8")
        self.pull(_root(self.job.tools, "make", str(self.job.work / "root"), str(self._request)))
        self.digest = digest
        _probe_begins(self.job)

    def command(self) -> list[str]:
        return _root(self.job.tools, "run", str(self.job.work / "root"), str(self._request))


class Chroot(Namespace):
    """Like Namespace, but for root on kernels without namespaces: only the host's files are hidden."""

    name = "chroot"
    isolates = False


WAYS = {way.name: way for way in (Docker, Podman, Apptainer, Namespace, Chroot)}


def _why_not(name: str, work: Path) -> str:
    """Return why this machine can't measure in a way; empty if it can."""
    if name == "chroot":
        return "" if os.geteuid() == 0 else "it needs root"
    if name == "namespace":
        done = subprocess.run(_root(work, "try"), capture_output=True, text=True)
        why = f"namespaces can't be created on this machine: {done.stderr.strip()}"
        return "" if done.returncode == 0 else why
    if shutil.which(name) is None:
        return "it is not installed"
    return "" if slurm_job.succeeds([name, "version"]) else "it does not answer"
