"""What was this TensorFlow built for, and is it the one that is installed?"""

import re

from ..check import FAIL, PASS, TENSORFLOW, Check, Context, Result


def _run(context: Context) -> Result:
    tf, installed = context.tensorflow, context.facts["tensorflow"]["version"]
    build = dict(tf.sysconfig.get_build_info())
    version = tf.version.VERSION
    evidence = {
        "version": version,
        "git_version": tf.version.GIT_VERSION,
        "compiler_version": tf.version.COMPILER_VERSION,
        "build": build,
    }
    if installed is not None and _plain(installed) != _plain(version):
        return Result(FAIL, f"{version} is imported, but {installed} is installed", evidence)
    cuda, cudnn = build.get("cuda_version"), build.get("cudnn_version")
    return Result(PASS, f"TensorFlow {version} for CUDA {cuda}, cuDNN {cudnn}", evidence)


def _plain(version: str) -> str:
    """Without dashes and `.post1`, which the wheel's version has and the library's own has not."""
    return re.sub(r"\.post\d+$", "", version.replace("-", ""))


CHECK = Check(
    id="tensorflow_build",
    title="TensorFlow is built with CUDA, and is the one that is installed",
    stage=TENSORFLOW,
    run=_run,
    limit_s=30,
    requires=("cuda-build",),
)
