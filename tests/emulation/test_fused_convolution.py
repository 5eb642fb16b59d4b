"""XLA really compiles the gate's convolution to the fused call of cuDNN that TensorFlow 2.21 can't tune."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .environments import nvidia_libraries, site_packages
from .stubs import Stubs, build_cublas

pytestmark = pytest.mark.engine

FUSED = "__cudnn$convBiasActivationForward"
GRADIENTS = {"__cudnn$convBackwardInput", "__cudnn$convBackwardFilter"}


@pytest.mark.parametrize("release", ["2.15.1", "2.21.0"])
def test_the_compiled_program_makes_the_call_that_users_make(
    release: str, tensorflow: Callable[[str], Path], stubs: Stubs, archive: Path
) -> None:
    python = tensorflow(release)
    build_cublas(stubs, site_packages(python) / "nvidia/cublas/lib")
    first = [stubs.place(name) for name in ("driver", "runtime", "cudnn", "cublas")]
    done = subprocess.run(
        [python, Path(__file__).with_name("ask_fused.py"), archive],
        env={
            **os.environ,
            "LD_LIBRARY_PATH": os.pathsep.join(map(str, [*first, *nvidia_libraries(python)])),
            "STUB_LAUNCHES": "1",
            # Nothing can be tried on a GPU that is not there.
            "XLA_FLAGS": "--xla_gpu_autotune_level=0",
        },
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    targets = {type_: set(called) for type_, called in json.loads(done.stdout.splitlines()[-1])}
    assert targets == {type_: {FUSED, *GRADIENTS} for type_ in ("float32", "float16", "bfloat16")}
