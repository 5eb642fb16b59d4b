"""Slurm: arrays of jobs, whose results come back through a directory that all nodes share.

A job has the name of its array. Job ids are never kept: after a crash the controller may give them to other
jobs. If there is a result file, it counts, whatever the queue says.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pynvml

from ..compat.hardware import model_of
from ..engines import ask_nvml
from ..engines.protocol import ProbeRequest
from ..errors import InputError, MissingError, ValidatorError
from ..model.codec import DocumentError
from ..model.spec import NO_GPU
from ..system.files import open_file, read_file, says_full_disk, write_atomically
from ..system.processes import last_line
from ..versions import whole_number
from . import inside, slurm_client, slurm_job
from .protocol import (
    Answer,
    Capacity,
    CutError,
    Fault,
    FleetDown,
    Handle,
    Phase,
    Refused,
    State,
    Unit,
    array_name,
    read_fault,
    read_result,
)
from .settings import NAME as SETTINGS
from .settings import (
    UNSIGNED,
    FleetSettings,
    Limits,
    NodeKind,
    SlurmPlace,
    SlurmSection,
    Survey,
    driver_of,
    model_in,
)
from .slurm_client import Node, QueueEntry, Refusal

# The directory that a Slurm cluster's nodes share with this machine.
#
#     objects/SHA256          files of requests: the probe, locks
#     tools/DIGEST/           what a job runs: slurm_job.py, inside.py, ask_nvml.py with its module
#     arrays/NAME/            job.sh, requests (JSON, a line for each unit), output/,
#                             results/INDEX.JOB-RESTART.frames or .fault
#     units/NAME              the array and the index of a unit
#     images/                 what nodes converted, once for each digest
#
# Everything of an array is written before it is submitted, under a name that follows from its content, so
# any submitter that was killed finds its work again.

#: Seconds to wait for another submitter.
_LOCK_S = 120.0
#: Seconds for which a job that left the queue may still have a result that this machine can't see yet: a
#: network file system shows new files late.
SETTLE_S = 60.0
#: A warning this long before the end of a job's time, in seconds.
_WARNING_S = 60
_TAIL = 4000
#: Bytes of a result, whose output has at most 96 MiB before it is written in base64; and of the end of the
#: output of a job, which anything may write to.
_LARGEST_RESULT, _LARGEST_END = 160 << 20, 32 << 20
#: The suffix of a result with frames.
_WHOLE = ".frames"

#: Minutes that the short job of a survey may run, and seconds for which it may wait for a node.
_MINUTES = 2
_WAIT_S = 60
#: What that job runs. nvidia-smi comes with the driver, and needs no Python.
ASK = ("nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader")

_WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
_RUNNING = frozenset(
    {"RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
)
_FAULTS = {
    "NODE_FAIL": Fault.NODE_LOST,
    "BOOT_FAIL": Fault.NODE_LOST,
    "PREEMPTED": Fault.PREEMPTED,
    "CANCELLED": Fault.CANCELLED,
    "TIMEOUT": Fault.DEADLINE,
    "DEADLINE": Fault.DEADLINE,
    "OUT_OF_MEMORY": Fault.OUT_OF_MEMORY,
}
#: Refusals that say that no node can ever run the job.
_NEVER = re.compile(
    r"Invalid feature|node configuration is not available|Invalid generic resource", re.IGNORECASE
)
_QUOTA = re.compile(r"policy|limit|quota|QOS|Too many", re.IGNORECASE)
_SETTINGS_WRONG = re.compile(
    r"Invalid (partition|account|reservation|qos)|reservation is invalid|Access.*denied|not permitted",
    re.IGNORECASE,
)


def open_fleet(settings: FleetSettings) -> SlurmFleet:
    """Return the engine. Raises InputError if the settings have no Slurm cluster."""
    if settings.slurm is None:
        raise InputError(
            f"{SETTINGS} has no section `slurm`", hint="`fleet inventory --on slurm --write` proposes one"
        )
    return SlurmFleet(settings.slurm)


class SlurmFleet:
    """The cluster that this machine submits to."""

    name = "slurm"
    #: Slurm's default MaxArraySize is 1001.
    batch = 500

    def __init__(self, settings: SlurmSection, settle_s: float = SETTLE_S) -> None:
        self._settings = settings
        self.directory = Path(settings.directory)
        self._settle_s = settle_s
        #: When a unit without a result was first seen outside the queue, by the monotonic clock.
        self._absent: dict[str, float] = {}

    def limits(self, host_class: str) -> Limits:
        return self._settings.host_classes.get(host_class) or Limits(in_flight=1)

    def inventory(self) -> tuple[Capacity, ...]:
        nodes = slurm_client.nodes()
        return tuple(
            _capacity(name, place, nodes) for name, place in sorted(self._settings.host_classes.items())
        )

    def submit(
        self, units: Sequence[Unit], requests: Mapping[str, ProbeRequest]
    ) -> Mapping[str, Handle | Refused]:
        place = self._settings.host_classes.get(units[0].host_class)
        if place is None:
            refused = Refused(f"{SETTINGS} names no nodes for {units[0].host_class}")
            return {unit.name: refused for unit in units}
        name = array_name(units)
        try:
            self._write(name, units, requests, place)
        except OSError as error:
            raise MissingError(
                f"{self.directory} can't be written: {error.strerror}",
                hint=f"`directory` in {SETTINGS} has to be one that this machine and all nodes can write",
            ) from error
        with self._locked():
            handles = {}
            for index, unit in enumerate(units):
                # The first array that claims a unit has it: this one, if no other did.
                claim = self.directory / "units" / unit.name
                _write_once(claim, f"{name}/{index}".encode())
                handles[unit.name] = f"{claim.read_text('ascii')}/{unit.name}"
            known = {(entry.name, entry.index) for entry in slurm_client.queue()}
            missing: dict[str, list[int]] = {}
            for handle in handles.values():
                array, index, _ = _parts_of(handle)
                if (array, index) not in known and not self._results(array).get(index):
                    missing.setdefault(array, []).append(index)
            refusals: dict[str, Refused] = {}
            for array, indices in missing.items():
                try:
                    options = self._options(array, place, indices, units[0].tasks)
                    slurm_client.run(["sbatch", "--parsable", *options])
                except Refusal as error:
                    refusals[array] = _refused(str(error), units[0].host_class)
        return {
            unit: refusals[array] if array in refusals and index in missing[array] else handle
            for unit, handle in handles.items()
            for array, index, _ in [_parts_of(handle)]
        }

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, State]:
        entries: dict[tuple[str, int], list[QueueEntry]] = {}
        for entry in slurm_client.queue():
            entries.setdefault((entry.name, entry.index), []).append(entry)
        arrays = {array for array, _ in entries}
        results = {array: self._results(array) for array in {_parts_of(handle)[0] for handle in handles}}
        found = {}
        for handle in handles:
            array, index, _ = _parts_of(handle)
            mine = results[array].get(index, [])
            state = self._state(handle, entries.get((array, index), []), mine, array in arrays)
            if state is not None:
                found[handle] = state
        return found

    def collect(self, handle: Handle) -> Answer:
        array, index, unit = _parts_of(handle)
        cut = CutError(f"{unit} has no result")
        # A unit that ran twice has two results. The first whole one counts.
        paths = [path for path in self._results(array).get(index, []) if path.suffix == _WHOLE]
        for path in sorted(paths, key=lambda path: (_changed_at(path), path.name)):
            try:
                content = read_file(path, _LARGEST_RESULT)
                return read_result(content, unit, self._settings.container not in UNSIGNED)
            except CutError as error:
                cut = error
            except OSError as error:
                cut = CutError(f"{path} can't be read: {error.strerror}")
        raise cut

    def cancel(self, handles: Sequence[Handle]) -> None:
        wanted = {_parts_of(handle)[:2] for handle in handles}
        live = _WAITING | _RUNNING
        slurm_client.cancel(
            entry
            for entry in slurm_client.queue()
            if (entry.name, entry.index) in wanted and entry.state in live
        )

    def logs(self, handle: Handle) -> str:
        array, index, _ = _parts_of(handle)
        text = ""
        for path in self._outputs(array, index):
            with open_file(path, sys.maxsize) as stream:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - _LARGEST_END))
                text += stream.read(_LARGEST_END).decode("utf-8", "replace")
        return text

    def forget(self, handles: Sequence[Handle]) -> None:
        """Keep everything: another submitter may still read it. The site cleans the directory."""

    def preview(self, units: Sequence[Unit], requests: Mapping[str, ProbeRequest]) -> str:
        place, tasks = self._settings.host_classes.get(units[0].host_class), units[0].tasks
        if place is None:
            return ""
        name = array_name(units)
        options = self._options(name, place, range(len(units)), tasks)
        command = shlex.join(["sbatch", "--parsable", *options])
        names = "".join(f"# {index}: {unit.name} {unit.cell}\n" for index, unit in enumerate(units))
        script = self._script(name, tasks)
        return f"{command}\n\n# The batch script:\n{script}\n# The units:\n{names}"

    def close(self) -> None:
        """Do nothing: there are no connections."""

    def _options(self, array: str, place: SlurmPlace, indices: Sequence[int], tasks: int) -> list[str]:
        """Return the arguments of sbatch."""
        directory = self.directory / "arrays" / array
        given = {
            "constraint": place.constraint,
            "gres": place.gres,
            "partition": place.partition,
            "account": place.account,
            "reservation": place.reservation,
            "qos": place.qos,
            "cpus-per-task": place.cpus,
            "mem": f"{place.memory}G" if place.memory else "",
        }
        several = [f"--nodes={tasks}", "--ntasks-per-node=1"] if tasks > 1 else ["--nodes=1", "--ntasks=1"]
        # As sbatch takes them: `0-2,5`.
        ranges: list[list[int]] = []
        for index in sorted(indices):
            if ranges and ranges[-1][1] == index - 1:
                ranges[-1][1] = index
            else:
                ranges.append([index, index])
        listed = [f"{first}-{last}" if first < last else f"{first}" for first, last in ranges]
        return [
            f"--job-name={array}",
            f"--array={','.join(listed)}",
            *(f"--{name}={value}" for name, value in given.items() if value),
            *several,
            f"--time={place.time_limit}",
            f"--deadline=now+{place.wait_limit + place.time_limit}minutes",
            # Less time than this has no room for a warning.
            *([f"--signal=B:USR1@{_WARNING_S}"] if place.time_limit > 2 else []),
            "--no-requeue",
            "--open-mode=append",
            # Nothing of this machine's environment, where credentials may be.
            "--export=NONE",
            f"--chdir={directory}",
            f"--output={str(directory).replace('%', '%%')}/output/%a.%A",
            str(directory / "job.sh"),
        ]

    # --- the shared directory ---------------------------------------------------------------------------

    def _write(
        self, name: str, units: Sequence[Unit], requests: Mapping[str, ProbeRequest], place: SlurmPlace
    ) -> None:
        """Write everything that the jobs of an array read. What is there already stays."""
        tools_digest, tools = _tools()
        for file, content in tools.items():
            _write_once(self.directory / "tools" / tools_digest / file, content)
        array = self.directory / "arrays" / name
        for part in ("output", "results"):
            (array / part).mkdir(parents=True, exist_ok=True)
        lines = []
        for unit in units:
            request = requests[unit.name]
            files = {"probe.pyz": request.archive, **request.files}
            digests = {file: hashlib.sha256(content).hexdigest() for file, content in files.items()}
            for file, digest in digests.items():
                _write_once(self.directory / "objects" / digest, files[file])
            python = re.search(rb"^# python: ([\d.]+)$", request.files.get("lock.txt", b""), re.MULTILINE)
            described = {
                "unit": unit.name,
                "reference": unit.reference,
                "arguments": list(request.arguments),
                "timeout_s": request.timeout_s,
                "tasks": unit.tasks,
                "gpus": unit.host_class != NO_GPU,
                "minutes": place.time_limit,
                "container": self._settings.container,
                "python": python[1].decode() if python else "3",
                "files": digests,
            }
            lines.append(json.dumps(described) + "\n")
        _write_once(array / "requests", "".join(lines).encode())
        _write_once(array / "job.sh", self._script(name, units[0].tasks).encode())

    def _script(self, array: str, tasks: int) -> str:
        """Return the batch script of an array."""
        program = self.directory / "tools" / _tools()[0] / "slurm_job.py"
        # -B: nodes write nothing next to the tools.
        command = [self._settings.python, "-E", "-s", "-B", str(program), str(self.directory), array]
        # A task on each node. The others go on when one has ended: it says itself what happened.
        step = f"srun --ntasks={tasks} --ntasks-per-node=1 --kill-on-bad-exit=0 " if tasks > 1 else ""
        setup = f"{self._settings.setup}\n" if self._settings.setup else ""
        return f"#!/bin/bash\nexport SLURM_EXPORT_ENV=ALL\n{setup}exec {step}{shlex.join(command)}\n"

    def _results(self, array: str) -> dict[int, list[Path]]:
        """Return the files of an array's results, by index."""
        found: dict[int, list[Path]] = {}
        for path in (self.directory / "arrays" / array / "results").glob("[0-9]*"):
            index = whole_number(path.name.partition(".")[0])
            if index is not None:
                found.setdefault(index, []).append(path)
        return found

    def _outputs(self, array: str, index: int) -> list[Path]:
        """Return the files with the output of the runs of a unit, oldest first."""
        return sorted((self.directory / "arrays" / array / "output").glob(f"{index}.*"), key=_changed_at)

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        """Let one submitter at a time look into the queue and submit.

        On a file system without locks, two of them may submit the same array: both arrays measure, and one
        result counts.
        """
        path, deadline = self.directory / "lock", time.monotonic() + _LOCK_S

        def check() -> None:
            if time.monotonic() > deadline:
                raise FleetDown(f"another submitter has held {path} for {_LOCK_S:.0f} s")

        return slurm_job.locked(path, check)

    # --- how a unit ended ---------------------------------------------------------------------------------

    def _state(
        self, handle: Handle, entries: list[QueueEntry], results: list[Path], in_queue: bool
    ) -> State | None:
        """Return the state of a unit, or None if it is gone. in_queue: the queue has others of its array."""
        if any(path.suffix == _WHOLE for path in results):
            return State(Phase.ENDED)
        for phase, states in ((Phase.RUNNING, _RUNNING), (Phase.WAITING, _WAITING)):
            if live := [entry for entry in entries if entry.state in states]:
                self._absent.pop(handle, None)
                return State(phase, live[0].reason if phase is Phase.WAITING else "", live[0].node)
        if results:
            with contextlib.suppress(DocumentError, OSError):
                return read_fault(read_file(max(results, key=_changed_at)))
        ended = entries[-1] if entries else None
        node = ended.node if ended else ""
        if ended is not None and ended.state in _FAULTS:
            return State(Phase.LOST, _told(ended), node, _FAULTS[ended.state])
        # The result may not be visible here yet.
        since = self._absent.setdefault(handle, time.monotonic())
        if time.monotonic() - since < self._settle_s:
            return State(Phase.RUNNING, "it left the queue; waiting for its result", node)
        if ended is None:
            # Slurm forgets a task that is cancelled while it waits, and keeps only the rest of its array.
            if in_queue and not self._outputs(*_parts_of(handle)[:2]):
                return State(Phase.LOST, "it was taken out of the queue", "", Fault.CANCELLED)
            return None
        text = self.logs(handle)[-_TAIL:]
        last = last_line(text, "it printed nothing")
        fault_code = Fault.DISK_FULL if says_full_disk(text) else Fault.NOT_STARTED
        return State(Phase.LOST, f"{_told(ended)}, without a result: {last}", node, fault_code)


