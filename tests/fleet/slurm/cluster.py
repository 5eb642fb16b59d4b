"""A real Slurm cluster of several nodes on this machine, in a temporary directory and on loopback.

It needs neither root nor systemd. Its GPUs are generic resources without a device behind them. Skips, with
the reason, where Slurm is not installed.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

#: Debian's packages, by a program of each.
_PACKAGES = {
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
}
#: Driver branch and GPU model of each node.
NODES = (("r580", "h100"), ("r580", "h100"), ("r580", "l4"), ("r535", "t4"))
#: Seconds. A loaded machine with two processors needs several times what an idle one does.
_START_S = 120.0
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_UP = re.compile(r"(idle|mixed|allocated|completing|drain\w+)")


@dataclass
class Cluster:
    """A running cluster. directory: of its configuration, state and logs. count: of its nodes."""

    directory: Path
    count: int
    pids: dict[str, int] = field(default_factory=dict)

    @property
    def configuration(self) -> Path:
        return self.directory / "slurm.conf"

    def start(self) -> None:
        """Start what is not running, and wait until every node answers."""
        self.start_controller()
        for number in range(1, self.count + 1):
            self.start_node(f"node{number}")
        until(lambda: self._up() == self.count, "the nodes")

    def start_controller(self) -> None:
        if not self._runs("munged"):
            place = self.directory / "munge"
            (place / "socket").unlink(missing_ok=True)
            own = [f"--{name}-file={place}/{name}" for name in ("key", "pid", "seed", "log")]
            # --force: the directories above may be closed to other users, which munged else refuses.
            self._daemon("munged", "--foreground", "--force", f"--socket={place}/socket", *own)
            until((place / "socket").exists, "munged")
        if not self._runs("slurmctld"):
            self._daemon("slurmctld", "-D")

    def start_node(self, name: str) -> None:
        if not self._runs(name):
            (self.directory / "spool" / name).mkdir(parents=True, exist_ok=True)
            self._daemon(name, "-D", "-N", name, program="slurmd", SLURMD_NODENAME=name)

    def lose_node(self, name: str) -> None:
        """Kill a node with everything on it, as a power cut would."""
        self._end(f"SLURMD_NODENAME={name}")

    def lose_daemon(self, name: str) -> None:
        """Kill a daemon. The jobs of a node go on; a controller forgets what it has not saved yet."""
        self._stop(name, signal.SIGKILL)

    def stop_daemon(self, name: str) -> None:
        """Stop a daemon. A controller saves the state of its jobs before it ends."""
        self._stop(name, signal.SIGTERM)

    def _stop(self, name: str, number: signal.Signals) -> None:
        os.kill(self.pids[name], number)
        os.waitpid(self.pids.pop(name), 0)

    def operator(self, *command: str) -> str:
        """Run a program of Slurm, as an operator would in a terminal."""
        environment = {**os.environ, "SLURM_CONF": str(self.configuration)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def finished(self) -> list[dict[str, str]]:
        """Return the runs of jobs that ended, as the controller's own log says. No client reads it."""
        log = self.directory / "jobcomp.log"
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        return [dict(re.findall(r"(\w+)=(\S*)", line)) for line in lines]

    def runs(self, name: str) -> list[dict[str, str]]:
        """Return the finished runs of the jobs of a name."""
        return [run for run in self.finished() if run["Name"] == name]

    def processes_of(self, job: str) -> list[int]:
        """Return the processes of a job, even if the controller has forgotten the job."""
        return self._marked(f"SLURM_JOB_ID={job}")

    def stop(self) -> None:
        self._end("")

    def _up(self) -> int:
        environment = {**os.environ, "SLURM_CONF": str(self.configuration)}
        command = ["sinfo", "--noheader", "--Node", "--partition=batch", "--format=%T"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)
        return sum(_UP.fullmatch(state) is not None for state in done.stdout.split())

    def _daemon(self, name: str, *arguments: str, program: str = "", **variables: str) -> None:
        with open(self.directory / f"{name}.out", "ab") as log:
            # A clean environment, which also marks the processes of this cluster.
            child = subprocess.Popen(
                [program or name, *arguments],
                env={"PATH": _PATH, "LANG": "C", "SLURM_CONF": str(self.configuration), **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pids[name] = child.pid
        # `_runs` waits for its end.
        child.returncode = 0

    def _runs(self, name: str) -> bool:
        if name not in self.pids:
            return False
        if os.waitpid(self.pids[name], os.WNOHANG) == (0, 0):
            return True
        del self.pids[name]
        return False

    def _end(self, mark: str) -> None:
        """Kill the processes of this cluster whose environment has a mark, until there are none."""
        deadline = time.monotonic() + 15
        while found := self._marked(mark):
            assert time.monotonic() < deadline, f"processes {found} do not end"
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for name in list(self.pids):
                self._runs(name)
            time.sleep(0.05)

    def _marked(self, mark: str) -> list[int]:
        wanted = {f"SLURM_CONF={self.configuration}".encode(), *([mark.encode()] if mark else [])}
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if wanted <= set(path.read_bytes().split(b"\0")) and int(path.parent.name) != os.getpid():
                    found.append(int(path.parent.name))
        return found


@contextlib.contextmanager
def running_cluster(
    nodes: Sequence[tuple[str, str]] = NODES, gpus: int = 4, **settings: str
) -> Iterator[Cluster]:
    """Make a cluster, start it, and remove it in the end.

    nodes: features of each, a driver branch and a GPU model. gpus: of each node. settings: for slurm.conf.
    """
    missing = [package for program, package in _PACKAGES.items() if shutil.which(program, path=_PATH) is None]
    if missing:
        pytest.skip(f"Slurm is not installed here (Debian: apt install {' '.join(missing)})")
    # Not in pytest's directory: the path of a socket has at most 107 bytes.
    directory = Path(tempfile.mkdtemp(prefix="slurm-"))
    try:
        cluster = Cluster(directory, len(nodes))
        _configure(cluster, nodes, gpus, settings)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _configure(
    cluster: Cluster, nodes: Sequence[tuple[str, str]], gpus: int, settings: dict[str, str]
) -> None:
    place = cluster.directory
    for name in ("munge", "state", "spool", "dev"):
        (place / name).mkdir(mode=0o755)
    key = place / "munge" / "key"
    key.write_bytes(random.randbytes(1024))
    key.chmod(0o600)
    ports = _free_ports(len(nodes) + 1)
    user = getpass.getuser()
    lines = {
        "ClusterName": "tests",
        "SlurmctldHost": "localhost(127.0.0.1)",
        "SlurmctldPort": str(ports[0]),
        "SlurmUser": user,
        "SlurmdUser": user,
        "CommunicationParameters": "NoCtldInAddrAny,NoInAddrAny",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={place}/munge/socket,cred_expire=10",
        "StateSaveLocation": f"{place}/state",
        "SlurmdSpoolDir": f"{place}/spool/%n",
        "SlurmctldPidFile": f"{place}/slurmctld.pid",
        "SlurmdPidFile": f"{place}/%n.pid",
        "SlurmctldLogFile": f"{place}/slurmctld.log",
        "SlurmdLogFile": f"{place}/%n.log",
        "MailProg": "/bin/true",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "MpiDefault": "none",
        "SwitchType": "switch/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/none",
        "JobCompType": "jobcomp/filetxt",
        "JobCompLoc": f"{place}/jobcomp.log",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU_Memory",
        "DefMemPerCPU": "64",
        "SlurmdParameters": "config_overrides",
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": "sched_interval=2,bf_interval=2,batch_sched_delay=0",
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "REQUEUE",
        "ReturnToService": "2",
        # A test notices a lost node in time, and a busy machine can restart the controller.
        "SlurmdTimeout": "20",
        "KillWait": "3",
        "GresTypes": "gpu",
        **settings,
    }
    text = [f"{name}={value}" for name, value in lines.items()]
    gres = []
    for number, (branch, model) in enumerate(nodes, 1):
        text.append(
            f"NodeName=node{number} NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[number]} CPUs=16"
            f" RealMemory=4096 Feature={branch},{model} Gres=gpu:{model}:{gpus}"
        )
        for index in range(gpus):
            # Slurm wants a character device, and asks no more of it.
            (place / "dev" / f"node{number}-{index}").symlink_to("/dev/null")
            gres.append(f"NodeName=node{number} Name=gpu Type={model} File={place}/dev/node{number}-{index}")
    text.append("PartitionName=batch Nodes=ALL Default=YES State=UP PriorityTier=1 PreemptMode=REQUEUE")
    text.append("PartitionName=urgent Nodes=ALL State=UP PriorityTier=10 PreemptMode=OFF")
    (place / "gres.conf").write_text("\n".join([*gres, ""]), encoding="utf-8")
    cluster.configuration.write_text("\n".join([*text, ""]), encoding="utf-8")


def _free_ports(count: int) -> list[int]:
    """Return free ports below those that the kernel gives to connections: a restart finds them free."""
    found: list[int] = []
    while len(found) < count:
        port = random.randint(20_000, 31_000)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            if port not in found:
                found.append(port)
    return found


def until(condition: Callable[[], object], what: str, limit_s: float = _START_S) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: nothing within {limit_s:.0f} s"
        time.sleep(0.1)
