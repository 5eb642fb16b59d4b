"""`certify` where no record qualifies: it says which records there are and why, and ends with exit code 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator import cli
from validator.model.record import Origin, Record, Verdict
from validator.records.store import Store

from ..records.values import H100, proven, record

DIGEST = "sha256:" + "d" * 64


RECORDS = (
    record(1, cell="a@no-gpu", verdict=Verdict.UNPROVEN, reason="no GPU", image_digest=DIGEST),
    proven(record(2, cell="b@no-gpu", verdict=Verdict.WORKS_ON_CPU, reason="passed", image_digest=DIGEST)),
    record(3, cell="c@no-gpu", verdict=Verdict.BROKEN, reason="no wheel", image_digest=None),
    proven(
        record(
            4, cell="d@r580-h100", image="tf2.21.0-cuda12.5-cudnn9.3-py312", verdict=Verdict.CERTIFIED,
            engine="venv", image_digest=None,
        ),
        H100,
    ),
    record(
        5, cell="e@no-gpu", verdict=Verdict.FAILED, host_class="no-gpu", image_digest=DIGEST,
        reason="REHEARSAL: driver", origin=Origin.REHEARSAL,
    ),
    record(6, cell="f@no-gpu", verdict=Verdict.FAILED, host_class="no-gpu", image_digest=DIGEST),
    record(7, cell="g@r580-h100", verdict=Verdict.CERTIFIED, image_digest=DIGEST, report=None),
)  # fmt: skip
WHY = (
    "1 unproven: no GPU (a@no-gpu)",
    "1 works-on-cpu: an image without CUDA gets no certificate (b@no-gpu)",
    "1 broken: no wheel (c@no-gpu)",
    "1 certified: measured without an image (engine venv) (d@r580-h100)",
    "1 failed: REHEARSAL: driver (e@no-gpu)",
    "1 failed: it failed on a machine without a GPU (f@no-gpu)",
    # Anybody could have typed it.
    "1 unproven: claimed, but not proven: it has no report (g@r580-h100)",
)


@pytest.mark.parametrize(
    ("records", "says"),
    [
        ((), ("There is nothing to certify: there is no record yet.",)),
        *(((made,), (why,)) for made, why in zip(RECORDS, WHY, strict=True)),
        (RECORDS, WHY),
    ],
)
def test_it_says_which_records_there_are(
    records: tuple[Record, ...], says: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trust.yaml").write_text("# nobody yet\n")
    with Store(str(tmp_path / "records.db")) as store:
        store.add_all(list(records))
    options = ["--registry", "localhost:5000/tf", "--signing-key", "no.key", "--store", "records.db"]
    assert cli.run(["certify", *options]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    for line in says:
        assert line in said.err
