"""Builds the stub libraries with gcc."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent
#: The driver release that stub.h uses by default.
RELEASE = "570.124.06"
#: Source of each stub and the names by which builds for CUDA 11 and 12 open it.
LIBRARIES = {
    "runtime": ("libcudart.c", ("libcudart.so.11.0", "libcudart.so.12")),
    "cudnn": ("libcudnn.c", ("libcudnn.so.8", "libcudnn.so.9")),
}
#: The default settings of a stub.
DEFINED = {"libcudnn.so.8": ("-DCUDNN=8907",), "libcudnn.so.9": ("-DCUDNN=90300",)}
CUBLAS = ("libcublas.so.12", "libcublasLt.so.12")
_OPTIONS = (
    "-O1",
    "-Wall",
    "-Werror",
    "-Wno-strict-prototypes",
    "-std=gnu11",
    "-fPIC",
    "-fvisibility=hidden",
    "-shared",
)


@dataclass(frozen=True)
class Stubs:
    """A directory of stubs: libcuda and libnvidia-ml in `driver`, a libcudart in `runtime`, and so on."""

    directory: Path

    def place(self, name: str) -> Path:
        """Return the directory of one of the stubs, for the loader's path."""
        return self.directory / name

    @property
    def redirect(self) -> Path:
        """The library to preload, so that files of the kernel module can be put anywhere."""
        return self.directory / "redirect.so"


def build(directory: Path, release: str = RELEASE) -> Stubs:
    """Compile all of them. As with a real driver, `libcuda.so.1` is a link to the library whose name holds
    the release: TensorFlow reads it there."""
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
            _compile(source, stubs.place(place) / name, f"-Wl,-soname,{name}", *DEFINED.get(name, ()), "-ldl")
    _compile("redirect.c", stubs.redirect, "-ldl", "-fvisibility=default")
    return stubs


@functools.cache
def built(release: str = RELEASE) -> Stubs:
    """Return the stubs of a driver release. They are compiled once for this process, which removes them."""
    directory = tempfile.mkdtemp(prefix="stubs-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return build(Path(directory), release)


def build_cublas(stubs: Stubs, real: Path) -> None:
    """Put cuBLAS 12 in front of NVIDIA's, which is in `real` and still provides everything that this lacks:
    cuSOLVER links to a hundred of its functions, by a symbol version named after the library."""
    directory = stubs.place("cublas")
    directory.mkdir(exist_ok=True)
    built_for = directory / "built-for"
    if built_for.exists() and built_for.read_text() == str(real):
        return
    for name in CUBLAS:
        versions = directory / f"{name}.map"
        versions.write_text(f"{name} {{ global: *; }};\n")
        # Linking to NVIDIA's library by its path would record its soname, which ours has too. So link to an
        # empty library whose soname is that path.
        proxy = directory / f"proxy-{name}"
        _compile("empty.c", proxy, f"-Wl,-soname,{real / name}")
        _compile(
            "libcublas.c", directory / name, f"-Wl,-soname,{name},--version-script={versions}",
            "-Wl,--no-as-needed,--allow-shlib-undefined", str(proxy),
        )  # fmt: skip
    built_for.write_text(str(real))


def _compile(source: str, target: Path, *options: str) -> None:
    subprocess.run(["gcc", *_OPTIONS, "-o", target, SOURCES / source, *options], check=True)
