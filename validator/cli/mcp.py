"""`mcp`: answer the questions of assistants, by the Model Context Protocol."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
from typing import TYPE_CHECKING

import click

from ..errors import EXIT_INTERRUPTED, EXIT_OK, MissingError
from ..resources import install_hint
from .options import print_status, verbose_option
from .program import Command

if TYPE_CHECKING:
    from mcp.server import MCPServer

#: IANA has not registered this port for another program, and `serve` has another one.
_PORT = 8643
#: Only this machine reaches this address.
_LOOPBACK = "127.0.0.1"


@click.command("mcp", cls=Command)
@click.option(
    "--http",
    is_flag=True,
    help=f"Serve streamable HTTP on {_LOOPBACK}, which only programs of this machine can reach.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=_PORT,
    show_default=True,
    help="With --http: the port to listen on; 0 lets the system choose a free one.",
)
@verbose_option
def mcp_command(http: bool, port: int) -> int:
    """Answer the questions of assistants, by the Model Context Protocol.

    An assistant starts this command and talks to it over stdin and stdout: which releases work, whether one
    combination works, why a log shows no GPU, what can't work in a Dockerfile, and what this machine has. The
    server only reads, and uses no network. Only `this_machine` starts other programs: those that `validator`
    without a command starts to look at this machine. It needs the extra mcp.
    """
    if importlib.util.find_spec("mcp") is None:
        raise MissingError("the package mcp is not installed", hint=f"install it: {install_hint('mcp')}")
    from .mcp_tools import server

    if http:
        _serve_http(server(), port)
    else:
        # The thread that waits for the next line of stdin can't be ended otherwise.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: os._exit(EXIT_INTERRUPTED))
        server().run()
    return EXIT_OK


def _serve_http(server: MCPServer, port: int) -> None:
    """Serve until Ctrl-C. Raises MissingError if the port is taken."""
    import uvicorn
    from mcp.server.transport_security import TransportSecuritySettings

    from .mcp_tools import MOST_CHARACTERS

    try:
        listening = socket.create_server((_LOOPBACK, port))
    except OSError as error:
        raise MissingError(
            f"port {port} of {_LOOPBACK}: {os.strerror(error.errno or 0)}",
            hint="choose another with --port, or let the system choose a free one with --port 0",
        ) from error
    with listening:
        port = listening.getsockname()[1]
        hosts = [f"{name}:{port}" for name in (_LOOPBACK, "localhost")]
        # A page of the web may have its name resolve to this address, but its Host and Origin are others.
        security = TransportSecuritySettings(
            allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts]
        )
        app = server.streamable_http_app(
            stateless_http=True,
            json_response=True,
            # JSON writes a character with up to six bytes.
            max_request_body_size=8 * MOST_CHARACTERS,
            transport_security=security,
        )
        print_status(f"The server is at http://{hosts[0]}/mcp until Ctrl-C.")
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
