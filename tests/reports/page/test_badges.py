from __future__ import annotations

from xml.etree import ElementTree

import pytest

from validator.model.record import Record, Verdict
from validator.model.spec import ImageSpec, Variant
from validator.reports.overview import overview
from validator.reports.page.site import MARK, Badge, badges, site

from .values import H100, IMAGES, NO_GPU, T4, measured, planned, sources

SVG = "{http://www.w3.org/2000/svg}"


def badge(name: str, *records: Record) -> Badge:
    return next(badge for badge in badges(sources(records).rows) if badge.name == name)


@pytest.mark.parametrize(
    ("records", "message", "tone"),
    [
        ([], "certified on 0 of 2 host classes", "plain"),
        ([(0, H100, Verdict.UNPROVEN)], "certified on 0 of 2 host classes", "plain"),
        ([(0, H100, Verdict.CERTIFIED)], "certified on 1 of 2 host classes", "good"),
        (
            [(0, H100, Verdict.CERTIFIED), (1, H100, Verdict.FAILED)],
            "certified on 1 of 2 host classes",
            "good",
        ),
        (
            [(0, H100, Verdict.CERTIFIED), (0, T4, Verdict.FAILED)],
            "certified on 1 of 2 host classes, failed on 1",
            "mixed",
        ),
        ([(0, T4, Verdict.BROKEN)], "certified on 0 of 2 host classes, failed on 1", "bad"),
    ],
)
def test_a_badge_counts_host_classes(
    records: list[tuple[int, object, Verdict]], message: str, tone: str
) -> None:
    found = badge("2.21", *(measured(IMAGES[image], host, verdict) for image, host, verdict in records))  # type: ignore[arg-type]
    assert (found.label, found.message, found.tone) == ("TensorFlow 2.21", message, tone)


def test_cells_that_are_not_planned_do_not_count() -> None:
    assert badge("2.21", measured(IMAGES[0], "r999-strange", Verdict.CERTIFIED)).message.startswith(
        "certified on 0"
    )


def test_each_minor_release_and_each_image_has_a_badge() -> None:
    names = [found.name for found in badges(sources().rows)]
    assert names == ["2.21", "2.20", "2.18", *(image.identifier for image in IMAGES)]


def test_an_image_without_cuda_has_no_badge() -> None:
    assert list(badges(overview(planned([ImageSpec("2.21.0", "3.12", Variant.CPU)], [NO_GPU]), {}))) == []


def test_the_drawing_is_xml_with_the_whole_text_as_its_title() -> None:
    files = dict(site(sources([measured(IMAGES[0], H100, Verdict.CERTIFIED)])))
    drawings = {name: content for name, content in files.items() if name.startswith("badges/")}
    assert len(drawings) == 3 + len(IMAGES)
    for content in drawings.values():
        assert MARK.encode() in content
        root = ElementTree.fromstring(content)
        title = root.findtext(f"{SVG}title")
        assert title == root.get("aria-label")
        assert root.get("role") == "img"
        texts = [text.text for text in root.iter(f"{SVG}text")]
        assert title == ": ".join(text or "" for text in texts)
        boxes = [float(box.get("width", "0")) for box in root.iter(f"{SVG}rect") if box.get("fill")]
        assert sum(boxes) == float(root.get("width", "0"))
        lengths = [float(text.get("textLength", "0")) for text in root.iter(f"{SVG}text")]
        assert all(0 < length < box for length, box in zip(lengths, boxes, strict=True))
    assert "TensorFlow 2.21: certified on 1 of 2 host classes" in drawings["badges/2.21.svg"].decode()
