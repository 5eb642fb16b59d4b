"""Write a bundle: what a machine without a network needs to measure images, or to use certified ones.

Its content is one stream of files, cut into volumes of the same size. Blobs go from their registry into the
volumes without a copy in between. `bundle.json` is written last, so nothing that was interrupted looks like a
bundle, and the next run goes on after the last volume whose blobs were verified.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO

from .. import __version__
from .._vendor.packaging.utils import canonicalize_name
from ..assemble.base import read_file as read_parts
from ..assemble.destinations import OciLayout
from ..assemble.image_names import LABEL_BASE
from ..assemble.wheels import Wheelhouse
from ..certify import attached, signatures
from ..certify.attached import BUNDLE, BundleError
from ..certify.trust_file import read_trust_file
from ..engines.probe_archive import INTERPRETER, probe_archive, probe_request, probe_version, zip_archive
from ..errors import InputError, ValidatorError
from ..locks.index import sha256_of
from ..locks.lock_files import render
from ..locks.resolve import resolve
from ..model.codec import encode, format_timestamp, now_utc
from ..model.lock import Lock, Wheel
from ..model.spec import HostClass, ImageSpec, Variant
from ..offline.receive import BLOBS, FORMAT, MANIFEST
from ..registry.client import INDEX_TYPE, Registry
from ..resources import SHIPPED, root_directory
from ..system.files import full_disk, read_file, write_atomically, writing
from ..system.package_sources import PackageSources
from .fleet import StoredHost
from .measuring import Question, names_of, own_checks

Say = Callable[[str], None]
_WORK, _STATE = ".unfinished", "state.json"
_PROGRAM = "measure"
_NAME = "tensorflow-gpu-matrix"
_PYTHON = re.compile(r"Programming Language :: Python :: (3\.\d+)")
_MAIN = b"""\
import sys

if sys.version_info < (3, 9):
    sys.exit("measure: needs Python 3.9 or newer, this is %d.%d" % sys.version_info[:2])
from validator.offline.main import main

