"""Certified images without a network: a bundle is written, received, verified, pulled and started."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from validator.certify.trust import Trust
from validator.engines.endpoint import Endpoint
from validator.errors import EXIT_FAILED, EXIT_INPUT, EXIT_OK
from validator.pipeline import bundle as module

from ..certify.private_keys import KeyOwner
from ..commands import ROOT
from ..loop import tiers
from .commands import HERE, Outcome, run
from .shelf import H100, Shelf
from .values import NAMED, OLDER, TAG

#: An image that no matrix has, so that no engine of a developer has it.
LOADED = f"{NAMED}_bundled"


@pytest.fixture(autouse=True)
def small_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the tool, which has nothing to do with images."""
    monkeypatch.setattr(module, "supported_pythons", tuple)
    monkeypatch.setattr(module, "own_wheel", lambda: ("tool-1-py3-none-any.whl", b"a wheel"))


def packed(shelf: Shelf, place: Path, *names: str, trust: str = "") -> Path:
    """Write a bundle of images, receive it, and return the directory."""
    (place / "trust.yaml").write_text(trust, encoding="utf-8")
    arguments = ("--volume-size", "100K", "--trust", place / "trust.yaml")
    done = run(shelf, "bundle", *names, *map(str, arguments), str(place / "out"), cwd=place)
    assert done.code == EXIT_OK, done.err
    received = run(shelf, "bundle", "receive", str(place / "out"), "--into", str(place / "in"), cwd=place)
    assert received.code == EXIT_OK and received.out == f"{place / 'in'}\n", received.err
    # Both sides show the same SHA-256, so that people can compare them.
    assert done.out.strip() in received.err
    return place / "in"


def alone(shelf: Shelf, *arguments: object, cwd: Path) -> Outcome:
    """Run a command in a network namespace without routes, where not even this machine's registry answers."""
    program = shutil.which("unshare")
    if program is None or os.geteuid() != 0:
        pytest.skip("a network namespace needs root and unshare")
    done = subprocess.run(
        [program, "--net", sys.executable, "-m", "validator", *map(str, arguments)],
        cwd=cwd, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT), "VALIDATOR_KEY": str(shelf.trust.key)},
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return Outcome(done.returncode, done.stdout, done.stderr)


def test_certificates_are_verified_without_a_network(shelf: Shelf, tmp_path: Path) -> None:
    digest = shelf.push_certified(H100)
    other = shelf.push(OLDER)
    received = packed(shelf, tmp_path, NAMED, other)
    done = alone(shelf, "verify", NAMED, "--fixtures", "--json", "--from-bundle", received, cwd=tmp_path)
    assert done.code == EXIT_OK, done.err
    found = json.loads(done.out)
    assert found["images"] == {NAMED: digest} and found["registry"] == str(received / "images")
    assert [one["host_class"] for one in found["certificates"]] == ["r580-h100"]
    done = alone(shelf, "verify", other, "--fixtures", "--from-bundle", received, cwd=tmp_path)
    assert done.code == EXIT_FAILED and "no valid certificate" in done.out
    done = alone(shelf, "recommend", "--fixtures", *HERE, "--from-bundle", received, cwd=tmp_path)
    assert done.code == EXIT_OK and "1 certified" in done.err and digest[:19] in done.out
    for asked, code in ((NAMED, EXIT_OK), (other, EXIT_FAILED)):
        arguments = ("--format", "podman", "--fixtures", *HERE, "--image", asked, "--from-bundle", received)
        done = alone(shelf, "run", *arguments, "--", "true", cwd=tmp_path)
        assert done.code == code, done.err
        assert (f"oci:{received}/images:{TAG}" in done.out) is (code == EXIT_OK)
    for tool in ("podman", "apptainer", "slurm"):
        named = ("--format", tool, "--uncertified", "--fixtures", *HERE, "--image", other)
        done = alone(shelf, "run", *named, "--from-bundle", received, "--", "true", cwd=tmp_path)
        assert done.code == EXIT_OK and "NOT CERTIFIED" in done.err, done.err
        name = f":{OLDER}" if tool == "podman" else f"@{other}"
        assert f"oci:{received}/images{name}" in done.out
    done = alone(
        shelf, "run", "--format", "kubernetes", "--fixtures", *HERE, "--from-bundle", received, cwd=tmp_path
    )
    assert done.code == EXIT_INPUT and "--format kubernetes" in done.err
    again = alone(shelf, "bundle", "receive", tmp_path / "out", "--into", tmp_path / "again", cwd=tmp_path)
    assert again.code == EXIT_OK and (tmp_path / "again" / "bundle.json").exists(), again.err


def test_a_bundle_does_not_vouch_for_itself(
    shelf: Shelf, tmp_path: Path, foreign: tuple[KeyOwner, Trust]
) -> None:
    shelf.push_certified(H100)
    assert shelf.trust.key is not None
    public = Path(str(shelf.trust.key)).read_text("utf-8")
    indented = "".join(f"    {line}\n" for line in public.splitlines())
    received = packed(shelf, tmp_path, NAMED, trust=f"release:\n  key: |\n{indented}")
    inside = received / "trust" / "release.pub"
    assert inside.read_text("utf-8").strip() == public.strip()
    # Nobody is trusted without being named, whatever the bundle says.
    environment = {"VALIDATOR_KEY": ""}
    done = run(shelf, "verify", NAMED, "--from-bundle", str(received), cwd=received / "trust", **environment)
    assert done.code == EXIT_INPUT and "no trusted signer was given" in done.err
    # Another person's key decides.
    done = run(
        replace(shelf, trust=foreign[1]),
        "verify",
        NAMED,
        "--fixtures",
        "--from-bundle",
        str(received),
        cwd=tmp_path,
    )
    assert done.code == EXIT_FAILED and "not signed by the trusted key" in done.err
    # A key of the bundle works if somebody names it, who is told what that means.
    arguments = ("verify", NAMED, "--fixtures", "--key", str(inside), "--from-bundle", str(received))
    done = run(shelf, *arguments, cwd=tmp_path)
    assert done.code == EXIT_OK and f"WARNING: {inside} is from the bundle itself" in done.err
    assert "WARNING" not in run(shelf, *arguments[:3], "--from-bundle", str(received), cwd=tmp_path).err


