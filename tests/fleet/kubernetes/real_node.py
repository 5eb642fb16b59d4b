"""The real node of a cluster for tests: kubelet, containerd and runc in mount and process namespaces of their
own.

With its first process, everything of the node ends, its pods too, and no mount stays on the machine. It needs
root. Images are pulled from a registry on 127.0.0.1, without TLS.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cluster import Cluster

NAME = "127.0.0.1"
PAUSE = "docker.io/local/pause:1"
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class RealNode:
    """The node in a cluster's directory. port: of the kubelet. labels: as the GPU operator sets them."""

    directory: Path
    built: Path
    port: int
    labels: Mapping[str, str]

    @property
    def command(self) -> list[str]:
        return [
            "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash",
            str(Path(__file__).with_name("real_node.sh")), str(self.directory),
            ",".join(f"{key}={value}" for key, value in self.labels.items()),
        ]  # fmt: skip

    def prepare(self) -> None:
        """Write the configuration and the image of the pause container, and make the control groups."""
        node, etc, pki = self.directory / "node", self.directory / "etc", self.directory / "pki"
        for name in ("root", "run", "lib", "state", "logs", "sysctl", "cni", "cni-state", "ipam"):
            (node / name).mkdir(parents=True, exist_ok=True)
        (node / "containerd.sock").unlink(missing_ok=True)
        (etc / "containerd.toml").write_text(f"""
version = 2
root = "{node}/lib"
state = "{node}/state"
[grpc]
  address = "{node}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{node}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  netns_mounts_under_state_dir = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{self.built}/cni"
    conf_dir = "{node}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
""")
        # Every pod has an address of its own, and no way out of the machine.
        ranges = [[{"subnet": "10.244.7.0/24"}]]
        ipam = {"type": "host-local", "dataDir": f"{node}/ipam", "ranges": ranges}
        network = {"type": "ptp", "ipMasq": False, "ipam": ipam}
        content = {"cniVersion": "0.4.0", "name": "pods", "plugins": [network]}
        (node / "cni" / "10-pods.conflist").write_text(json.dumps(content))
        kubelet = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": self.port,
            "healthzPort": 0,
            "readOnlyPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": f"{pki}/ca.crt"},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "tlsCertFile": f"{pki}/server.crt",
            "tlsPrivateKeyFile": f"{pki}/server.key",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{_group(self.directory)}",
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "protectKernelDefaults": True,
            "resolvConf": "",
            # Nobody answers there, but without one, every pod gets a warning.
            "clusterDNS": ["10.96.0.10"],
            "nodeStatusUpdateFrequency": "3s",
            "nodeLeaseDurationSeconds": 12,
            # The disk is the machine's own: it counts only when it is full.
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "featureGates": {"DevicePlugins": False},
        }
        (etc / "kubelet.json").write_text(json.dumps(kubelet))
        for path in _CGROUPS.glob("*/tasks"):
            (path.parent / _group(self.directory)).mkdir(exist_ok=True)
        if (_CGROUPS / "cgroup.controllers").exists():
            (_CGROUPS / _group(self.directory)).mkdir(exist_ok=True)
        self._write_pause(node / "pause.tar")

    def is_registered(self, cluster: Cluster) -> bool:
        """Return True once the kubelet has registered, with its GPU: a number, which no device plugin
        backs.
        """
        found = {item["metadata"]["name"]: item for item in cluster.api("GET", "/api/v1/nodes")["items"]}
        if NAME not in found:
            return False
        if found[NAME]["status"].get("allocatable", {}).get("nvidia.com/gpu") == "1":
            return True
        cluster.patch(f"/api/v1/nodes/{NAME}/status", {"status": {"capacity": {"nvidia.com/gpu": "1"}}})
        return False

    def _write_pause(self, path: Path) -> None:
        """Write an OCI archive of the container that holds a pod's network: busybox, which sleeps."""
        root = path.parent / "pause"
        (root / "bin").mkdir(parents=True, exist_ok=True)
        (root / "bin" / "busybox").write_bytes((self.built / "rootfs/bin/busybox").read_bytes())
        (root / "bin" / "busybox").chmod(0o755)
        layer = path.with_suffix(".layer")
        with tarfile.open(layer, "w") as archive:
            archive.add(root / "bin", "bin")
        oci = path.with_suffix("")
        blobs = path.parent / "pause-oci" / "blobs" / "sha256"
        blobs.mkdir(parents=True, exist_ok=True)
        oci = blobs.parent.parent

        def blob(content: bytes, kind: str) -> dict[str, object]:
            digest = hashlib.sha256(content).hexdigest()
            (blobs / digest).write_bytes(content)
            return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

        image = "application/vnd.oci.image"
        packed = blob(layer.read_bytes(), f"{image}.layer.v1.tar")
        config = {
            "architecture": "amd64", "os": "linux",
            "config": {"Cmd": ["/bin/busybox", "tail", "-f", "/dev/null"], "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [packed["digest"]]},
        }  # fmt: skip
        configured = blob(json.dumps(config).encode(), f"{image}.config.v1+json")
        manifest = {"schemaVersion": 2, "mediaType": f"{image}.manifest.v1+json", "config": configured,
                    "layers": [packed]}  # fmt: skip
        entry = blob(json.dumps(manifest).encode(), f"{image}.manifest.v1+json")
        named = {**entry, "annotations": {"io.containerd.image.name": PAUSE}}
        (oci / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [named]}))
        (oci / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        with tarfile.open(path, "w") as archive:
            archive.add(oci, ".")


def remove_control_groups(directory: Path) -> None:
    """Wait until the node's processes have ended, and remove its control groups."""
    deadline = time.monotonic() + 15
    for group in [*_CGROUPS.glob(f"*/{_group(directory)}"), _CGROUPS / _group(directory)]:
        while group.is_dir():
            for place, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(place)
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes of the real node do not end: see {group}")
            time.sleep(0.05)


def _group(directory: Path) -> str:
    return "tests-kubernetes-" + hashlib.sha256(str(directory).encode()).hexdigest()[:8]
