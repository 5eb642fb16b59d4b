"""Bundles: what a machine without a network needs to measure images, or to use certified ones.

A bundle is one stream of files, which is cut into volumes. Layers go from their registry into the volumes
without a copy in between. `bundle.json` is written last, so what was interrupted never looks like a bundle,
and the next run writes it again.
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
from typing import Any, Literal

import msgspec
import pynvml

from .._vendor.packaging.utils import canonicalize_name
from ..assemble.base import read_file as read_parts
from ..assemble.image import OciLayout
from ..assemble.wheels import Wheelhouse
from ..certify import signatures
from ..certify.signatures import BUNDLE, BundleError, Candidate
from ..certify.trust_file import read_trust_file
from ..engines.protocol import INTERPRETER, Engine, ProbeRequest, probe_request, zip_archive
from ..errors import InputError
from ..fleet.protocol import CutError, read_result
from ..locks.index import sha256_of
from ..locks.lock_files import render
from ..locks.resolve import resolve
from ..model import codec
from ..model.codec import DocumentError, encode
from ..model.record import Origin, Outside, Record, RecordError, read_record
from ..model.report import ReportError, read_report
from ..model.spec import LABEL_BASE, NO_GPU, HostClass, ImageSpec, Lock, Variant, Wheel, cell_identifier
from ..model.verdict import unproven_failure
from ..offline.receive import BLOBS, MANIFEST, Bundle, File, Image, Volume
from ..registry.client import INDEX_TYPE, Registry
from ..resources import SHIPPED, root_directory
from ..system.files import full_disk, read_file, write_atomically, writing
from ..system.package_sources import PackageSources
from .fleet import StoredHost
from .measuring import (
    ProbeRun,
    Question,
    answer,
    host_class_of,
    now,
    own_checks,
    question_about,
    record_of,
    record_of_report,
    targets,
)
from .run import Runner

Say = Callable[[str], None]
_PROGRAM = "measure"
_NAME = "tensorflow-gpu-matrix"
_PACKAGE = Path(__file__).parents[1]
_PYTHON = re.compile(r"Programming Language :: Python :: (3\.\d+)")
_OURS = re.compile(rf"(volume-\d+|{_PROGRAM})(\.part)?")
_MAIN = b"""\
import sys

if sys.version_info < (3, 9):
    sys.exit("measure: needs Python 3.9 or newer, this is %d.%d" % sys.version_info[:2])
from validator.offline.main import main

sys.exit(main(sys.argv[1:]))
"""
#: What `measure` has of this tool, besides `validator/offline/`.
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

    trust, roots: files, or None. challenges: by cell or image spec.
    """

    sources: PackageSources
    hosts: Sequence[HostClass] = ()
    trust: Path | None = None
    roots: Path | None = None
    challenges: Mapping[str, str] = field(default_factory=dict)


def supported_pythons() -> tuple[str, ...]:
    """Return the Pythons that this tool says it supports."""
    classifiers = metadata.metadata(_NAME).get_all("Classifier") or ()
    return tuple(match[1] for line in classifiers if (match := _PYTHON.fullmatch(line)))


def write_bundle(
    directory: Path, images: Sequence[BundledImage], volume_size: int, request: Request, work: Path, say: Say
) -> str:
    """Write a bundle to a new directory. Return the SHA-256 of its `bundle.json`.

    work: a directory for temporary files. Volumes that an interrupted run left are written again. Raises
    InputError if the directory has something else, ValidatorError for an image that is damaged, and
    MissingError if the index or a registry can't be reached, or the disk is full.
    """
    if (directory / MANIFEST).exists():
        raise InputError(f"{directory} has a bundle already", hint="name a new directory, or remove that one")
    found = sorted(path.name for path in directory.glob("*"))
    if others := [name for name in found if not _OURS.fullmatch(name)]:
        raise InputError(f"{directory} has other files: {others[0]}", hint="name a new or an empty directory")
    tags = [image.tag for image in images]
    if twice := [tag for tag in tags if tags.count(tag) > 1]:
        hint = "bundle them by themselves, or by their digests"
        raise InputError(f"two of the images have the tag {twice[0]}", hint=hint)
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        for name in found:
            (directory / name).unlink()
        files, house = _Files(), Wheelhouse(request.sources)
        try:
            described = [_add_image(files, image, request.challenges, work) for image in images]
            attached = [_add_attached(files, image.registry, image.digest) for image in images]
            # This says whom this machine trusts. Whoever receives the bundle decides whether that counts.
            if request.trust is not None:
                release = read_trust_file(request.trust).release
                files.add("trust/trust.yaml", read_file(request.trust))
                if release is not None and isinstance(release.key, str):
                    files.add("trust/release.pub", release.key.encode())
            if request.roots is not None:
                files.add("trust/trusted_root.json", read_file(request.roots))
            elif any(attached):
                # Verifying what an identity signed needs Sigstore's roots.
                files.add("trust/trusted_root.json", signatures.public_roots())
            _add_tool(files, house, request, say)
            volumes = _write_volumes(directory, files, volume_size, say)
        finally:
            house.close()
        program = directory / _PROGRAM
        write_atomically(program, b"".join(files.readers[_PROGRAM]()))
        program.chmod(0o755)
        hosts = tuple(StoredHost.of(host) for host in request.hosts)
        bundle = Bundle(tuple(described), files.listed, tuple(volumes), hosts)
        content = json.dumps(encode(bundle), indent=1).encode()
        write_atomically(directory / MANIFEST, content)
    return hashlib.sha256(content).hexdigest()


