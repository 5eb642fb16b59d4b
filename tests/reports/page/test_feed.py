"""Test the feed, mostly against the rules of RFC 4287."""

from __future__ import annotations

import re
import uuid
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pytest

from validator.model.record import Record, Verdict
from validator.reports.page.site import ENTRIES, ENTRY, FEED, site
from validator.reports.printable import printable

from .test_site import HOSTILE, Page, hostile
from .values import H100, IMAGES, T4, check, measured, planned, sources

ATOM, XHTML = "{http://www.w3.org/2005/Atom}", "{http://www.w3.org/1999/xhtml}"
#: Section 3.3 with the `T` and `Z` in upper case that it asks for.
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
#: The elements of sections 4.1.1 and 4.1.2 that occur here: how often each must and may occur.
FEED_ELEMENTS = {
    "author": (1, 99), "generator": (0, 1), "id": (1, 1), "link": (1, 99), "title": (1, 1), "updated": (1, 1),
    "entry": (0, ENTRIES),
}  # fmt: skip
ENTRY_ELEMENTS = {"id": (1, 1), "title": (1, 1), "updated": (1, 1), "link": (1, 99), "content": (0, 1)}

WAS_GOOD = measured(IMAGES[0], H100, Verdict.CERTIFIED, 1)
IS_BAD = measured(
    IMAGES[0],
    H100,
    Verdict.FAILED,
    2,
    reason="the GPU has gone",
    lock_digest="sha256:02",
    checks=[check("driver"), check("gpu_compute", "fail")],
)
OTHER = measured(IMAGES[1], T4, Verdict.UNPROVEN, 3)
RECORDS = [WAS_GOOD, IS_BAD, OTHER]


def feed(*records: Record, **changes: Any) -> ElementTree.Element:
    return ElementTree.fromstring(dict(site(sources(records, **changes)))[FEED])


def text(element: ElementTree.Element, name: str) -> str:
    return element.findtext(f"{ATOM}{name}") or ""


def entries(element: ElementTree.Element) -> list[ElementTree.Element]:
    return element.findall(f"{ATOM}entry")


def broken_rules(root: ElementTree.Element) -> list[str]:
    """Return the rules of RFC 4287 that a feed breaks."""
    broken = [] if root.tag == f"{ATOM}feed" else ["the root is atom:feed"]
    for element, known in ((root, FEED_ELEMENTS), *((entry, ENTRY_ELEMENTS) for entry in entries(root))):
        names = [child.tag.removeprefix(ATOM) for child in element]
        broken += [f"{name} is not an element of it" for name in names if name not in known]
        broken += [
            f"{names.count(name)} {name}"
            for name, (least, most) in known.items()
            if not least <= names.count(name) <= most
        ]
        # 4.2.6: an absolute IRI.
        broken += [] if urlsplit(text(element, "id")).scheme else ["an id is not an absolute IRI"]
        # 3.3
        broken += [] if RFC3339.fullmatch(text(element, "updated")) else ["updated is no RFC 3339 time"]
        # 3.1.1: a text construct without a type has no child elements.
        broken += [] if not list(element.find(f"{ATOM}title") or []) else ["a title has markup"]
        links = element.findall(f"{ATOM}link")
        broken += [] if all("href" in link.attrib for link in links) else ["a link without href"]
        # 4.1.1 and 4.1.2: one alternate of a type and language.
        alternates = [
            (link.get("type"), link.get("hreflang")) for link in links if link.get("rel") == "alternate"
        ]
        broken += [] if len(alternates) == len(set(alternates)) == 1 else ["not one alternate link"]
        content = element.find(f"{ATOM}content")
        # 4.1.3.3: the content of type xhtml is a single div.
        if content is not None and (content.get("type"), [child.tag for child in content]) != (
            "xhtml",
            [f"{XHTML}div"],
        ):
            broken.append("content is not one xhtml div")
    identifiers = [text(element, "id") for element in (root, *entries(root))]
    broken += [] if len(identifiers) == len(set(identifiers)) else ["an id occurs twice"]
    return broken


@pytest.mark.parametrize("records", [[], RECORDS, [hostile()]], ids=["empty", "usual", "hostile"])
def test_it_follows_the_rules_of_atom(records: list[Record]) -> None:
    assert broken_rules(feed(*records)) == []


