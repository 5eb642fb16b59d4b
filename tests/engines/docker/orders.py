"""Image specs, locks and orders for the tests of the Docker engine."""

from __future__ import annotations

from pathlib import Path

from validator.engines.docker.bake import Base, Order
from validator.model.lock import Lock, Wheel
from validator.model.spec import Choice, ImageSpec, Variant

CPU = ImageSpec("2.21.0", "3.12", Variant.CPU)
GPU = ImageSpec("2.21.0", "3.12", Variant.GPU, Choice("as-built", "12.5"), Choice("as-built", "9.3"))

REGISTRY = Base(
    "python:3.12-slim-bookworm@sha256:ba5e",
    "registry:python:3.12-slim-bookworm@sha256:ba5e",
    "python:3.12-slim-bookworm",
    "sha256:ba5e",
)


def lock_of(spec: ImageSpec, *pins: str) -> Lock:
    """Return a lock with `name==version` pins and fake hashes."""
    wheels = []
    for number, pin in enumerate(sorted(pins)):
        name, version = pin.split("==")
        wheels.append(Wheel(name, version, f"{number:064x}", f"{name}-{version}-py3-none-any.whl"))
    return Lock(spec.identifier, spec.python, "x86_64-manylinux_2_28", (), tuple(wheels))


def order_of(spec: ImageSpec, **changes: object) -> Order:
    """Return an order for a spec; its paths need not exist."""
    fields: dict[str, object] = {
        "spec": spec,
        "lock": lock_of(spec, "tensorflow==2.21.0"),
        "base": REGISTRY,
        "tools": REGISTRY,
        "requirements": Path("/build/requirements"),
        "uv": Path("/build/uv"),
        "facts": Path("/build/facts"),
        "secrets": {"sources": Path("/build/secrets/sources")},
    }
    return Order(**{**fields, **changes})  # type: ignore[arg-type]
