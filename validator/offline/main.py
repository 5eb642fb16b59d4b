"""`./measure`: receive the bundle next to it, and measure its images with what this machine has.

The result is one file for `validator records import` on the machine that wrote the bundle. Nothing is
installed, and no network is used.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from ..fleet import slurm_job
from ..fleet.slurm_job import Failed
from .receive import Refused, receive
from .root import die_with_parent
from .ways import WAYS, why_not

#: What runs outside of this archive, as files next to each other.
_TOOLS = (
    "validator/fleet/inside.py",
    "validator/engines/ask_nvml.py",
    "validator/offline/root.py",
    "pynvml.py",
)
#: Minutes in which an engine has to take an image, or its file system has to be unpacked.
_PREPARE_MINUTES = 120.0
_ENGINE = "engine"
_UNSIGNED = "Nobody signs, so the verdict is at most unproven, and it can't be certified."
#: What each way can prove. `tool`: docker or podman, by the tool itself. `engine`: by its command line.
_PROVES = {
    "tool": "as on line: an isolated container, a host that is read from outside, and the signature of this"
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
from validator.cli.signing import measure_received
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


def _measure_all(directory: Path, received: Path, given: argparse.Namespace) -> int:
    """Measure the images that the output does not have yet. Return 0 if all were measured."""
    with _work(directory if given.explain else received) as (_, tools, _):
        reasons = {name: why_not(name, tools / "root.py") for name in WAYS}
    for name, reason in reasons.items():
        _say(f"{name}: {reason or f'can be used. It proves: {_PROVES.get(name, _PROVES[_ENGINE])}'}")
    if given.explain:
        return 0
    way = given.way or next((name for name, reason in reasons.items() if not reason), None)
    if way is None or reasons[way]:
        raise Failed(
            "not_started", f"--with {way}: {reasons[way]}" if way else "no way works on this machine"
        )
    bundle = json.loads((received / "bundle.json").read_text(encoding="utf-8"))
    output = given.output
    failed = False
    for image in bundle["images"]:
        tag = image["tag"]
        if output.exists() and image["digest"].encode() in output.read_bytes():
            _say(f"{tag}: {output} has it already")
            continue
        try:
            with _work(received) as (work, tools, cleaner):
                whole = image["question"] is not None and way in ("docker", "podman")
                python = _tool(received, image, work) if whole else None
                proves = _PROVES["tool"] if python else _PROVES.get(way, _PROVES[_ENGINE])
                _say(f"{tag}: measuring with {way}. It proves: {proves}")
                if python:
                    new = _by_tool(received, tag, way, python, work, cleaner)
                else:
                    new = _by_command(received, bundle, image, way, work, tools, cleaner)
            # Another process may have written something meanwhile.
            lines = output.read_bytes() if output.exists() else b""
            partial = output.with_name(f".{output.name}.partial")
            try:
                partial.write_bytes(lines + new)
                os.replace(partial, output)
            finally:
                partial.unlink(missing_ok=True)
        except (Failed, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            # The documents of an image may have any form.
            _say(f"{tag}: not measured: {error or type(error).__name__}")
            failed = True
            continue
        _say(f"{tag}: measured. Give {output} to `validator records import`.")
    return int(failed)


@contextlib.contextmanager
def _work(place: Path) -> Iterator[tuple[Path, Path, IO[str]]]:
    """Yield a directory, the tools in it, and where to write commands that clean up.

    A process of its own runs them when this one ends, also if it is killed.
    """
    work = Path(tempfile.mkdtemp(prefix="measuring-", dir=place))
    tools = work / "tools"
    try:
        tools.mkdir()
        with zipfile.ZipFile(sys.argv[0]) as archive:
            for name in _TOOLS:
                (tools / Path(name).name).write_bytes(archive.read(name))
        cleaner = subprocess.Popen(
            [sys.executable, "-I", "-B", str(tools / "root.py"), "clean"], stdin=subprocess.PIPE, text=True,
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
        yield work, tools, cleaner.stdin
    finally:
        _clean(cleaner.stdin)
        cleaner.stdin.close()
        cleaner.wait()


def _clean(cleaner: IO[str], *command: str) -> None:
    print(json.dumps(command), file=cleaner, flush=True)


def _tool(received: Path, image: dict[str, Any], work: Path) -> str | None:
    """Unpack the tool for a Python of this machine and return that Python; None if there is none."""
    reason = "there is none"
    for name in (sys.executable, *(f"python3.{minor}" for minor in range(14, 9, -1))):
        python = shutil.which(name)
        if python is None:
            continue
        command = [python, "-I", "-c", _UNPACK, received / image["probe"], received / "tool", work / "tool"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=work)
        if done.returncode == 0:
            return python
        reason = f"{python}: {(done.stderr.strip() or 'it ends without a message').splitlines()[0]}"
        shutil.rmtree(work / "tool", ignore_errors=True)
    _say(f"The tool itself needs Python 3.10 or newer: {reason}")
    return None


def _by_tool(received: Path, tag: str, way: str, python: str, work: Path, cleaner: IO[str]) -> bytes:
    """Measure just as on a machine with a network, and return the records as JSON Lines."""
    output = work / "records"
    variables = {**os.environ, "PYTHONPATH": str(work / "tool"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [python, "-s", "-c", _MEASURE, str(received), tag, way, str(output)]
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
    if status or not output.exists():
        raise Failed("not_started", f"the tool ended with status {status}")
    return output.read_bytes()


def _by_command(
    received: Path,
    bundle: dict[str, Any],
    image: dict[str, Any],
    way: str,
    work: Path,
    tools: Path,
    cleaner: IO[str],
) -> bytes:
    """Measure without the tool, and return what `records import` turns into a record, as one line."""
    objects = {}
    (work / "objects").mkdir()
    for name, path in (("probe.pyz", image["probe"]), ("lock.txt", image["lock"])):
        if path is None:
            continue
        content = (received / path).read_bytes()
        objects[name] = hashlib.sha256(content).hexdigest()
        (work / "objects" / objects[name]).write_bytes(content)
    # A user that nothing else on this machine has, among those that this root can become.
    users = (line.split() for line in Path("/proc/self/uid_map").read_text().splitlines())
    last = max(int(first) + int(count) for first, _, count in users)
    request = {
        "reference": image["tag"],
        "minutes": _PREPARE_MINUTES,
        "timeout_s": float(image["timeout_s"]),
        "arguments": image["arguments"],
        "files": objects,
        "gpus": True,
        "user": min(0x70000000, last - 2000) + os.getpid() % 1000,
        "images": str(received / "images"),
        **{name: image[name] for name in ("tag", "digest")},
    }
    unit = f"validator-{image['digest'].partition(':')[2][:16]}"
    job = slurm_job.Job(work, unit, request, work, slurm_job.Tasks(1, work, ""), tools)
    if way in ("docker", "podman"):
        name = f"{unit}-{os.environ.get('SLURM_JOB_ID', 'bundle')}-{os.getpid()}"
        _clean(cleaner, way, "rm", "--force", name)
    elif os.geteuid() == 0:
        script = str(tools / "root.py")
        _clean(cleaner, sys.executable, "-I", "-B", script, "end", str(request["user"]))
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            result = slurm_job.run(job, WAYS[way])
        finally:
            _say(said.getvalue().rstrip())
    line = {"bundle": 1, "question": image["question"], "hosts": bundle.get("hosts", []), "unit": unit}
    return json.dumps({**line, "result": result.decode("ascii")}).encode() + b"\n"
