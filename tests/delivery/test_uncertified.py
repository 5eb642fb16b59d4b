"""Test `run --uncertified`: which image it takes, and that nobody can miss that it is not certified."""

from __future__ import annotations

import functools
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from validator.assemble.image import OciLayout
from validator.engines.endpoint import Endpoint, reach
from validator.errors import EXIT_FAILED, EXIT_INPUT, EXIT_MISSING, EXIT_OK, InputError
from validator.model.spec import LABEL_SPEC
from validator.registry.client import named_in_layout
from validator.registry.names import identifier_of, split_reference

from ..assemble.synthetic import Image, Layer
from ..integration.docker.private_engine import PrivateEngine, private_engine
from ..loop import tiers
from ..registry.images import push_image
from .commands import HERE, ON_H100, Outcome, run
from .shelf import A100, H100, Shelf
from .values import NAMED, OLDER, TAG

CPU = "2.21.0-cpu-py3.12"
GPUS = ("--devices", "gpus")
DIGEST = "sha256:" + "1" * 64


def start(shelf: Shelf, *options: str, key: bool = True, registry: bool = True) -> Outcome:
    """Run `run --uncertified` for an H200. key, registry: whether they are in the environment."""
    trusted = ("--fixtures",) if key else ()
    return run(
        shelf, "run", "--uncertified", *trusted, *HERE, *GPUS, *options,
        VALIDATOR_KEY=str(shelf.trust.key) if key else "",
        VALIDATOR_REGISTRY=str(shelf.registry.repository) if registry else "",
    )  # fmt: skip


def reference(done: Outcome) -> str:
    assert done.code == EXIT_OK, done.err
    return shlex.split(done.out, comments=True)[-1]


def said(text: str) -> str:
    """Return text without comments' marks and line ends."""
    return " ".join(text.replace("\n#", " ").split())


def is_loud(done: Outcome) -> bool:
    """Tell whether both the output and stderr say that the image is not certified."""
    found = ["\n# NOT CERTIFIED.\n" in done.out, "WARNING: NOT CERTIFIED: " in done.err]
    assert len(set(found)) == 1, found
    return found[0]


def test_an_image_without_a_certificate_is_named_with_the_reason_and_the_prediction(shelf: Shelf) -> None:
    digest = shelf.push()
    done = start(shelf)
    assert reference(done) == shelf.registry.repository.at(digest)
    assert is_loud(done)
    for text in (said(done.out), said(done.err)):
        assert "No certificate covers this host: it is not signed" in text
        assert "The facts predict that it works on this host: " in text


def test_a_certificate_for_another_host_is_not_enough(shelf: Shelf) -> None:
    shelf.push_certified(A100)
    done = start(shelf)
    assert is_loud(done)
    assert "it is certified on driver 535.183.01 with compute capability 8.0" in said(done.out)


def test_what_is_certified_is_taken_first_and_called_so(shelf: Shelf) -> None:
    shelf.push()
    digest = shelf.push_certified(H100, tag=OLDER)
    done = start(shelf)
    assert reference(done) == shelf.registry.repository.at(digest)
    assert not is_loud(done)
    assert "Certified for this host: measured on NVIDIA H100" in said(done.out)


def test_without_a_key_no_certificate_counts(shelf: Shelf) -> None:
    digest = shelf.push_certified(H100)
    done = start(shelf, key=False)
    assert reference(done) == shelf.registry.repository.at(digest)
    assert is_loud(done)
    assert "no --key or --identity says whose count" in said(done.out)


def test_without_the_option_nothing_changes(shelf: Shelf) -> None:
    shelf.push()
    for options in ((), ("--image", NAMED), ("--image", f"{shelf.registry.repository}:{TAG}")):
        done = run(shelf, "run", "--fixtures", *HERE, *GPUS, *options)
        assert (done.code, done.out) == (EXIT_FAILED, "")
        assert "it is not signed" in done.err
    done = run(shelf, "run", "--fixtures", *HERE, *GPUS, VALIDATOR_REGISTRY="")
    assert done.code == EXIT_INPUT and "--registry" in done.err
    done = run(shelf, "run", *HERE, *GPUS, VALIDATOR_KEY="")
    assert done.code == EXIT_INPUT


