"""Run the probe in the image on this node, and write one result."""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from .commands import FULL, last_line, node_name, says
from .job import HERE, Failed, Job, Tasks
from .runners import Runner, choose_runner

#: Reading the driver may have to wake every GPU of the node.
_NVML_LIMIT_S = 90.0
#: Bytes of a container's output; `inside.py` writes fewer.
_LARGEST_OUTPUT = 96 << 20
#: Seconds between two looks at what became of the other tasks.
_LOOK_S = 2.0


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
        suffix, content = ".fault", _fault(error)
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


def run(job: Job) -> bytes:
    """Run the probe in the image, and return the frames of the result. Raises Failed."""
    job.lay_out()
    job.tasks.find()
    outside, gpus = _read_nvml()
    if not job.request["gpus"]:
        # The GPUs of the node belong to other jobs.
        gpus = []
    runner = choose_runner(job.request["container"])(job, gpus)
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
        text = (job.work / "errors").read_text("utf-8", "replace")
        code = "disk_full" if says(text, FULL) else "not_started"
        raise Failed(code, f"{runner.name} ended with status {status}: {last_line(text)}")
    node = {
        "unit": job.unit,
        "job": os.environ["SLURM_JOB_ID"],
        "restart": os.environ.get("SLURM_RESTART_COUNT", "0"),
        "node": node_name(),
        "engine": runner.name,
        "isolates": runner.isolates,
        "image_digest": runner.digest,
        "gpus": gpus,
    }
    frames = {"node": json.dumps(node).encode(), "outside": json.dumps(outside).encode(), "output": written}
    frame = runpy.run_path(str(HERE / "inside.py"))["frame"]
    return b"".join(frame(name, content) for name, content in frames.items())


def _read_nvml() -> tuple[dict[str, Any], list[str]]:
    """Return what NVML says on this node, and the UUIDs of the GPUs that Slurm gave to this job."""
    command = [sys.executable, "-E", "-s", str(HERE / "ask_nvml.py")]
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
    errors = job.work / "errors"
    with open(output, "wb") as stdout, open(errors, "wb") as stderr:
        child = subprocess.Popen(
            runner.command(), stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
            env=runner.environment(), cwd=job.work, start_new_session=True,
        )  # fmt: skip
        try:
            # The limit of `inside.py` is the probe's: beyond it, the verdict is that the probe took too long.
            return _wait(child, job)
        except subprocess.TimeoutExpired:
            raise Failed("deadline", f"the {job.request['minutes']} minutes of this job are over") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            # For `fleet logs`, which reads what this job prints.
            sys.stdout.write(errors.read_text("utf-8", "replace")[-20_000:])


def _wait(child: subprocess.Popen[bytes], job: Job) -> int:
    """Wait for the end of the container. Raises TimeoutExpired, or Failed if another task failed."""
    if not job.tasks.addresses:
        return child.wait(job.left_s())
    while not job.tasks.ended():
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(min(_LOOK_S, job.left_s()))
    raise Failed("cancelled", "task 0 has ended")


@contextlib.contextmanager
def _scratch(unit: str) -> Iterator[Path]:
    work = Path(tempfile.mkdtemp(prefix=f"{unit}-"))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _fault(error: Exception) -> bytes:
    code = "disk_full" if says(str(error), FULL) else "not_started"
    found = (error.code, error.detail) if isinstance(error, Failed) else (code, str(error))
    print(f"{found[0]}: {found[1]}")
    return json.dumps({"fault": found[0], "detail": found[1][:500], "node": node_name()}).encode()


def _stopped(number: int, _frame: Any) -> NoReturn:
    # Slurm sends SIGUSR1 before the end of the job's time, as `--signal` asks for.
    if number == signal.SIGUSR1:
        raise Failed("deadline", "the job's time is over")
    raise SystemExit(128 + number)


def start() -> None:
    """Measure the unit that the command line names, and end the process."""
    os.umask(0o077)
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