def _capacity(host_class: str, place: SlurmPlace, nodes: Sequence[Node]) -> Capacity:
    wanted = set(filter(None, place.partition.split(",")))
    inside = {
        node.name: node for node in nodes if (node.partition in wanted if wanted else node.default)
    } or {node.name: node for node in nodes if not wanted}
    fit = [node for node in inside.values() if slurm_client.satisfies(node, place.constraint, place.gres)]
    asked = " ".join(text for text in (place.constraint, place.gres, place.partition) if text)
    unusable = [f"{node.name} is {node.state}" for node in fit if not node.usable]
    return Capacity(
        host_class,
        len(fit),
        sum(node.usable for node in fit),
        min((sum(node.gpus.values()) for node in fit), default=0),
        ", ".join(unusable) or asked if fit else f"no node has {asked}",
    )


def _refused(message: str, host_class: str) -> Refused:
    if _NEVER.search(message):
        return Refused(message)
    if _SETTINGS_WRONG.search(message):
        raise InputError(f"Slurm refuses the jobs of {host_class}: {message}", hint=f"correct {SETTINGS}")
    return Refused(message, Fault.QUOTA if _QUOTA.search(message) else Fault.NOT_STARTED)


def _told(entry: QueueEntry) -> str:
    return entry.state if entry.reason == "None" else f"{entry.state} {entry.reason}"