sys.exit(main(sys.argv[1:]))
"""
#: What runs on the other machine without being installed there, besides `validator/offline/`.
_CARRIED = ("fleet/slurm_job.py", "fleet/inside.py", "engines/ask_nvml.py")


@dataclass(frozen=True)
class BundledImage:
    """An image to bundle. source: its name, for people. spec, lock: None for an image of somebody else."""

    registry: Registry
    digest: str
    tag: str
    source: str
    spec: ImageSpec | None
    lock: Lock | None


@dataclass(frozen=True)
class Request:
    """The content of a bundle besides its images.

    pythons: those that get the tool's wheels. trust, roots: files, or None. challenges: by cell or image
    spec.
    """

    pythons: Sequence[str]
    sources: PackageSources
    hosts: Sequence[HostClass] = ()
    trust: Path | None = None
    roots: Path | None = None
    challenges: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Item:
    """A file of the bundle. sha256: None for a blob, whose name has it. read: returns its content."""

    path: str
    size: int
    sha256: str | None
    read: Callable[[], Iterator[bytes]]


def supported_pythons() -> tuple[str, ...]:
    """Return the Pythons that this tool says it supports."""
    classifiers = metadata.metadata(_NAME).get_all("Classifier") or ()
    return tuple(match[1] for line in classifiers if (match := _PYTHON.fullmatch(line)))


def write_bundle(
    directory: Path, images: Sequence[BundledImage], volume_size: int, request: Request, say: Say
) -> str:
    """Write a bundle to a new directory, or go on with it. Return the SHA-256 of its `bundle.json`.

    Raises InputError if the directory has something else, ValidatorError for an image that is damaged, and
    MissingError if the index or a registry can't be reached, or the disk is full.
    """
    _refuse_other_files(directory)
    work = directory / _WORK
    with writing(directory):
        work.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(work / "files", ignore_errors=True)
        staged, house = _Staging(work / "files"), Wheelhouse(request.sources)
        try:
            described = [_stage_image(staged, image, request.challenges) for image in images]
            _stage_trust(staged, images, request)
            _stage_tool(staged, house, request, say)
            items = staged.items()
            volumes = _Volumes(directory, items, volume_size)
            volumes.go_on(say)
            volumes.write(say)
        finally:
            house.close()
        document = {
            "format": FORMAT,
            "tool": __version__,
            "created": format_timestamp(now_utc()).replace("+00:00", "Z"),
            "images": described,
            "hosts": [encode(StoredHost.of(host)) for host in request.hosts],
            "files": {
                item.path: {"size": item.size, "sha256": item.sha256, "executable": item.path == _PROGRAM}
                for item in items
                if item.sha256 is not None
            },
            "volumes": [
                {
                    "name": name,
                    "size": sum(size for _, _, size in holds),
                    "sha256": volumes.done[name],
                    "holds": holds,
                }
                for name, holds in volumes.holds.items()
            ],
        }
        write_atomically(directory / _PROGRAM, staged.files[_PROGRAM].read_bytes())
        (directory / _PROGRAM).chmod(0o755)
        content = json.dumps(document, indent=1).encode()
        write_atomically(directory / MANIFEST, content)
        shutil.rmtree(work)
    return hashlib.sha256(content).hexdigest()


def _refuse_other_files(directory: Path) -> None:
    if (directory / MANIFEST).exists():
        raise InputError(f"{directory} has a bundle already", hint="name a new directory, or remove that one")
    known = re.compile(rf"volume-\d+(\.part)?|measure|{re.escape(_WORK)}")
    others = sorted(path.name for path in directory.glob("*") if not known.fullmatch(path.name))
    if others:
        raise InputError(f"{directory} has other files: {others[0]}", hint="name a new or an empty directory")


class _Staging:
    """The files of a bundle before they are in its volumes: small ones in a directory, blobs by a reader."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self.files: dict[str, Path] = {}
        self._blobs: dict[str, _Item] = {}

    def add(self, path: str, content: bytes) -> None:
        target = self._work / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        self.files[path] = target

    def add_blob(self, registry: Registry, digest: str, size: int) -> None:
        path = BLOBS + digest.removeprefix("sha256:")
        self._blobs[path] = _Item(path, size, None, lambda: registry.blobs.read(digest, size))

    def add_layout(self, tag: str, manifest: bytes, media_type: str) -> None:
        """Note an image in the index of the layout, which this writes as for any other layout."""
        place = self._work / "images"
        OciLayout(place, tag).finish(manifest, media_type)
        for path in place.rglob("*"):
            if path.is_file():
                self.files[f"images/{path.relative_to(place)}"] = path

    def items(self) -> list[_Item]:
        """Return all files in the order of the stream: the small ones first, which say what follows."""
        found = []
        for path, file in sorted(self.files.items(), key=lambda pair: (pair[0] != _PROGRAM, pair)):
            # An empty trust file would be in no volume, and says nothing.
            if size := file.stat().st_size:
                digest = None if path.startswith(BLOBS) else sha256_of(file)
                found.append(_Item(path, size, digest, partial(read_parts, file)))
        return found + [blob for path, blob in self._blobs.items() if path not in self.files]


def _stage_image(staged: _Staging, image: BundledImage, challenges: Mapping[str, str]) -> dict[str, Any]:
    """Add an image, what is attached to it and its probe. Return its entry in `bundle.json`."""
    registry = image.registry
    manifest, described = registry.manifest(image.digest), registry.raw_manifest(image.digest)
    if manifest is None or described is None or manifest.config is None:
        raise InputError(f"{image.source} is not an image for linux/amd64")
    for blob in (manifest.config, *(manifest.layers or ())):
        staged.add_blob(registry, blob.digest, blob.size)
    staged.add_layout(image.tag, described.content, described.media_type or manifest.media_type)
    _stage_attached(staged, registry, image.digest)
    entry: dict[str, Any] = {"tag": image.tag, "digest": image.digest, "image": "", "source": image.source}
    if image.spec is None or image.lock is None:
        staged.add("probe/probe.pyz", probe_archive())
        asked = probe_request("quick")
        nothing = {"lock": None, "challenge": None, "question": None}
        return {
            **entry,
            **nothing,
            "probe": "probe/probe.pyz",
            "arguments": asked.arguments,
            "timeout_s": asked.timeout_s,
        }
    identifier, lock, own = image.spec.identifier, render(image.lock).encode(), own_checks(image.spec)
    challenge = _challenge(identifier, challenges)
    asked = probe_request("quick", lock, challenge=challenge, own=own)
    probe = f"probe/{image.tag if own else 'probe'}.pyz"
    staged.add(probe, asked.archive)
    staged.add(f"locks/{image.tag}.txt", lock)
    question = Question(
        image=identifier, variant=image.spec.variant, lock_digest=image.lock.digest,
        probe_version=probe_version(own), depth="quick", key="", engine="",
        added=image.spec.additions is not None, own=names_of(own), image_digest=image.digest,
        base=registry.config(image.digest).labels.get(LABEL_BASE), challenge=challenge,
    )  # fmt: skip
    return {
        **entry, "image": identifier, "lock": f"locks/{image.tag}.txt", "probe": probe,
        "arguments": asked.arguments, "timeout_s": asked.timeout_s, "challenge": challenge,
        "question": encode(question),
    }  # fmt: skip


