"""The probe is as confined in the Podman of an ordinary user, also where root runs the tests.

A mount namespace gives that user a name, subordinate ids and this Python, and changes nothing on the machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from validator.system.files import cache_directory

ROOT = Path(__file__).parents[3]
USER = 64_321
#: Arguments: the directory of the user, the one that others may not enter, and what they need of it.
PREPARE = f"""
set -eu
place=$1 closed=$2
shift 2
for kind in passwd:x:{USER}:{USER}::/:/bin/sh group:x:{USER}: subuid:200000:65536 subgid:200000:65536; do
    name=${{kind%%:*}}
    (cat "/etc/$name"; echo "ordinary:${{kind#*:}}") >"$place/$name"
    touch "/etc/$name"
    mount --bind "$place/$name" "/etc/$name"
done
if [ "$closed" ]; then
    number=0
    for kept in "$@"; do
        number=$((number + 1))
        mkdir "$place/kept$number"
        mount --bind "$kept" "$place/kept$number"
    done
    mount -t tmpfs -o mode=755 none "$closed"
    number=0
    for kept in "$@"; do
        number=$((number + 1))
        mkdir -p "$kept"
        mount --bind "$place/kept$number" "$kept"
    done
fi
mount --make-rshared /
export HOME="$place/home" XDG_RUNTIME_DIR="$place/run" VALIDATOR_CACHE="$place/cache" TMPDIR="$place/tmp"
exec setpriv --reuid={USER} --regid={USER} --clear-groups \\
    {sys.executable} -m pytest -q -n 0 -rs -p no:cacheprovider --basetemp="$place/tmp/pytest" \\
    tests/integration/podman/test_probe.py
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """Yield the directory of the user, who can't enter those of other tests, and remove it."""
    directory = Path(tempfile.mkdtemp(prefix="rootless-", dir="/tmp"))
    for name in ("home", "run", "tmp", "cache", "cache/bases"):
        (directory / name).mkdir(mode=0o700)
    for base in (cache_directory() / "bases").glob("*.tar*"):
        (directory / "cache/bases" / base.name).symlink_to(base)
    for path in (directory, *directory.rglob("*")):
        os.chown(path, USER, USER, follow_symlinks=False)
    try:
        yield directory
    finally:
        for pause in directory.glob("run/**/pause.pid"):
            # Podman's process that keeps the user's namespaces.
            os.kill(int(pause.read_text()), signal.SIGKILL)
        shutil.rmtree(directory)


@pytest.mark.engine
@pytest.mark.skipif(os.getuid() != 0, reason="an ordinary user runs the other tests of this directory")
@pytest.mark.skipif(
    not shutil.which("newuidmap"), reason="newuidmap is not installed (Debian package uidmap)"
)
def test_an_ordinary_user_measures_as_root_does(place: Path) -> None:
    needed = (Path(sys.base_prefix), ROOT, cache_directory() / "bases")
    parents = [one for path in needed for one in reversed(path.parents) if not one.stat().st_mode & 0o001]
    closed = next(iter(parents), None)
    kept = [str(path) for path in needed if closed in path.parents]
    environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8"}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", PREPARE, "sh", place, str(closed or ""), *kept],
        cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0 and "passed" in last[0], done.stdout[-4000:] + done.stderr[-2000:]
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    # Only this may be missing: cgroups of version 1 have no limits for an ordinary user.
    assert all("can't limit memory" in line for line in skipped), skipped
