"""The conditions under which `set_jit` counts as taking effect."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from validator.probe import child
from validator.probe.check import Context
from validator.probe.checks import xla_programs
from validator.probe.child import Answer

LOSSES = [2.44, 2.33, 2.22, 2.12, 2.03]


KERAS = {
    "losses": LOSSES,
    "losses_off": LOSSES,
    "largest_difference": 0.0,
    "modules": [{"module": "m", "device_type": "CPU"}],
}


def run(setting: bool | str, clusters: int, **changes: Any) -> dict[str, Any]:
    return {
        "setting": setting,
        "get_jit": "autoclustering" if setting else "",
        "clusters": clusters,
        "operations": 13 if clusters else 41,
        "modules": [{"module": "cluster_0__", "instructions": 177, "fusions": 14, "device_type": "CPU"}]
        * clusters,
        "losses": LOSSES,
        "largest_difference": 0.0,
        **changes,
    }


def seen(*changed: tuple[int, dict[str, Any]], **changes: Any) -> dict[str, Any]:
    runs = [run(False, 0), run(True, 1), run("autoclustering", 1), run(False, 0)]
    for number, change in changed:
        runs[number].update(change)
    return {
        "device_type": "CPU",
        "cpu_flag": xla_programs.CPU_FLAG,
        "flags": None,
        "runs": runs,
        "without_cpu_flag": [run(True, 0)],
        "tolerance": 1e-3,
        "keras_jit": KERAS,
        **changes,
    }


def test_clusters_that_are_compiled_pass() -> None:
    result = xla_programs.judge_auto_clustering(seen())
    assert result.outcome == "pass"
    assert "puts 41 operations into 1 cluster(s)" in result.sentence
    assert "and into 0 without that flag" in result.sentence


def test_on_a_gpu_the_flag_is_not_mentioned() -> None:
    gpu = [{"module": "cluster_0__", "instructions": 1, "fusions": 0, "device_type": "GPU"}]
    evidence = seen(
        (1, {"modules": gpu}),
        (2, {"modules": gpu}),
        device_type="GPU",
        keras_jit={**KERAS, "modules": gpu},
        cpu_flag=None,
        without_cpu_flag=None,
        tolerance=0.02,
    )
    result = xla_programs.judge_auto_clustering(evidence)
    assert result.outcome == "pass"
    assert "13 operations remain" in result.sentence


@pytest.mark.parametrize(
    ("number", "change", "said"),
    [
        (1, {"clusters": 0}, "set_jit(True) has no effect"),
        (2, {"clusters": 0}, "set_jit('autoclustering') has no effect"),
        (1, {"modules": []}, "XLA compiled none for the CPU"),
        (3, {"clusters": 1}, "set_jit(False) doesn't turn automatic clustering off again"),
        (1, {"largest_difference": 0.05}, "gradients differ"),
        (2, {"largest_difference": float("inf")}, "gradients differ"),
    ],
)
def test_no_effect_or_a_wrong_result_fails(number: int, change: dict[str, Any], said: str) -> None:
    result = xla_programs.judge_auto_clustering(seen((number, change)))
    assert result.outcome == "fail"
    assert said in result.sentence


def test_no_run_without_the_flag_is_no_count() -> None:
    (statement,) = [xla_programs.judge_auto_clustering(seen(without_cpu_flag=[])).statement]
    assert statement is not None and statement["clusters_without_flag"] is None


def test_clusters_because_of_a_variable_are_reported() -> None:
    flags = "--tf_xla_auto_jit=2"
    result = xla_programs.judge_auto_clustering(seen((0, {"clusters": 1}), (3, {"clusters": 1}), flags=flags))
    assert result.outcome == "pass"
    assert result.statement == {"code": "clusters_always", "flags": flags, "clusters": 1}


@pytest.mark.parametrize(
    ("gpus", "flags"), [([], ["--mine --tf_xla_cpu_global_jit", "--mine"]), (["a GPU"], ["--mine"])]
)
def test_the_flag_is_only_added_on_the_cpu(
    gpus: list[Any], flags: list[str], facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    def call(
        function: Any, directory: str, settings: list[Any], keras: bool, full_float32: bool, **options: Any
    ) -> Answer:
        given.append(options["environment"]["TF_XLA_FLAGS"])
        with_keras = [{"keras_jit": KERAS}] if keras else []
        return Answer([*seen()["runs"][: len(settings)], *with_keras], None, "")

    monkeypatch.setenv("TF_XLA_FLAGS", "--mine")
    monkeypatch.setattr(child, "fresh", call)
    growth = SimpleNamespace(
        set_memory_growth=lambda gpu, on: None,
        get_device_details=lambda gpu: {"compute_capability": (7, 5)},
    )
    config = SimpleNamespace(list_physical_devices=lambda kind: gpus, experimental=growth)
    xla_programs.auto_clustering.run(Context(facts, None, SimpleNamespace(config=config)))
    assert given == flags


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"modules": []},
            "with jit_compile=True after set_jit(True) the model trained, but"
            " XLA compiled nothing for the CPU",
        ),
        (
            {"largest_difference": 0.5},
            "the gradients of jit_compile=True after set_jit(True) differ from those",
        ),
    ],
)
def test_a_keras_model_is_compiled_after_set_jit_too(change: dict[str, Any], said: str) -> None:
    result = xla_programs.judge_auto_clustering(seen(keras_jit={**KERAS, **change}))
    assert result.outcome == "fail"
    assert said in result.sentence
