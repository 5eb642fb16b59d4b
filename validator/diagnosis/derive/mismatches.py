"""Versions that don't fit one another: CUDA, cuDNN, driver, Python, packages against the release in use."""

from __future__ import annotations

import re

from ..builds import build, driver_below, driver_floor, number
from ..observations import Observation, Observations, normalized, on_windows, package, release

#: The first release whose wheels for native Windows have no CUDA (install guide, "Windows native").
_NO_WINDOWS_CUDA = (2, 11)
#: Source files that were moved in 2.12, as its log lines name them.
_BEFORE_2_12 = re.compile(r"\btensorflow/stream_executor/")
#: The first release that was built for NumPy 2, and the first with Keras 3.
_NUMPY_2, _KERAS_3 = (2, 18), (2, 16)


def systems(observations: Observations) -> None:
    """Systems and processors for which wheels have no CUDA, whatever the release."""
    windows = on_windows(observations)
    macos = next((seen for seen in observations.of("os") if seen.values.get("name") == "macos"), None)
    if windows is not None:
        observations.derive("on_windows", {}, windows)
    elif macos is not None:
        observations.derive("macos", {}, macos)
    arm = next(
        (
            seen
            for seen in observations.of("machine")
            if seen.values.get("name", "").lower() in ("aarch64", "arm64")
        ),
        None,
    )
    if arm is not None and windows is None and macos is None:
        observations.derive("linux_on_arm", {}, arm)
    kubernetes = next(
        (seen for seen in observations.of("container") if seen.values.get("kind") == "kubernetes"), None
    )
    if kubernetes is not None:
        observations.derive("kubernetes", {}, kubernetes)


def shadowing_file(observations: Observations) -> None:
    """A file tensorflow.py of one's own; packages have some of that name too, in directories of their own."""
    for seen in observations.of("tensorflow_py_file"):
        if not re.search(r"(?:site|dist)-packages", seen.values["path"]):
            path = seen.values["path"].strip()
            renamed = path.removesuffix("tensorflow.py") + "my_script.py"
            observations.derive("shadowing_file", {"path": path, "renamed": renamed}, seen)


def platform(observations: Observations) -> None:
    """Native Windows from 2.11 on, and macOS: no wheel with CUDA exists."""
    found = release(observations)
    if found is None:
        return
    version, said = found
    windows = on_windows(observations)
    if windows is not None and number(version) >= _NO_WINDOWS_CUDA:
        observations.derive("windows_without_cuda_build", {"tensorflow": version}, windows, said)
    macos = next((seen for seen in observations.of("os") if seen.values.get("name") == "macos"), None)
    if macos is not None and number(version) >= (1, 2) and windows is None:
        observations.derive("macos_without_cuda_build", {"tensorflow": version}, macos, said)


def cuda_of_another_version(observations: Observations) -> None:
    """A toolkit or cuDNN on the system that is not the one that this release opens."""
    found = release(observations)
    needed = build(found[0]) if found else None
    if found is None or needed is None:
        return
    version, said = found
    for seen in observations.of("cuda"):
        if number(seen.values["version"]) and not _fits_cuda(needed.cuda, seen.values["version"]):
            values = {"tensorflow": version, "found": seen.values["version"], "needed": needed.cuda}
            observations.derive("cuda_of_another_version", values, seen, said)
    for seen in observations.of("cudnn"):
        wanted, there = number(needed.cudnn), number(seen.values["version"])
        if not there:
            continue
        values = {"tensorflow": version, "found": seen.values["version"], "needed": needed.cudnn}
        if there[0] != wanted[0]:
            observations.derive("cudnn_of_another_major", values, seen, said)
        elif len(there) > 1 and there[:2] < wanted[:2]:
            observations.derive("cudnn_older_than_built", values, seen, said)


