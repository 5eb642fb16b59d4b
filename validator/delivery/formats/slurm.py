"""Write a batch script for Slurm, which runs the image with Apptainer (https://slurm.schedmd.com/sbatch.html)."""

from __future__ import annotations

import shlex

from ...errors import InputError
from ..start import Place, Start
from . import apptainer
from .text import comments, header

_PROCESSORS = 4


def write(start: Start) -> str:
    """Return the script. Raises InputError if nothing would run in the job."""
    if not start.command and start.port is None:
        raise InputError(
            "a batch job needs a command: by itself, the image starts Python, which reads from a terminal",
            hint="add it after --, such as -- python train.py",
        )
    how = "Submit it with: sbatch FILE"
    lines = ["#!/bin/bash", *comments(header(start.image, how)), *_requests(start), "set -eu"]
    if start.directory is not None:
        lines += [*comments(["This directory has to be there on the node as well."])]
        lines += [f"cd -- {shlex.quote(str(start.directory))}"]
    if start.image.place is Place.LAYOUT:
        lines += comments(["The directory of the image has to be there on the node as well."])
    if start.host is not None:
        lines += [
            *comments(["Slurm says which GPUs belong to this job; not every cluster hides the others."]),
            'if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then',
            '    export APPTAINERENV_CUDA_VISIBLE_DEVICES="$CUDA_VISIBLE_DEVICES"',
            "fi",
        ]
    return "".join(f"{line}\n" for line in [*lines, *apptainer.body(start)])


def _requests(start: Start) -> list[str]:
    lines = ["#SBATCH --job-name=tensorflow", "#SBATCH --nodes=1", "#SBATCH --ntasks=1"]
    lines += comments(
        [f"Slurm gives 1 processor by default. The input pipeline of tf.data uses {_PROCESSORS}."]
    )
    lines.append(f"#SBATCH --cpus-per-task={_PROCESSORS}")
    if start.host is not None:
        capabilities = ", ".join(map(str, start.host.capabilities))
        lines += comments(
            [
                f"GPUs of compute capability {capabilities} with driver branch {start.host.driver.branch}:"
                " add the partition or the constraint of such nodes, as your site names them."
            ]
        )
        lines.append(f"#SBATCH --gres=gpu:{start.gpu_count}")
    lines += comments(["The longest time that the job may take. Slurm starts short jobs earlier."])
    lines.append("#SBATCH --time=01:00:00")
    lines += comments(["The output goes to this file: %x is the name of the job, and %j its number."])
    return [*lines, "#SBATCH --output=%x-%j.log"]
