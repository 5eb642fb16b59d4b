"""Test the files of the page without a browser. tests/integration/page uses one."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from validator.model.prediction import Outcome
from validator.model.record import Layer, Record, Verdict
from validator.reports.overview import markdown
from validator.reports.page.site import ENTRY, MARK, site
from validator.reports.printable import clean, script_json

from ...certify.fixtures import LIMIT, limited_check
from ...support import said
from .values import H100, IMAGES, T4, certificate, check, diagnosis, measured, planned, sources, speedup

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'`--><!--"
    "\u202egnp.exe\x1b[31m\x00\ud800\u2028&lt;"
)
#: The name of a field has to be text.
HOSTILE_NAME = HOSTILE.replace("\ud800", "")


class Page(HTMLParser):
    """Collect start tags with their attributes, scripts and text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.content: dict[str, list[str]] = {"script": [], "style": []}
        self.text = ""
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in self.content:
            self.content[self._inside].append(data)
        else:
            self.text += data


def index(*records: Record, **changes: Any) -> str:
    return dict(site(sources(records, **changes)))[ENTRY].decode()


def detail_of(content: bytes) -> dict[str, Any]:
    """Return the argument of the page's function."""
    call = re.fullmatch(rb"// [^\n]*\ncellDetail\((\"[0-9a-f]{20}\"), (\".*\")\);\n", content)
    assert call
    found: dict[str, Any] = json.loads(json.loads(call[2]))
    return found


def hostile() -> Record:
    return measured(
        IMAGES[0],
        H100,
        Verdict.FAILED,
        reason=HOSTILE,
        base=HOSTILE,
        engine=HOSTILE,
        image_digest=HOSTILE,
        host={"driver": HOSTILE, "gpus": [{"name": HOSTILE}], "os": HOSTILE},
        versions={HOSTILE: HOSTILE},
        checks=[
            {
                "id": HOSTILE,
                "outcome": "fail",
                **said(HOSTILE, "fail"),
                "required": True,
                "evidence": {HOSTILE_NAME: [HOSTILE, {"__proto__": HOSTILE}], "nan": float("nan")},
                "duration_s": 1,
            }
        ],
    )


def test_the_entry_comes_last_and_each_measured_cell_has_a_file() -> None:
    names = [name for name, _ in site(sources([measured(IMAGES[0], H100, Verdict.CERTIFIED)]))]
    assert names[-1] == ENTRY
    assert sum(name.startswith("data/") for name in names) == 1
    assert "table.md" in names


def test_every_file_has_the_mark() -> None:
    assert all(MARK.encode() in content[:256] for _, content in site(sources([hostile()])))


def test_the_same_records_give_the_same_bytes() -> None:
    records = [measured(IMAGES[0], H100, Verdict.CERTIFIED, checks=[speedup()]), hostile()]
    assert list(site(sources(records))) == list(site(sources(records)))


def test_the_markdown_file_is_the_markdown_report() -> None:
    made = sources([measured(IMAGES[0], H100, Verdict.CERTIFIED)])
    table = dict(site(made))["table.md"].decode()
    assert table.endswith(markdown(made.rows, "TensorFlow on GPUs: profile nightly"))


def test_a_file_has_the_checks_causes_and_history() -> None:
    records = [
        measured(IMAGES[0], H100, Verdict.CERTIFIED, 1),
        measured(IMAGES[0], H100, Verdict.FAILED, 2, layers=(Layer("sha256:1", 5),)),
    ]
    [content] = [content for name, content in site(sources(records)) if name.startswith("data/")]
    found = detail_of(content)
    assert [check["id"] for check in found["checks"]] == ["driver", "gpu_compute"]
    assert found["causes"][0]["title"] == "A cause."
    assert found["causes"][0]["remedies"][0] == {
        "way": "on the machine",
        "says": "Mend it so.",
        "commands": ["mend it"],
        "interrupts": "",
    }
    assert [(past["verdict"], past["changed"]) for past in found["history"]] == [
        ("failed", ["image"]),
        ("certified", []),
    ]
    assert found["layers"] == [{"digest": "sha256:1", "size": 5}]
    assert found["certificates"] == []


def test_a_certificate_is_shown_only_for_its_image_and_host_class() -> None:
    found = measured(IMAGES[0], H100, Verdict.CERTIFIED)
    elsewhere = certificate(found, host_class="r535-t4", signer="of another machine")
    other = certificate(found, image_digest="sha256:other", signer="of another image")
    made = sources(
        [found],
        certificates={found.image_digest: [certificate(found), elsewhere], "sha256:other": [other]},
    )
    [content] = [content for name, content in site(made) if name.startswith("data/")]
    assert [
        (each["signer"], each["driver"], each["gpus"], each["fixture"])
        for each in detail_of(content)["certificates"]
    ] == [("a key of the tests", "580.65.06", ["NVIDIA H100 PCIe (9.0)"], True)]