@pytest.mark.parametrize("how", ["image spec", "digest", "reference", "reference by digest"])
def test_an_image_is_named(how: str, shelf: Shelf) -> None:
    repository = shelf.registry.repository
    digest = shelf.push(OLDER)
    shelf.push()
    names = {
        "image spec": str(identifier_of(OLDER)),
        "digest": digest,
        "reference": f"{repository}:{OLDER}",
        "reference by digest": f"{repository}@{digest}",
    }
    done = start(shelf, "--image", names[how], registry="reference" not in how)
    assert reference(done) == repository.at(digest)
    assert is_loud(done)


def test_a_reference_is_verified_like_a_tag(shelf: Shelf) -> None:
    digest = shelf.push_certified(H100)
    name = f"{shelf.registry.repository}:{TAG}"
    done = run(shelf, "run", "--fixtures", *HERE, *GPUS, "--image", name, VALIDATOR_REGISTRY="")
    assert reference(done) == shelf.registry.repository.at(digest)
    assert "Certified for this host" in done.out


def test_versions_choose_among_what_is_predicted_to_work(shelf: Shelf) -> None:
    shelf.push()
    older = shelf.push(OLDER)
    shelf.push(CPU)
    assert reference(start(shelf, "--tensorflow", "2.20")) == shelf.registry.repository.at(older)
    old_driver = ("--driver", "470.82.01", "--gpu", "h100")
    done = start(shelf, *old_driver)
    assert (done.code, done.out) == (EXIT_FAILED, "")
    assert "no image that may work on this host" in done.err and f"rejected: {NAMED}: " in done.err
    # It is started nevertheless, if somebody wants just that one.
    done = start(shelf, *old_driver, "--image", NAMED)
    assert is_loud(done) and "The facts predict that it FAILS on this host" in said(done.out)


def test_a_failure_on_such_a_host_is_told(shelf: Shelf) -> None:
    digest = shelf.push_certified(H100)
    shelf.fail(digest, H100)
    older = shelf.push(OLDER)
    named = ("run", "--uncertified", "--fixtures", *ON_H100, *GPUS)
    assert reference(run(shelf, *named)) == shelf.registry.repository.at(older)
    done = run(shelf, *named, "--image", NAMED)
    assert is_loud(done) and "gpu_compute" in said(done.out)


def test_an_image_without_cuda_gets_no_gpus_and_needs_no_host(shelf: Shelf) -> None:
    digest = shelf.push(CPU)
    options = ("run", "--uncertified", *GPUS, "--image", "tf2.21.0-cpu-py312")
    done = run(shelf, *options, VALIDATOR_KEY="")
    assert shlex.split(done.out, comments=True) == [
        "docker", "run", "--rm", "-it", shelf.registry.repository.at(digest),
    ]  # fmt: skip
    assert is_loud(done) and "It has no CUDA" in said(done.out)


def test_a_registry_with_images_without_cuda_only(shelf: Shelf) -> None:
    shelf.push(CPU)
    done = start(shelf)
    assert (done.code, done.out) == (EXIT_FAILED, "")
    assert "has only images without CUDA, which can't use a GPU" in done.err
    assert "build-matrix --push" in done.err and "name it with --image" in done.err


def test_the_image_without_cuda_is_taken_if_the_registry_has_no_other(shelf: Shelf) -> None:
    other, digest = shelf.push(CPU), shelf.push(f"{CPU}_team")
    for options, expected in (((), other), (("--name", "team"), digest)):
        done = run(shelf, "run", "--uncertified", *GPUS, *options, VALIDATOR_KEY="")
        assert reference(done) == shelf.registry.repository.at(expected)
        assert "It has no CUDA" in said(done.out) and "--gpus" not in done.out