def _parts_of(handle: Handle) -> tuple[str, int, str]:
    """Return the array, the index and the unit of a handle."""
    array, index, unit = handle.split("/")
    return array, int(index), unit


def _changed_at(path: Path) -> float:
    """Return when a file was changed, as a timestamp; 0 if it is gone."""
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


@functools.cache
def _tools() -> tuple[str, dict[str, bytes]]:
    """Return the files that jobs run, by name, after their digest, which names their directory."""
    paths = [Path(str(module.__file__)) for module in (slurm_job, inside, ask_nvml, pynvml)]
    files = {path.name: path.read_bytes() for path in paths}
    content = "".join(hashlib.sha256(text).hexdigest() for _, text in sorted(files.items()))
    return hashlib.sha256(content.encode()).hexdigest()[:16], files


def _write_once(path: Path, content: bytes) -> None:
    if not path.exists():
        write_atomically(path, content)


# --- the kinds of nodes, by features and generic resources, or by a job ------------------------------


def survey(settings: FleetSettings) -> Survey:
    """Return the kinds of nodes of the cluster that this machine submits to, without needing the settings.

    Submits a short job for each kind whose features don't say the driver and the model. Raises FleetDown.
    """
    # Home directories are shared on most clusters.
    directory = str(Path.home() / "tensorflow-gpu-matrix")
    comment = "CHECK: this machine and all nodes have to see it under this path."
    kinds = [completed(kind) for kind in kinds_of(slurm_client.nodes())]
    return Survey("slurm", {"directory": (directory, comment)}, kinds)


