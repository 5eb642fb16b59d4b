"""Find network interfaces: the one that NCCL chose, and the one that has an address."""

import fcntl
import re
import socket
import struct
from typing import Dict, Optional

#: `Bootstrap : Using eth0:10.0.0.5<0>`; older releases number the interfaces: `[0]eth0:10.0.0.5<0>`
#: (NVIDIA/nccl, src/bootstrap.cc).
_CHOSEN = re.compile(
    r"NCCL INFO Bootstrap ?: Using (?:\[0\])?(?P<interface>[^\s:]+):(?P<address>[0-9A-Fa-f.:]+)(?:%\w+)?<\d+>"
)
#: Linux, bits/ioctls.h: the address of an interface.
_SIOCGIFADDR = 0x8915


def nccl(log: str) -> Optional[Dict[str, str]]:
    """Return `interface` and `address` over which NCCL connects, from its log at the level INFO."""
    found = _CHOSEN.search(log)
    return found.groupdict() if found else None


def with_address(address: str) -> Optional[str]:
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
