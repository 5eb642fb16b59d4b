"""The content of images: what must be there, and what must not."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import certifi
import pytest

from validator.engines.docker import DockerEngine
from validator.engines.endpoint import Endpoint
from validator.engines.protocol import Built
from validator.errors import InputError, MissingError
from validator.model.spec import LABEL_BASE, LABEL_LOCK, LABEL_SPEC
from validator.system.package_sources import host_sources

from .conftest import (
    CPU,
    GPU,
    PYTHON,
    cpu_lock,
    gpu_lock,
    made_by,
    maker_at,
    new_cache,
    quiet,
    tensorflow,
)
from .package_index import Index, lock_of
from .saved_image import SavedImage, files_of, save

PACKAGES = f"/opt/venv/lib/python{PYTHON}/site-packages"


@pytest.fixture
def new_engine(endpoint: Endpoint, index: Index, cache: Path) -> Callable[[], DockerEngine]:
    """Return a function that gives an engine which sees the index as it is now."""
    return lambda: DockerEngine(endpoint, maker_at(cache, index.url, endpoint))


@pytest.fixture(scope="module")
def cpu_saved(endpoint: Endpoint, cpu_image: Built) -> SavedImage:
    return save(endpoint.client, cpu_image.reference)


@pytest.fixture(scope="module")
def gpu_saved(endpoint: Endpoint, gpu_image: Built) -> SavedImage:
    return save(endpoint.client, gpu_image.reference)


def shell(endpoint: Endpoint, image: Built, command: str) -> str:
    """Return the output of a command in a container of an image."""
    output = endpoint.client.containers.run(
        image.reference, ["sh", "-c", command], remove=True, network_mode="none"
    )
    return output.decode()


def test_packages_and_scripts_are_found_by_python(endpoint: Endpoint, cpu_image: Built) -> None:
    printed = shell(
        endpoint,
        cpu_image,
        'python -c "import sys, tensorflow, keras;'
        ' print(sys.prefix, tensorflow.__file__, tensorflow.__version__)" && saved_model_cli',
    )
    assert printed.split() == ["/opt/venv", f"{PACKAGES}/tensorflow/__init__.py", "2.99.0", "saved"]


def test_bytecode_is_used_by_a_user_who_cannot_write_it(endpoint: Endpoint, cpu_image: Built) -> None:
    printed = shell(
        endpoint,
        cpu_image,
        f'touch {PACKAGES}/tensorflow/x 2>/dev/null && echo writable; python -v -c "import tensorflow" 2>&1'
        " | grep 'matches.*tensorflow\\|code object from.*tensorflow/__init__'",
    )
    assert "writable" not in printed
    assert "__pycache__" in printed


def test_the_user_may_add_packages_but_not_change_those_of_the_image(
    endpoint: Endpoint, cpu_image: Built
) -> None:
    printed = shell(
        endpoint,
        cpu_image,
        f"exec 2>/dev/null; cd {PACKAGES}; mkdir pandas && touch pandas/__init__.py && echo added;"
        " mv tensorflow away && echo moved; (echo x >> tensorflow/__init__.py) && echo changed;"
        " rm -f keras/__init__.py && echo removed; rm -f /opt/venv/bin/saved_model_cli && echo removed; true",
    )
    assert printed.split() == ["added"]


def test_the_user_is_not_root(endpoint: Endpoint, cpu_image: Built) -> None:
    assert shell(endpoint, cpu_image, "id -u; id -un; pwd; touch file && echo home").split() == [
        "10001",
        "tensorflow",
        "/home/tensorflow",
        "home",
    ]


def test_a_cpu_image_does_not_mention_nvidia(cpu_saved: SavedImage) -> None:
    assert "NVIDIA" not in cpu_saved.documents
    assert "Entrypoint" not in cpu_saved.configuration["config"]


def test_a_gpu_image_has_its_requirements_for_the_container_runtime(gpu_saved: SavedImage) -> None:
    configuration = gpu_saved.configuration["config"]
    variables = dict(entry.partition("=")[::2] for entry in configuration["Env"])
    assert variables["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert variables["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert variables["NVIDIA_REQUIRE_CUDA"] == "cuda>=12.0"
    assert configuration["Entrypoint"] == ["/opt/tensorflow-gpu-matrix/start"]
    assert "CUDA_VERSION" not in variables
    assert "LD_LIBRARY_PATH" not in variables


def test_the_loader_and_xla_find_nvidias_wheels(endpoint: Endpoint, gpu_image: Built) -> None:
    directories, target = shell(
        endpoint, gpu_image, "cat /etc/ld.so.conf.d/nvidia-wheels.conf; echo --; readlink -f /usr/local/cuda"
    ).split("--")
    assert "/opt/venv/lib/python3/site-packages/nvidia/cudnn/lib" in directories.split()
    assert len(directories.split()) == 8
    assert target.strip() == "/opt/venv/lib/python3/site-packages/nvidia/cuda_nvcc"


def test_labels_name_the_spec_the_lock_and_the_base(
    endpoint: Endpoint, cpu_image: Built, index: Index
) -> None:
    labels = endpoint.client.images.get(cpu_image.reference).labels
    assert labels[LABEL_SPEC] == CPU.identifier
    assert labels[LABEL_LOCK] == cpu_lock(index).digest == cpu_image.lock_digest
    assert labels["org.opencontainers.image.version"] == "2.99.0"
    assert cpu_image.base == labels[LABEL_BASE]
    assert labels[LABEL_BASE].split(":")[0] in ("registry", "bootstrap")


def test_an_image_is_found_again_only_by_its_lock(
    tiny_engine: DockerEngine, cpu_image: Built, index: Index
) -> None:
    lock = cpu_lock(index)
    assert tiny_engine.existing(CPU, lock) == cpu_image
    assert tiny_engine.existing(CPU, dataclasses.replace(lock, wheels=lock.wheels[:1])) is None
    assert tiny_engine.existing(dataclasses.replace(CPU, tensorflow="2.98.0"), lock) is None


def test_images_with_different_tensorflow_share_all_other_layers(
    new_engine: Callable[[], DockerEngine], endpoint: Endpoint, gpu_saved: SavedImage, index: Index
) -> None:
    spec = dataclasses.replace(GPU, tensorflow="2.98.0")
    lock = dataclasses.replace(gpu_lock(index, "2.98.0"), identifier=spec.identifier)
    other = new_engine().build(spec, lock, quiet)
    try:
        first, second = steps_of(gpu_saved), steps_of(save(endpoint.client, other.reference))
    finally:
        endpoint.client.images.remove(other.reference, force=True)
    differ = {f"tensorflow {GPU.tensorflow}", "byte code (TensorFlow)"}
    assert {step for step, digest in first.items() if second.get(step) != digest} == differ
    assert {step for step, digest in second.items() if first.get(step) != digest} == {
        "tensorflow 2.98.0",
        "byte code (TensorFlow)",
    }


def steps_of(image: SavedImage) -> dict[str, str]:
    """Return the digest of each of our layers by its name in the history."""
    steps = [step["created_by"].partition(": ")[2] for step in image.configuration["history"]]
    return dict(zip(steps, image.layer_digests, strict=True))


def test_the_size_of_each_layer_is_known(gpu_saved: SavedImage, gpu_image: Built) -> None:
    image = gpu_saved
    assert gpu_image.layers is not None
    assert [layer.digest for layer in gpu_image.layers] == image.configuration["rootfs"]["diff_ids"]
    unpacked = [sum(member.size for member in files_of(layer).values()) for layer in image.layers]
    # An engine counts whole blocks of its file system, and directories too.
    assert all(layer.size >= size for layer, size in zip(gpu_image.layers, unpacked, strict=True))


def test_layers_have_no_build_time(gpu_saved: SavedImage) -> None:
    image = gpu_saved
    own = image.layers[1:]
    assert len(own) > 5
    times = {member.mtime for layer in own for member in files_of(layer).values()}
    assert times == {0}
    assert image.configuration["created"].startswith("1970-01-01")


def test_nothing_but_the_environment_and_the_user_is_added_to_the_base(cpu_saved: SavedImage) -> None:
    paths = {path for layer in cpu_saved.layers[1:] for path in files_of(layer)}
    outside = {path for path in paths if path.partition("/")[0] not in ("opt", "home")}
    users = {f"etc/{name}" for name in ("group", "gshadow", "passwd", "shadow", "subgid", "subuid")}
    assert outside == {".", "etc", *users}
    own = ("opt/venv/", "home/tensorflow/")
    assert {path for path in paths - outside if not path.startswith(own)} == {
        "home", "home/tensorflow", "opt", "opt/venv",
    }  # fmt: skip


def test_package_sources_leave_no_trace(
    endpoint: Endpoint, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Index, proxy, CA bundle and netrc are all used, and none of them is in the finished image.

    Nor are the proxies of the Docker client's configuration.
    """
    home = tmp_path / "home-canary"
    home.mkdir()
    proxy = f"http://client-canary:client-secret-canary@{index.address}"
    configuration = {"proxies": {"default": {"httpProxy": proxy, "httpsProxy": proxy, "noProxy": "canary"}}}
    (home / "config.json").write_text(json.dumps(configuration), encoding="utf-8")
    monkeypatch.setenv("DOCKER_CONFIG", str(home))
    (home / ".netrc").write_text(
        "machine private.canary.invalid login netrc-canary-login password netrc-canary-password\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("NETRC", str(home / ".netrc"))
    bundle = tmp_path / "ca-canary.pem"
    bundle.write_text(
        "# ca-canary-comment\n" + Path(certifi.where()).read_text(encoding="utf-8"), encoding="utf-8"
    )
    variables = {
        "UV_DEFAULT_INDEX": "http://private.canary.invalid/simple",
        "UV_INDEX": "http://user-canary:password-canary@empty.canary.invalid/simple",
        "http_proxy": f"http://proxy-canary:secret-canary@{index.address}",
        "SSL_CERT_FILE": str(bundle),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    wheel = tensorflow("2.99.1")
    index.add(wheel)
    spec = dataclasses.replace(CPU, tensorflow=wheel.wheel.version)
    engine = DockerEngine(endpoint, made_by(new_cache(tmp_path / "cache"), host_sources(), endpoint))
    said: list[str] = []
    built = engine.build(spec, lock_of(spec, wheel), said.append)
    try:
        image = save(endpoint.client, built.reference)
        history = str(endpoint.client.images.get(built.reference).history())
    finally:
        endpoint.client.images.remove(built.reference, force=True)

    asked = [(host, headers) for host, path, headers in index.requests if host and "canary" in host]
    assert {host for host, _ in asked} == {"private.canary.invalid", "empty.canary.invalid"}
    assert any("Proxy-Authorization" in headers for _, headers in asked), "the proxy was not used"
    assert any("Authorization" in headers for host, headers in asked if host == "private.canary.invalid"), (
        "netrc was not used"
    )
    certificate = (
        Path(certifi.where()).read_text(encoding="utf-8").split("-----BEGIN CERTIFICATE-----")[1][:65]
    )
    for needle in ("canary", index.address, certificate.strip(), str(tmp_path)):
        assert needle not in image.documents
        assert needle not in history
        assert needle not in "\n".join(said)
    # The base has its own certificates, so only our layers are searched for ours.
    for layer in image.layers[1:]:
        for secret in (
            b"canary",
            index.address.encode(),
            certificate.strip().encode(),
            str(tmp_path).encode(),
        ):
            assert secret not in layer


def test_a_wheel_that_is_not_the_locked_one_is_rejected(
    new_engine: Callable[[], DockerEngine], index: Index
) -> None:
    wheel = tensorflow("2.97.0")
    index.add(wheel)
    spec = dataclasses.replace(CPU, tensorflow="2.97.0")
    forged = dataclasses.replace(wheel.wheel, sha256="0" * 64)
    lock = dataclasses.replace(lock_of(spec, wheel), wheels=(forged,))
    engine = new_engine()
    with pytest.raises(MissingError, match=r"tensorflow-cpu==2\.97\.0: the package index has another file"):
        engine.build(spec, lock, quiet)
    assert engine.existing(spec, lock) is None


def test_a_wheel_whose_content_changed_on_the_way_is_rejected(
    new_engine: Callable[[], DockerEngine], index: Index
) -> None:
    """The index lists the right hash, and serves other bytes."""
    wheel = tensorflow("2.93.0")
    index.add(dataclasses.replace(wheel, content=wheel.content[:-1] + b"x"))
    spec = dataclasses.replace(CPU, tensorflow="2.93.0")
    lock = lock_of(spec, wheel)
    engine = new_engine()
    with pytest.raises(MissingError, match=r"tensorflow_cpu-2\.93\.0-.*its SHA-256 is"):
        engine.build(spec, lock, quiet)
    assert engine.existing(spec, lock) is None


def test_a_wheel_that_the_index_no_longer_has_is_named(
    new_engine: Callable[[], DockerEngine], index: Index
) -> None:
    spec = dataclasses.replace(CPU, tensorflow="2.96.0")
    lock = lock_of(spec, tensorflow("2.96.0"))
    with pytest.raises(MissingError, match=r"tensorflow-cpu==2\.96\.0: the package index does not have"):
        new_engine().build(spec, lock, quiet)


def test_an_unreachable_index_is_reported_as_missing(
    endpoint: Endpoint, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("validator.locks.index._PAUSES", (0.0, 0.0, 0.0))
    # Port 9 is discard; nothing listens there.
    engine = DockerEngine(endpoint, maker_at(cache, "http://127.0.0.1:9/simple", endpoint))
    spec = dataclasses.replace(CPU, tensorflow="2.95.0")
    with pytest.raises(MissingError, match="index can't be reached"):
        engine.build(spec, lock_of(spec, tensorflow("2.95.0")), quiet)


def test_a_base_with_another_python_is_named(
    base_image: str, tiny_engine: DockerEngine, index: Index
) -> None:
    spec = dataclasses.replace(CPU, python="3.12", base=base_image)
    with pytest.raises(InputError, match=rf"has Python {PYTHON} on its PATH; Python 3\.12 is needed"):
        tiny_engine.build(spec, dataclasses.replace(cpu_lock(index), python="3.12"), quiet)


def test_an_image_is_not_the_base_of_another(
    tiny_engine: DockerEngine, cpu_image: Built, index: Index
) -> None:
    spec = dataclasses.replace(CPU, base=cpu_image.reference)
    with pytest.raises(InputError, match="has /opt/venv, where the image's packages belong"):
        tiny_engine.build(spec, cpu_lock(index), quiet)
