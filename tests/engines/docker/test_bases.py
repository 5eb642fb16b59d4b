"""The base of an image: from a registry, the engine's own copy, or a bootstrap."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from docker.errors import APIError, ImageNotFound

from validator.assemble import apt, bootstrap, names
from validator.assemble.debian_lock import read_lock
from validator.assemble.pinned_bases import PinnedBase
from validator.engines.docker.bases import BasePolicy, Bases
from validator.errors import MissingError
from validator.resources import images_directory

from .orders import CPU

PY311 = dataclasses.replace(CPU, python="3.11")
PY313 = dataclasses.replace(CPU, python="3.13")
BA5E = "sha256:" + "ba5e" * 16
LOCAL = "sha256:" + "10ca1" * 12 + "0000"
PINNED = {
    "3.11": PinnedBase("python:3.11-slim-bookworm", "sha256:" + "311" * 21 + "0"),
    "3.12": PinnedBase("python:3.12-slim-bookworm", BA5E),
}


def api_error(status: int, reason: str, explanation: str) -> APIError:
    response = requests.Response()
    response.status_code = status
    return APIError(reason, response, explanation)


NO_HOST = api_error(500, "500 Server Error", "dial tcp: lookup registry.invalid: no such host")


class Registry:
    """A fake of the SDK's client, with the answer of a registry and the images of the engine."""

    def __init__(self, answer: str | Exception, *images: str) -> None:
        self.answer = answer
        self.images_there = {name: [f"{re.split('[:@]', name)[0]}@{LOCAL}"] for name in images}
        self.asked: list[str] = []
        self.api = SimpleNamespace(
            timeout=10, inspect_distribution=self._inspect, import_image_from_file=self._import
        )
        self.images = SimpleNamespace(get=self._get)

    def _inspect(self, name: str) -> dict[str, Any]:
        self.asked.append(name)
        if isinstance(self.answer, Exception):
            raise self.answer
        # A registry that is asked for a digest answers with it.
        return {"Descriptor": {"digest": name.partition("@")[2] or self.answer}}

    def _import(self, path: str, *, repository: str, tag: str, changes: list[str]) -> str:
        self.images_there[f"{repository}:{tag}"] = []
        return "{}"

    def _get(self, name: str) -> Any:
        if name not in self.images_there:
            raise ImageNotFound(f"no such image: {name}")
        return SimpleNamespace(attrs={"RepoDigests": self.images_there[name]})


def bases(registry: Registry, policy: BasePolicy = BasePolicy.AUTO) -> Bases:
    return Bases(registry, registry, policy, PINNED)  # type: ignore[arg-type]


