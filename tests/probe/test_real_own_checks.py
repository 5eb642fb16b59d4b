"""The user's packages and the documented example of a check, with a real TensorFlow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from validator.engines.protocol import probe_archive, read_files
from validator.model.report import CheckOutcome, CheckResult

from .environments import AS_BUILT_2_21, tensorflow_environment
from .test_real_tensorflow import found, probe

pytestmark = pytest.mark.engine

MANUAL = Path(__file__).parents[2] / "docs/how-to/write-a-check.md"
EXAMPLE = re.compile(r"<!-- example -->\n```python\n(.*?)```", re.DOTALL)
#: The user's package. frozen: how many of its layers a step does not train.
OURS = """
import os

import tensorflow as tf


def build_model():
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(3), tf.keras.layers.Dense(2)])
    if os.environ.get("OURS") == "broken":
        model.layers[0].kernel.assign(tf.fill((4, 3), float("nan")))
    return model
"""
HIDES = """
import tensorflow as tf

tf.config.list_physical_devices = lambda kind=None: 1 / 0
"""


@pytest.fixture(scope="module")
def python() -> Path:
    return tensorflow_environment(AS_BUILT_2_21)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "ours.py").write_text(OURS)
    return tmp_path


def example(python: Path, site: Path, **variables: str) -> CheckResult:
    match = EXAMPLE.search(MANUAL.read_text(encoding="utf-8"))
    assert match is not None
    (site / "our_check.py").write_text(match[1])
    archive = site / "probe.pyz"
    archive.write_bytes(probe_archive(read_files([site / "our_check.py"])))
    report = probe(python, archive, "--only", "ours/our_check", PYTHONPATH=str(site), **variables)
    return found(report, "ours/our_check")


def test_the_example_of_the_manual_trains_for_one_step(python: Path, site: Path) -> None:
    check = example(python, site)
    assert check.sentence == "one step trained 4 weights on the CPU"
    assert check.outcome is CheckOutcome.PASS
    assert check.evidence.raw["own"]["device"].endswith("CPU:0")
    assert check.document["title"] == "Does our model train for one step on the GPU?"


def test_the_example_sees_a_model_that_does_not_train(python: Path, site: Path) -> None:
    check = example(python, site, OURS="broken")
    assert (check.outcome, check.sentence) == (CheckOutcome.FAIL, "the loss is not a number")


def test_packages_are_imported_before_and_after_the_real_tensorflow(python: Path, site: Path) -> None:
    archive = site / "probe.pyz"
    archive.write_bytes(probe_archive())
    (site / "hides.py").write_text(HIDES)
    metadata = site / "hides-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: hides\nVersion: 1.0\n")
    (metadata / "RECORD").write_text("hides.py,,\n")
    lock = site / "lock.txt"
    lock.write_text("# requires: h5py\n# requires: hides\nh5py==1.0\nhides==1.0\n")
    report = probe(python, archive, "--only", "packages", "--lock", str(lock), PYTHONPATH=str(site))
    failed = found(report, "packages")
    assert (failed.outcome, failed.required) == (CheckOutcome.FAIL, True)
    assert [entry["modules"] for entry in failed.evidence.raw["packages"]] == [["h5py"], ["hides"]]
    # The other one passes.
    assert failed.sentence == "hides: imported, it breaks TensorFlow: ZeroDivisionError: division by zero"