def _challenge(identifier: str, challenges: Mapping[str, str]) -> str | None:
    """Return the challenge of an image: the bundle is measured on one machine, so there can be only one."""
    found = {text for asked, text in challenges.items() if asked.partition("@")[0] == identifier}
    if len(found) > 1:
        raise InputError(
            f"the challenges have {len(found)} cells of {identifier}, and a bundle is for one machine",
            hint="make them for its host class: `certify challenges --select gpu=…`",
        )
    return next(iter(found), None)


def _stage_attached(staged: _Staging, registry: Registry, digest: str) -> None:
    """Add the signed statements about an image, and the list of them."""
    listed = []
    for entry in registry.attached(digest, BUNDLE):
        manifest, raw = registry.manifest(entry.digest), registry.raw_manifest(entry.digest)
        if manifest is None or raw is None:
            continue
        staged.add(BLOBS + entry.digest.removeprefix("sha256:"), raw.content)
        for blob in (manifest.config, *(manifest.layers or ())):
            if blob is not None:
                staged.add_blob(registry, blob.digest, blob.size)
        listed.append(
            {
                "mediaType": manifest.media_type, "digest": entry.digest, "size": len(raw.content),
                "artifactType": entry.artifact_type, "annotations": dict(entry.annotations),
            }
        )  # fmt: skip
    if listed:
        index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": listed}
        staged.add(f"certificates/{digest.replace(':', '-')}.json", json.dumps(index).encode())


def _stage_trust(staged: _Staging, images: Sequence[BundledImage], request: Request) -> None:
    """Add whom this machine trusts. Whoever receives the bundle decides whether that counts."""
    if request.trust is not None:
        release = read_trust_file(request.trust).release
        staged.add("trust/trust.yaml", read_file(request.trust))
        if release is not None and isinstance(release.key, str):
            staged.add("trust/release.pub", release.key.encode())
    if request.roots is not None:
        staged.add("trust/trusted_root.json", read_file(request.roots))
    elif any(_by_identity(image) for image in images):
        staged.add("trust/trusted_root.json", signatures.public_roots())


def _by_identity(image: BundledImage) -> bool:
    """Return True if an identity signed something about the image: that needs Sigstore's roots."""
    for entry in image.registry.attached(image.digest, BUNDLE):
        try:
            if not attached.Candidate(image.registry, entry.digest).read().by_key:
                return True
        except (BundleError, ValidatorError):
            # Whoever verifies it says what is wrong with it.
            continue
    return False


def _stage_tool(staged: _Staging, house: Wheelhouse, request: Request, say: Say) -> None:
    """Add `measure`, this tool as a wheel, and the wheels that it needs for each Python."""
    name, wheel = own_wheel()
    staged.add(f"tool/{name}", wheel)
    requires = [line for line in metadata.requires(_NAME) or () if "extra ==" not in line]
    here = {
        name: Wheel(name, one.version, "", "")
        for one in metadata.distributions()
        if (name := canonicalize_name(one.metadata["Name"]))
    }
    for python in request.pythons:
        say(f"wheels of this tool for Python {python}")
        spec, what = ImageSpec("0", python, Variant.CPU), f"this tool for Python {python}"
        # What is installed here is preferred, but not every Python can have it.
        wanted = Lock(_NAME, python, "", (), tuple(here.values()))
        lock = resolve(spec, requires, request.sources, keep=wanted, what=what)
        house.fetch(lock.wheels, say)
        for found in lock.wheels:
            staged.files[f"tool/{found.filename}"] = house.path(found)
    package = Path(__file__).parents[1]
    carried = {
        f"validator/{path.relative_to(package)}": path.read_bytes()
        for path in (*(package / "offline").glob("*.py"), *(package / name for name in _CARRIED))
    }
    empty = {f"validator/{name}__init__.py": b"" for name in ("", "fleet/", "engines/")}
    import pynvml

    carried["pynvml.py"] = Path(str(pynvml.__file__)).read_bytes()
    staged.add(_PROGRAM, zip_archive({**empty, **carried, "__main__.py": _MAIN}, INTERPRETER))


