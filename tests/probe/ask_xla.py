"""Prints which ptxas and libdevice XLA's own functions find: `ask_xla.py TENSORFLOW PREFERRED`.

Run by the Python of an environment with TensorFlow. It calls the C++ functions by their exported names, as
the System V ABI for x86-64 and libstdc++ lay out their arguments and results.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

_OLD = "_ZN15stream_executor18FindCudaExecutableERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEES7_"
_NEW = "_ZN15stream_executor18FindCudaExecutableB5cxx11ESt17basic_string_viewIcSt11char_traitsIcEES3_"
_LIBDEVICE = "_ZN3xla3gpu5nvptx13LibDevicePathB5cxx11ESt17basic_string_viewIcSt11char_traitsIcEE"


class View(ctypes.Structure):
    """A `std::string_view`."""

    _fields_ = [("length", ctypes.c_size_t), ("data", ctypes.c_char_p)]


class String(ctypes.Structure):
    """A `std::string`."""

    _fields_ = [("data", ctypes.c_char_p), ("length", ctypes.c_size_t), ("buffer", ctypes.c_char * 16)]


def main(directory: str, preferred: str) -> None:
    for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):
        library = ctypes.CDLL(os.path.join(directory, name), mode=os.RTLD_LAZY | ctypes.RTLD_GLOBAL)
    result = (ctypes.c_uint64 * 32)()
    root = preferred.encode()
    if hasattr(library, _OLD):
        find, first = getattr(library, _OLD), 0
        find.argtypes = [ctypes.c_void_p, ctypes.POINTER(String), ctypes.POINTER(String)]
        find(result, String(b"ptxas", 5, b""), String(root, len(root), b""))
    else:
        # A StatusOr: the status comes before the string.
        find, first = getattr(library, _NEW), 1
        find.argtypes = [ctypes.c_void_p, View, View]
        find(result, View(5, b"ptxas"), View(len(root), root))
    ptxas = text(result, first)
    libdevice = getattr(library, _LIBDEVICE)
    libdevice.argtypes = [ctypes.c_void_p, View]
    libdevice(result, View(len(root), root))
    print(json.dumps({"ptxas": ptxas, "libdevice": text(result, 0)}))


def text(result: ctypes.Array[ctypes.c_uint64], first: int) -> str:
    return ctypes.string_at(result[first], result[first + 1]).decode()


main(*sys.argv[1:])
