"""Databases of vulnerabilities, written by hand in the format OSV."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Entry = dict[str, Any]

#: What the schema of OSV (https://ossf.github.io/osv-schema/) says of the fields that are used here.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["id", "modified"],
    "properties": {
        "schema_version": {"type": "string"},
        "id": {"type": "string"},
        "modified": {"type": "string", "format": "date-time"},
        "published": {"type": "string", "format": "date-time"},
        "withdrawn": {"type": "string", "format": "date-time"},
        "aliases": {"type": ["array", "null"], "items": {"type": "string"}},
        "upstream": {"type": ["array", "null"], "items": {"type": "string"}},
        "summary": {"type": "string"},
        "severity": {"$ref": "#/$defs/severity"},
        "affected": {
            "type": ["array", "null"],
            "items": {
                "type": "object",
                "properties": {
                    "package": {
                        "type": "object",
                        "required": ["ecosystem", "name"],
                        "properties": {
                            "ecosystem": {"type": "string"},
                            "name": {"type": "string"},
                            "purl": {"type": "string"},
                        },
                    },
                    "severity": {"$ref": "#/$defs/severity"},
                    "versions": {"type": "array", "items": {"type": "string"}},
                    "ranges": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["type", "events"],
                            "properties": {
                                "type": {"enum": ["GIT", "SEMVER", "ECOSYSTEM"]},
                                "events": {
                                    "type": "array",
                                    "minItems": 1,
                                    "contains": {"required": ["introduced"]},
                                    "items": {
                                        "type": "object",
                                        "minProperties": 1,
                                        "maxProperties": 1,
                                        "properties": {
                                            name: {"type": "string"}
                                            for name in ("introduced", "fixed", "last_affected", "limit")
                                        },
                                        "additionalProperties": False,
                                    },
                                },
                            },
                        },
                    },
                    "ecosystem_specific": {"type": "object"},
                    "database_specific": {"type": "object"},
                },
            },
        },
        "database_specific": {"type": "object"},
    },
    "$defs": {
        "severity": {
            "type": ["array", "null"],
            "items": {
                "type": "object",
                "required": ["type", "score"],
                "properties": {
                    "type": {"enum": ["CVSS_V2", "CVSS_V3", "CVSS_V4", "Ubuntu"]},
                    "score": {"type": "string"},
                },
            },
        }
    },
}
NINE_POINT_EIGHT = {"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}


def events(*pairs: tuple[str, str], kind: str = "ECOSYSTEM") -> dict[str, Any]:
    """Return a range with these events."""
    return {"type": kind, "events": [{name: version} for name, version in pairs]}


def affected(
    name: str, *ranges: dict[str, Any], ecosystem: str = "PyPI", versions: Sequence[str] = (), **more: Any
) -> dict[str, Any]:
    found: dict[str, Any] = {"package": {"ecosystem": ecosystem, "name": name}, **more}
    if ranges:
        found["ranges"] = list(ranges)
    if versions:
        found["versions"] = list(versions)
    return found


def entry(name: str, *packages: dict[str, Any], modified: str = "2026-11-20T00:00:00Z", **more: Any) -> Entry:
    return {"schema_version": "1.7.0", "id": name, "modified": modified, "affected": list(packages), **more}


TENSORFLOW = affected("tensorflow", events(("introduced", "0"), ("fixed", "2.21.1")))
GHSA = entry(
    "GHSA-aaaa-bbbb-cccc", TENSORFLOW, aliases=["CVE-2026-1000"], summary="Crash in a [kernel]",
    database_specific={"severity": "HIGH"},
)  # fmt: skip
PYSEC = entry("PYSEC-2026-7", TENSORFLOW, aliases=["CVE-2026-1000", "GHSA-aaaa-bbbb-cccc"])
ABSL = entry(
    "PYSEC-2026-8", affected("Absl.Py", versions=["2.5.0", "2.5.1"]), severity=[NINE_POINT_EIGHT],
    aliases=["CVE-2026-1001"], summary="Reads files",
)  # fmt: skip
UTIL_LINUX = entry(
    "DEBIAN-CVE-2026-2000",
    affected(
        "util-linux", events(("introduced", "0"), ("fixed", "2.38.1-5+deb12u4")), ecosystem="Debian:12",
        ecosystem_specific={"urgency": "low"},
    ),
    affected("util-linux", events(("introduced", "0")), ecosystem="Debian:11"),
    upstream=["CVE-2026-2000"],
)  # fmt: skip
DSA = entry(
    "DSA-6000-1",
    affected("util-linux", events(("introduced", "0"), ("fixed", "2.38.1-5+deb12u4")), ecosystem="Debian:12"),
    upstream=["CVE-2026-2000"],
    summary="util-linux security update",
)
#: About no package of the tests, so that the database has something about each of their ecosystems.
OTHER = entry(
    "X-0", affected("other", versions=["1"]), affected("other", versions=["1"], ecosystem="Debian"),
    modified="2000-01-01T00:00:00Z",
)  # fmt: skip
ENTRIES = (GHSA, PYSEC, ABSL, UTIL_LINUX, DSA)


def write(path: Path, *entries: Entry | bytes) -> Path:
    """Write a directory with these entries."""
    path.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(entries):
        content = one if isinstance(one, bytes) else json.dumps(one).encode()
        (path / f"{number:03}.json").write_bytes(content)
    return path


def write_zip(path: Path, entries: Mapping[str, Entry | bytes]) -> Path:
    """Write an archive with these entries by name."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, one in entries.items():
            archive.writestr(name, one if isinstance(one, bytes) else json.dumps(one))
    return path
