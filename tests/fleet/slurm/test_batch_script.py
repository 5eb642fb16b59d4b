"""Submit the batch script that `run --format slurm` writes, with a program in the place of Apptainer."""

from __future__ import annotations

import os
from pathlib import Path

from validator.delivery.start import write_slurm

from ...delivery.formats.fake_apptainer import install, read_call
from ...delivery.formats.starts import HOSTILE, IMAGE, start
from .cluster import Cluster, until


def test_a_job_gets_its_gpus_and_every_value(cluster: Cluster, tmp_path: Path) -> None:
    directory = tmp_path / "a 'b' \"c\" $d:e,f\ng"
    directory.mkdir()
    environment = {f"V{number}": text for number, text in enumerate(HOSTILE)}
    made = start("h100", "h100", directory=directory, command=tuple(HOSTILE), environment=environment)
    script = tmp_path / "job.sh"
    script.write_text(write_slurm(made), encoding="utf-8")
    path = f"--export=PATH={install(tmp_path)}:{os.environ['PATH']}"
    places = [path, f"--output={tmp_path}/%j.log", "--partition=batch"]
    # It refuses what the cluster can't run.
    cluster.operator("sbatch", "--test-only", *places, str(script))
    number = cluster.operator("sbatch", "--parsable", *places, str(script)).strip()
    log = tmp_path / f"{number}.log"
    until(lambda: log.exists() and log.read_text(encoding="utf-8").endswith("}\n"), "the job")
    found = read_call(log.read_text(encoding="utf-8"))
    assert found.image == f"docker://{IMAGE.reference}"
    assert found.command == HOSTILE
    assert found.environment.items() >= environment.items()
    assert found.environment["CUDA_VISIBLE_DEVICES"].count(",") == 1
    assert "nv" in found.flags
