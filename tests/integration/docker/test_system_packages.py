"""Packages of the distribution, installed in a base by the real engine."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from validator.assemble.base_finder import BasePolicy, Bases
from validator.assemble.bootstrap import apt_sources
from validator.assemble.image import Assembler, RegistryDestination, destinations, put_base
from validator.assemble.layer_table import LayerTable
from validator.certify.provenance import Provenance, provenance_of
from validator.certify.signatures import Signer
from validator.certify.trust import Trust
from validator.engines.docker import EngineImages
from validator.engines.endpoint import Endpoint
from validator.errors import InputError
from validator.model.spec import Additions
from validator.pipeline.build_matrix import Publisher
from validator.pipeline.makers import rebuild_image
from validator.registry.client import Registry
from validator.registry.names import Repository
from validator.system.package_sources import PackageSources

from ...certify.building import trusting
from ...registry.server import RunningRegistry
from .conftest import CPU, KERAS, cpu_lock, quiet, tensorflow
from .package_index import Index, lock_of


def in_container(endpoint: Endpoint, image: str, script: str) -> str:
    output = endpoint.client.containers.run(image, ["sh", "-c", script], remove=True, network_disabled=True)
    return str(output.decode())


def test_packages_are_installed_without_a_trace_of_this_machine(endpoint: Endpoint, base_image: str) -> None:
    lines: list[str] = []
    name = EngineImages(endpoint).with_system_packages(base_image, ["tini"], lines.append)
    try:
        assert in_container(endpoint, name, "tini --version").startswith("tini version")
        left = in_container(
            endpoint, name,
            "find /var/lib/apt/lists /var/cache/apt /tmp /run/secrets -type f 2>/dev/null;"
            " cat /etc/apt/sources.list /etc/apt/sources.list.d/* /etc/apt/auth.conf.d/* 2>/dev/null; true",
        )  # fmt: skip
        assert left == in_container(
            endpoint, base_image,
            "cat /etc/apt/sources.list /etc/apt/sources.list.d/* /etc/apt/auth.conf.d/* 2>/dev/null; true",
        )  # fmt: skip
        history = str(endpoint.client.images.get(name).history())
        inside = in_container(endpoint, name, "grep -rl 'deb [a-z]*://' /etc /var/lib /root 2>/dev/null; env")
        sources = apt_sources()
        for secret in (*sources.environment.values(), *sources.mirrors.values()):
            if "deb.debian.org" not in secret:
                assert secret not in history
                assert secret not in inside
        again: list[str] = []
        assert EngineImages(endpoint).with_system_packages(base_image, ["tini"], again.append) == name
        assert again == []
    finally:
        endpoint.client.images.remove(name, force=True)


def test_a_base_of_a_registry_gets_packages(
    endpoint: Endpoint,
    maker: Assembler,
    server: RunningRegistry,
    index: Index,
    keys: tuple[Signer, Trust],
    tmp_path: Path,
) -> None:
    """The engine pulls the base from a real registry, and the result is a base with one layer more.

    An image on it can be published and found by others, and its provenance lists what was installed.
    """
    table = LayerTable(tmp_path / "table")
    repository = Repository(server.address, "bases/python")
    default = maker.bases.base(CPU, quiet)
    digest_there = put_base(default, RegistryDestination(repository, "3.11"), table)
    reference = f"{repository.tagged('3.11')}@{digest_there}"
    spec = replace(CPU, base=reference, additions=Additions(system_packages=("tini",)))
    bases = Bases(BasePolicy.REGISTRY, table, EngineImages(endpoint), directory=tmp_path)
    lines: list[str] = []
    try:
        base = bases.base(spec, lines.append)
        assert any("installing tini" in line for line in lines)
        assert base.origin.startswith(f"registry:{reference}+packages:tini@sha256:")
        assert bases.is_current(spec, base.origin)
        [tini] = base.added
        assert tini.startswith("tini:amd64=")
        plain, added = base.layers[: len(default.layers)], base.layers[len(default.layers) :]
        assert [layer.diff_id for layer in plain] == [layer.diff_id for layer in default.layers]
        names = set()
        for layer in added:
            with tarfile.open(fileobj=io.BytesIO(b"".join(layer.archive()))) as archive:
                names |= set(archive.getnames())
        assert "usr/bin/tini" in names

        cpu_lock(index)
        lock, place = lock_of(spec, tensorflow(), KERAS), Repository(server.address, "team/with-packages")
        making, trust = replace(maker, bases=bases), trusting(keys[1])
        registry = Registry(place)
        publisher = Publisher(
            making, destinations(place, making.bases.repository), registry, trust, signer=keys[0]
        )
        published = publisher.push(spec, lock, lines.append)
        assert not [line for line in lines if "not signed" in line]
        assert publisher.current(spec, lock) == replace(published, sent=False)
        assert publisher.find(spec, lock).digest == published.digest
        made = provenance_of(registry, published.digest, trust)
        assert isinstance(made, Provenance)
        assert (str(made.inputs.base), made.inputs.added) == (base.origin, (tini,))
        assert made.inputs.base.digest == digest_there
        with pytest.raises(InputError, match="tini were installed in its base, in the versions of") as caught:
            rebuild_image(Registry(place), published.digest, spec, lock, PackageSources(), quiet)
        assert "name it with its digest under `base`" in str(caught.value.hint)

        # The same version again, but the day of its files may be another one.
        renewing = Bases(
            BasePolicy.REGISTRY, table, EngineImages(endpoint), directory=tmp_path / "renewed", renew=True
        )
        lines.clear()
        assert renewing.base(spec, lines.append).added == (tini,)
        assert any("installing tini" in line for line in lines)
    finally:
        name = EngineImages(endpoint).with_system_packages(reference, ["tini"], lines.append)
        endpoint.client.images.remove(name, force=True)


def test_a_package_that_does_not_exist_is_named(endpoint: Endpoint, base_image: str) -> None:
    with pytest.raises(InputError, match="has no package no-such-package-here") as caught:
        EngineImages(endpoint).with_system_packages(
            base_image, ["tini", "no-such-package-here"], lambda _: None
        )
    assert "check the name in system_packages" in str(caught.value.hint)
