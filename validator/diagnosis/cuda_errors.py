"""Complete the code and the name of a CUDA error: a log has one of them, or the name in CUDA's runtime."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType

from . import compiled

#: The kind of observations of CUDA errors. Their value `place` says where: `cuinit`, `init` (another start of
#: CUDA) or `image` (the entry point of an image); it is absent for any other call.
CUDA_ERROR = "cuda_error"
CUINIT = "cuinit"


def completed(kind: str, values: Mapping[str, str]) -> Mapping[str, str]:
    """Return the values of an observation. A CUDA error gets its code and the name of the driver API, if they
    are known."""
    if kind != CUDA_ERROR:
        return values
    code = values.get("code") or _codes().get(values.get("name", ""))
    if code is None:
        return values
    name = _names().get(code)
    return MappingProxyType({**values, "code": code, **({"name": name} if name else {})})


@functools.cache
def _names() -> Mapping[str, str]:
    return {row["code"]: row["name"] for row in compiled.section("cuda_errors")}


@functools.cache
def _codes() -> Mapping[str, str]:
    """Return the code for each name of either API."""
    return {row[api]: row["code"] for row in compiled.section("cuda_errors") for api in ("name", "runtime")}
