"""`fleet.yaml`: what is read, what is rejected with its position, its JSON Schema and its page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from validator.errors import EXIT_INPUT, InputError
from validator.fleet.settings import (
    SCHEMA,
    FleetSettings,
    KubernetesPlace,
    SlurmPlace,
    Toleration,
    read_settings,
    schema_text,
)

PAGE = (Path(__file__).parents[2] / "docs/reference/fleet.md").read_text(encoding="utf-8")


def read(directory: Path, text: str) -> FleetSettings:
    path = directory / "fleet.yaml"
    path.write_text(text, encoding="utf-8")
    return read_settings(path)


def example() -> str:
    match = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert match is not None
    return match[1]


def slurm(host_classes: str = "{r580-t4: {gres: gpu}}", **keys: str) -> str:
    fields = {"directory": "/shared", **keys, "host_classes": host_classes}
    return "slurm:\n" + "".join(f"  {name}: {value}\n" for name, value in fields.items() if value)


def kubernetes(**keys: str) -> str:
    return "kubernetes:\n" + "".join(f"  {name}: {value}\n" for name, value in keys.items())


def test_the_example_of_the_page_is_read(tmp_path: Path) -> None:
    found = read(tmp_path, example())
    assert found.slurm is not None
    assert found.slurm.directory == "/shared/tensorflow-gpu-matrix"
    assert (found.slurm.container, found.slurm.python, found.slurm.setup) == ("auto", "python3", "")
    assert found.slurm.host_classes["r580-h100"] == SlurmPlace(
        constraint="r580&h100", gres="gpu:h100:1", partition="gpu", account="ml", in_flight=40
    )
    old = found.slurm.host_classes["r535-t4"]
    assert (old.partition, old.account, old.time_limit, old.wait_limit) == ("old-gpus", "ml", 60, 1440)
    assert found.slurm.host_classes["no-gpu"] == SlurmPlace(partition="cpu", account="ml", in_flight=40)
    assert "r580-l4" not in found.slurm.host_classes

    cluster = found.kubernetes
    assert (cluster.context, cluster.namespace, cluster.pull_secret) == ("", "gpu-matrix", "registry")
    taint = Toleration(key="team", value="ml", effect="NoSchedule")
    assert cluster.place("r580-l4") == KubernetesPlace(queue="nightly", tolerations=[taint])
    assert cluster.place("r580-h100").queue == "nightly"
    assert cluster.place("r580-h100").node_selector == {
        "nvidia.com/gpu.product": ["NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe"],
        "nvidia.com/cuda.driver-version.major": ["580"],
    }


def test_a_host_class_overrides_what_the_section_says_for_all(tmp_path: Path) -> None:
    text = slurm("{r580-t4: {gres: gpu, qos: high, memory: 8}, r580-l4: {gres: gpu}}", qos="low", memory="64")
    cluster = read(tmp_path, text).slurm
    assert cluster is not None
    named = [cluster.host_classes[name] for name in ("r580-t4", "r580-l4")]
    seen = [(place.qos, place.memory) for place in named]
    assert seen == [("high", 8), ("low", 64)]
    text = slurm("{r580-t4: {gres: gpu, workers: 1}, r580-l4: {gres: gpu}}", workers="2")
    cluster = read(tmp_path, text).slurm
    assert cluster is not None
    assert [cluster.host_classes[name].workers for name in ("r580-t4", "r580-l4")] == [1, 2]
    text = kubernetes(
        tolerations="[{key: a}]",
        resource="nvidia.com/mig-1g.10gb",
        host_classes="{r580-t4: {tolerations: [], resource: nvidia.com/gpu}, r580-l4: {cpus: 2}}",
    )
    places = read(tmp_path, text).kubernetes.host_classes
    assert [(len(place.tolerations), place.resource, place.cpus) for place in places.values()] == [
        (0, "nvidia.com/gpu", 0),
        (1, "nvidia.com/mig-1g.10gb", 2),
    ]


def test_a_missing_section_has_defaults_only_for_kubernetes(tmp_path: Path) -> None:
    assert read(tmp_path, kubernetes(namespace="fleet")).slurm is None
    assert read(tmp_path, slurm()).kubernetes == FleetSettings().kubernetes


#: The text, and the whole message.
SHAPES = {
    "unknown section": ("slrum: {}", "1:1: slrum: unknown key; did you mean slurm?"),
    "unknown key": (slurm(partion="gpu"), "3:3: slurm.partion: unknown key; did you mean partition?"),
    "unknown key of a host class": (
        slurm("{r580-t4: {gress: gpu}}"),
        "3:28: slurm.host_classes.r580-t4.gress: unknown key; did you mean gres?",
    ),
    "key of the other engine": (
        kubernetes(partition="gpu"),
        "2:3: kubernetes.partition: unknown key; the keys here are cpus, memory, time_limit, wait_limit,"
        " in_flight, workers, queue, tolerations, resource, context, namespace, pull_secret and host_classes",
    ),
    "no directory": (
        "slurm: {host_classes: {r580-t4: {gres: gpu}}}",
        "1:8: slurm: the key directory is missing",
    ),
    "no host classes": (slurm("{}"), "3:17: slurm.host_classes: is empty; it needs at least one value"),
    "a number for text": (
        slurm(account="17"),
        '3:12: slurm.account: expected text, found a number (17); write "17", in quotes',
    ),
    "text for a number": (
        slurm(in_flight="many"),
        '3:14: slurm.in_flight: expected a whole number from 1 to 10000, found the text "many"',
    ),
    "a limit of zero": (
        slurm(time_limit="0"),
        "3:15: slurm.time_limit: expected a whole number from 1 to 43200, found 0",
    ),
    "a driver as a number": (
        kubernetes(host_classes="{r580-t4: {node_selector: {driver: 580}}}"),
        "2:52: kubernetes.host_classes.r580-t4.node_selector.driver: expected text, found a number (580);"
        ' write "580", in quotes',
    ),
    "a toleration without a key": (
        kubernetes(tolerations="[{value: ml}]"),
        "2:17: kubernetes.tolerations[0]: the key key is missing",
    ),
}
VALUES = {
    "a relative directory": (
        slurm(directory="shared"),
        '2:14: slurm.directory: "shared" is not an absolute path; all nodes have to see it under this path',
    ),
    "an unknown container": (
        slurm(container="aptainer"),
        '3:14: slurm.container: "aptainer" is not known; the nearest is apptainer',
    ),
    "a host class without a place": (
        slurm("{r580-t4: {time_limit: 5}}"),
        "3:27: slurm.host_classes.r580-t4: needs a constraint, a gres, a partition or a reservation; without"
        " one, any node would do",
    ),
    "not a host class": (
        slurm("{h100: {gres: gpu}}"),
        '3:18: slurm.host_classes.h100: "h100" is not a host class (such as "r580-h100", or "no-gpu")',
    ),
    "an option as a partition": (
        slurm(partition="--wrap"),
        '3:14: slurm.partition: "--wrap" is not a name without spaces',
    ),
    "a command as a constraint": (
        slurm('{r580-t4: {constraint: "r580 $(id)"}}'),
        '3:40: slurm.host_classes.r580-t4.constraint: "r580 $(id)" is not features with operators, such as'
        " r580&h100, without spaces",
    ),
    "a wrong gres": (
        slurm("{r580-t4: {gres: 'gpu:t4:1:2'}}"),
        '3:34: slurm.host_classes.r580-t4.gres: "gpu:t4:1:2" is not a generic resource, such as gpu:h100:1',
    ),
    "a wrong namespace": (
        kubernetes(namespace="GPU"),
        '2:14: kubernetes.namespace: "GPU" is not a namespace: lower-case letters, digits and dashes',
    ),
    "a wrong effect": (
        kubernetes(tolerations="[{key: team, effect: NoRun}]"),
        '2:37: kubernetes.tolerations[0].effect: "NoRun" is not an effect of a taint: NoSchedule,'
        " PreferNoSchedule and NoExecute",
    ),
    "a wrong label": (
        kubernetes(host_classes="{r580-t4: {node_selector: {a b: c}}}"),
        '2:49: kubernetes.host_classes.r580-t4.node_selector."a b": "a b" is not the key of a label or a'
        " taint in Kubernetes",
    ),
    "a wrong label value": (
        kubernetes(host_classes="{r580-t4: {node_selector: {a: [b, c d]}}}"),
        '2:51: kubernetes.host_classes.r580-t4.node_selector.a[1]: "c d" is not the value of a label or a'
        " taint in Kubernetes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*SHAPES, *VALUES])
def test_a_problem_is_named_with_line_and_column(tmp_path: Path, name: str) -> None:
    text, says = {**SHAPES, **VALUES}[name]
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    assert str(caught.value) == f"{tmp_path / 'fleet.yaml'}:{says}"
    assert caught.value.exit_code == EXIT_INPUT
    assert "reference/fleet.md" in str(caught.value.hint)


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    text = slurm("{h100: {gres: gpu}, r580-t4: {constraint: a b}}", container="lxc")
    with pytest.raises(InputError) as caught:
        read(tmp_path, text + kubernetes(namespace="A"))
    assert len(str(caught.value).splitlines()) == 4


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"fleet.yaml: can't be read: No such file") as caught:
        read_settings(tmp_path / "fleet.yaml")
    assert "fleet inventory --write" in str(caught.value.hint)


# The JSON Schema, and the page of the manual.


def validate(text: str) -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft7Validator(schema).validate(yaml.safe_load(text))


def test_the_checked_in_schema_is_current_and_valid() -> None:
    hint = "run python -m validator.fleet.settings"
    assert SCHEMA.read_text(encoding="utf-8") == schema_text(), hint
    jsonschema.Draft7Validator.check_schema(json.loads(schema_text()))


def test_every_key_of_the_schema_is_explained() -> None:
    schema: Any = json.loads(schema_text())
    for definition in [schema, *schema["definitions"].values()]:
        assert definition["description"]
        for name, value in definition["properties"].items():
            assert value["description"], name


def test_schema_and_reader_agree_about_the_example() -> None:
    validate(example())


@pytest.mark.parametrize("name", SHAPES)
def test_schema_and_reader_reject_the_same_shapes(name: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        validate(SHAPES[name][0])
