"""The codes of findings, which are those of rules of `compat`, and what each is about."""

from __future__ import annotations

from collections.abc import Mapping

from ..model.prediction import Rule

#: Code -> what a file says that can't work.
CODES: Mapping[Rule, str] = {
    "cuda_of_another_version": "CUDA of another version than TensorFlow loads: a base image, NVIDIA's wheels"
    " (`-cu11`, `-cu12`, `-cu13`), or a package of conda",
    "cudnn_of_another_major": "cuDNN of another major version than TensorFlow was compiled with",
    "cudnn_older_than_built": "cuDNN of an older minor version than TensorFlow was compiled with",
    "python_without_wheel": "a Python for which this TensorFlow has no wheel",
    "mixed_frameworks": "PyTorch or JAX in the same environment, whose wheels bring a cuDNN that TensorFlow"
    " rejects, or the wheels of cuDNN for two versions of CUDA",
    "package_removed": "a package that was replaced, such as `tensorflow-gpu`, in a version that only fails"
    " to install",
    "cpu_package": "`tensorflow-cpu` where the file says that a GPU will be used",
    "cuda_libraries_not_installed": "`tensorflow` without `[and-cuda]` in an image without CUDA, where the"
    " file says that a GPU will be used",
    "known_issue": "versions that are known to break each other, such as NumPy 2 with an older TensorFlow",
}