def own_wheel() -> tuple[str, bytes]:
    """Return the name and the content of a wheel of this tool, as it is installed here or in a checkout."""
    package = Path(__file__).parents[1]
    distribution = metadata.distribution(_NAME)
    files = {
        f"validator/{path.relative_to(package)}": path.read_bytes()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and package / "shipped" not in path.parents
    }
    for name in SHIPPED:
        top = root_directory() / name
        for path in (top, *top.rglob("*")):
            if path.is_file():
                files[f"validator/shipped/{path.relative_to(root_directory())}"] = path.read_bytes()
    stem = f"{_NAME.replace('-', '_')}-{distribution.version}"
    about = f"{stem}.dist-info"
    for name in ("METADATA", "entry_points.txt"):
        files[f"{about}/{name}"] = (distribution.read_text(name) or "").encode()
    files[f"{about}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: validator\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for name, content in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow((name, f"sha256={digest}", len(content)))
    rows.writerow((f"{about}/RECORD", "", ""))
    files[f"{about}/RECORD"] = record.getvalue().encode()
    return f"{stem}-py3-none-any.whl", zip_archive(files)


class _Volumes:
    """The stream of a bundle's files, and its volumes in a directory.

    done: the SHA-256 of each volume that was written, and whose blobs were read to their verified end.
    """

    def __init__(self, directory: Path, items: Sequence[_Item], size: int) -> None:
        self._directory, self._items, self._size = directory, items, size
        self.holds: dict[str, list[tuple[str, int, int]]] = {}
        at = 0
        for item in items:
            start = 0
            while start < item.size:
                taken = min(item.size - start, size - at % size)
                self.holds.setdefault(_name(at // size), []).append((item.path, start, taken))
                start, at = start + taken, at + taken
        self._total = at
        listed = [(item.path, item.size, item.sha256) for item in items]
        self._plan = hashlib.sha256(json.dumps([size, listed]).encode()).hexdigest()
        self._notes = directory / _WORK / _STATE
        self.done: dict[str, str] = {}
        self._pending: dict[str, str] = {}
        self._stream: BinaryIO | None = None

    def go_on(self, say: Say) -> None:
        """Keep the undamaged volumes of an interrupted run of the same stream, and remove all others."""
        noted: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            noted = json.loads(self._notes.read_bytes())
        for name in self.holds if noted.get("plan") == self._plan else ():
            path = self._directory / name
            if not path.is_file() or noted["done"].get(name) != sha256_of(path):
                break
            self.done[name] = noted["done"][name]
        for path in self._directory.glob("volume-*"):
            if path.name not in self.done:
                path.unlink()
        if self.done:
            say(f"{len(self.done)} of {len(self.holds)} volumes were written before")
        if self._total - len(self.done) * self._size > shutil.disk_usage(self._directory).free:
            raise full_disk(f"{self._directory}, and the bundle has {self._total:,} bytes")

    def write(self, say: Say) -> None:
        """Write the volumes that are missing."""
        begin, at = len(self.done) * self._size, 0
        self._number = len(self.done)
        try:
            for item in self._items:
                skip, at = max(0, begin - at), at + item.size
                if at > begin:
                    for part in item.read():
                        self._put(memoryview(part)[skip:])
                        skip = max(0, skip - len(part))
                    self._note(say)
            self._finish()
            self._note(say)
        finally:
            if self._stream is not None:
                self._stream.close()

    def _put(self, content: memoryview) -> None:
        while content:
            if self._stream is None:
                self._stream, self._digest = self._partial.open("wb"), hashlib.sha256()
            taken = content[: self._size - self._stream.tell()]
            self._stream.write(taken)
            self._digest.update(taken)
            content = content[len(taken) :]
            if self._stream.tell() == self._size:
                self._finish()

    @property
    def _partial(self) -> Path:
        return self._directory / f"{_name(self._number)}.part"

    def _finish(self) -> None:
        if self._stream is not None:
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._stream.close()
            self._stream = None
            self._partial.replace(self._directory / _name(self._number))
            self._pending[_name(self._number)] = self._digest.hexdigest()
            self._number += 1

    def _note(self, say: Say) -> None:
        """Count the volumes since the last file: all of their blobs were read to the end."""
        if self._pending:
            self.done.update(self._pending)
            self._pending = {}
            write_atomically(self._notes, json.dumps({"plan": self._plan, "done": self.done}).encode())
            say(f"{len(self.done)} of {len(self.holds)} volumes")


def _name(number: int) -> str:
    return f"volume-{number + 1:04}"