@pytest.mark.parametrize("named", [True, False])
def test_without_a_gpu_an_image_with_cuda_starts_on_the_cpu(
    named: bool, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pynvml.nvmlInit", no_driver)
    digest = shelf.push()
    image = ("--image", str(identifier_of(TAG))) if named else ()
    done = run(shelf, "run", "--uncertified", "--fixtures", *GPUS, *image)
    assert done.code == EXIT_OK, done.err
    assert shlex.split(done.out, comments=True) == [
        "docker", "run", "--rm", "-it", shelf.registry.repository.at(digest),
    ]  # fmt: skip
    one_line = "No GPU was found, because this machine has no NVIDIA driver: the image starts on the CPU."
    assert one_line in said(done.out) and f"{TAG}: {one_line}\n" in done.err and is_loud(done)
    # An image without CUDA does as much, and is smaller.
    smaller = shelf.push(CPU)
    if not named:
        assert reference(run(shelf, "run", "--uncertified", *GPUS)) == shelf.registry.repository.at(smaller)


@pytest.mark.parametrize(
    ("code", "options"),
    [
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, ("--uncertified", *GPUS)),
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, GPUS),
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, ("--uncertified", *GPUS, "--gpu", "h100")),
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, ("--uncertified", "--format", "kubernetes")),
    ],
)
def test_a_gpu_that_should_be_there_is_never_replaced_by_the_cpu(
    code: int, options: tuple[str, ...], shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pynvml.nvmlInit", functools.partial(no_driver, code))
    shelf.push()
    done = run(shelf, "run", "--fixtures", *options)
    assert (done.code, done.out) == (EXIT_MISSING, "")
    assert "--driver" in done.err


def no_driver(code: int = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND) -> None:
    raise pynvml.NVMLError(code)


def test_a_foreign_image_is_started_but_nothing_is_known(shelf: Shelf) -> None:
    digest = push_image(shelf.registry.repository, "mine", {"a": "b"})
    done = start(shelf, "--image", "mine", "--format", "devcontainer")
    assert done.code == EXIT_OK, done.err
    assert f'"image": "{shelf.registry.repository.at(digest)}"' in done.out
    assert "// NOT CERTIFIED.\n" in done.out and "remoteUser" not in done.out
    assert "WARNING: NOT CERTIFIED" in done.err and "not an image of this project" in done.err


def test_a_missing_image_is_an_error(shelf: Shelf) -> None:
    shelf.push()
    for name in ("absent", DIGEST):
        done = start(shelf, "--image", name)
        assert (done.code, done.out) == (EXIT_INPUT, "")
        assert f"has no image {name}" in done.err


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ghcr.io/team/tf:1.0", ("ghcr.io/team/tf", "1.0")),
        (f"localhost:5000/tf@{DIGEST}", ("localhost:5000/tf", DIGEST)),
        (f"localhost/tf:1@{DIGEST}", ("localhost/tf", DIGEST)),
        ("tensorflow-gpu-matrix:tf2.21.0", None),
        ("me/tf:1", None),
        (DIGEST, None),
        ("2.21.0-cpu-py3.12", None),
    ],
)
def test_a_reference_is_split(text: str, found: tuple[str, str] | None) -> None:
    parts = split_reference(text)
    assert (parts and (str(parts[0]), parts[1])) == found


@pytest.mark.parametrize(
    "text", ["ghcr.io/team/tf", "ghcr.io/team/tf@sha256:1", "ghcr.io/Team/tf:1", "a.b/:1"]
)
def test_a_wrong_reference_is_an_error(text: str) -> None:
    with pytest.raises(InputError):
        split_reference(text)


# In an OCI layout.


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    """Return a layout with an image with CUDA and one without, both of this project."""
    directory = tmp_path / "images"
    for seed, tag in enumerate((TAG, CPU)):
        labels = ((LABEL_SPEC, str(identifier_of(tag))),)
        Image((Layer(seed, 100),), labels).send(OciLayout(directory, tag))
    return directory


def digest_in(layout: Path, tag: str) -> str:
    return named_in_layout(layout, tag)[1]


