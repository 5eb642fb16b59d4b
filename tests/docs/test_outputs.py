"""The tool prints what pages show in blocks of their own, without the command above them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from validator.model.record import Record, Unread, Verdict, contents_of
from validator.records.store import Store

from ..commands import run
from ..locks.local_index import LocalIndex
from ..records.values import record, report
from .conftest import environment_of
from .machine import Engine, emulated
from .shown import blocks
from .situations import CELL, MATRIX, write_files
from .test_pages import plain


def shown(page: str, part: str) -> list[str]:
    """Return the lines of the block of text on a page that has this part."""
    (text,) = [
        one.text for one in blocks() if one.page == page and one.language == "text" and part in one.text
    ]
    return text.splitlines()


def test_what_build_matrix_prints_without_a_gpu(index: LocalIndex, tmp_path: Path) -> None:
    write_files(tmp_path, MATRIX)
    environment = {**os.environ, **environment_of(tmp_path)}
    with emulated({}, index.sources, Engine(seen=Unread.NO_GPU_OFFERED)):
        run("lock", cwd=tmp_path, environment=environment)
        done = run("build-matrix", cwd=tmp_path, environment=environment)
        again = run("build-matrix", cwd=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr
    printed = {plain(line) for line in (done.stdout + done.stderr).splitlines()}
    assert set(map(plain, shown("docs/tutorial/first-image.md", "unproven  no GPU"))) <= printed
    assert again.stdout.splitlines()[-1] == "0 built, 0 validated, 1 unchanged"


def measurement(finished: str, verdict: Verdict, driver: str, reason: str, digest: str) -> Record:
    host = {"driver": driver, "gpus": [{"name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0"}]}
    proof = contents_of(report())
    return record(
        cell=CELL, image=CELL.partition("@")[0], host_class=CELL.partition("@")[2], verdict=verdict,
        reason=reason, finished=f"{finished}+00:00", started=f"{finished}+00:00",
        engine="docker", image_digest=f"sha256:{digest * 16}", key=finished, **(proof | {"host": host}),
    )  # fmt: skip


def test_what_bisect_prints(tmp_path: Path) -> None:
    why = "gpu_visible: TensorFlow registers no GPU"
    with Store(str(tmp_path / "records.db")) as store:
        store.add_all(
            [
                measurement("2026-11-12T02:10:44", Verdict.CERTIFIED, "580.65.06", "", "0d3c"),
                measurement("2026-11-19T02:11:02", Verdict.FAILED, "580.82.07", why, "0d3c"),
                measurement("2026-11-20T02:10:57", Verdict.FAILED, "580.82.07", why, "0d3c"),
            ]
        )
    done = run("records", "bisect", CELL, "--store", "records.db", cwd=tmp_path)
    wanted = "\n".join(shown("docs/how-to/share-records.md", "certified -> failed"))
    pattern = re.sub(r"[0-9a-f]{12}(?=  \d)", "[0-9a-f]{12}", re.escape(wanted).replace(r"\ ", " "))
    assert re.fullmatch(pattern.replace("…", ".*").replace(r"\-", "-"), done.stdout.rstrip("\n")), done.stdout


def test_the_errors_of_a_matrix(tmp_path: Path) -> None:
    (tmp_path / "matrix.yaml").write_text(
        'images:\n  - tensorflow: "2.21"\n    python: [3.10]\n'
        '  - tensorflow: "2.20"\n    python: all\n' + "\n" * 6 + '  - tensorflow: "2.21"\n    python: all\n'
        '    cudnn: "9.99"\nhosts: [{gpu: none}]\nprofiles: {quick: {}}\n'
    )
    done = run("plan", cwd=tmp_path)
    assert done.returncode == 2
    said = [line.removeprefix("error: ") for line in done.stderr.splitlines()]
    assert [line for line in said if line.startswith("matrix.yaml:")] == shown(
        "docs/reference/matrix.md", "nearest"
    )
