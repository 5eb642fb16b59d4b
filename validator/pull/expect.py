"""What the compatibility facts say of an image on a host with one or several kinds of GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..compat import policies
from ..compat.predict import predict
from ..compat.releases import Release
from ..compat.releases import release as find_release
from ..model.certificate import Certificate
from ..model.prediction import Outcome
from ..model.spec import AS_BUILT, Cell, ImageSpec, Variant
from .choose import Expected, Offer
from .host import Host

_WORST_FIRST = (Outcome.FAILS, Outcome.UNKNOWN, Outcome.WORKS)


def expected(offer: Offer, certificates: Sequence[Certificate], host: Host) -> Expected:
    """The worst that is predicted for any kind of GPU of the host.

    certificates: of the image; what `latest` was when it was built stands in them.
    """
    try:
        spec = _spec(offer)
        wheels = _wheels(certificates) if offer.floats else None
        predictions = [predict(Cell(spec, one), wheels) for one in host.classes]
    except ValueError as error:
        return Expected(Outcome.UNKNOWN, f"the facts don't know this image: {error}")
    worst = min(predictions, key=lambda prediction: _WORST_FIRST.index(prediction.outcome))
    return Expected(worst.outcome, worst.reasons[0].text)


def _spec(offer: Offer) -> ImageSpec:
    """Raises ValueError for releases and versions that the facts don't have."""
    if offer.cuda is None or offer.cudnn is None:
        return ImageSpec(offer.tensorflow, offer.python, Variant.CPU, base=offer.base)
    release = find_release(offer.tensorflow)
    cuda, cudnn = policies.choose(
        release,
        _policy(offer.cuda, release, policies.CUDA),
        _policy(offer.cudnn, release, policies.CUDNN),
        within_metadata=False,
    )
    return ImageSpec(offer.tensorflow, offer.python, Variant.GPU, cuda, cudnn, offer.base)


def _policy(label: str, release: Release, axis: str) -> str:
    built = release.cuda if axis == policies.CUDA else release.cudnn
    return AS_BUILT if label == built else label


def _wheels(certificates: Sequence[Certificate]) -> Mapping[str, str] | None:
    """As far as a certificate tells what is in the image."""
    if not certificates:
        return None
    return {"nvidia-cuda-runtime": certificates[0].cuda, "nvidia-cudnn": certificates[0].cudnn}
