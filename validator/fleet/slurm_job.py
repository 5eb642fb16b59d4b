"""The program that measures one unit of an array on a node of a Slurm cluster. The batch script starts it.

    python3 tools/DIGEST/slurm_job.py DIRECTORY ARRAY

DIRECTORY is the one that all nodes share; `slurm.py` describes what is in it. This program reads
the driver outside the container, runs `inside.py` in the image with whatever this node has for that, and
writes one result: frames if the probe ended, or JSON with a fault. It writes a temporary file and renames it,
with the job's id and its restart count in the name, because a job that Slurm took for lost may run twice at
once.

A unit of several tasks runs this program once on each of its nodes, as one job step. Task 0 writes the
result. The others run the check that needs them, and write only their faults.

The container sees its own request and nothing else of this node. The program uses only the standard library
of Python 3.9, and nothing of this project but the files next to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import resource
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(__file__).resolve().parent
#: Where a container finds its request.
PLACE = "/tfm"
#: Seconds of the job's time that stay for ending the container and writing the result. Slurm may send its
#: warning a minute early.
RESERVE_S = 150.0
#: The first of the ports at which the tasks of a unit meet, and how many there are.
_PORTS = (20_000, 10_000)
#: Seconds between two looks at the size of the output, and at whether the other tasks have ended.
_LOOK_S = 0.5
#: Open files and processes of a container; Podman can't give more processes than this.
_MOST = 32768
#: Bytes of a container's output; `inside.py` writes fewer.
_LARGEST_OUTPUT = 96 << 20
_ASK_LIMIT_S = 30.0
#: Reading the driver may have to wake every GPU of the node.
_NVML_LIMIT_S = 90.0
_FULL = ("no space left on device", "disk quota exceeded")
_ABSENT = ("manifest unknown", "manifest_unknown", "name unknown", "name_unknown", "not found")


def node_name() -> str:
    return os.environ.get("SLURMD_NODENAME", "")


def succeeds(command: Sequence[str]) -> bool:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=_ASK_LIMIT_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def output_of(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=_ASK_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")


def says(text: str, messages: Sequence[str]) -> bool:
    return any(message in text.lower() for message in messages)


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")


class Failed(Exception):
    """An infrastructure fault. code: one of those of `protocol.Fault`."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class Tasks:
    """The tasks of a unit, of which this is one. run: the name of the job's run in `results`.

    addresses: where the tasks meet, by their numbers; empty if there is only one.
    """

    def __init__(self, count: int, results: Path, run: str) -> None:
        self.rank = int(os.environ["SLURM_PROCID"]) if count > 1 else 0
        self.addresses: list[str] = []
        self._count = count
        self._results = results
        self._run = run

    def find(self) -> None:
        """Find the addresses. Raises Failed."""
        if self._count == 1:
            return
        nodes = output_of(["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]]).split()
        if len(nodes) != self._count:
            raise Failed("not_started", f"scontrol names {len(nodes)} nodes of this job, not {self._count}")
        # A port for each task, one that no other job on these nodes is likely to use.
        first, ports = _PORTS
        offset = int(os.environ["SLURM_JOB_ID"]) * self._count
        for rank, node in enumerate(nodes):
            # The address by which Slurm itself reaches a node; its name need not be known elsewhere.
            found = re.search(r"\bNodeAddr=(\S+)", output_of(["scontrol", "show", "node", "-o", node]))
            address = found[1] if found else node
            self.addresses.append(f"{address}:{first + (offset + rank) % ports}")

    @property
    def suffix(self) -> str:
        """Return the end of the names of this task's frames and files."""
        return f".{self.rank}" if self.rank else ""

    def ended(self) -> bool:
        """Return whether this task need not go on. Raises Failed if another one could not begin or go on."""
        for path in self._results.glob(f"{self._run}.*fault"):
            if path.name != f"{self._run}{self.suffix}.fault":
                fault = json.loads(path.read_text(encoding="utf-8"))
                raise Failed(fault["fault"], f"on {fault['node']}: {fault['detail']}")
        return self.rank > 0 and self.result_is_there()

    def result_is_there(self) -> bool:
        """Return whether task 0 has written the result."""
        return (self._results / f"{self._run}.frames").exists()


@dataclass
class Job:
    """One run of a unit on this node. directory: the shared one. work: where its own files are."""

    directory: Path
    unit: str
    request: dict[str, Any]
    work: Path
    tasks: Tasks
    tools: Path = HERE

    def __post_init__(self) -> None:
        self.payload = self.work / "request"
        minutes = float(self.request["minutes"])
        self.deadline = time.monotonic() + minutes * 60 - min(RESERVE_S, minutes * 30)

    def left_s(self) -> float:
        """Return the seconds that are left. Raises Failed when there are none."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise Failed("deadline", f"the {self.request['minutes']} minutes of this job are over")
        return left

    def inside(self, place: str) -> list[str]:
        """Return Python's arguments inside the container. place: where the request is there."""
        own = [f"{place}/inside.py", "--limit", f"{self.request['timeout_s']:.0f}"]
        if self.tasks.addresses:
            own += ["--task", str(self.tasks.rank), "--workers", ",".join(self.tasks.addresses)]
        return [*own, "--", *self.request["arguments"]]


class Runner:
    """Something that can run an image on this node. digest: the image's, as the engine says, or None."""

    name = ""
    isolates = True

    def __init__(self, job: Job, gpus: Sequence[str]) -> None:
        self.job = job
        self.gpus = gpus
        self.reference: str = job.request["reference"]
        self.digest: str | None = None

    def prepare(self) -> None:
        """Bring the image to this node."""

    def command(self) -> list[str]:
        """Return the command that runs `inside.py` in the image."""
        raise NotImplementedError

    def environment(self) -> dict[str, str] | None:
        """Return the command's environment; None to use this job's own."""
        return None

    def end(self) -> None:
        """End what the command may have left running."""

    def pull(self, command: Sequence[str]) -> None:
        """Run a command that pulls the image. Raises Failed."""
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                timeout=self.job.left_s(), cwd=self.job.work,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Failed("deadline", f"the pull of {self.reference} took too long") from None
        if done.returncode:
            text = done.stdout.decode("utf-8", "replace")
            code = "image_missing" if says(text, _ABSENT) else "pull_failed"
            raise Failed("disk_full" if says(text, _FULL) else code, last_line(text))

    def kept(self, suffix: str, commands: Callable[[str], list[list[str]]], digest: str = "") -> Path:
        """Return what commands make in the shared directory, once for each image or lock."""
        name = digest or self.reference.rpartition(":")[2]
        path = self.job.directory / "images" / f"sha256-{name}{suffix}"
        path.parent.mkdir(exist_ok=True)
        with locked(path.with_name(f".{path.name}.lock"), self.job.left_s):
            if not path.exists():
                partial = path.with_name(f".{os.environ['SLURM_JOB_ID']}-{os.getpid()}-{path.name}")
                try:
                    for command in commands(str(partial)):
                        self.pull(command)
                    os.rename(partial, path)
                finally:
                    shutil.rmtree(partial, ignore_errors=True)
                    with contextlib.suppress(OSError):
                        partial.unlink()
        return path


class Docker(Runner):
    """Docker, whose daemon starts the container outside of the job."""

    name = "docker"

    def __init__(self, job: Job, gpus: Sequence[str]) -> None:
        super().__init__(job, gpus)
        self.container = f"{job.unit}-{os.environ.get('SLURM_JOB_ID', 'bundle')}-{os.getpid()}"

    def prepare(self) -> None:
        if not succeeds([self.name, "image", "inspect", self.reference]):
            self.pull([self.name, "pull", "--quiet", self.reference])
        _, digest = self.reference.split("@")
        asked = ["--format", "{{json .RepoDigests}}", self.reference]
        found = output_of([self.name, "image", "inspect", *asked])
        self.digest = digest if digest in found else None

    def command(self) -> list[str]:
        # Tasks that train together have to reach each other. Others have no network.
        network = f"--network={'host' if self.job.tasks.addresses else 'none'}"
        closed = [network, "--cap-drop=all", "--security-opt=no-new-privileges"]
        seen = [f"--volume={self.job.payload}:{PLACE}:ro", f"--workdir={PLACE}"]
        options = ["--rm", "--name", self.container, *closed, *seen, *self._own(), *self._devices()]
        inside = ["--entrypoint=python3", self.reference, *self.job.inside(PLACE)]
        return [self.name, "run", *options, *inside]

    def _own(self) -> list[str]:
        return [f"--user={os.getuid()}:{os.getgid()}", "--env=HOME=/tmp"]

    def _devices(self) -> list[str]:
        return [f'--gpus="device={",".join(self.gpus)}"'] if self.gpus else []

    def end(self) -> None:
        # `rm --force` alone would first ask the probe to end, and wait.
        succeeds([self.name, "kill", self.container])
        succeeds([self.name, "rm", "--force", self.container])


class Podman(Docker):
    """Podman. It needs no daemon, so that Slurm sees and ends the container with the job."""

    name = "podman"

    def _own(self) -> list[str]:
        # Podman asks for more open files and processes than a job may have, and passes proxies on.
        limits = []
        for name, kind in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
            most = resource.getrlimit(kind)[1]
            limit = _MOST if most == resource.RLIM_INFINITY else min(most, _MOST)
            limits.append(f"--ulimit={name}={limit}:{limit}")
        # Without a group of its own, the container stays in that of the job. runc can't do that.
        runtime = output_of([self.name, "info", "--format", "{{.Host.OCIRuntime.Name}}"]).strip()
        groups = ["--cgroups=disabled"] if runtime == "crun" else []
        return ["--pull=never", "--http-proxy=false", "--security-opt=label=disable", *limits, *groups]

    def _devices(self) -> list[str]:
        return [f"--device=nvidia.com/gpu={uuid}" for uuid in self.gpus]


class Apptainer(Runner):
    """Apptainer. Each image is converted to a SIF file once, in the shared directory."""

    name = "apptainer"

    def prepare(self) -> None:
        image = f"docker://{self.reference}"
        self._file = self.kept(".sif", lambda file: [[self.name, "pull", "--disable-cache", file, image]])

    def command(self) -> list[str]:
        scratch = self.job.work / "scratch"
        scratch.mkdir(exist_ok=True)
        closed = ["--containall", "--cleanenv", "--no-home", "--workdir", str(scratch), "--pwd", PLACE]
        # Otherwise a shell evaluates the variables of the image. No version before 1.1 knows this option.
        closed.append("--no-eval")
        seen = ["--bind", f"{self.job.payload}:{PLACE}:ro", *(["--nv"] if self.gpus else [])]
        return [self.name, "exec", *closed, *seen, str(self._file), "python3", *self.job.inside(PLACE)]


class Enroot(Runner):
    """Enroot, through Slurm's plugin Pyxis. Each image is converted to a squashfs file once."""

    name = "enroot"

    def prepare(self) -> None:
        image = f"docker://{self.reference.replace('/', '#', 1)}"
        self._file = self.kept(".sqsh", lambda file: [[self.name, "import", "--output", file, image]])

    def command(self) -> list[str]:
        seen = [f"--container-mounts={self.job.payload}:{PLACE}:ro", "--no-container-mount-home"]
        # Within the step of several tasks, each starts its container on its own node.
        here = ["--nodes=1", f"--nodelist={node_name()}", "--overlap"] if self.job.tasks.addresses else []
        step = ["srun", "--ntasks=1", *here, "--export=NONE", f"--container-image={self._file}", *seen]
        return [*step, f"--container-workdir={PLACE}", "python3", *self.job.inside(PLACE)]


class Venv(Runner):
    """An environment from the lock, where a node has nothing that runs images. It isolates nothing."""

    name = "venv"
    isolates = False

    def prepare(self) -> None:
        version = str(self.job.request["python"])
        lock = self.job.payload / "lock.txt"
        python = shutil.which(f"python{version}")
        if python is None:
            raise Failed("not_started", f"this node has no container engine and no Python {version}")

        pip = ["-m", "pip", "install", "--require-hashes", "--only-binary=:all:", "--no-deps", "--quiet"]
        install = [*pip, "--requirement", str(lock)]
        self._place = self.kept(
            "-venv",
            lambda place: [[python, "-m", "venv", place], [f"{place}/bin/python", *install]],
            hashlib.sha256(lock.read_bytes()).hexdigest(),
        )

    def command(self) -> list[str]:
        return [str(self._place / "bin" / "python"), *self.job.inside(str(self.job.payload))]

    def environment(self) -> dict[str, str]:
        # Images configure the loader in the same way.
        libraries = sorted(map(str, self._place.glob("lib/python3*/site-packages/nvidia/*/lib")))
        kept = {name: os.environ[name] for name in ("PATH", "CUDA_VISIBLE_DEVICES") if name in os.environ}
        own = {"HOME": str(self.job.work), "TMPDIR": str(self.job.work), "LC_ALL": "C.UTF-8"}
        return {**kept, **own, **({"LD_LIBRARY_PATH": ":".join(libraries)} if libraries else {})}


#: In the order in which they are looked for.
_RUNNERS = {runner.name: runner for runner in (Apptainer, Enroot, Podman, Docker, Venv)}


def choose_runner(wanted: str) -> type[Runner]:
    if wanted in _RUNNERS:
        return _RUNNERS[wanted]
    for name, runner in _RUNNERS.items():
        if runner.isolates and _is_there(name):
            return runner
    if wanted == "auto-or-venv":
        return Venv
    raise Failed("not_started", "this node has no container engine; `container: auto-or-venv` needs none")


def _is_there(name: str) -> bool:
    if shutil.which(name) is None:
        return False
    if name == "enroot":
        return "--container-image" in output_of(["srun", "--help"])
    return name == "apptainer" or succeeds([name, "version"])


@contextlib.contextmanager
def locked(path: Path, check: Callable[[], object]) -> Iterator[None]:
    """Hold a lock that other machines respect. On a file system without such locks, work may be done twice.

    check: called while another process holds the lock; raises an error to stop waiting.
    """
    with open(path, "w", encoding="utf-8") as stream:
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                check()
                time.sleep(0.2)
                continue
            except OSError:
                pass
            break
        yield


def main(directory: Path, array: str) -> int:
    """Measure, and return the exit status: 0 if a result was written."""
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, _stopped)
    index = int(os.environ["SLURM_ARRAY_TASK_ID"])
    place = directory / "arrays" / array
    request = json.loads((place / "requests").read_text(encoding="utf-8").splitlines()[index])
    unit = request["unit"]
    results = place / "results"
    if any(results.glob(f"{index}.*.frames")):
        print("another run of this unit has a result")
        return 0
    run_of_job = f"{index}.{os.environ['SLURM_JOB_ID']}-{os.environ.get('SLURM_RESTART_COUNT', '0')}"
    tasks = Tasks(request["tasks"], results, run_of_job)
    try:
        with _scratch(unit) as work:
            suffix, content = ".frames", run(Job(directory, unit, request, work, tasks))
    except (Failed, OSError) as error:
        code = "disk_full" if says(str(error), _FULL) else "not_started"
        if isinstance(error, Failed):
            code = error.code
        print(f"{code}: {error}")
        fault = {"fault": code, "detail": str(error)[:500], "node": node_name()}
        suffix, content = ".fault", json.dumps(fault).encode()
    if tasks.rank and (suffix == ".frames" or tasks.result_is_there()):
        # The report of task 0 says how it went.
        print(f"task {tasks.rank} has ended")
        return 0
    name = f"{run_of_job}{tasks.suffix}{suffix}"
    partial = results / f".{name}.{node_name()}.{os.getpid()}"
    with open(partial, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(partial, results / name)
    print(f"wrote {name}")
    return 0


def run(job: Job, kind: type[Runner] | None = None) -> bytes:
    """Run the probe in the image, and return the frames of the result. Raises Failed.

    kind: what runs the image, instead of what the request asks for.
    """
    job.payload.mkdir()
    # What the container will see, and nothing else.
    shutil.copyfile(job.tools / "inside.py", job.payload / "inside.py")
    for name, digest in job.request["files"].items():
        content = (job.directory / "objects" / digest).read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise Failed("not_started", f"{name} in the shared directory is not the file that was submitted")
        (job.payload / name).write_bytes(content)
    # The user inside the container may be another one.
    job.payload.chmod(0o755)
    for path in job.payload.iterdir():
        path.chmod(0o644)
    job.tasks.find()
    outside, gpus = _read_nvml(job.tools)
    if not job.request["gpus"]:
        # The GPUs of the node belong to other jobs.
        gpus = []
    offered = [f"{gpu['name']} ({gpu['uuid']})" for gpu in outside.get("gpus", ()) if gpu["uuid"] in gpus]
    print(f"GPUs, measured together: {', '.join(offered) or 'none'}")
    runner = (kind or choose_runner(job.request["container"]))(job, gpus)
    output = job.work / "output"
    try:
        runner.prepare()
        status = _run_to(output, runner, job)
    finally:
        runner.end()
    if output.stat().st_size > _LARGEST_OUTPUT:
        raise Failed("output_cut", "the container wrote more output than a report can have")
    written = output.read_bytes()
    if f"\ntfm-end ending{job.tasks.suffix}\n".encode() not in written:
        text = _end_of(job.work / "errors")
        code = "disk_full" if says(text, _FULL) else "not_started"
        raise Failed(code, f"{runner.name} ended with status {status}: {last_line(text)}")
    node = {
        "unit": job.unit,
        "job": os.environ.get("SLURM_JOB_ID", ""),
        "restart": os.environ.get("SLURM_RESTART_COUNT", "0"),
        "node": node_name(),
        "engine": runner.name,
        "isolates": runner.isolates,
        "image_digest": runner.digest,
        "gpus": gpus,
    }
    frames = {"node": json.dumps(node).encode(), "outside": json.dumps(outside).encode(), "output": written}
    frame = runpy.run_path(str(job.tools / "inside.py"))["frame"]
    return b"".join(frame(name, content) for name, content in frames.items())


def _read_nvml(tools: Path) -> tuple[dict[str, Any], list[str]]:
    """Return what NVML says on this node, and the UUIDs of the GPUs that Slurm gave to this job."""
    command = [sys.executable, "-E", "-s", str(tools / "ask_nvml.py")]
    try:
        done = subprocess.run(command, env={}, cwd="/", stdout=subprocess.PIPE, timeout=_NVML_LIMIT_S)
        found = json.loads(done.stdout) if done.returncode == 0 else {}
    except (OSError, ValueError, subprocess.TimeoutExpired):
        found = {}
    seen = [str(gpu["uuid"]) for gpu in found.get("gpus", [])]
    given = os.environ.get("SLURM_JOB_GPUS", "")
    indices = [int(part) for part in given.split(",") if part.isdigit()]
    if not given or len(indices) == len(seen):
        # Where Slurm hides the devices of other jobs, NVML counts only those of this one.
        return found, seen
    return found, [seen[index] for index in indices if index < len(seen)]


def _run_to(output: Path, runner: Runner, job: Job) -> int:
    """Run the container, write its output to a file, and return its exit status.

    Raises Failed, also if another task failed or task 0 has ended.
    """
    errors = job.work / "errors"
    with open(output, "wb") as stdout, open(errors, "wb") as stderr:
        child = subprocess.Popen(
            runner.command(), stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
            env=runner.environment(), cwd=job.work, start_new_session=True,
        )  # fmt: skip
        try:
            # The limit of `inside.py` is the probe's: beyond it, the verdict is that the probe took too long.
            while not job.tasks.ended():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return child.wait(min(_LOOK_S, job.left_s()))
                if output.stat().st_size + errors.stat().st_size > _LARGEST_OUTPUT:
                    raise Failed("output_cut", "the container wrote more output than a report can have")
            raise Failed("cancelled", "task 0 has ended")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            # For `fleet logs`, which reads what this job prints.
            sys.stdout.write(_end_of(errors))


def _end_of(path: Path) -> str:
    """Return the last lines of a file, which a program without a container can make as large as it wants."""
    with open(path, "rb") as stream:
        stream.seek(max(0, path.stat().st_size - 20_000))
        return stream.read(20_000).decode("utf-8", "replace")


@contextlib.contextmanager
def _scratch(unit: str) -> Iterator[Path]:
    work = Path(tempfile.mkdtemp(prefix=f"{unit}-"))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _stopped(number: int, _frame: Any) -> NoReturn:
    # Slurm sends SIGUSR1 before the end of the job's time, as `--signal` asks for.
    if number == signal.SIGUSR1:
        raise Failed("deadline", "the job's time is over")
    raise SystemExit(128 + number)


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
