"""The layer of small files that depend on the base."""

from __future__ import annotations

from validator.assemble.base import BaseFile, BaseFiles, Interpreter
from validator.assemble.host_files import host_files

BASE = BaseFiles(
    Interpreter("/usr/bin/python3.12", "3.12.4"),
    "2.36",
    {
        "etc/passwd": BaseFile(b"root:x:0:0:root:/root:/bin/sh\n", 0o644),
        "etc/group": BaseFile(b"root:x:0:\n", 0o644),
    },
)


def test_the_user_may_add_packages_and_not_replace_those_of_the_lock() -> None:
    entries = {entry.path: entry for entry in host_files(BASE, {}).entries()}
    for path in ("opt/venv", "opt/venv/bin", "opt/venv/lib/python3/site-packages", "opt/venv/share"):
        entry = entries[path]
        # The group may write, and with the sticky bit only the owner of a file may remove or rename it.
        assert (entry.mode, entry.uid, entry.gid) == (0o1775, 0, 10001)
    writable = {path for path, entry in entries.items() if entry.link is None and entry.mode & 0o022}
    assert writable == {"opt/venv", "opt/venv/bin", "opt/venv/lib/python3/site-packages", "opt/venv/share"}
    assert (entries["opt/venv/bin/activate"].uid, entries["opt/venv/bin/activate"].gid) == (0, 0)
