"""What a text says about the host and the software, as one object, for tests that check both."""

from __future__ import annotations

from types import SimpleNamespace

from validator.diagnosis.combination import read_host, read_software
from validator.diagnosis.observations import Observations


def facts_read(observations: Observations) -> SimpleNamespace:
    """Return the fields of both. packages: by name."""
    host, software = read_host(observations), read_software(observations)
    return SimpleNamespace(**{**vars(host), **vars(software), "packages": software.versions})
