"""The command: download wheels, print their rows, and keep them in builds.yaml.

A developer's tool: it uses pip, with pip's own configuration of the package index, because uv has no
command that only downloads.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from ...errors import EXIT_OK, MissingError, ValidatorError
from . import build
from .build import inspect_tensorflow

#: Platforms of TensorFlow's wheels: manylinux2014 up to 2.20, manylinux_2_27 from 2.21 on.
_PLATFORMS = ("manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def download(version: str, python: str, folder: Path) -> Path:
    """Fetch the wheel of a release into a folder. Raises MissingError if pip can't."""
    if importlib.util.find_spec("pip") is None:
        raise MissingError("pip is not installed in this environment", hint=f"{sys.executable} -m ensurepip")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--only-binary=:all:", f"--python-version={python}", f"--dest={folder}"]
    command += [f"--platform={platform}" for platform in _PLATFORMS]
    done = subprocess.run([*command, f"tensorflow=={version}"], capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise MissingError(
            f"tensorflow {version} for Python {python}: pip could not download it:\n{done.stderr.strip()}",
            hint="to see the releases in the index: python -m pip index versions --pre tensorflow",
        )
    return wheels[0]


def inspect(target: str, python: str) -> dict[str, object]:
    """Return the row of a wheel file, or of a release, whose wheel is downloaded and deleted again."""
    today = datetime.date.today()
    if target.endswith(".whl"):
        return build.row(inspect_tensorflow(Path(target)), today)
    with tempfile.TemporaryDirectory(prefix="inspect-wheel-") as name:
        folder = Path(name)
        return build.row(inspect_tensorflow(download(target, python, folder), scratch=folder), today)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="inspect-wheel", description="Print facts read from TensorFlow wheels, as rows of builds.yaml."
    )
    parser.add_argument("targets", nargs="+", metavar="RELEASE|FILE", help="2.21.0, or a wheel file")
    parser.add_argument(
        "--python", default="3.11", help="the Python whose wheel is read (default: %(default)s)"
    )
    parser.add_argument("--write", action="store_true", help="also put the rows into data/builds.yaml")
    options = parser.parse_args()
    try:
        for target in options.targets:
            cells = inspect(target, options.python)
            print(build.render(cells), end="", flush=True)
            if options.write:
                build.write(build.BUILDS, [cells])
    except ValidatorError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