def _fits_cuda(needed: str, found: str) -> bool:
    """Whether a toolkit has the libraries that a release opens: their names hold major and minor version
    up to CUDA 10, and the major alone from 11 on."""
    wanted, there = number(needed), number(found)
    if wanted[0] >= 11 or len(there) < 2:
        return wanted[0] == there[0]
    return wanted[:2] == there[:2]


def cudart_asked_for(observations: Observations) -> str:
    """The CUDA (`10.1`, `11.0`) whose runtime library was asked for in vain; empty where none was."""
    for seen in observations.of("cuda_library_not_loaded"):
        match = re.fullmatch(
            r"cudart64_(\d+)(\d)\.dll|libcudart\.so\.(\d+)(?:\.(\d+))?", seen.values.get("library", "")
        )
        if match:
            return f"{match[1] or match[3]}.{match[2] or match[4] or 0}"
    return ""


def toolkit_of_another_version(observations: Observations) -> None:
    """A toolkit is there, but not the one whose runtime library was asked for."""
    asked = cudart_asked_for(observations)
    for seen in observations.of("cuda"):
        if asked and number(seen.values["version"]) and not _fits_cuda(asked, seen.values["version"]):
            missing = observations.of("cuda_library_not_loaded")[0]
            values = {"library": missing.values["library"], "found": seen.values["version"], "asked": asked}
            observations.derive("toolkit_of_another_version", values, missing, seen)


def driver_too_old_for_cuda(observations: Observations) -> None:
    """A driver below the floor of the CUDA in use: the release's own, or that of a toolkit or an image."""
    found = release(observations)
    needed = build(found[0]) if found else None
    driver = observations.first("driver")
    if driver is None:
        return
    windows = on_windows(observations) is not None
    wanted: list[tuple[str, Observation]] = []
    if found is not None and needed is not None:
        wanted.append((needed.cuda, found[1]))
    wanted += [
        (seen.values["version"], seen) for seen in observations.of("cuda") if number(seen.values["version"])
    ]
    for cuda, said in wanted:
        floor = driver_floor(cuda, windows)
        if floor is not None and driver_below(driver.values["version"], floor):
            values = {"driver": driver.values["version"], "cuda": cuda, "needed": floor}
            observations.derive("driver_below_floor", values, driver, said)
            return


def cudnn_package(observations: Observations) -> None:
    """The installed cuDNN wheel against the one that TensorFlow was built with."""
    found = release(observations)
    needed = build(found[0]) if found else None
    if found is None or needed is None:
        return
    for seen in observations.of("package"):
        if normalized(seen.values["name"]) not in ("nvidia-cudnn-cu11", "nvidia-cudnn-cu12", "cudnn"):
            continue
        there, wanted = number(seen.values["version"]), number(needed.cudnn)
        if there and there[:2] < wanted[:2]:
            values = {"tensorflow": found[0], "found": seen.values["version"], "needed": needed.cudnn}
            observations.derive(
                "cudnn_older_than_built" if there[0] == wanted[0] else "cudnn_of_another_major",
                values,
                seen,
                found[1],
            )


def python(observations: Observations) -> None:
    """A Python for which the release has no wheel."""
    found = release(observations)
    wanted = observations.value("pip_requested", "version")
    version = wanted or (found[0] if found else None)
    python = observations.first("python")
    needed = build(version) if version else None
    if python is None or needed is None or version is None:
        return
    minor = ".".join(str(part) for part in number(python.values["version"])[:2])
    if minor.count(".") == 1 and minor not in needed.pythons:
        values = {
            "tensorflow": version,
            "python": minor,
            "pythons": f"{needed.pythons[0]} to {needed.pythons[-1]}",
        }
        observations.derive("python_without_wheel", values, python)


