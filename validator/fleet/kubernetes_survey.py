"""Find the kinds of nodes of a Kubernetes cluster, by the labels of GPU Feature Discovery."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..versions import major
from .kubernetes_client import Api
from .kubernetes_nodes import GPU_VENDOR, Node, read_node, taints_to_tolerate, terms_of
from .proposal import NodeKind, Seen
from .settings import FleetSettings


def open_surveyor(settings: FleetSettings) -> KubernetesSurveyor:
    """Return the surveyor. Raises MissingError without access to a cluster."""
    chosen = settings.kubernetes
    return KubernetesSurveyor(Api(chosen.context, chosen.namespace))


class KubernetesSurveyor:
    """The cluster of the kubeconfig."""

    section = "kubernetes"

    def __init__(self, api: Api) -> None:
        self._api = api
        self.keys: Mapping[str, tuple[str, str]] = {
            "namespace": (api.namespace, "CHECK: `fleet manifests` prints the permissions that it needs."),
        }

    def survey(self) -> list[NodeKind]:
        return kinds_of(read_node(item) for item in self._api.nodes())

    def ask(self, kind: NodeKind) -> Seen | None:
        """Return None: a pod needs an image, and no image is on every cluster. Labels are what there is."""
        return None


def kinds_of(nodes: Iterable[Node]) -> list[NodeKind]:
    """Return the kinds of nodes: those with the same driver branch, GPU and taints are one."""
    kinds: dict[tuple[str, str, bool, str], list[Node]] = {}
    for node in nodes:
        has_gpu = any(node.gpus(name) for name in node.allocatable if name.startswith(f"{GPU_VENDOR}/"))
        driver, model = (major(node.driver or ""), node.model or "") if has_gpu else ("", "")
        kinds.setdefault((driver, model, has_gpu, str(taints_to_tolerate(node))), []).append(node)
    return [
        NodeKind(len(alike), min(node.name for node in alike), driver, model, has_gpu, _place(alike))
        for (driver, model, has_gpu, _), alike in sorted(kinds.items())
    ]


def _place(alike: Sequence[Node]) -> dict[str, object]:
    """Return the keys by which a pod gets one of these nodes, as far as the defaults don't do it."""
    place: dict[str, object] = {}
    classes = alike[0].host_classes()
    terms = terms_of(classes[0], alike) if classes else ()
    if len(terms) == 1:
        place["node_selector"] = dict(terms[0])
    if taints := taints_to_tolerate(alike[0]):
        place["tolerations"] = taints
    return place
