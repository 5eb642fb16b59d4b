"""What must be unchanged for a measurement to stand."""

from __future__ import annotations

import hashlib
import json

from ..engines.base import Engine
from ..model.lock import Lock
from ..model.spec import ImageSpec


def measurement_key(spec: ImageSpec, lock: Lock, probe_version: str, depth: str, engine: Engine) -> str:
    """SHA-256 (hex) over the image spec, the lock, the probe and its depth, the host behind the engine."""
    facts = {
        "image": spec.identifier,
        "lock": lock.digest,
        "probe": probe_version,
        "depth": depth,
        "engine": engine.name,
        "host": engine.host_facts(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
