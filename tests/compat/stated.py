"""Make software and hosts from separate facts, for tests that state facts about both."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from validator.model.prediction import Host, Software

_OF_HOST = frozenset(field.name for field in fields(Host))
Stated = tuple[Software, Host]


def stated(*, packages: dict[str, str] | None = None, **facts: Any) -> Stated:
    """Return the software and the host that facts describe."""
    return changed((Software(), Host()), packages=packages or {}, **facts)


def changed(before: Stated, **facts: Any) -> Stated:
    """Return software and a host with other facts. packages: a dictionary."""
    if "packages" in facts:
        facts["packages"] = tuple(facts["packages"].items())
    software = {name: value for name, value in facts.items() if name not in _OF_HOST}
    host = {name: value for name, value in facts.items() if name in _OF_HOST}
    return replace(before[0], **software), replace(before[1], **host)
