"""The ways to measure an image of a bundle where nothing can be fetched, each a runner of `slurm_job`."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

from ..fleet import slurm_job
from ..fleet.slurm_job import PLACE, Failed
from .root import BASIC_DEVICES

_NAME = "tensorflow-gpu-matrix"
#: The driver's libraries that CUDA and NVML need, and where distributions put them.
_LIBRARIES = (
    "libcuda.so", "libcudadebugger.so", "libnvidia-ml.so", "libnvidia-cfg.so", "libnvidia-ptxjitcompiler.so",
    "libnvidia-nvvm", "libnvidia-gpucomp.so", "libnvidia-fatbinaryloader.so", "libnvidia-pkcs11",
)  # fmt: skip
_LIBRARY_PLACES = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
)  # fmt: skip
_DEVICES = ("/dev/nvidia*", "/dev/nvidia-caps/*")
#: Seconds that the probe gets to end by itself after its limit.
_SPARE_S = 60.0


def blob_of(job: slurm_job.Job, digest: str) -> Path:
    """Return the path of a blob of the OCI layout. Raises Failed if it is not a digest."""
    if not re.fullmatch("sha256:[0-9a-f]{64}", digest):
        raise Failed("not_started", f"the image names a part of itself {digest!r}, which is not a digest")
    return Path(job.request["images"], "blobs", *digest.split(":"))


def read(job: slurm_job.Job, digest: str) -> dict[str, Any]:
    """Return a document of the OCI layout. Raises Failed if it is damaged."""
    content = blob_of(job, digest).read_bytes()
    if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
        raise Failed("not_started", f"{blob_of(job, digest)} is damaged: receive the bundle again")
    document: dict[str, Any] = json.loads(content)
    return document


def probe_begins(job: slurm_job.Job) -> None:
    """Count the time from here, after the image has arrived."""
    job.deadline = time.monotonic() + float(job.request["timeout_s"]) + _SPARE_S


def ends_with_this(job: slurm_job.Job, command: list[str]) -> list[str]:
    """Return a command that ends with this process, before a client starts a container."""
    return [sys.executable, "-I", "-B", str(job.tools / "root.py"), "start", *command]


class _Engine(slurm_job.Docker):
    """Docker or Podman by its command line, with the image from the bundle."""

    def prepare(self) -> None:
        digest = str(self.job.request["digest"])
        manifest = read(self.job, digest)
        name = f"{_NAME}:{self.job.request['tag']}"
        self._load(digest, manifest, name)
        found = slurm_job.output_of([self.name, "image", "inspect", "--format", "{{.Id}}", name]).strip()
        # The id is the digest of the manifest with containerd's image store, otherwise of the configuration.
        if f"sha256:{found.removeprefix('sha256:')}" not in (digest, manifest["config"]["digest"]):
            raise Failed("image_missing", f"{self.name} has another image under the name {name}: {found}")
        self.reference, self.digest = found, digest
        probe_begins(self.job)

    def command(self) -> list[str]:
        return ends_with_this(self.job, super().command())

    def _load(self, digest: str, manifest: dict[str, Any], name: str) -> None:
        """Send the image as an archive of its part of the layout."""
        blobs = [manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]
        paths = [str(blob_of(self.job, blob).relative_to(self.job.request["images"])) for blob in blobs]
        size = blob_of(self.job, digest).stat().st_size
        names = {
            "io.containerd.image.name": f"docker.io/library/{name}",
            "org.opencontainers.image.ref.name": name.partition(":")[2],
        }
        entry = {"mediaType": manifest["mediaType"], "digest": digest, "size": size, "annotations": names}
        documents = {
            "oci-layout": {"imageLayoutVersion": "1.0.0"},
            "index.json": {"schemaVersion": 2, "manifests": [entry]},
            "manifest.json": [{"Config": paths[0], "RepoTags": [name], "Layers": paths[1:]}],
        }
        with open(self.job.work / "load", "w+b") as said:
            # If the engine ends early, its message says why.
            with (
                contextlib.suppress(BrokenPipeError),
                subprocess.Popen(
                    [self.name, "load"], stdin=subprocess.PIPE, stdout=said, stderr=said
                ) as loading,
                tarfile.open(fileobj=loading.stdin, mode="w|") as archive,
            ):
                for path in dict.fromkeys((f"blobs/{digest.replace(':', '/')}", *paths)):
                    archive.add(Path(self.job.request["images"], path), path)
                for path, document in documents.items():
                    content = json.dumps(document).encode()
                    info = tarfile.TarInfo(path)
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))
            said.seek(0)
            text = said.read().decode("utf-8", "replace")
        if loading.returncode:
            code = "disk_full" if slurm_job.says(text, ("no space left on device",)) else "pull_failed"
            raise Failed(code, f"{self.name} can't load the image: {slurm_job.last_line(text)}")

    def _devices(self) -> list[str]:
        if not self.gpus:
            return []
        if self.name == "docker" and '"nvidia"' in slurm_job.output_of(
            ["docker", "info", "--format", "{{json .Runtimes}}"]
        ):
            return ["--gpus=all"]
        return ["--device=nvidia.com/gpu=all"]


class Docker(_Engine):
    def _own(self) -> list[str]:
        # The image's own user, as on line.
        return []


class Podman(_Engine, slurm_job.Podman):
    name = "podman"


class Apptainer(slurm_job.Apptainer):
    def prepare(self) -> None:
        request = self.job.request
        read(self.job, request["digest"])
        self._file = self.job.work / "image.sif"
        self.pull([self.name, "build", str(self._file), f"oci:{request['images']}:{request['tag']}"])
        self.digest = request["digest"]
        probe_begins(self.job)

    def command(self) -> list[str]:
        return ends_with_this(self.job, super().command())


class Namespace(slurm_job.Runner):
    """The image's own file system, in namespaces of its own."""

    name = "namespace"

    def prepare(self) -> None:
        digest = self.job.request["digest"]
        manifest = read(self.job, digest)
        config = read(self.job, manifest["config"]["digest"]).get("config") or {}
        variables = dict(one.split("=", 1) for one in config.get("Env") or () if "=" in one)
        devices = [f"/dev/{name}" for name in BASIC_DEVICES]
        devices += [path for pattern in _DEVICES for path in sorted(glob.glob(pattern))]
        request = {
            "way": self.name,
            "layers": [
                (str(blob_of(self.job, layer["digest"])), layer["digest"], layer["mediaType"])
                for layer in manifest["layers"]
            ],
            "files": {f"{PLACE}/{path.name}": str(path) for path in self.job.payload.iterdir()},
            "libraries": driver_libraries(),
            "devices": [path for path in devices if Path(path).is_char_device()],
            "user": self.job.request["user"],
            "environment": {**variables, "HOME": "/tmp"},
            "command": ["python3", *self.job.inside(PLACE)],
        }
        self._request = self.job.work / "request.json"
        self._request.write_text(json.dumps(request), encoding="utf-8")
        self.pull(self._script("make"))
        self.digest = digest
        probe_begins(self.job)

    def _script(self, verb: str) -> list[str]:
        script = str(self.job.tools / "root.py")
        return [sys.executable, "-I", "-B", script, verb, str(self.job.work / "root"), str(self._request)]

    def command(self) -> list[str]:
        return self._script("run")


class Chroot(Namespace):
    """Like Namespace, but for root on kernels without namespaces: only the host's files are hidden."""

    name = "chroot"
    isolates = False


def driver_libraries() -> dict[str, str]:
    """Return the path of each file of the driver that programs with CUDA open, by its name."""
    found: dict[str, str] = {}
    for place in _LIBRARY_PLACES:
        for prefix in _LIBRARIES:
            for path in sorted(glob.glob(f"{place}/{prefix}*")):
                if os.path.isfile(path):
                    found.setdefault(os.path.basename(path), path)
    return found


WAYS = {way.name: way for way in (Docker, Podman, Apptainer, Namespace, Chroot)}


def why_not(name: str, script: Path) -> str:
    """Return why this machine can't measure in a way; empty if it can. script: `root.py`."""
    if name == "chroot":
        return "" if os.geteuid() == 0 else "it needs root"
    if name == "namespace":
        done = subprocess.run([sys.executable, "-I", "-B", script, "try"], capture_output=True, text=True)
        why = f"namespaces can't be created on this machine: {done.stderr.strip()}"
        return "" if done.returncode == 0 else why
    if shutil.which(name) is None:
        return "it is not installed"
    return "" if slurm_job.succeeds([name, "version"]) else "it does not answer"
