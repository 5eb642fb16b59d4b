"""The level *restricted* of the Pod Security Standards, as rules over a pod's specification.

Written after the tables in https://kubernetes.io/docs/concepts/security/pod-security-standards/ (baseline and
restricted, for Linux). Kubernetes 1.20, on which the tests run, can't enforce them itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected",
    "secret",
}  # fmt: skip
_SYSCTLS = {
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}  # fmt: skip
_SELINUX_TYPES = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
_SECCOMP = {"RuntimeDefault", "Localhost"}


def violations(spec: Json) -> list[str]:
    """Return the fields of a pod's specification that the level does not allow."""
    return [*_of_pod(spec), *(found for each in _containers(spec) for found in _of_container(each, spec))]


def _containers(spec: Json) -> Iterator[Json]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(kind) or ()


def _of_pod(spec: Json) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield f"spec.{field}"
    if spec.get("securityContext", {}).get("windowsOptions", {}).get("hostProcess"):
        yield "spec.securityContext.windowsOptions.hostProcess"
    for volume in spec.get("volumes") or ():
        kinds = volume.keys() - {"name"}
        if not kinds <= _VOLUMES:
            yield f"spec.volumes[{volume['name']}]"
    for sysctl in spec.get("securityContext", {}).get("sysctls") or ():
        if sysctl["name"] not in _SYSCTLS:
            yield f"spec.securityContext.sysctls[{sysctl['name']}]"
    yield from _of_options(spec.get("securityContext", {}), "spec.securityContext")


def _of_container(container: Json, spec: Json) -> Iterator[str]:
    own, shared = container.get("securityContext", {}), spec.get("securityContext", {})
    place = f"{container['name']}.securityContext"
    if own.get("privileged"):
        yield f"{place}.privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{place}.allowPrivilegeEscalation"
    if own.get("procMount", "Default") != "Default":
        yield f"{place}.procMount"
    capabilities = own.get("capabilities", {})
    if "ALL" not in (capabilities.get("drop") or ()):
        yield f"{place}.capabilities.drop"
    if not set(capabilities.get("add") or ()) <= {"NET_BIND_SERVICE"}:
        yield f"{place}.capabilities.add"
    # A container's own value counts before the pod's.
    if own.get("runAsNonRoot", shared.get("runAsNonRoot")) is not True:
        yield f"{place}.runAsNonRoot"
    if own.get("runAsUser", shared.get("runAsUser")) == 0:
        yield f"{place}.runAsUser"
    if own.get("seccompProfile", shared.get("seccompProfile") or {}).get("type") not in _SECCOMP:
        yield f"{place}.seccompProfile"
    for port in container.get("ports") or ():
        if port.get("hostPort"):
            yield f"{container['name']}.ports.hostPort"
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        for kind in ("httpGet", "tcpSocket"):
            if container.get(probe, {}).get(kind, {}).get("host"):
                yield f"{container['name']}.{probe}.{kind}.host"
    yield from _of_options(own, place)


def _of_options(context: Json, place: str) -> Iterator[str]:
    """Return what neither a pod nor a container may set: SELinux users and roles, or no AppArmor."""
    options = context.get("seLinuxOptions", {})
    if options.get("type", "") not in _SELINUX_TYPES or options.get("user") or options.get("role"):
        yield f"{place}.seLinuxOptions"
    if context.get("appArmorProfile", {}).get("type", "RuntimeDefault") not in _SECCOMP:
        yield f"{place}.appArmorProfile"