def completed(kind: NodeKind, command: Sequence[str] = ASK) -> NodeKind:
    """Return a kind with its driver and model, for which a short job asks one of its nodes if needed.

    Raises FleetDown. If the job fails, or finds no free node in time, `said` says so.
    """
    if kind.host_class is not None:
        return kind
    options = [f"--{name}={value}" for name, value in kind.place.items()]
    limits = [f"--time={_MINUTES}", f"--immediate={_WAIT_S}"]
    try:
        return told_by(kind, slurm_client.run(["srun", *options, "--ntasks=1", *limits, *command]))
    except FleetDown:
        raise
    except (Refusal, ValidatorError):
        return told_by(kind, "")


def told_by(kind: NodeKind, answer: str) -> NodeKind:
    """Return a kind with what nvidia-smi said of the driver and the first GPU of one of its nodes."""
    driver, _, gpu = (part.strip() for part in answer.strip().partition("\n")[0].partition(","))
    if not driver_of([driver]) or not gpu:
        return replace(kind, said=f"a job on {kind.sample} could not find out its driver")
    said = f"{kind.sample} said driver {driver} and {gpu}."
    if not kind.driver:
        said += " CHECK: the scheduler does not know the driver, so make sure that all of them have it"
    return replace(kind, driver=kind.driver or driver, gpu=kind.gpu or model_of(gpu), said=said)


