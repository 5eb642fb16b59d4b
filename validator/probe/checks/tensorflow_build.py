"""Is the imported TensorFlow the installed one, and which CUDA was it built for?"""

import re

from ...problems import problem, statement
from ..check import TENSORFLOW, Check, Context, Result, judged


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
        problems = [problem("tensorflow_shadowed", imported=version, installed=installed)]
    else:
        problems = []
    cuda, cudnn = build.get("cuda_version"), build.get("cudnn_version")
    return judged(
        problems,
        lambda: statement("tensorflow_built_for", version=version, cuda=cuda, cudnn=cudnn),
        evidence,
    )


def _plain(version: str) -> str:
    """Return the version without dashes and `.post1`, which differ between the wheel and the library."""
    return re.sub(r"\.post\d+$", "", version.replace("-", ""))


CHECK = Check(
    id="tensorflow_build",
    title="Is the imported TensorFlow built with CUDA, and is it the installed one?",
    stage=TENSORFLOW,
    run=_run,
    limit_s=30,
    requires=("cuda-build",),
)