def python_packages(observations: Observations) -> None:
    """NumPy 2 under a build for NumPy 1, Keras 3 under a release for Keras 2, protobuf over its bound."""
    found = release(observations)
    if found is None:
        return
    version, said = found
    numpy, keras, protobuf = (package(observations, name) for name in ("numpy", "keras", "protobuf"))
    if numpy is not None and number(numpy.values["version"])[:1] >= (2,) and number(version) < _NUMPY_2:
        values = {"tensorflow": version, "numpy": numpy.values["version"]}
        observations.derive("numpy_2_under_numpy_1_build", values, numpy, said)
    if keras is not None and number(keras.values["version"])[:1] >= (3,) and number(version) < _KERAS_3:
        values = {"tensorflow": version, "keras": keras.values["version"]}
        observations.derive("keras_3_under_keras_2_release", values, keras, said)
    if protobuf is not None and number(protobuf.values["version"])[:1] >= (4,) and number(version) < (2, 12):
        values = {"tensorflow": version, "protobuf": protobuf.values["version"]}
        observations.derive("protobuf_over_bound", values, protobuf, said)


def tensorflow_packages(observations: Observations) -> None:
    """Builds without CUDA, and several distributions that install the same package over one another."""
    installed: dict[str, Observation] = {}
    for seen in observations.of("package"):
        name = normalized(seen.values["name"])
        if name in (
            "tensorflow",
            "tensorflow-gpu",
            "tensorflow-cpu",
            "tensorflow-intel",
            "tf-nightly",
            "tf-nightly-cpu",
        ):
            installed.setdefault(name, seen)
        if name == "tensorflow" and number(seen.values["version"]) < (2, 1) and not _one_package(seen):
            observations.derive("build_without_cuda", {"build": f"tensorflow {seen.values['version']}"}, seen)
        if name in ("tensorflow", "tensorflow-base") and re.match(
            r"(eigen|mkl|cpu)_", seen.values.get("build", "")
        ):
            observations.derive("build_without_cuda", {"build": seen.values["build"]}, seen)
    for name in ("tensorflow-cpu", "tf-nightly-cpu"):
        if name in installed and len(installed) == 1:
            observations.derive("build_without_cuda", {"build": name}, installed[name])
    # tensorflow and tensorflow-gpu, and tensorflow and tensorflow-intel, belong together.
    several = [name for name in installed if name not in ("tensorflow-gpu", "tensorflow-intel")]
    if len(several) > 1:
        observations.derive(
            "several_tensorflow_packages",
            {"packages": ", ".join(several)},
            *(installed[name] for name in several),
        )


def _one_package(seen: Observation) -> bool:
    """Whether one package is for both, as in 1.15 and from 2.1 on; before, the plain one was built without
    CUDA, and tensorflow-gpu with it. A conda build tells for itself."""
    return number(seen.values["version"])[:2] == (1, 15) or bool(seen.values.get("build"))


def age(observations: Observations) -> None:
    """That the log lines are of a release before 2.12, where nothing tells which."""
    old = next((seen for seen in observations if _BEFORE_2_12.search(seen.text)), None)
    if old is not None and release(observations) is None:
        observations.derive("before_2_12", {}, old)


def official_image(observations: Observations) -> None:
    """The official GPU images whose cuDNN their TensorFlow can't open (tensorflow/tensorflow issue 94593).
    `latest` was another image once: where another release is told, or the log comes from before 2.12; tags
    that name Python 2 or 3 ended with 2.1."""
    told = release(observations)
    newest = told is None or number(told[0]) >= (2, 18)
    newest = newest and not observations.has("before_2_12")
    for seen in observations.of("image"):
        name = seen.values.get("name", "")
        match = re.search(r"tensorflow/tensorflow:(\d[\w.]*|latest|nightly)[\w.-]*-gpu", name)
        floats = match is not None and match[1] in ("latest", "nightly") and "-py" not in name
        if match and ((floats and newest) or (2, 18) <= number(match[1]) < (2, 22)):
            observations.derive("official_image", {"image": name}, seen)


RULES = (
    systems,
    shadowing_file,
    platform,
    cuda_of_another_version,
    toolkit_of_another_version,
    driver_too_old_for_cuda,
    cudnn_package,
    python,
    python_packages,
    tensorflow_packages,
    age,
    official_image,
)