def kinds_of(nodes: Iterable[Node]) -> list[NodeKind]:
    """Return the kinds of nodes: those with the same features, GPUs and partitions are one.

    Nodes without a GPU are one kind. If nodes have GPUs of two models, each model is a kind of its own,
    chosen by its GRES type.
    """
    partitions: dict[str, list[Node]] = {}
    for node in nodes:
        partitions.setdefault(node.name, []).append(node)
    kinds: dict[tuple[object, ...], list[list[Node]]] = {}
    for of_node in partitions.values():
        node = of_node[0]
        gpus = tuple(sorted(node.gpus))
        where = tuple(sorted(entry.partition for entry in of_node))
        key = (where, gpus, tuple(sorted(node.features))) if gpus else ((), (), ())
        kinds.setdefault(key, []).append(of_node)
    return [kind for alike in kinds.values() for kind in _kinds(alike)]


def _kinds(alike: list[list[Node]]) -> list[NodeKind]:
    """Return the kinds of nodes that look the same. alike: for each node, its entry in every partition."""
    first = alike[0]
    node = first[0]
    partition = {} if any(entry.default for entry in first) else {"partition": node.partition}
    if not node.gpus:
        return [NodeKind(len(alike), node.name, "", "", False, partition or {"partition": node.partition})]
    found = []
    for kind in sorted(node.gpus):
        model = model_in([kind]) if kind else ""
        # With two models on a node, a feature can be about either of them.
        model = model or (model_in(node.features) if len(node.gpus) == 1 else "")
        driver = driver_of(node.features)
        wanted = [
            feature
            for feature in sorted(node.features)
            if (driver and driver_of([feature]) == driver) or (model and model_in([feature]) == model)
        ]
        place = {
            **({"constraint": "&".join(wanted)} if wanted else {}),
            "gres": f"gpu:{kind}:1" if kind else "gpu:1",
            **partition,
        }
        found.append(NodeKind(len(alike), node.name, driver, model, True, place))
    return found