class _Files:
    """The files of a bundle by their paths. listed: as in `bundle.json`, without blobs."""

    def __init__(self) -> None:
        self.readers: dict[str, Callable[[], Iterator[bytes]]] = {}
        self.sizes: dict[str, int] = {}
        self.listed: dict[str, File] = {}

    def add(self, path: str, content: bytes) -> None:
        # An empty trust file would be in no volume.
        if content:
            self._add(path, len(content), hashlib.sha256(content).hexdigest(), lambda: iter((content,)))

    def add_file(self, path: str, file: Path) -> None:
        self._add(path, file.stat().st_size, sha256_of(file), partial(read_parts, file))

    def add_blob(self, registry: Registry, digest: str, size: int) -> None:
        name = digest.removeprefix("sha256:")
        self._add(BLOBS + name, size, name, partial(registry.blobs.read, digest, size))

    def _add(self, path: str, size: int, sha256: str, read: Callable[[], Iterator[bytes]]) -> None:
        self.readers[path], self.sizes[path] = read, size
        if not path.startswith(BLOBS):
            self.listed[path] = File(size, sha256)


def _add_image(files: _Files, image: BundledImage, challenges: Mapping[str, str], work: Path) -> Image:
    """Add an image and its probe. Return its entry in `bundle.json`."""
    registry, spec, lock = image.registry, image.spec, image.lock
    manifest, raw = registry.manifest(image.digest), registry.raw_manifest(image.digest)
    if manifest is None or raw is None or manifest.config is None:
        raise InputError(f"{image.source} is not an image for linux/amd64")
    for blob in (manifest.config, *(manifest.layers or ())):
        files.add_blob(registry, blob.digest, blob.size)
    layout = work / "images"
    OciLayout(layout, image.tag).finish(raw.content, raw.media_type or manifest.media_type)
    for path in layout.rglob("*"):
        if path.is_file():
            files.add(f"images/{path.relative_to(layout)}", path.read_bytes())
    own = own_checks(spec) if spec is not None else ()
    text, question, asked = None, None, {}
    if spec is not None and lock is not None:
        text, identifier = render(lock).encode(), spec.identifier
        asked = {cell: value for cell, value in challenges.items() if cell.partition("@")[0] == identifier}
        files.add(f"locks/{image.tag}.txt", text)
        found = {"image_digest": image.digest, "base": registry.config(image.digest).labels.get(LABEL_BASE)}
        question = question_about(spec, lock, "quick", own, key="", engine="", **found)
    probing = probe_request("quick", text, own=own)
    probe = f"probe/{image.tag if own else 'probe'}.pyz"
    files.add(probe, probing.archive)
    return Image(
        tag=image.tag, digest=image.digest, image=question.image if question else "", source=image.source,
        lock=f"locks/{image.tag}.txt" if text else None, probe=probe, arguments=probing.arguments,
        timeout_s=probing.timeout_s, challenges=asked, question=question,
    )  # fmt: skip


def _add_attached(files: _Files, registry: Registry, digest: str) -> bool:
    """Add the signed statements about an image. Return True if an identity signed one."""
    listed, by_identity = [], False
    for entry in registry.attached(digest, BUNDLE):
        manifest, raw = registry.manifest(entry.digest), registry.raw_manifest(entry.digest)
        if manifest is None or raw is None:
            continue
        # An invalid statement is added too: whoever verifies it says what is wrong with it.
        with contextlib.suppress(BundleError):
            by_identity = by_identity or not Candidate(registry, entry.digest).read().by_key
        files.add(BLOBS + entry.digest.removeprefix("sha256:"), raw.content)
        for blob in (manifest.config, *(manifest.layers or ())):
            if blob is not None:
                files.add_blob(registry, blob.digest, blob.size)
        listed.append(
            {
                "mediaType": manifest.media_type, "digest": entry.digest, "size": len(raw.content),
                "artifactType": entry.artifact_type, "annotations": entry.annotations or {},
            }
        )  # fmt: skip
    index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": listed}
    files.add(f"certificates/{digest.replace(':', '-')}.json", json.dumps(index).encode())
    return by_identity


