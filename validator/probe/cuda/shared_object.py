"""Opens shared objects as the dynamic loader finds them, and says where they came from."""

import ctypes
import os
from typing import Optional

_RTLD_NOLOAD = 0x4
_RTLD_DI_LINKMAP = 2


class _LinkMap(ctypes.Structure):
    """The public head of glibc's `struct link_map` (link.h)."""

    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]


def loaded(name: str) -> Optional[ctypes.CDLL]:
    """The library if this process has it open already, found by its soname; else None."""
    try:
        return ctypes.CDLL(name, mode=_RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def path_of(library: ctypes.CDLL) -> Optional[str]:
    """The real path of the file that a library was loaded from (dlinfo(3), RTLD_DI_LINKMAP)."""
    link_map = ctypes.POINTER(_LinkMap)()
    status = ctypes.CDLL(None).dlinfo(
        ctypes.c_void_p(library._handle), _RTLD_DI_LINKMAP, ctypes.byref(link_map)
    )
    if status != 0 or not link_map.contents.name:
        return None
    return os.path.realpath(os.fsdecode(link_map.contents.name))
