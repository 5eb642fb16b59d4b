"""The content of images: what must be there, and what must not."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import certifi
import pytest

from validator.assemble import names
from validator.engines.base import Built
from validator.engines.docker import DockerEngine
from validator.engines.docker.endpoint import Endpoint
from validator.errors import InputError, MissingError
from validator.system.sources import PackageSources

from .conftest import CPU, GPU, PYTHON, cpu_lock, gpu_lock, quiet, tensorflow
from .package_index import Index, lock_of
from .saved_image import files_of, save

PACKAGES = f"/opt/venv/lib/python{PYTHON}/site-packages"


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
        f'touch {PACKAGES}/x 2>/dev/null && echo writable; python -v -c "import tensorflow" 2>&1'
        " | grep 'matches.*tensorflow\\|code object from.*tensorflow/__init__'",
    )
    assert "writable" not in printed
    assert "__pycache__" in printed


def test_the_user_is_not_root(endpoint: Endpoint, cpu_image: Built) -> None:
    assert shell(endpoint, cpu_image, "id -u; id -un; pwd; touch file && echo home").split() == [
        "10001",
        "tensorflow",
        "/home/tensorflow",
        "home",
    ]


def test_a_cpu_image_does_not_mention_nvidia(endpoint: Endpoint, cpu_image: Built) -> None:
    image = save(endpoint.client, cpu_image.reference)
    assert "NVIDIA" not in image.documents
    assert "Entrypoint" not in image.configuration["config"]


def test_a_gpu_image_has_its_requirements_for_the_container_runtime(
    endpoint: Endpoint, gpu_image: Built
) -> None:
    configuration = save(endpoint.client, gpu_image.reference).configuration["config"]
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
    assert labels[names.LABEL_SPEC] == CPU.identifier
    assert labels[names.LABEL_LOCK] == cpu_lock(index).digest == cpu_image.lock_digest
    assert labels["org.opencontainers.image.version"] == "2.99.0"
    assert cpu_image.base == labels[names.LABEL_BASE]
    assert labels[names.LABEL_BASE].split(":")[0] in ("registry", "bootstrap")


def test_an_image_is_found_again_only_by_its_lock(
    tiny_engine: DockerEngine, cpu_image: Built, index: Index
) -> None:
    lock = cpu_lock(index)
    assert tiny_engine.existing(CPU, lock) == cpu_image
    assert tiny_engine.existing(CPU, dataclasses.replace(lock, wheels=lock.wheels[:1])) is None
    assert tiny_engine.existing(dataclasses.replace(CPU, tensorflow="2.98.0"), lock) is None


def test_images_with_different_tensorflow_share_all_other_layers(
    tiny_engine: DockerEngine, endpoint: Endpoint, gpu_image: Built, index: Index
) -> None:
    spec = dataclasses.replace(GPU, tensorflow="2.98.0")
    other = tiny_engine.build(
        spec, dataclasses.replace(gpu_lock(index, "2.98.0"), identifier=spec.identifier), quiet
    )
    try:
        first, second = (save(endpoint.client, image.reference).layer_digests for image in (gpu_image, other))
    finally:
        endpoint.client.images.remove(other.reference, force=True)
    assert len(first) == len(second)
    # TensorFlow has two layers: its large file (none here) and the rest.
    assert first[:-1] == second[:-1]
    assert first[-1] != second[-1]


def test_the_size_of_each_layer_is_known(endpoint: Endpoint, gpu_image: Built) -> None:
    image = save(endpoint.client, gpu_image.reference)
    assert gpu_image.layers is not None
    assert [layer.digest for layer in gpu_image.layers] == image.configuration["rootfs"]["diff_ids"]
    unpacked = [sum(member.size for member in files_of(layer).values()) for layer in image.layers]
    # An engine counts whole blocks of its file system, and directories too.
    assert all(layer.size >= size for layer, size in zip(gpu_image.layers, unpacked, strict=True))


def test_layers_have_no_build_time(endpoint: Endpoint, gpu_image: Built) -> None:
    image = save(endpoint.client, gpu_image.reference)
    own = image.layers[-(len(image.layers) - 1) :]
    times = {member.mtime for layer in own for member in files_of(layer).values()}
    assert times == {0}
    assert image.configuration["created"].startswith("1970-01-01")


def test_uv_is_not_in_the_image(endpoint: Endpoint, cpu_image: Built) -> None:
    image = save(endpoint.client, cpu_image.reference)
    paths = [path for layer in image.layers for path in files_of(layer)]
    assert paths
    assert not [
        path for path in paths if path.endswith(("/uv", "/.uv-cache")) or path.startswith(("layer", "build"))
    ]


def test_package_sources_leave_no_trace(
    endpoint: Endpoint, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Index, proxy, CA bundle and netrc are all used, and none of them is in the finished image.

    Nor are the proxies of the Docker client's configuration, which BuildKit passes to every step.
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
    sources = PackageSources(
        index_url="http://private.canary.invalid/simple",
        extra_index_urls=("http://user-canary:password-canary@empty.canary.invalid/simple",),
        proxies={"http_proxy": f"http://proxy-canary:secret-canary@{index.address}"},
        ca_bundle=bundle,
    )
    # A new wheel, so that no earlier build of it is found.
    wheel = tensorflow(f"2.99.0.{index.address.rpartition(':')[2]}")
    index.add(wheel)
    spec = dataclasses.replace(CPU, tensorflow=wheel.wheel.version)
    engine = DockerEngine(endpoint, sources)
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
    for needle in ("canary", index.address, certificate.strip(), "/run/secrets/ca"):
        assert needle not in image.documents
        assert needle not in history
        assert needle not in "\n".join(said)
    # The base has its own certificates, so only our layers are searched for ours.
    for layer in image.layers[1:]:
        for secret in (b"canary", index.address.encode(), certificate.strip().encode()):
            assert secret not in layer


def test_a_wheel_that_is_not_the_locked_one_is_rejected(tiny_engine: DockerEngine, index: Index) -> None:
    wheel = tensorflow("2.97.0")
    index.add(wheel)
    spec = dataclasses.replace(CPU, tensorflow="2.97.0")
    forged = dataclasses.replace(wheel.wheel, sha256="0" * 64)
    lock = dataclasses.replace(lock_of(spec, wheel), wheels=(forged,))
    with pytest.raises(InputError, match=r"tensorflow-cpu==2\.97\.0 has a different hash than the lock"):
        tiny_engine.build(spec, lock, quiet)
    assert tiny_engine.existing(spec, lock) is None


def test_a_pin_that_the_index_no_longer_has_is_named(tiny_engine: DockerEngine, index: Index) -> None:
    spec = dataclasses.replace(CPU, tensorflow="2.96.0")
    lock = lock_of(spec, tensorflow("2.96.0"))
    with pytest.raises(InputError, match=r"the index does not have tensorflow-cpu==2\.96\.0"):
        tiny_engine.build(spec, lock, quiet)


def test_an_unreachable_index_is_reported_as_missing(endpoint: Endpoint, docker_engine: DockerEngine) -> None:
    # Port 9 is discard; nothing listens there.
    engine = DockerEngine(endpoint, PackageSources(index_url="http://127.0.0.1:9/simple"))
    spec = dataclasses.replace(CPU, tensorflow="2.95.0")
    with pytest.raises(MissingError, match="index can't be reached"):
        engine.build(spec, lock_of(spec, tensorflow("2.95.0")), quiet)


def test_a_base_with_another_python_is_named(
    endpoint: Endpoint, tiny_engine: DockerEngine, cpu_image: Built, index: Index
) -> None:
    spec = dataclasses.replace(CPU, python="3.12", base=cpu_image.reference)
    with pytest.raises(Exception, match=rf"the base image has Python {PYTHON}; Python 3\.12 is needed"):
        tiny_engine.build(spec, dataclasses.replace(cpu_lock(index), python="3.12"), quiet)