def _add_tool(files: _Files, house: Wheelhouse, request: Request, say: Say) -> None:
    """Add `measure`, this tool as a wheel, and the wheels that it needs for each Python."""
    name, wheel = own_wheel()
    files.add(f"tool/{name}", wheel)
    requires = [line for line in metadata.requires(_NAME) or () if "extra ==" not in line]
    versions = {canonicalize_name(one.metadata["Name"]): one.version for one in metadata.distributions()}
    here = tuple(Wheel(name, version, "", "") for name, version in versions.items())
    for python in supported_pythons():
        what = f"this tool for Python {python}"
        say(f"wheels of {what}")
        # What is installed here is preferred, but not every Python can have it.
        wanted = Lock(_NAME, python, "", (), here)
        spec = ImageSpec("0", python, Variant.CPU)
        lock = resolve(spec, requires, request.sources, keep=wanted, what=what)
        house.fetch(lock.wheels, say)
        for found in lock.wheels:
            files.add_file(f"tool/{found.filename}", house.path(found))
    carried = {
        f"validator/{path.relative_to(_PACKAGE)}": path.read_bytes()
        for path in (*(_PACKAGE / "offline").glob("*.py"), *(_PACKAGE / name for name in _CARRIED))
    }
    empty = {f"validator/{name}__init__.py": b"" for name in ("", "fleet/", "engines/")}
    carried |= {"pynvml.py": Path(str(pynvml.__file__)).read_bytes(), "__main__.py": _MAIN}
    files.add(_PROGRAM, zip_archive({**empty, **carried}, INTERPRETER))


def own_wheel() -> tuple[str, bytes]:
    """Return the name and the content of a wheel of this tool, as it is installed here or in a checkout."""
    distribution, root = metadata.distribution(_NAME), root_directory()
    shipped = [path for name in SHIPPED for path in (root / name, *(root / name).rglob("*"))]
    own = [path for path in _PACKAGE.rglob("*") if not {"__pycache__", "shipped"} & {*path.parts}]
    places = {f"validator/shipped/{path.relative_to(root)}": path for path in shipped}
    places |= {f"validator/{path.relative_to(_PACKAGE)}": path for path in own}
    files = {name: path.read_bytes() for name, path in places.items() if path.is_file()}
    stem = f"{_NAME.replace('-', '_')}-{distribution.version}"
    about = f"{stem}.dist-info"
    for name in ("METADATA", "entry_points.txt"):
        files[f"{about}/{name}"] = (distribution.read_text(name) or "").encode()
    wheel = "Wheel-Version: 1.0\nGenerator: validator\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{about}/WHEEL"] = wheel.encode()
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for name, content in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow((name, f"sha256={digest}", len(content)))
    rows.writerow((f"{about}/RECORD", "", ""))
    files[f"{about}/RECORD"] = record.getvalue().encode()
    return f"{stem}-py3-none-any.whl", zip_archive(files)


