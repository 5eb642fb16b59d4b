"""`doctor` and `predict` judge the same facts alike."""

from __future__ import annotations

import pytest

from validator.compat import hardware
from validator.compat.judge import judge
from validator.compat.releases import Release, releases
from validator.diagnosis import diagnose_log
from validator.diagnosis.catalogue import catalogue
from validator.diagnosis.observe import observe
from validator.diagnosis.text import read_text
from validator.model.diagnosis import FailingReason
from validator.model.prediction import Host, Outcome, Prediction, Software

from ..laws import subjects_to_try
from .facts_read import facts_read

DRIVERS = {"450.80.02": "11.0", "535.183.01": "12.2", "570.124.06": "12.8", "590.44.01": "13.1"}
#: One GPU of each compute capability.
GPUS = list({gpu.compute_capability: gpu for gpu in hardware.gpus()}.values())
SMI = "| NVIDIA-SMI {0}       Driver Version: {0}     CUDA Version: {1} |\nGPU 0: {2} (UUID: GPU-1)\n"
LIST = "Package    Version\n---------- -------\ntensorflow {}\n\n"


def text(release: Release, driver: str, gpu: str) -> str:
    return (
        f"Python {release.pythons[0]}.1 on Linux x86_64\n"
        + LIST.format(release.version)
        + SMI.format(driver, DRIVERS[driver], gpu)
    )


def predicted(release: Release, driver: str, gpu: str) -> Prediction:
    return judge(
        Software(release.version, release.pythons[0], release.cuda, wheel="pypi"),
        Host(driver=driver, gpu=gpu, system="linux", machine="x86_64"),
    )


def failing(prediction: Prediction) -> set[FailingReason]:
    return {
        FailingReason(str(one.rule), one.text, one.fact, one.source, one.mode)
        for one in prediction.reasons
        if one.outcome is Outcome.FAILS
    }


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("release", releases(), ids=lambda release: release.version)
def test_the_doctor_gives_the_reasons_of_predict(release: Release, driver: str) -> None:
    for gpu in subjects_to_try(GPUS, releases().index(release)):
        expected = failing(predicted(release, driver, gpu.name))
        found = diagnose_log(text(release, driver, gpu.name))
        given = {reason for cause in found.causes for reason in cause.reasons}
        assert bool(found.causes) is bool(expected), gpu.name
        # A cause that is only possible is left out where there is a likely one.
        assert given <= expected, gpu.name
        assert not expected or given, gpu.name
        assert found.answer == ("cause_found" if expected else "not_shown")


@pytest.mark.parametrize("gpu", hardware.gpus(), ids=lambda gpu: gpu.slug)
def test_the_name_of_every_gpu_is_read(gpu: hardware.Gpu) -> None:
    release = releases()[-1]
    found = facts_read(observe(read_text(text(release, "570.124.06", gpu.name)), catalogue()))
    assert (found.tensorflow, found.driver) == (release.version, "570.124.06")
    assert found.gpu is not None
    assert hardware.gpu(found.gpu).compute_capability == gpu.compute_capability
