"""A small HTTP proxy that tunnels connections to names which only it can look up."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_PART = 64 << 10


@dataclass
class Tunnel:
    """A running proxy. asked: `METHOD target` of every request. status: the answer, 200 to tunnel."""

    url: str
    asked: list[str] = field(default_factory=list)
    status: int = 200


@contextmanager
def running_tunnel(names: Mapping[str, str]) -> Iterator[Tunnel]:
    """Run a proxy on a free loopback port. names: the real address by the one that is asked for."""

    class Handler(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            tunnel.asked.append(f"CONNECT {self.path}")
            if tunnel.status != 200 or self.path not in names:
                self.send_error(tunnel.status if tunnel.status != 200 else 502)
                return
            host, _, port = names[self.path].partition(":")
            with socket.create_connection((host, int(port))) as upstream:
                self.send_response(200)
                self.end_headers()
                with contextlib.suppress(OSError):
                    self._relay(upstream)

        def do_GET(self) -> None:
            """Note a request that should not be here: without TLS, or for this machine."""
            tunnel.asked.append(f"{self.command} {self.path}")
            self.send_error(501)

        do_HEAD = do_POST = do_PUT = do_PATCH = do_GET

        def _relay(self, upstream: socket.socket) -> None:
            to = {self.connection: upstream, upstream: self.connection}
            while True:
                for source in select.select(list(to), [], [])[0]:
                    part = source.recv(_PART)
                    if not part:
                        return
                    to[source].sendall(part)

        def log_message(self, *arguments: object) -> None:
            """Say nothing: requests are kept."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    tunnel = Tunnel(f"http://127.0.0.1:{server.server_address[1]}")
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield tunnel
    finally:
        server.shutdown()
        server.server_close()