def _write_volumes(directory: Path, files: _Files, most: int, say: Say) -> list[Volume]:
    """Write all files into volumes of at most `most` bytes. Return their entries in `bundle.json`."""
    total = sum(files.sizes.values())
    if total > shutil.disk_usage(directory).free:
        raise full_disk(f"{directory}, and the bundle has {total:,} bytes")
    pieces, count = _pieces(files, most), -(-total // most)
    volumes: list[Volume] = []
    for number in range(1, count + 1):
        name, size, digest = f"volume-{number:04}", 0, hashlib.sha256()
        holds: list[list[Any]] = []
        with (directory / f"{name}.part").open("wb") as stream:
            while size < most and (piece := next(pieces, None)):
                path, start, content = piece
                if not holds or holds[-1][0] != path:
                    holds.append([path, start, 0])
                holds[-1][2] += len(content)
                size += stream.write(content)
                digest.update(content)
            stream.flush()
            os.fsync(stream.fileno())
        (directory / f"{name}.part").replace(directory / name)
        parts = tuple((path, start, length) for path, start, length in holds)
        volumes.append(Volume(name, size, digest.hexdigest(), parts))
        say(f"{name} of {count}")
    # The last layer is verified when it was read to its end.
    next(pieces, None)
    return volumes


def _pieces(files: _Files, most: int) -> Iterator[tuple[str, int, memoryview]]:
    """Yield the content of all files, cut where a volume ends: path, place in the file, bytes."""
    total = 0
    # The program comes first, and large layers come last.
    for path in sorted(files.sizes, key=lambda path: (path != _PROGRAM, path.startswith(BLOBS), path)):
        at = 0
        for part in files.readers[path]():
            left = memoryview(part)
            while left:
                taken = left[: most - total % most]
                yield path, at, taken
                left, at, total = left[len(taken) :], at + len(taken), total + len(taken)


# Make records of the images of a received bundle: measure with the tool, or read what `./measure` wrote.
#
# Where the tool can't run, nobody signs. So what `./measure` writes there is a report from elsewhere,
# whatever it says about itself, and never `certified`. But it says which image, lock and challenge it is
# about, and what the machine saw outside of the image.


def measure(
    received: Path, bundle: Bundle, image: Image, engine: Engine, probe: Callable[[ProbeRequest], bytes],
    runner: Runner | None, say: Callable[[str], None],
) -> Iterator[Record]:  # fmt: skip
    """Measure an image of a bundle with each GPU model of this machine, and yield each record as it is made.

    received: the bundle's directory. probe: runs the probe in the image, which the engine has.
    """
    assert image.lock is not None, "`./measure` itself measures such an image"
    hosts = tuple(codec.convert(host, StoredHost).host_class() for host in bundle.hosts)
    archive, files = read_file(received / image.probe), {"lock.txt": read_file(received / image.lock)}
    started = now()
    found = targets(engine.outside(), hosts, by_model=True)
    for target in found:
        cell = cell_identifier(image.image, target.host_class or NO_GPU)
        challenge = image.challenges.get(cell)
        if challenge is None and len(found) == 1:
            challenge = image.challenges.get(image.image)
        gpus = target.outside.gpus if isinstance(target.outside, Outside) else ()
        say(f"{cell}: {', '.join(f'{gpu.name} ({gpu.uuid})' for gpu in gpus) or 'no GPU'}")
        if runner is not None and challenge is None:
            asked = ", ".join(image.challenges) or "nothing"
            say(f"{cell}: can't be certified: the challenges in the bundle are for {asked}")
        words = ("--challenge", challenge) if challenge else ()
        request = ProbeRequest(archive, (*image.arguments, *words), files, image.timeout_s, target.uuids)
        question = codec.convert(image.question, Question)
        question = msgspec.structs.replace(question, engine=engine.name, challenge=challenge)
        record = answer(question, partial(probe, request), target, engine, runner, hosts, started, say)
        say(f"{record.cell}: {record.verdict.value}: {record.reason}")
        yield record


class _Delivered(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line from `./measure`. question: None for somebody else's image. result: of `slurm_job.run`."""

    bundle: Literal[1]
    question: Question | None
    hosts: tuple[StoredHost, ...]
    unit: str
    result: str


def read_line(line: bytes) -> Record:
    """Read a record, or make one from what `./measure` wrote. Raises RecordError."""
    try:
        document: Any = codec.parse(line)
        if not isinstance(document, dict) or "bundle" not in document:
            return read_record(line)
        delivered = codec.convert(document, _Delivered)
        hosts = tuple(host.host_class() for host in delivered.hosts)
        came = read_result(delivered.result.encode(), delivered.unit, isolated=True)
        # The same line gives the same record, whenever it is read.
        seen = {"engine": came.engine, "image_digest": came.image_digest}
        if delivered.question is None:
            if came.report is None:
                raise ReportError(came.failure)
            record = record_of_report(read_report(came.report))
            return msgspec.structs.replace(record, **seen, finished=came.finished)
        question = msgspec.structs.replace(delivered.question, **seen, key="", origin=Origin.ELSEWHERE)
        ran = ProbeRun(
            report=came.report, failure=came.failure, outside=came.outside, host=dict,
            host_class=lambda report: host_class_of(report.host, hosts),
            unreported=targets(came.outside, hosts, by_model=False)[0].host_class,
            started=came.started, began=came.started,
        )  # fmt: skip
        record = record_of(question, ran, None, lambda _: None)
    except (DocumentError, CutError, InputError, ValueError) as error:
        raise RecordError(f"not a record: {error}") from None
    if not came.isolates:
        record = unproven_failure(record, came.engine)
    return msgspec.structs.replace(record, finished=came.finished)