def test_sigstores_roots_have_to_be_named(shelf: Shelf, tmp_path: Path) -> None:
    shelf.push_certified(H100)
    received = packed(shelf, tmp_path, NAMED)
    named = ("--identity", "https://example.com/a", "--issuer", "https://example.com")
    done = run(shelf, "verify", NAMED, *named, "--from-bundle", str(received), cwd=tmp_path)
    assert done.code == EXIT_INPUT and "--trusted-root FILE" in done.err


def test_a_directory_that_was_not_received_is_an_error(shelf: Shelf, tmp_path: Path) -> None:
    done = run(shelf, "verify", NAMED, "--fixtures", "--from-bundle", str(tmp_path), cwd=tmp_path)
    assert done.code == EXIT_INPUT and "is not a received bundle" in done.err
    assert "validator bundle receive DIRECTORY" in done.err
    # Its volumes are there, but nobody has unpacked them.
    (tmp_path / "bundle.json").write_text("{}", encoding="utf-8")
    done = run(shelf, "verify", NAMED, "--fixtures", "--from-bundle", str(tmp_path), cwd=tmp_path)
    assert done.code == EXIT_INPUT and "it has no images" in done.err


def test_a_layer_that_changed_since_is_not_loaded(shelf: Shelf, tmp_path: Path) -> None:
    digest = shelf.push_certified(H100)
    received = packed(shelf, tmp_path, NAMED)
    blob = received / "images/blobs/sha256" / digest.removeprefix("sha256:")
    blob.write_bytes(blob.read_bytes() + b" ")
    done = run(shelf, "verify", NAMED, "--fixtures", "--from-bundle", str(received), cwd=tmp_path)
    assert done.code == EXIT_INPUT and "is damaged: its content has another digest" in done.err


@pytest.mark.parametrize("words", [["one"], ["receive", "a", "b"], ["receive", "a", "--volume-size", "1G"]])
def test_wrong_words_are_usage_errors(shelf: Shelf, words: Sequence[str], tmp_path: Path) -> None:
    done = run(shelf, "bundle", *words, cwd=tmp_path)
    assert done.code == EXIT_INPUT and not list(tmp_path.iterdir())


def test_layouts_can_be_bundled_again(shelf: Shelf, tmp_path: Path) -> None:
    digest = shelf.push_certified(H100)
    received = packed(shelf, tmp_path, f"{shelf.registry.repository}@{digest}")
    (tmp_path / "again").mkdir()
    again = packed(shelf, tmp_path / "again", f"oci:{received}/images:{TAG}")
    assert json.loads((again / "bundle.json").read_bytes())["images"][0]["digest"] == digest


@pytest.fixture
@tiers.docker
def unloaded(engine: Endpoint) -> Iterator[Callable[[], list[str]]]:
    """List the engine's names for the image of these tests, and remove them in the end."""
    name = f"tensorflow-gpu-matrix:{LOADED}"

    def names() -> list[str]:
        return [tag for image in engine.quick.api.images(name) for tag in image["RepoTags"] or ()]

    assert names() == [], "this machine has a real image with the name that this test loads"
    yield names
    for found in names():
        engine.quick.images.remove(found, force=True)


def test_docker_gets_the_certified_image_without_a_network(
    shelf: Shelf, tmp_path: Path, unloaded: Callable[[], list[str]]
) -> None:
    digest = shelf.push(f"{TAG}_bundled")
    shelf.certify(digest, H100, tag=f"{TAG}_bundled")
    received = packed(shelf, tmp_path, LOADED)
    arguments = ("--fixtures", *HERE, "--image", LOADED, "--from-bundle", received)
    done = alone(shelf, "run", "--devices", "gpus", *arguments, cwd=tmp_path)
    assert done.code == EXIT_INPUT and "`pull --from-bundle` loads it" in done.err
    done = alone(shelf, "pull", *arguments, cwd=tmp_path)
    assert done.code == EXIT_OK and unloaded() == [f"tensorflow-gpu-matrix:{LOADED}"], done.err
    identifier = done.out.strip()
    assert identifier.startswith("sha256:")
    done = alone(shelf, "run", "--devices", "gpus", *arguments, cwd=tmp_path)
    assert done.code == EXIT_OK and identifier in done.out, done.err
    # What the engine has can be bundled too.
    (tmp_path / "again").mkdir()
    environment = {"VALIDATOR_REGISTRY": ""}
    done = run(shelf, "bundle", LOADED, str(tmp_path / "again"), cwd=tmp_path, **environment)
    assert done.code == EXIT_OK, done.err
    [entry] = json.loads((tmp_path / "again" / "bundle.json").read_bytes())["images"]
    assert entry["image"] == "" and entry["tag"]
