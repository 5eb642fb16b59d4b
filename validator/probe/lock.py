"""Reads the pins of a lock: requirements text as `uv pip compile --generate-hashes` writes it."""

import re
from typing import Dict

from .text import normalized

_NAME = r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?"
_PIN = re.compile(rf"^{_NAME}\s*==\s*([^\s;\\]+)\s*(?:;[^\\]*)?\s*(?:\\|--hash|#|$)")


class LockError(ValueError):
    """The text is not a lock."""


def parse(text: str) -> Dict[str, str]:
    """Pinned versions by normalized name. Raises LockError with the line number for anything not a pin."""
    pins: Dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", "--hash=")):
            continue
        match = _PIN.match(stripped)
        if not match:
            raise LockError(f'line {number}: "{stripped[:80]}" is not a pin (expected name==version)')
        name = normalized(match[1])
        if name in pins:
            raise LockError(f"line {number}: {name} is pinned twice")
        pins[name] = match[2]
    if not pins:
        raise LockError("no pins in it")
    return pins
