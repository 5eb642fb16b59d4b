"""Builds the stub libraries with gcc."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent
#: The release that stub.h gives the driver where nothing else is said.
RELEASE = "570.124.06"
#: The names by which builds for CUDA 11 and 12 open the runtime and cuDNN.
LIBRARIES = {
    "runtime": ("libcudart.c", ("libcudart.so.11.0", "libcudart.so.12")),
    "cudnn": ("libcudnn.c", ("libcudnn.so.8", "libcudnn.so.9")),
}
_OPTIONS = ("-O1", "-Wall", "-Werror", "-Wno-strict-prototypes", "-std=gnu11", "-fPIC", "-fvisibility=hidden", "-shared")


@dataclass(frozen=True)
class Stubs:
    """A directory of stubs: `driver` holds libcuda and libnvidia-ml, `runtime` a libcudart, `cudnn` a libcudnn."""

    directory: Path

    def place(self, name: str) -> Path:
        """The directory of one of them, for the loader's path."""
        return self.directory / name

    @property
    def redirect(self) -> Path:
        """What is to be preloaded so that files of the kernel module can be put anywhere."""
        return self.directory / "redirect.so"


def build(directory: Path, release: str = RELEASE) -> Stubs:
    """Compile all of them. As with a real driver, `libcuda.so.1` is a link to the library whose name holds the
    release: TensorFlow reads it there."""
    stubs = Stubs(directory)
    driver = stubs.place("driver")
    driver.mkdir(parents=True, exist_ok=True)
    for name, source in (("libcuda.so", "libcuda.c"), ("libnvidia-ml.so", "libnvidia_ml.c")):
        _compile(source, driver / f"{name}.{release}", f"-Wl,-soname,{name}.1")
        for link in (f"{name}.1", name):
            (driver / link).unlink(missing_ok=True)
            (driver / link).symlink_to(f"{name}.{release}")
    for place, (source, names) in LIBRARIES.items():
        stubs.place(place).mkdir(exist_ok=True)
        for name in names:
            _compile(source, stubs.place(place) / name, f"-Wl,-soname,{name}", "-ldl")
    _compile("redirect.c", stubs.redirect, "-ldl", "-fvisibility=default")
    return stubs


def _compile(source: str, target: Path, *options: str) -> None:
    subprocess.run(["gcc", *_OPTIONS, "-o", target, SOURCES / source, *options], check=True)