@pytest.fixture
def bootstraps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of bootstrapped suites. Nothing is downloaded."""
    made: list[str] = []

    def root_file_system(suite: str, directory: Path, progress: Callable[[str], None]) -> Path:
        made.append(suite)
        return directory / "rootfs.tar"

    monkeypatch.setattr(bootstrap, "root_file_system", root_file_system)
    monkeypatch.setattr(bootstrap, "tool", lambda: "mmdebstrap")
    return made


def test_a_default_base_is_pulled_by_its_pinned_digest(bootstraps: list[str]) -> None:
    registry = Registry("sha256:moved")
    found = bases(registry).base(CPU, lambda _: None)
    assert registry.asked == [f"python:3.12-slim-bookworm@{BA5E}"]
    assert found.reference == f"python:3.12-slim-bookworm@{BA5E}"
    assert found.origin == f"registry:python:3.12-slim-bookworm@{BA5E}"
    assert (found.name, found.digest) == ("python:3.12-slim-bookworm", BA5E)
    assert bootstraps == []


def test_another_digest_than_the_pinned_one_is_refused(bootstraps: list[str]) -> None:
    registry = Registry("")
    registry.api.inspect_distribution = lambda name: {"Descriptor": {"digest": "sha256:moved"}}
    with pytest.raises(MissingError, match=f"answered with sha256:moved when asked for .*@{BA5E}"):
        bases(registry, BasePolicy.REGISTRY).base(CPU, lambda _: None)


def test_a_base_of_the_matrix_without_a_digest_gets_the_one_of_today(bootstraps: list[str]) -> None:
    own = dataclasses.replace(CPU, base="team/base:1")
    found = bases(Registry("sha256:today")).base(own, lambda _: None)
    assert found.reference == "team/base:1@sha256:today"


def test_a_python_without_a_pinned_base_has_none(bootstraps: list[str]) -> None:
    with pytest.raises(MissingError, match=r"bases\.yaml has no base for Python 3\.14"):
        bases(Registry(BA5E)).base(dataclasses.replace(CPU, python="3.14"), lambda _: None)


def test_an_image_from_a_base_that_is_no_longer_pinned_is_not_current() -> None:
    auto = bases(Registry(BA5E))
    assert auto.is_current(CPU, f"registry:python:3.12-slim-bookworm@{BA5E}")
    assert not auto.is_current(CPU, f"registry:python:3.12-slim-bookworm@{LOCAL}")
    assert auto.is_current(PY313, bootstrap.origin("trixie"))
    assert not auto.is_current(PY313, "bootstrap:trixie@sha256:" + "0" * 64)
    assert not bases(Registry(BA5E), BasePolicy.REGISTRY).is_current(PY313, bootstrap.origin("trixie"))
    registry_origin = f"registry:{PINNED['3.12']}"
    assert not bases(Registry(BA5E), BasePolicy.BOOTSTRAP).is_current(CPU, registry_origin)
    own = dataclasses.replace(CPU, base="team/base:1")
    assert auto.is_current(own, f"registry:team/base:1@{LOCAL}")
    assert not auto.is_current(own, f"registry:team/base:10@{LOCAL}")


@pytest.mark.parametrize("fault", [NO_HOST, requests.ReadTimeout()])
def test_auto_falls_back_to_a_bootstrap_with_one_message_and_one_request(
    fault: Exception, bootstraps: list[str]
) -> None:
    registry = Registry(fault)
    said: list[str] = []
    both = bases(registry)
    assert both.base(PY311, said.append).origin == bootstrap.origin("bookworm")
    assert both.tools(said.append).origin == bootstrap.origin("bookworm")
    assert len([line for line in said if "registry can't be reached" in line]) == 1
    assert registry.asked == [str(PINNED["3.11"])]
    assert bootstraps == ["bookworm"]


def test_a_missing_image_is_not_reported_as_an_unreachable_registry(bootstraps: list[str]) -> None:
    missing = api_error(404, "404 Client Error", "manifest unknown")
    registry = Registry(missing)
    with pytest.raises(MissingError, match="nobody/nothing:1 is not in the registry"):
        bases(registry).base(dataclasses.replace(CPU, base="nobody/nothing:1"), lambda _: None)


def test_the_policy_registry_never_bootstraps(bootstraps: list[str]) -> None:
    with pytest.raises(MissingError, match="the image registry can't be reached"):
        bases(Registry(NO_HOST), BasePolicy.REGISTRY).base(PY311, lambda _: None)
    assert bootstraps == []


def test_the_policy_bootstrap_uses_no_registry(bootstraps: list[str]) -> None:
    registry = Registry(BA5E)
    found = bases(registry, BasePolicy.BOOTSTRAP).base(PY311, lambda _: None)
    assert (found.origin, registry.asked) == (bootstrap.origin("bookworm"), [])


@pytest.mark.parametrize("name", ["python:3.12-slim-bookworm", f"python@{LOCAL}"])
def test_the_engine_s_own_copy_is_used_without_a_registry(bootstraps: list[str], name: str) -> None:
    registry = Registry(NO_HOST, name)
    pinned = {"3.12": PinnedBase("python:3.12-slim-bookworm", LOCAL)}
    both = Bases(registry, registry, BasePolicy.AUTO, pinned)  # type: ignore[arg-type]
    found = both.base(CPU, lambda _: None)
    assert found.reference == name
    assert found.origin == f"registry:python:3.12-slim-bookworm@{LOCAL}"


def test_a_local_copy_with_another_digest_is_not_used(bootstraps: list[str]) -> None:
    with pytest.raises(MissingError, match="the image registry can't be reached"):
        bases(Registry(NO_HOST, "python:3.12-slim-bookworm")).base(CPU, lambda _: None)


def test_a_local_copy_of_a_base_of_the_matrix_is_used(bootstraps: list[str]) -> None:
    own = dataclasses.replace(CPU, base="team/base:1")
    found = bases(Registry(NO_HOST, "team/base:1")).base(own, lambda _: None)
    assert (found.reference, found.origin) == ("team/base:1", f"registry:team/base:1@{LOCAL}")


def test_a_base_is_bootstrapped_once_for_all_runs(bootstraps: list[str]) -> None:
    registry = Registry(NO_HOST, bootstrap.tag("bookworm"))
    assert bases(registry).base(PY311, lambda _: None).reference == bootstrap.tag("bookworm")
    assert bootstraps == []


def test_both_reasons_are_given_for_a_python_without_a_base(bootstraps: list[str]) -> None:
    reason = bases(Registry(NO_HOST)).provides("3.12")
    assert reason is not None
    assert "registry can't be reached" in reason
    assert "no supported Debian release has Python 3.12" in reason
    assert bases(Registry(NO_HOST)).provides("3.13") is None
    assert bases(Registry(BA5E)).provides("3.12") is None


def test_a_changed_package_changes_the_name_of_the_base(monkeypatch: pytest.MonkeyPatch) -> None:
    before = bootstrap.tag("trixie")
    lock = read_lock("trixie")
    other = dataclasses.replace(lock.packages[0], sha256="0" * 64)
    changed = dataclasses.replace(lock, packages=(other, *lock.packages[1:]))
    monkeypatch.setattr(bootstrap, "read_lock", lambda suite: changed)
    assert bootstrap.tag("trixie") != before
    assert before.startswith(f"{names.PROJECT}-base:trixie-")


@pytest.mark.service
def test_the_host_s_mirrors_are_used_for_other_suites(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    apt_get = tmp_path / "apt-get"
    apt_get.write_text(
        "#!/bin/sh\n"
        "printf '%s\\n' 'Debian|Debian|http://mirror.invalid/debian/'"
        " 'Debian|Debian-Security|http://mirror.invalid/security/' 'Other|Other|http://other.invalid/'\n",
        encoding="utf-8",
    )
    config = tmp_path / "apt-config"
    config.write_text("#!/bin/sh\necho \"http_proxy='http://proxy.invalid:3128'\"\n", encoding="utf-8")
    for path in (apt_get, config):
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    sources = apt.apt_sources()
    assert sources.lines("trixie") == (
        "deb http://mirror.invalid/debian trixie main",
        "deb http://mirror.invalid/debian trixie-updates main",
        "deb http://mirror.invalid/security trixie-security main",
    )
    assert sources.environment == {"http_proxy": "http://proxy.invalid:3128"}


def test_without_apt_get_debian_s_own_mirrors_are_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert apt.apt_sources() == apt.AptSources()
    assert apt.AptSources().lines("trixie")[0] == "deb http://deb.debian.org/debian trixie main"


@pytest.mark.service
def test_traces_of_the_host_are_removed(tmp_path: Path) -> None:
    traces = [
        "etc/resolv.conf", "etc/hostname", "etc/machine-id", "etc/apt/sources.list",
        "etc/apt/sources.list.d/mirror.sources", "var/lib/apt/lists/mirror_Packages", "var/log/bootstrap.log",
        "etc/apt/apt.conf.d/99mmdebstrap",
    ]  # fmt: skip
    for name in (*traces, "etc/apt/apt.conf.d/70debconf", "etc/passwd"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("canary", encoding="utf-8")
    subprocess.run([images_directory() / "base" / "clean-rootfs", tmp_path], check=True)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["etc/apt/apt.conf.d/70debconf", "etc/passwd"]
