"""The options of `run` that need neither a registry nor an engine."""

from __future__ import annotations

import pytest

from validator import cli
from validator.cli import images
from validator.errors import InputError, MissingError
from validator.registry.names import Repository


@pytest.mark.parametrize(("options", "plain_http"), [([], None), (["--plain-http"], True)])
def test_plain_http_also_counts_for_the_registry_of_an_image(
    options: list[str], plain_http: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def registry(repository: Repository, plain_http: bool | None = None) -> None:
        asked.append((str(repository), plain_http))
        raise MissingError("no network in this test")

    monkeypatch.setattr(images, "Registry", registry)
    with pytest.raises(MissingError, match="no network in this test"):
        cli.run(["run", "--uncertified", "--image", "registry.example.org:5000/team/tf:x", *options])
    assert asked == [("registry.example.org:5000/team/tf", plain_http)]


@pytest.mark.parametrize("form", ["apptainer", "slurm", "kubernetes"])
@pytest.mark.parametrize("image", [[], ["--image", "tensorflow-gpu-matrix:tf2.21.0-cpu-py312"]])
def test_other_tools_do_not_start_images_of_the_local_engine(
    form: str, image: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes before an engine is looked for, and before a missing command is reported."""
    monkeypatch.delenv("VALIDATOR_REGISTRY", raising=False)
    with pytest.raises(InputError, match=f"--format {form} does not start images of the local") as caught:
        cli.run(["run", "--uncertified", "--format", form, *image])
    assert "build-matrix --push HOST/NAME" in str(caught.value.hint)
    assert "docker push" in str(caught.value.hint)
    assert ("oci:DIRECTORY:TAG" in str(caught.value.hint)) == (form != "kubernetes")


@pytest.mark.parametrize("command", ["run", "pull"])
def test_without_a_signer_the_way_to_go_on_is_named(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VALIDATOR_KEY", raising=False)
    with pytest.raises(InputError, match="no trusted signer was given") as caught:
        cli.run([command, "--registry", "registry.example.org/team/tf"])
    assert "`run --uncertified` starts an image that nobody signed" in str(caught.value.hint)
