"""Decide what `run` starts, and how: which image, on which host, as which user, with which devices."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import InputError
from ..registry.client import Registry
from .candidates import Terms
from .host import Host
from .pull import Engine, SelectedImage, Tell, select, start_image
from .start import Devices, Image, Start, User, devices_of, user_of
from .uncertified import Wanted, find


@dataclass(frozen=True)
class Request:
    """The image, the host and the devices to start.

    registry: where the image is; None for the local engine or an OCI layout. terms: None if no certificate
    is looked at. uncertified: an image that is not certified will do too. devices: None if no Docker Engine
    starts the container. mount: mount the current directory. environment, command, terminal: see `Start`.
    """

    registry: Registry | None
    wanted: Wanted
    terms: Terms | None
    uncertified: bool
    devices: Devices | None
    mount: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    terminal: str = ""


@dataclass(frozen=True)
class Resolved:
    """The image to start. selected: the image to pull first; None if it need not be certified."""

    start: Start
    selected: SelectedImage | None


def resolve(request: Request, engine: Engine | None, host: Callable[[], Host], tell: Tell) -> Resolved:
    """Choose the image, and describe its container.

    engine: the Docker Engine that starts the container or has the image; None to write for another machine.
    host: called if the image uses GPUs. tell: called with what people should know.

    Raises InputError for a wrong request, NotCertified if no image will do, and MissingError if the
    registry, the host or its GPUs can't be reached.
    """
    selected: SelectedImage | None = None
    known: Host | None
    if request.registry is not None and request.terms is not None and not request.uncertified:
        known = host()
        devices = _devices(request.devices, engine)
        selected = select(
            request.registry,
            known,
            request.terms,
            request.wanted.image,
            request.wanted.tensorflow,
            request.wanted.python,
            request.wanted.additions,
            tell,
        )
        image = start_image(request.registry, selected)
    else:
        image, known = find(request.registry, request.wanted, host, request.terms, engine, tell)
        _warn(image, tell)
        devices = _devices(request.devices, engine) if known is not None else None
    docker = engine if request.devices is not None else None
    start = Start(
        image, known, devices, _user(docker), _directory(docker) if request.mount else None,
        request.environment, request.command, request.terminal,
    )  # fmt: skip
    return Resolved(start, selected)


def _devices(asked: Devices | None, engine: Engine | None) -> Devices | None:
    """Return how a Docker Engine gives GPUs: as was asked for, or else as the local one offers them."""
    return devices_of(engine.info) if asked is Devices.AUTO and engine is not None else asked


def _warn(image: Image, tell: Tell) -> None:
    if not image.certified:
        tell(f"WARNING: NOT CERTIFIED: {image.name}")
    for text in image.standing:
        tell(f"{image.name}: {text}")


def _user(docker: Engine | None) -> User:
    user = User(os.getuid(), os.getgid())
    return user if docker is None else user_of(docker.info, user.uid, user.gid)


def _directory(docker: Engine | None) -> Path:
    if docker is not None and not docker.is_local:
        raise InputError(
            "--mount needs a local Docker engine: the remote host does not have this directory",
            hint="copy the data there, or run without --mount",
        )
    return Path.cwd()