@pytest.mark.parametrize(
    ("pattern", "instead", "rule"),
    [
        (r"<id>urn:uuid:", "<id>", "an id is not an absolute IRI"),
        (r"<updated>(\S+)T(\S+)Z", r"<updated>\1 \2", "updated is no RFC 3339 time"),
        (r"<author>.*</author>", "", "0 author"),
        (r"<entry>\n<id>.*</id>", "<entry>", "0 id"),
        (r"<title>", "<subtitle>x</subtitle><title>", "subtitle is not an element of it"),
        (r'type="xhtml"', 'type="text"', "content is not one xhtml div"),
    ],
)
def test_the_rules_find_faults(pattern: str, instead: str, rule: str) -> None:
    content = dict(site(sources(RECORDS)))[FEED].decode()
    changed = re.sub(pattern, instead, content)
    assert changed != content
    assert rule in broken_rules(ElementTree.fromstring(changed))


def test_an_entry_says_what_changed_and_leads_to_the_page() -> None:
    [other, bad, good] = entries(feed(*RECORDS))
    assert text(bad, "title") == (
        "certified, now failed: TensorFlow 2.21.0, CUDA 12.5, cuDNN 9.3, Python 3.11"
        " on NVIDIA H100, driver 580"
    )
    assert text(good, "title").startswith("certified: ")
    assert text(other, "title").endswith("on NVIDIA T4, driver 535")
    lines = [line.text for line in bad.iter(f"{XHTML}p")]
    assert lines[0] == "the GPU has gone"
    assert "check gpu_compute: pass -> fail" in lines
    assert any(line and line.startswith("lock: ") and line.endswith("sha256:02") for line in lines)
    [link] = bad.findall(f"{ATOM}link")
    assert unquote(link.get("href") or "") == f"{ENTRY}#cell={IS_BAD.cell}"


def test_ids_stay_the_same_when_records_are_added() -> None:
    before, after = feed(*RECORDS[:2]), feed(*RECORDS, profile="nightly")
    assert text(before, "id") == text(after, "id") != text(feed(profile="full"), "id")
    assert [text(entry, "id") for entry in entries(after)][1:] == [
        text(entry, "id") for entry in entries(before)
    ]
    assert all(
        uuid.UUID(text(entry, "id").removeprefix("urn:uuid:")).version == 5 for entry in entries(after)
    )


def test_an_unchanged_result_is_no_news() -> None:
    again = measured(IMAGES[0], H100, Verdict.FAILED, 4, reason="still gone")
    assert len(entries(feed(WAS_GOOD, IS_BAD, again))) == 2
    assert text(feed(WAS_GOOD, IS_BAD, again), "updated") == text(feed(WAS_GOOD, IS_BAD), "updated")


def test_it_has_the_newest_entries_only() -> None:
    verdicts = [Verdict.UNPROVEN, Verdict.FAILED] * ENTRIES
    found = feed(*(measured(IMAGES[0], H100, verdict, number) for number, verdict in enumerate(verdicts)))
    assert len(entries(found)) == ENTRIES
    times = [text(entry, "updated") for entry in entries(found)]
    assert times == sorted(times, reverse=True)
    assert text(found, "updated") == times[0]


def test_text_from_records_stays_text() -> None:
    worse = measured(IMAGES[0], H100, Verdict.BROKEN, 9, reason=HOSTILE + "\uffff]]>")
    root = feed(hostile(), worse)
    allowed = {f"{XHTML}div", f"{XHTML}p"}
    assert {element.tag for element in root.iter() if not element.tag.startswith(ATOM)} == allowed
    assert any((line.text or "").startswith(printable(HOSTILE)[:60]) for line in root.iter(f"{XHTML}p"))


def test_paths_and_names_of_people_are_left_out() -> None:
    old = measured(IMAGES[0], H100, Verdict.CERTIFIED, 1)
    new = measured(IMAGES[0], H100, Verdict.FAILED, 2, reason="can't read /home/maria/lib/libcudnn.so.9")
    [line, *_] = [line.text for line in entries(feed(old, new))[0].iter(f"{XHTML}p")]
    assert line is not None
    assert "maria" not in line and "libcudnn.so.9" in line


def test_the_page_names_the_feed() -> None:
    page = Page(dict(site(sources(cells=planned())))[ENTRY].decode())
    [link] = [attributes for tag, attributes in page.tags if attributes.get("href") == FEED and tag == "link"]
    assert (link["rel"], link["type"]) == ("alternate", "application/atom+xml")