@pytest.mark.parametrize("format_", ["podman", "apptainer", "slurm"])
def test_an_image_of_an_oci_layout(format_: str, layout: Path, shelf: Shelf) -> None:
    (layout.parent / "below").mkdir()
    options = ("--format", format_, *HERE, "--image", f"oci:../images:{TAG}", "--", "python", "a")
    done = run(shelf, "run", "--uncertified", *options, cwd=layout.parent / "below", VALIDATOR_KEY="")
    assert done.code == EXIT_OK, done.err
    name = f"oci:{layout}:{TAG}" if format_ == "podman" else f"oci:{layout}@{digest_in(layout, TAG)}"
    assert shlex.split(done.out, comments=True)[-3:] == [name, "python", "a"]
    assert is_loud(done) and "It is in an OCI layout" in said(done.out)
    assert "The facts predict that it works on this host: " in said(done.out)
    assert ("nvidia.com/gpu=all" in done.out) == (format_ == "podman")


def test_an_image_of_an_oci_layout_without_cuda_needs_no_host(layout: Path, shelf: Shelf) -> None:
    done = nowhere(shelf, "--format", "apptainer", "--image", f"oci:{layout}:{CPU}")
    assert reference(done) == f"oci:{layout}@{digest_in(layout, CPU)}"
    assert f"Apptainer before 1.4 does not take a digest; there it is oci:{layout}:{CPU}." in said(done.out)
    assert "--nv" not in done.out and "It has no CUDA" in said(done.out)


def test_an_oci_layout_that_does_not_have_the_image(layout: Path, shelf: Shelf) -> None:
    asked = ("--format", "podman", *HERE, "--image")
    done = nowhere(shelf, *asked, f"oci:{layout}:absent")
    assert (done.code, done.out) == (EXIT_INPUT, "")
    assert f"{layout} has no image absent" in done.err and f"{CPU}, {TAG}" in done.err
    done = nowhere(shelf, *asked, f"oci:{layout}")
    assert done.code == EXIT_INPUT and "write oci:DIRECTORY:TAG" in done.err
    (layout / "index.json").unlink()
    done = nowhere(shelf, *asked, f"oci:{layout}:{TAG}")
    assert done.code == EXIT_INPUT and "--oci DIRECTORY" in done.err


def test_a_tool_that_reads_no_oci_layout_says_what_to_do(layout: Path, shelf: Shelf) -> None:
    image = ("--image", f"oci:{layout}:{TAG}")
    for format_, command in (
        ("docker", "tar -C DIRECTORY -c . | docker load"),
        ("kubernetes", "skopeo copy oci:DIRECTORY:TAG docker://HOST/NAME:TAG"),
    ):
        done = nowhere(shelf, "--format", format_, *HERE, *image)
        assert (done.code, done.out) == (EXIT_INPUT, "")
        assert command in done.err
    done = run(shelf, "run", *HERE, "--format", "podman", *image)
    assert done.code == EXIT_INPUT and "use --uncertified" in done.err


# In the local engine.


@pytest.fixture(scope="module")
@tiers.docker
def own() -> Iterator[PrivateEngine]:
    """Yield a private engine, because other tests put images of this project into the machine's engine."""
    with (
        tempfile.TemporaryDirectory(prefix="v-", ignore_cleanup_errors=True) as root,
        private_engine(Path(root), Path(root) / "data") as running,
    ):
        yield running


