"""The other workers of a check that runs on several machines: their addresses, and a connection to each.

`VALIDATOR_WORKERS` and `VALIDATOR_WORKER_RANK` say who the workers are (docs/reference/report.md). TensorFlow
and NCCL wait for a worker that does not answer, and their errors rarely name it. So the workers meet first:
each listens on the port that TensorFlow's server will use afterwards, and connects to all others there. These
connections stay open. Over them, the workers say every two seconds how far they are, so that each knows which
one it waits for, and which one has gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..problems import problem
from .child import Lines, tail

WORKERS, RANK, WAIT = "VALIDATOR_WORKERS", "VALIDATOR_WORKER_RANK", "VALIDATOR_WORKER_WAIT_S"
#: Seconds to wait for the other workers to begin: a scheduler starts them at about the same time, but one may
#: have to pull the image first. The second number is the most that `VALIDATOR_WORKER_WAIT_S` may ask for.
WAIT_S, LONGEST_WAIT_S = 300.0, 600.0
#: Seconds after which a worker that said nothing counts as lost, and between two messages.
SILENCE_S, BEAT_S = 20.0, 2.0
#: Seconds for one attempt to connect, and between two attempts.
_CONNECT_S, _PAUSE_S = 2.0, 0.2
#: Bytes that a worker may send without a line end.
_LONGEST_LINE = 65536
#: The ways in which a worker can be lost (the vocabulary `worker_loss`).
CLOSED, SILENT = "closed", "silent"


@dataclass(frozen=True)
class Settings:
    """The workers, as the environment gives them.

    addresses: `host:port` by rank. rank: of this worker. wait_s: seconds to wait for the others to begin.
    """

    addresses: tuple[str, ...]
    rank: int
    wait_s: float = WAIT_S


def settings(variables: Mapping[str, str]) -> Settings | None:
    """Return the workers, or None if there is only one. Raise ValueError for values that make no sense."""
    listed = variables.get(WORKERS, "").strip()
    if not listed:
        return None
    addresses = tuple(entry.strip() for entry in listed.split(","))
    for address in addresses:
        _endpoint(address)
    if len(set(addresses)) < len(addresses):
        raise ValueError(f"{WORKERS} names an address twice")
    if len(addresses) == 1:
        return None
    rank = variables.get(RANK, "").strip()
    if not (rank.isascii() and rank.isdigit() and int(rank) < len(addresses)):
        raise ValueError(f"{RANK} is {rank!r}, not a number from 0 to {len(addresses) - 1}")
    try:
        wait_s = float(variables.get(WAIT) or WAIT_S)
    except ValueError:
        wait_s = 0.0
    if not 1 <= wait_s <= LONGEST_WAIT_S:
        raise ValueError(f"{WAIT} is not a number of seconds from 1 to {LONGEST_WAIT_S:g}")
    return Settings(addresses, int(rank), wait_s)


def _endpoint(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"{WORKERS} has {address!r}, which is not HOST:PORT")
    return host.strip("[]"), int(port)


@dataclass
class Peer:
    """Another worker.

    error: of the last attempt to connect to it. hello: what it said first. stage: how far it is.
    left: what it said when it gave up. lost: CLOSED or SILENT. heard: when it last said anything (monotonic).
    """

    rank: int
    address: str
    error: OSError | None = None
    hello: dict[str, Any] | None = None
    stage: str | None = None
    said: dict[str, Any] = field(default_factory=dict)
    left: str | None = None
    lost: str | None = None
    heard: float = 0.0
    to: socket.socket | None = None

    @property
    def here(self) -> bool:
        """Return whether both directions work."""
        return self.to is not None and self.hello is not None


@dataclass
class _Incoming:
    connection: socket.socket
    lines: Lines = field(default_factory=Lines)
    peer: Peer | None = None
    pending: int = 0


class Group:
    """This worker's view of all others. Raises OSError if its own port can't be used."""

    def __init__(self, chosen: Settings, hello: Mapping[str, Any]) -> None:
        self.settings = chosen
        ranked = enumerate(chosen.addresses)
        self.peers = [Peer(rank, address) for rank, address in ranked if rank != chosen.rank]
        self.same_rank: list[str] = []
        #: What this worker said last about itself.
        self.state: dict[str, Any] = {"event": "stage"}
        self._hello = {"event": "hello", "rank": chosen.rank, **hello}
        self._incoming: list[_Incoming] = []
        self._told = 0.0
        _, port = _endpoint(chosen.addresses[chosen.rank])
        # As TensorFlow's server does, on all addresses: the name may be that of a service in front of it.
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        self._listener = socket.create_server(("", port), family=family, dualstack_ipv6=dual)
        self._listener.setblocking(False)

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *_: object) -> None:
        outgoing = [peer.to for peer in self.peers if peer.to is not None]
        for connection in (self._listener, *(entry.connection for entry in self._incoming), *outgoing):
            connection.close()

    def join(self) -> bool:
        """Wait until every worker can reach every other, then free the port. Return False if that fails."""
        end = time.monotonic() + self.settings.wait_s
        while True:
            for peer in self.peers:
                if peer.to is None:
                    self._connect(peer)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        connection, _ = self._listener.accept()
                        connection.setblocking(False)
                        self._incoming.append(_Incoming(connection))
            self.attend()
            if all(peer.here for peer in self.peers):
                # The connections stay, and don't keep TensorFlow's server from the port.
                self._listener.close()
                return True
            if self.same_rank or time.monotonic() > end:
                return False
            time.sleep(_PAUSE_S)

    def _connect(self, peer: Peer) -> None:
        try:
            connection = socket.create_connection(_endpoint(peer.address), timeout=_CONNECT_S)
        except OSError as error:
            peer.error = error
            return
        if connection.getsockname() == connection.getpeername():
            # On one machine, the kernel may have chosen the very port that nobody listens on.
            connection.close()
            peer.error = ConnectionRefusedError("nothing listens there")
            return
        peer.to, peer.error = connection, None
        self._send(peer, self._hello)

    def tell(self, **said: Any) -> None:
        """Say how far this worker is: to all others, now and again with each beat."""
        self.state.update(said)
        self._told = time.monotonic()
        for peer in self.peers:
            self._send(peer, self.state)

    def _send(self, peer: Peer, message: Mapping[str, Any]) -> None:
        if peer.to is not None:
            # The connection's other direction says whether that worker has gone.
            with contextlib.suppress(OSError):
                peer.to.sendall(json.dumps(message).encode() + b"\n")

    def attend(self) -> None:
        """Read what the others said, and send a beat if it is time. Never waits."""
        now = time.monotonic()
        for entry in self._incoming[:]:
            self._read(entry, now)
        if now - self._told >= BEAT_S:
            self.tell()
        for peer in self.peers:
            if peer.here and not peer.lost and now - peer.heard > SILENCE_S:
                peer.lost = SILENT

    def _read(self, entry: _Incoming, now: float) -> None:
        ended = False
        data = b""
        try:
            while not ended:
                part = entry.connection.recv(65536)
                data, ended = data + part, not part
        except OSError as error:
            ended = not isinstance(error, BlockingIOError)
        messages = entry.lines.feed(data)
        entry.pending = 0 if messages else entry.pending + len(data)
        for message in messages:
            self._take(entry, message, now)
        # A stranger, such as a port scanner, gets as far as this and no further.
        if ended or entry.pending > _LONGEST_LINE:
            self._incoming.remove(entry)
            entry.connection.close()
            if entry.peer is not None and not entry.peer.lost:
                entry.peer.lost = CLOSED

    def _take(self, entry: _Incoming, message: dict[str, Any], now: float) -> None:
        if message["event"] == "hello" and entry.peer is None:
            rank = message.get("rank")
            if rank == self.settings.rank:
                self.same_rank.append(_plain(entry.connection.getpeername()[0]))
            entry.peer = next((peer for peer in self.peers if peer.rank == rank), None)
            if entry.peer is not None:
                # A worker that was started again has a new connection.
                entry.peer.hello, entry.peer.lost = message, None
        if entry.peer is None:
            return
        entry.peer.heard = now
        if message["event"] == "stage":
            entry.peer.said.update(message)
            entry.peer.stage = message.get("stage", entry.peer.stage)
            entry.peer.left = message.get("left", entry.peer.left)

    def own_address(self, peer: Peer) -> str | None:
        """Return the address of this machine from which it reaches that worker."""
        return None if peer.to is None else _plain(peer.to.getsockname()[0])

    def absent(self) -> list[dict[str, Any]]:
        """Return a problem for each worker that did not join, by how far it got."""
        chosen, found = self.settings, []
        if self.same_rank:
            addresses = sorted(set(self.same_rank))
            return [problem("workers_with_same_rank", rank=chosen.rank, addresses=addresses)]
        for peer in (peer for peer in self.peers if not peer.here):
            named: dict[str, Any] = {"rank": peer.rank, "address": peer.address}
            error = tail(str(peer.error.strerror or peer.error)) if peer.error else ""
            if peer.to is not None:
                named.update(own=chosen.addresses[chosen.rank], wait_s=chosen.wait_s)
                found.append(problem("worker_does_not_connect", **named))
            elif isinstance(peer.error, socket.gaierror):
                found.append(problem("worker_name_unknown", **named, error=error))
            elif peer.hello is not None:
                found.append(problem("worker_port_closed", **named, error=error))
            else:
                found.append(problem("worker_not_answering", **named, error=error, wait_s=chosen.wait_s))
        return found


def _plain(address: str) -> str:
    """Return an IPv4 address as such, also if a socket for both families has written it as IPv6."""
    return address.removeprefix("::ffff:")


#: `Bootstrap : Using eth0:10.0.0.5<0>`; older releases number the interfaces: `[0]eth0:10.0.0.5<0>`
#: (NVIDIA/nccl, src/bootstrap.cc).
_CHOSEN = re.compile(
    r"NCCL INFO Bootstrap ?: Using (?:\[0\])?(?P<interface>[^\s:]+):(?P<address>[0-9A-Fa-f.:]+)(?:%\w+)?<\d+>"
)
#: Linux, bits/ioctls.h: the address of an interface.
_SIOCGIFADDR = 0x8915


def nccl(log: str) -> dict[str, str] | None:
    found = _CHOSEN.search(log)
    return found.groupdict() if found else None


def with_address(address: str) -> str | None:
    """Return the name of this machine's interface with that IPv4 address, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asking, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                # It has no IPv4 address.
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None
