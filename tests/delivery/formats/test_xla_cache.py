"""Every format keeps what XLA compiles where TensorFlow can, in a place of the user, if told so."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from validator.assemble.configuration import XLA_CACHE
from validator.delivery.formats import FORMATS
from validator.delivery.start import Start, User

from ..commands import HERE, run
from ..shelf import H100, Shelf
from .fake_apptainer import install, read_call
from .starts import shell_words, start, with_image

DIGEST = "sha256:" + "0123456789abcdef" * 4
NAME = "2.21.0-0123456789abcdef"
PROGRAMS = "--tf_xla_persistent_cache_directory"
BOTH = f"{PROGRAMS} --xla_gpu_per_fusion_autotune_cache_dir"
PLACE, FLAGS = "VALIDATOR_XLA_CACHE", "VALIDATOR_XLA_CACHE_FLAGS"
COMMAND = ("python", "train.py")
VOLUME = "tensorflow-gpu-matrix-1000"


def kept(tensorflow: str = "2.21.0", **changes: Any) -> Start:
    image = with_image(tensorflow=tensorflow, digest=DIGEST)
    return start(**{"image": image, "command": COMMAND, **changes})


@pytest.mark.parametrize(
    ("release", "flags"),
    [
        ("2.15.1", None), ("2.16.1", PROGRAMS), ("2.17.1", PROGRAMS), ("2.18.0", BOTH), ("2.21.0", BOTH),
        ("2.22.0rc0", None), ("2.22.0", None), ("2.21.0+b3f1c2d4", None), ("", None),
    ],
)  # fmt: skip
def test_only_flags_that_the_wheel_has_are_set(release: str, flags: str | None) -> None:
    assert kept(release).variables().get(FLAGS) == flags


@pytest.mark.parametrize("changes", [{"xla_cache": False}, {"host": None, "devices": None}])
@pytest.mark.parametrize("format_", sorted(FORMATS))
def test_nothing_is_kept_without_a_gpu_or_unless_told_so(format_: str, changes: dict[str, Any]) -> None:
    command = () if format_ == "devcontainer" else COMMAND
    text = FORMATS[format_].write(kept(**{"command": command, **changes}))
    assert PLACE not in text
    assert VOLUME not in text


@pytest.mark.parametrize("format_", ["docker", "podman"])
@pytest.mark.parametrize("directory", [None, Path("/home/me")])
def test_an_engine_gets_a_volume_of_the_user(format_: str, directory: Path | None) -> None:
    text = FORMATS[format_].write(kept(directory=directory))
    words = shell_words(text)
    # Rootless Podman gives the files of such a container to another user of the host.
    volume = f"{VOLUME}-keep-id" if (format_, bool(directory)) == ("podman", True) else VOLUME
    assert words[words.index(f"type=volume,source={volume},target={XLA_CACHE}") - 1] == "--mount"
    assert f"{PLACE}={XLA_CACHE}/{NAME}" in words
    assert f"{FLAGS}={BOTH}" in words
    told = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    assert "compiled programs (TensorFlow >=2.16" in told
    assert "--no-xla-cache turns this off" in told
    assert "source=tensorflow-gpu-matrix-7," in FORMATS[format_].write(kept(user=User(7, 7)))


@pytest.mark.parametrize("directory", [None, Path("/home/me")])
def test_compose_names_the_volume_itself(directory: Path | None) -> None:
    document = yaml.safe_load(FORMATS["compose"].write(kept(directory=directory)))
    service = document["services"]["tensorflow"]
    assert document["volumes"] == {"xla": {"name": VOLUME}}
    assert service["volumes"][-1] == {"type": "volume", "source": "xla", "target": XLA_CACHE}
    assert len(service["volumes"]) == (2 if directory else 1)
    assert (service["environment"][PLACE], service["environment"][FLAGS]) == (f"{XLA_CACHE}/{NAME}", BOTH)


@pytest.mark.service
@pytest.mark.parametrize("format_", ["apptainer", "slurm"])
def test_apptainer_keeps_it_in_the_home_directory(format_: str, tmp_path: Path) -> None:
    script = tmp_path / "start.sh"
    script.write_text(FORMATS[format_].write(kept()), encoding="utf-8")
    programs = install(tmp_path)
    home = "/home/two 'words' of x"
    done = subprocess.run(
        ["bash", str(script)],
        env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": home},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    variables = read_call(done.stdout).environment
    assert variables[PLACE] == f"{home}/.cache/tensorflow-gpu-matrix/xla/{NAME}"
    assert variables[FLAGS] == BOTH


def test_kubernetes_keeps_it_in_the_claim() -> None:
    def variables(**changes: Any) -> dict[str, str]:
        job = list(yaml.safe_load_all(FORMATS["kubernetes"].write(kept(**changes))))[-1]
        [container] = job["spec"]["template"]["spec"]["containers"]
        return {entry["name"]: entry["value"] for entry in container["env"]}

    found = variables(directory=Path("/home/me"))
    assert (found[PLACE], found[FLAGS]) == (f"/workspace/.cache/xla/{NAME}", BOTH)
    assert PLACE not in variables()


def test_a_dev_container_says_that_it_keeps_nothing() -> None:
    text = FORMATS["devcontainer"].write(kept(command=()))
    assert PLACE not in text
    assert "XLA compiles anew" in re.sub(r"\s*//\s*|\s+", " ", text)


def test_a_variable_of_the_user_stays() -> None:
    own = {"TF_XLA_FLAGS": "--tf_xla_auto_jit=2", PLACE: "/mine/2.21.0-1"}
    found = kept(environment=own).variables()
    assert {name: found[name] for name in own} == own


def test_run_keeps_it_unless_told_not_to(shelf: Shelf, tmp_path: Path) -> None:
    shelf.push_certified(H100)
    words = ("--devices", "gpus", "--fixtures", *HERE, "--", "true")
    done = run(shelf, "run", *words, cwd=tmp_path)
    assert f"{PLACE}=" in done.out
    done = run(shelf, "run", "--no-xla-cache", *words, cwd=tmp_path)
    assert done.code == 0 and "docker run" in done.out
    assert PLACE not in done.out