def test_nothing_in_a_record_becomes_markup() -> None:
    made = sources([hostile()], planned(text=HOSTILE))
    harmless = sources([measured(IMAGES[0], H100, Verdict.FAILED)], planned(text="nothing"))
    pages = [Page(dict(site(each))[ENTRY].decode()) for each in (made, harmless)]
    assert [tag for tag, _ in pages[0].tags] == [tag for tag, _ in pages[1].tags]
    names = [[sorted(attributes) for _, attributes in page.tags] for page in pages]
    assert names[0] == names[1]
    assert len(pages[0].content["script"]) == 2
    assert json.loads(pages[0].content["script"][0])["reasons"][0][1] == clean(HOSTILE)
    # What would turn the direction of writing, or a terminal's colours, is written out.
    assert "\\u202egnp.exe\\x1b[31m\\x00\\ud800\\u2028" in pages[0].text
    files = dict(site(made))
    assert all(not re.search("[\x00-\x08\x0e-\x1f\u202e\u2028]", text.decode()) for text in files.values())


def test_no_file_has_the_uuid_of_a_gpu() -> None:
    uuid = "GPU-1b2c3d4e-aaaa-bbbb-cccc-1234567890ab"
    text = f"device {uuid} and MIG-{uuid}/7/0 failed"
    record = measured(
        IMAGES[0], H100, Verdict.FAILED, reason=text,
        host={"driver": "580.65.06", "gpus": [{"name": f"NVIDIA H100 {uuid}", "uuid": uuid}]},
        checks=[{**check("driver", "fail", {"cuda": {"gpus": [{"uuid": uuid}]}}), **said(text, "fail")}],
    )  # fmt: skip
    files = dict(site(sources([record], diagnose=lambda record: diagnosis(text))))
    written = b"".join(files.values()).decode()
    assert written.count("(GPU UUID)") >= 5
    assert uuid not in written and uuid[4:12] not in written


def test_text_cannot_break_out_of_a_file() -> None:
    [content] = [content for name, content in site(sources([hostile()])) if name.startswith("data/")]
    found = detail_of(content)
    assert not set(b"<>&") & set(content)
    assert found["record"]["reason"] == clean(HOSTILE)
    assert found["checks"][0]["evidence"]["nan"] == "nan"
    assert found["checks"][0]["evidence"][clean(HOSTILE_NAME)][1] == {"__proto__": clean(HOSTILE)}


