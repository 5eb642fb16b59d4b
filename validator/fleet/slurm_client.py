"""Slurm's own programs, each call with a time limit, and what they print as values.

Every answer is read from plain text: with the controller down, `squeue --json` exits with 0 and an empty
list, while the text form exits with 1. Nothing here needs accounting (`sacct`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import InputError, MissingError, ValidatorError
from ..system import processes
from ..versions import whole_number
from .protocol import PREFIX, FleetDown

#: Seconds. The programs themselves give up after 9 to 60 s.
LIMIT_S = 75.0
#: Job ids in one call of `scancel`.
_CHUNK = 200
#: Variables for Slurm's programs. Others, such as SBATCH_PARTITION, would change what is submitted.
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LD_LIBRARY_PATH", "SLURM_CONF")
_DOWN = re.compile(
    r"contact slurm controller|timed out on send/recv|Zero Bytes were transmitted|Munge"
    r"|Protocol authentication|temporarily unable|Connection (refused|reset)|Unexpected message"
    r"|in standby mode|Transport endpoint",
    re.IGNORECASE,
)
_UNUSABLE = re.compile(r"configuration source|cannot stat file|process configuration file", re.IGNORECASE)


class Refusal(Exception):
    """The controller answered, and refused. The message is its own, without the program's name."""


@dataclass(frozen=True)
class QueueEntry:
    """One task of an array in the queue. id: `12_3`, which a later job may reuse.

    index: of the task. state: `PENDING`, `RUNNING`, ... name: of the array.
    """

    id: str
    index: int
    state: str
    reason: str
    node: str
    name: str


@dataclass(frozen=True)
class Node:
    """One node in one partition. default: of the cluster. gpus: number by type, "" where it has no type.

    state: as `sinfo` prints it, such as `idle`, `drained` or `down*`.
    """

    name: str
    partition: str
    default: bool
    state: str
    features: frozenset[str]
    gpus: Mapping[str, int]

    @property
    def usable(self) -> bool:
        """True unless the node is down, drained or does not answer."""
        base = re.match(r"[a-z]+", self.state)
        return base is not None and base[0] in _USABLE and "*" not in self.state


_USABLE = ("idle", "mixed", "allocated", "completing", "reserved", "planned")


def queue() -> list[QueueEntry]:
    """Return this user's jobs of this project that the controller knows, also ended. Raises FleetDown."""
    text = run(["squeue", "--noheader", "--array", "--states=all", f"--user={os.getuid()}",
                 "--format=%i|%K|%T|%r|%N|%j"])  # fmt: skip
    found = []
    for line in text.splitlines():
        parts = line.split("|", 5)
        if len(parts) == 6 and parts[5].startswith(PREFIX) and (index := whole_number(parts[1])) is not None:
            identifier, _, state, reason, node, name = parts
            found.append(QueueEntry(identifier, index, state, reason, node, name))
    return found


def nodes() -> list[Node]:
    """Return every node, once for each of its partitions. Raises FleetDown."""
    text = run(["sinfo", "--noheader", "--Node", "--format=%N|%P|%T|%f|%G"])
    found = []
    for line in text.splitlines():
        parts = line.split("|", 4)
        if len(parts) != 5:
            raise FleetDown(f"sinfo prints a line that can't be read: {line[:100]!r}")
        name, partition, state, features, gres = parts
        tags = frozenset(tag for tag in features.split(",") if tag != "(null)")
        found.append(Node(name, partition.rstrip("*"), partition.endswith("*"), state, tags, gpus_of(gres)))
    return found


def cancel(entries: Iterable[QueueEntry]) -> None:
    """End tasks that `queue` listed just before, by ids whose names were checked. Others may have ended.

    With a filter such as --name, Slurm 22.05 ends all tasks of a waiting array for the id of one.
    """
    identifiers = [entry.id for entry in entries]
    for start in range(0, len(identifiers), _CHUNK):
        try:
            run(["scancel", "--quiet", *identifiers[start : start + _CHUNK]])
        except Refusal as error:
            raise ValidatorError(f"Slurm does not end the jobs: {error}") from None


def gpus_of(gres: str) -> dict[str, int]:
    """Return how many GPUs of each type are in a list of generic resources: `gpu:h100:4(S:0-1),tmp:1`."""
    found: dict[str, int] = {}
    for entry in re.split(r",(?![^()]*\))", gres):
        match = re.fullmatch(r"gpu(?::([^:()]*[^:()\d][^:()]*))?(?::(\d+))?(?:\(.*\))?", entry.strip())
        if match:
            kind = match[1] or ""
            found[kind] = found.get(kind, 0) + (whole_number(match[2] or "1") or 0)
    return found


def satisfies(node: Node, constraint: str, gres: str) -> bool:
    """Return True if a node has the features and the GPUs that a job asks for."""
    wanted = gpus_of(gres)
    enough = all(
        (sum(node.gpus.values()) if kind == "" else node.gpus.get(kind, 0)) >= count
        for kind, count in wanted.items()
    )
    return enough and (not constraint or _holds(constraint, node.features))


def _holds(constraint: str, features: frozenset[str]) -> bool:
    """Evaluate `sbatch --constraint`: `&` and `,` for and, `|` for or, brackets, and `*N` for nodes."""
    tokens = re.findall(r"[^&|,()\[\]*\s]+(?:\*\d+)?|[&|,()\[\]]", constraint)

    def either() -> bool:
        result = both()
        while tokens and tokens[0] == "|":
            tokens.pop(0)
            result = both() or result
        return result

    def both() -> bool:
        result = single()
        while tokens and tokens[0] in "&,":
            tokens.pop(0)
            result = single() and result
        return result

    def single() -> bool:
        token = tokens.pop(0) if tokens else ""
        if token not in ("(", "["):
            return token.partition("*")[0] in features
        result = either()
        if not tokens or tokens.pop(0) not in (")", "]"):
            raise InputError(f"fleet.yaml: the constraint {constraint!r} has a bracket that does not end")
        return result

    result = either()
    if tokens:
        raise InputError(f"fleet.yaml: the constraint {constraint!r} can't be understood")
    return result


def run(command: Sequence[str]) -> str:
    """Return what one of Slurm's programs printed.

    Raises Refusal if the controller refuses it or a job failed, FleetDown if nobody knows, and MissingError.
    """
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    try:
        done = processes.run(command, env={**environment, "LC_ALL": "C"}, timeout_s=LIMIT_S)
    except FileNotFoundError:
        raise MissingError(
            f"{command[0]} is not installed on this machine",
            hint="run this on a machine from which you submit jobs to Slurm",
        ) from None
    if done.ok:
        return done.stdout.decode("utf-8", "replace")
    line = processes.last_line(done.stderr_tail)
    message = re.sub(r"^\w+( error)?: (error: |fatal: )*(Batch job submission failed: )?", "", line)
    if done.timed_out:
        raise FleetDown(f"Slurm's controller does not answer: {command[0]} took more than {LIMIT_S:.0f} s")
    if _UNUSABLE.search(done.stderr_tail):
        raise MissingError(
            f"{command[0]} does not find Slurm's configuration: {message}",
            hint="set SLURM_CONF to the path of slurm.conf, or run this on a machine of the cluster",
        )
    if _DOWN.search(done.stderr_tail):
        raise FleetDown(f"Slurm's controller does not answer: {message}")
    raise Refusal(message)