@pytest.fixture
def engine(own: PrivateEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    """Yield the engine that commands use in this test."""
    monkeypatch.setenv("DOCKER_HOST", own.url)
    reached = reach()
    yield reached
    reached.quick.close()


@pytest.fixture
def imported(engine: Endpoint, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Yield a function that puts an image of this project into the engine. It takes a tag, returns an id."""
    empty = tmp_path / "empty.tar"
    subprocess.run(["tar", "-cf", str(empty), "--files-from=/dev/null"], check=True)
    names = []

    def put(tag: str) -> str:
        identifier = identifier_of(tag)
        names.append(f"tensorflow-gpu-matrix:{identifier}")
        subprocess.run(
            ["docker", "import", "--change", f"LABEL {LABEL_SPEC}={identifier}", str(empty), names[-1]],
            check=True, capture_output=True,
        )  # fmt: skip
        return str(engine.quick.images.get(names[-1]).id)

    try:
        yield put
    finally:
        for name in names:
            engine.quick.images.remove(name, force=True)


@pytest.fixture
def local(imported: Callable[[str], str]) -> str:
    """Return the id of an image without CUDA that is only in the engine."""
    return imported(CPU)


def nowhere(shelf: Shelf, *options: str) -> Outcome:
    return run(shelf, "run", "--uncertified", *options, VALIDATOR_REGISTRY="", VALIDATOR_KEY="")


def test_an_image_of_the_local_engine(local: str, shelf: Shelf) -> None:
    name = f"tensorflow-gpu-matrix:{identifier_of(CPU)}"
    for options in (("--image", name), ("--tensorflow", "2.21"), ()):
        done = nowhere(shelf, *options)
        assert reference(done) == local
        assert is_loud(done) and "only in the local Docker Engine" in said(done.out)
    for options in (("--image", "absent:1"), ("--tensorflow", "2.19"), ("--image", "x y"), ("--image", "")):
        done = nowhere(shelf, *options)
        assert (done.code, done.out) == (EXIT_INPUT, "")


def test_a_dev_container_names_an_image_of_the_local_engine_by_its_tag(local: str, shelf: Shelf) -> None:
    name = f"tensorflow-gpu-matrix:{identifier_of(CPU)}"
    for image in (name, local):
        done = nowhere(shelf, "--format", "devcontainer", "--image", image)
        assert done.code == EXIT_OK, done.err
        assert f'"image": "{name}"' in done.out


def test_whoever_names_a_gpu_gets_no_image_without_cuda(local: str, shelf: Shelf) -> None:
    name = f"tensorflow-gpu-matrix:{identifier_of(CPU)}"
    done = nowhere(shelf, *HERE)
    assert (done.code, done.out) == (EXIT_INPUT, "")
    assert f"only images of this project without CUDA, which can't use a GPU: {name}" in done.err
    assert "build-matrix" in done.err and "name it with --image" in done.err
    done = nowhere(shelf, *HERE, "--image", name)
    assert reference(done) == local and is_loud(done)


def test_the_engine_s_image_that_can_use_the_gpu_is_taken(
    imported: Callable[[str], str], shelf: Shelf
) -> None:
    imported(CPU)
    newest, older = imported(TAG), imported(OLDER)
    assert reference(nowhere(shelf, *GPUS, *HERE)) == newest
    assert reference(nowhere(shelf, *GPUS, *HERE, "--tensorflow", "2.20")) == older
    done = nowhere(shelf, *GPUS, "--driver", "470.82.01", "--gpu", "h100")
    assert (done.code, done.out) == (EXIT_FAILED, "")
    assert "the local Docker Engine has no image that may work on this host" in done.err
    assert f"rejected: {NAMED}: " in done.err


def test_compose_starts_an_image_of_the_local_engine(
    local: str, engine: Endpoint, shelf: Shelf, tmp_path: Path
) -> None:
    if subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        pytest.skip("Docker Compose is not installed")
    done = nowhere(shelf, "--format", "compose", "--output", str(tmp_path / "compose.yaml"), "--", "/none")
    assert done.code == EXIT_OK, done.err
    command = ["docker", "compose", "--project-directory", str(tmp_path), "create"]
    try:
        created = subprocess.run(command, capture_output=True, text=True)
        assert created.returncode == 0, created.stderr
        [container] = engine.quick.containers.list(
            all=True, filters={"label": "com.docker.compose.service=tensorflow", "ancestor": local}
        )
        assert container.attrs["Config"]["Cmd"] == ["/none"]
    finally:
        subprocess.run([*command[:-1], "down"], capture_output=True)
