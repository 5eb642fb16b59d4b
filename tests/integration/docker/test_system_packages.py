"""Packages of the distribution, installed in a base by the real engine."""

from __future__ import annotations

import pytest

from validator.assemble.apt import apt_sources
from validator.engines.docker.endpoint import Endpoint
from validator.engines.docker.system_packages import digest, with_system_packages
from validator.errors import InputError


def in_container(endpoint: Endpoint, image: str, script: str) -> str:
    output = endpoint.client.containers.run(image, ["sh", "-c", script], remove=True, network_disabled=True)
    return str(output.decode())


def test_packages_are_installed_without_a_trace_of_this_machine(endpoint: Endpoint, base_image: str) -> None:
    lines: list[str] = []
    name = with_system_packages(endpoint, base_image, ["tini"], lines.append)
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
        assert with_system_packages(endpoint, base_image, ["tini"], again.append) == name
        assert again == []
    finally:
        endpoint.client.images.remove(name, force=True)


def test_a_package_that_does_not_exist_is_named(endpoint: Endpoint, base_image: str) -> None:
    with pytest.raises(InputError, match="has no package no-such-package-here") as caught:
        with_system_packages(endpoint, base_image, ["tini", "no-such-package-here"], lambda _: None)
    assert "check the name in system_packages" in str(caught.value.hint)


def test_the_name_depends_on_the_base_and_the_packages() -> None:
    assert digest("a", ["git", "tini"]) == digest("a", ["tini", "git"])
    assert len({digest("a", ["git"]), digest("b", ["git"]), digest("a", ["tini"])}) == 3
