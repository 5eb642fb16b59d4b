"""The ways of running an image on a node: container engines, or an environment from the lock."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from .commands import FULL, last_line, node_name, output_of, says, succeeds
from .job import PLACE, Failed, Job

#: Open files and processes of a container; Podman can't give more processes than this.
_MOST = 32768
_ABSENT = ("manifest unknown", "manifest_unknown", "name unknown", "name_unknown", "not found")


class Runner:
    """Something that can run an image on this node. digest: of the image, as it says itself, or None."""

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
        """Return the environment of the command; None for that of this job."""
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
            raise Failed(_pull_fault(text), last_line(text))


class Docker(Runner):
    """Docker, whose daemon starts the container outside of the job."""

    name = "docker"

    def __init__(self, job: Job, gpus: Sequence[str]) -> None:
        super().__init__(job, gpus)
        self._container = f"{job.unit}-{os.environ['SLURM_JOB_ID']}-{os.getpid()}"

    def prepare(self) -> None:
        if not succeeds([self.name, "image", "inspect", self.reference]):
            self.pull([self.name, "pull", "--quiet", self.reference])
        _, digest = self.reference.split("@")
        found = output_of(
            [self.name, "image", "inspect", "--format", "{{json .RepoDigests}}", self.reference]
        )
        self.digest = digest if digest in found else None

    def command(self) -> list[str]:
        # Tasks that train together have to reach each other. Others have no network.
        network = f"--network={'host' if self.job.tasks.addresses else 'none'}"
        common = ["run", "--rm", "--name", self._container, network, "--cap-drop=all"]
        safe = [
            "--security-opt=no-new-privileges",
            f"--volume={self.job.payload}:{PLACE}:ro",
            f"--workdir={PLACE}",
        ]
        inside = ["--entrypoint=python3", self.reference, *self.job.inside(PLACE)]
        return [self.name, *common, *safe, *self._own(), *self._devices(), *inside]

    def _own(self) -> list[str]:
        return [f"--user={os.getuid()}:{os.getgid()}", "--env=HOME=/tmp"]

    def _devices(self) -> list[str]:
        return [f'--gpus="device={",".join(self.gpus)}"'] if self.gpus else []

    def end(self) -> None:
        # `rm --force` alone would first ask the probe to end, and wait.
        succeeds([self.name, "kill", self._container])
        succeeds([self.name, "rm", "--force", self._container])


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
        def convert(partial: Path) -> None:
            self.pull([self.name, "pull", "--disable-cache", str(partial), f"docker://{self.reference}"])

        self._file = _kept(self.job, ".sif", convert)

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
        host, _, path = self.reference.partition("/")

        def convert(partial: Path) -> None:
            self.pull([self.name, "import", "--output", str(partial), f"docker://{host}#{path}"])

        self._file = _kept(self.job, ".sqsh", convert)

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

        def install(partial: Path) -> None:
            self.pull([python, "-m", "venv", str(partial)])
            pip = ["-m", "pip", "install", "--require-hashes", "--only-binary=:all:", "--no-deps", "--quiet"]
            self.pull([str(partial / "bin" / "python"), *pip, "--requirement", str(lock)])

        name = hashlib.sha256(lock.read_bytes()).hexdigest()
        self._place = _kept(self.job, "-venv", install, name)

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


def _kept(job: Job, suffix: str, make: Callable[[Path], None], digest: str = "") -> Path:
    """Return what `make` makes in the shared directory, once for each image or lock."""
    name = digest or job.request["reference"].rpartition(":")[2]
    path = job.directory / "images" / f"sha256-{name}{suffix}"
    path.parent.mkdir(exist_ok=True)
    with _locked(path.with_name(f".{path.name}.lock"), job):
        if not path.exists():
            partial = path.with_name(f".{os.environ['SLURM_JOB_ID']}-{os.getpid()}-{path.name}")
            try:
                make(partial)
                os.rename(partial, path)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
                with contextlib.suppress(OSError):
                    partial.unlink()
    return path


@contextlib.contextmanager
def _locked(path: Path, job: Job) -> Iterator[None]:
    """Hold a lock that other nodes respect. On a file system without such locks, work is done twice."""
    with open(path, "w", encoding="utf-8") as stream:
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                job.left_s()
                time.sleep(0.5)
                continue
            except OSError:
                pass
            break
        yield


def _pull_fault(text: str) -> str:
    if says(text, FULL):
        return "disk_full"
    return "image_missing" if says(text, _ABSENT) else "pull_failed"