def test_the_policy_allows_only_these_scripts_and_no_network() -> None:
    page = Page(index())
    policy = next(
        attributes["content"] or ""
        for tag, attributes in page.tags
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    directives = dict(directive.strip().split(" ", 1) for directive in policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert directives["base-uri"] == directives["form-action"] == "'none'"
    assert "unsafe" not in policy
    assert "http" not in policy
    for name, text in (("script-src", page.content["script"][1]), ("style-src", page.content["style"][0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in directives[name]


def test_the_page_loads_nothing_from_other_sites() -> None:
    for tag, attributes in Page(index(measured(IMAGES[0], H100, Verdict.CERTIFIED, checks=[speedup()]))).tags:
        for name in ("src", "href", "action", "srcset", "data"):
            value = attributes.get(name) or ""
            assert value.startswith(("#", "data:image/svg+xml,", "table.md", "feed.xml")) or not value, (
                tag,
                value,
            )
        assert "style" not in attributes
        assert not any(name.startswith("on") for name in attributes)


def test_the_table_is_complete_without_a_script() -> None:
    page = Page(index(measured(IMAGES[0], H100, Verdict.CERTIFIED)))
    assert page.text.count("works") > 6
    assert "certified 1/2" in page.text
    assert "NVIDIA H100" in page.text and "driver 580" in page.text


def test_failed_and_changed_cells_are_listed() -> None:
    page = index(
        measured(IMAGES[0], H100, Verdict.CERTIFIED, 1),
        measured(IMAGES[0], H100, Verdict.FAILED, 2, reason="the GPU has gone", lock_digest="sha256:02"),
        measured(IMAGES[1], H100, Verdict.CERTIFIED, 3),
    )
    assert page.count("the GPU has gone") == 2
    assert "<td>lock, image</td>" in page
    assert "Needs attention" in page
    assert "Needs attention" not in index(measured(IMAGES[1], H100, Verdict.CERTIFIED, 3))


def test_images_and_machines_are_named_in_full() -> None:
    page = Page(
        index(
            measured(
                IMAGES[0], H100, Verdict.CERTIFIED, 1, checks=[speedup()], layers=(Layer("sha256:1", 5),)
            ),
            measured(IMAGES[0], H100, Verdict.FAILED, 2),
            measured(IMAGES[1], T4, Verdict.BROKEN, 3, checks=[speedup(device="CPU")]),
        )
    )
    said = [
        page.text,
        *(attributes["aria-label"] or "" for _, attributes in page.tags if "aria-label" in attributes),
    ]
    for text in said:
        assert not re.search(r"tf\d+\.\d|-cuda\d|\br\d{3}-", text), text
    name = "TensorFlow 2.21.0, CUDA 12.5, cuDNN 9.3, Python 3.11"
    # In the lists of what needs attention and of what changed.
    assert page.text.count(f"{name} on NVIDIA H100, driver 580") == 2
    # In the table of sizes.
    assert page.text.count(name) == 3
    for machine in ("NVIDIA H100, driver 580", "the CPU of a machine with NVIDIA T4, driver 535"):
        assert f"as a graph's, on {machine}." in page.text
        assert {f"Chart: {machine}", f"Figures: {machine}"} <= set(said)


def test_counts_agree_everywhere() -> None:
    made = index(
        measured(IMAGES[0], H100, Verdict.CERTIFIED),
        measured(IMAGES[1], T4, Verdict.UNPROVEN),
        measured(IMAGES[1], "elsewhere", Verdict.FAILED),
        cells=planned(outcome=Outcome.FAILS),
    )
    groups = [
        {
            re.sub("<.*?>", "", what): int(number)
            for what, number in re.findall(r"<dt>(.*?)</dt><dd class=\"count\">([\d,]+)</dd>", group)
        }
        for group in re.findall(r'<dl class="counts".*?</dl>', made, re.DOTALL)
    ]
    assert groups == [
        {"works": 0, "eager-only": 0, "fails": 8, "unknown": 0, "no prediction": 1},
        {"certified": 1, "works-on-cpu": 0, "failed": 1, "unproven": 1, "broken": 0, "not measured": 6},
    ]
    assert [sum(group.values()) for group in groups] == [9, 9]
    assert 'role="status" aria-label="Combinations shown">9 combinations</p>' in made
    options = re.findall(r'<option value="(\w[\w-]*|)">.*?\((\d+)\)</option>', made)
    assert dict(options) == {
        "": "9", "certified": "1", "failed": "1", "unproven": "1",
        "any": "3", "none": "6", "otherwise": "1",
        "works": "0", "eager-only": "0", "fails": "8", "unknown": "0",
    }  # fmt: skip
    assert re.search(r">1 result</a>\s+differs from the prediction", made)


def test_a_cell_with_limits_has_a_mark_and_the_page_says_what_it_means() -> None:
    checks = [check("driver"), limited_check(LIMIT)]
    found = measured(IMAGES[1], H100, Verdict.CERTIFIED, checks=checks)
    files = dict(
        site(sources([found], certificates={found.image_digest: [certificate(found, limits=(LIMIT,))]}))
    )
    text = files[ENTRY].decode()
    assert text.count('<small class="limit">limit</small></a>') == 1
    assert ">certified 1/2</b><small" in text.replace("\n", "")
    assert "failed in full float32, with TensorFloat-32 off" in text
    assert '<option value="limits">with limits (1)</option>' in text
    cells = json.loads(text.partition('id="data">')[2].partition("</script>")[0])["cells"]
    assert [cell[8] for cell in cells if len(cell) > 8] == [[LIMIT.sentence]]
    (content,) = (content for name, content in files.items() if name.startswith("data/"))
    assert detail_of(content)["certificates"][0]["limits"] == [LIMIT.sentence]
    assert f"limit: {LIMIT.sentence}" in files["table.md"].decode()
    plain = index(measured(IMAGES[1], H100, Verdict.CERTIFIED))
    assert 'class="limit"' not in plain and "with limits" not in plain


def test_where_only_xla_fails_the_page_says_eager_only() -> None:
    made = index(cells=planned(IMAGES[:1], outcome=Outcome.FAILS, mode="xla"))
    assert made.count('class="eager-only">eager-only</a></td>') == 2
    assert '<option value="eager-only">eager-only (2)</option>' in made
    assert '<option value="fails">fails (0)</option>' in made
    assert "expected to work, but not with XLA" in made
    data = json.loads(re.findall(r'<script type="application/json" id="data">(.*?)</script>', made)[0])
    assert [cell[2] for cell in data["cells"]] == ["eager-only"] * 2
    # What works on the machine instead is offered all the same.
    assert all(host["advice"] for host in data["hosts"])


def test_a_reason_that_was_cut_ends_with_an_ellipsis() -> None:
    long = index(measured(IMAGES[0], H100, Verdict.FAILED, reason="x" * 400))
    assert f">{'x' * 299}…</td>" in long
    assert ">no GPU at all</td>" in index(measured(IMAGES[0], H100, Verdict.FAILED, reason="no GPU at all"))


def test_an_empty_plan_is_a_page() -> None:
    assert "No combinations are planned." in index(cells=[])


@pytest.mark.parametrize("value", [float("inf"), {"a": float("-inf")}, [float("nan")]])
def test_numbers_that_json_cannot_express_become_text(value: Any) -> None:
    assert json.loads(script_json(value)) == clean(value)
    assert "inf" in script_json(value) or "nan" in script_json(value)
