"""A diagnosis as text and as Markdown: complete, and pasted text can't change how it is shown."""

from __future__ import annotations

import re

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from validator.cli.planning import load_plan
from validator.compat.judge import judge
from validator.model.diagnosis import Cause, Diagnosis, Evidence, FailingReason, Harmless, Remedy
from validator.model.prediction import (
    EAGER_ONLY,
    WORDS,
    Host,
    Outcome,
    PlannedCell,
    Reason,
    Software,
    count_words,
    decide,
)
from validator.reports.diagnosis import WIDTH, markdown, text
from validator.reports.overview import overview
from validator.reports.page.site import ENTRY, site
from validator.reports.printable import MISSING
from validator.resources import shipped_matrix

from ..commands import ROOT, run
from .page.values import sources

LONG = "E external/local_xla/xla/cuda_driver.cc:152] failed call to cuInit: " + "word " * 50 + "the end"
HOSTILE = "\x1b[31mred\x1b]0;title\x07 \x9b2J \u202e \udc80 </details> ```` | <script> @someone\nsecond line"


def cause(number: int = 1, **values: object) -> Cause:
    fields: dict[str, object] = {
        "code": f"cause_{number}",
        "title": f"Cause number {number} is to blame.",
        "means": "It means that the GPU is not used, which takes a sentence or two, and then some more.",
        "evidence": (Evidence(LONG, "line 12", 3), Evidence("short", "checks.driver")),
        "remedies": (
            Remedy("host", "Load the module.", ("sudo modprobe nvidia", "nvidia-smi")),
            Remedy("docker", "Start the container otherwise."),
        ),
        "sources": ("https://github.com/tensorflow/tensorflow/issues/1",),
        "explains": ("another_cause",),
    }
    return Cause(**{**fields, **values})  # type: ignore[arg-type]


def diagnosis(*causes: Cause, **values: object) -> Diagnosis:
    fields: dict[str, object] = {
        "harmless": (Harmless("numa_notice", "It is about NUMA.", (Evidence("x", "line 1", 4),)),),
        "unknown": (),
        "facts": {"tensorflow": "2.18.0", "driver": "535.183.01", "unheard_of": "x"},
        "read": "312 lines",
        "next_step": "run `validator doctor` there",
    }
    answer = "cause_found" if causes else "unrecognized" if values.get("unknown") else "no_fault"
    return Diagnosis(**{"answer": answer, "causes": causes, **fields, **values})  # type: ignore[arg-type]


def plain(found: Diagnosis, columns: int | None = None) -> list[str]:
    return click.unstyle(text(found, columns)).splitlines()


def test_the_answer_comes_first_then_the_evidence_then_the_fix() -> None:
    lines = plain(diagnosis(cause()))
    assert lines[:2] == ["Cause number 1 is to blame.", "cause_1"]
    places = [lines.index(line) for line in ("Evidence", "How to fix it", "Harmless")]
    assert places == sorted(places)
    assert f"  line 12 (3 times): {LONG}" in lines
    assert "  checks.driver: short" in lines
    assert "  This also explains another_cause." in lines
    assert lines[lines.index("How to fix it") + 1 :][:4] == [
        "  On the machine: Load the module.",
        "      sudo modprobe nvidia",
        "      nvidia-smi",
        "  With Docker: Start the container otherwise.",
    ]
    assert "  numa_notice (4 lines): It is about NUMA." in lines
    assert lines[-2:] == [
        "Read: 312 lines; TensorFlow 2.18.0, driver 535.183.01.",
        "Next: run `validator doctor` there.",
    ]


def test_the_command_to_run_next_stands_by_itself() -> None:
    lines = plain(diagnosis(cause(), next_step="run this", next_command="uvx validator doctor --image x"))
    assert lines[-2:] == ["Next: run this:", "      uvx validator doctor --image x"]
    found = markdown(diagnosis(cause(), next_step="run this", next_command="uvx validator doctor --image x"))
    assert found.endswith("Next: run this:\n\n```sh\nuvx validator doctor --image x\n```\n")


def test_the_reasons_of_predict_stand_with_the_evidence() -> None:
    reason = FailingReason("driver_too_old", "CUDA 12.5 needs driver 525", "minor-12", "a source")
    found = diagnosis(cause(reasons=(reason,)))
    assert "  predict: CUDA 12.5 needs driver 525 (minor-12)." in plain(found)
    assert "- CUDA 12.5 needs driver 525 (a source)" in markdown(found).splitlines()


def test_missing_facts_have_names_that_people_use() -> None:
    found = diagnosis(answer="not_shown", missing=("driver", "cudnn"))
    lines = plain(found)
    assert lines[0].startswith("No fault found: the messages are harmless.")
    assert plain(diagnosis(answer="not_shown", harmless=()))[0].startswith("Not enough to tell")
    assert "  Not known: the NVIDIA driver, cuDNN." in lines
    assert "Not known: the NVIDIA driver, cuDNN." in markdown(found).splitlines()


def test_every_fact_that_can_be_missing_has_a_name() -> None:
    every = judge(Software("2.21.0", extra=True), Host()).missing + judge(Software(), Host()).missing
    assert set(every) <= set(MISSING)


def test_several_causes_are_numbered_in_the_order_in_which_to_fix_them() -> None:
    lines = plain(diagnosis(cause(1), cause(2)))
    assert lines[0] == "2 causes, in the order to fix them."
    assert lines.index("1. Cause number 1 is to blame.") < lines.index("2. Cause number 2 is to blame.")


def test_without_a_cause_the_answer_says_so() -> None:
    assert plain(diagnosis())[0] == "No fault found."
    unknown = tuple(Evidence(f"what {number}?", f"line {number}") for number in range(20))
    lines = plain(diagnosis(unknown=unknown))
    assert lines[0] == "Unknown: this matches no known cause."
    assert "  line 0: what 0?" in lines
    assert "  and 10 more, which --json lists" in lines


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_on_a_terminal_lines_fit_its_width_and_nothing_is_left_out(columns: int) -> None:
    lines = plain(diagnosis(cause(), cause(2)), columns)
    assert max(len(line) for line in lines) <= columns
    assert [line for line in lines if len(line) > WIDTH and "word" not in line] == []
    # A word that is longer than the terminal is wide continues on the next line.
    assert "".join("".join(lines).split()).count("".join(LONG.split())) == 2


@pytest.mark.parametrize("columns", [None, 80])
def test_pasted_text_does_not_control_the_terminal(columns: int | None) -> None:
    evidence = (Evidence(HOSTILE, HOSTILE),)
    found = diagnosis(
        cause(
            title=HOSTILE, evidence=evidence, means=HOSTILE, remedies=(Remedy(HOSTILE, HOSTILE, (HOSTILE,)),)
        ),
        unknown=evidence, facts={"gpu": HOSTILE}, read=HOSTILE,
        harmless=(Harmless(HOSTILE, HOSTILE, evidence),),
    )  # fmt: skip
    shown = re.sub(r"\x1b\[[0-9;]*m", "", text(found, columns))
    assert shown.count("\\x1b[31mred") == 13
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\udc80]", shown) is None


def test_the_markdown_has_answer_evidence_remedies_and_environment() -> None:
    block = markdown(diagnosis(cause()))
    assert block.startswith("### Cause number 1 is to blame.\n\n`cause_1`: It means")
    assert f"<details><summary>Evidence</summary>\n\n```text\nline 12 (3 times): {LONG}\n" in block
    assert "**On the machine:** Load the module.\n\n```sh\nsudo modprobe nvidia\nnvidia-smi\n```" in block
    assert "- TensorFlow 2.18.0\n- driver 535.183.01" in block
    assert "https://github.com/tensorflow/tensorflow/issues/1" in block
    assert block.count("<details>") == block.count("</details>") == 3


def outside_of_code(block: str) -> str:
    """Return what is outside of fenced blocks, as CommonMark finds them."""
    left, fence = [], ""
    for line in block.splitlines():
        if fence:
            if re.fullmatch(rf"{fence}`*\s*", line):
                fence = ""
        elif found := re.match(r"(`{3,})[^`]*$", line):
            fence = found[1]
        else:
            left.append(line)
    assert not fence, "a code block does not end"
    return "\n".join(left)


@example("```")
@example("`````` ")
@given(st.text(st.characters(), max_size=80) | st.text("`~<>/details \n", max_size=40))
def test_pasted_text_does_not_get_out_of_its_block(pasted: str) -> None:
    found = diagnosis(
        cause(
            title=f"seen: {pasted}", evidence=(Evidence(pasted, "line 1"),),
            remedies=(Remedy("any", pasted, (pasted,)),),
        ),
        unknown=(Evidence(pasted, "line 2"),), facts={"gpu": pasted},
    )  # fmt: skip
    block = markdown(found)
    block.encode()
    outside = outside_of_code(block)
    unescaped = re.sub(r"\\.", "", outside)
    assert re.findall(r"</?\w+>", unescaped) == re.findall(r"</?(?:details|summary|sub)>", unescaped)
    assert unescaped.count("<details>") == unescaped.count("</details>") == 4
    assert "\x1b" not in block


@given(
    st.text("abcdefghijklm", min_size=6, max_size=12).map(lambda name: f"{name}_zq"),
    st.sampled_from(("/home/{}/x", "{}@host:~$ ls", "hostname: {}", "Nov 21 08:33:12 {} kernel: NVRM: Xid")),
)
def test_a_name_that_one_line_reveals_is_nowhere_in_the_markdown(name: str, place: str) -> None:
    found = diagnosis(
        cause(
            title=f"{name} has no GPU.",
            evidence=(Evidence(place.format(name), "line 1"), Evidence(f"started by {name}", "line 2")),
            remedies=(Remedy("any", f"Ask {name}.", (f"ssh {name}",)),),
        ),
        unknown=(Evidence(f"{name}!", "line 3"),),
        facts={"image": f"{name}/tf"},
    )
    block = markdown(found).replace("\\", "")
    assert name not in block
    assert "<" in block


def test_given_names_are_taken_out() -> None:
    assert "atlas" not in markdown(diagnosis(cause(title="On atlas there is no GPU.")), ["atlas"])


# `plan`, the page, the README and the explanation have the same words for predictions, and count alike.


PROFILE = "quick"


def planned() -> tuple[PlannedCell, ...]:
    return load_plan(shipped_matrix(), PROFILE, ()).cells


def test_each_prediction_has_one_word() -> None:
    def word(**outcomes: str) -> str:
        reasons = [
            Reason(Outcome(outcome), mode, "a-fact", "a source", mode=mode)
            for mode, outcome in outcomes.items()
        ]
        return decide(reasons).word

    assert word(eager="works", xla="works") == "works"
    assert word(eager="works", xla="fails") == EAGER_ONLY
    assert word(eager="fails", xla="works") == word(eager="fails", xla="fails") == "fails"
    assert word(eager="unknown", xla="fails") == "fails"
    assert word(eager="works", xla="unknown") == word(eager="unknown", xla="works") == "unknown"


@pytest.mark.slow
def test_the_plan_and_the_page_count_alike() -> None:
    counts = count_words(cell.prediction for cell in planned())
    assert sum(counts.values()) == len(planned())
    assert min(counts["works"], counts[EAGER_ONLY], counts["fails"]) > 0
    said = run("plan", "--profile", PROFILE).stderr
    listed = ", ".join(f"{count} {word}" for word, count in counts.items())
    assert f"{len(planned())} cells: {listed};" in said
    shown = dict(site(sources(cells=list(planned()))))[ENTRY].decode()
    [group] = re.findall(r'<dl class="counts" aria-labelledby="predicted-title".*?</dl>', shown, re.DOTALL)
    found = re.findall(r"<dt>(.*?)</dt><dd class=\"count\">([\d,]+)</dd>", group)
    assert {re.sub("<.*?>", "", word): int(count) for word, count in found} == counts
    assert count_words(cell.prediction for cell in planned()) == {
        word: [row.predicted for row in overview(planned(), {})].count(word) for word in WORDS
    }


def test_the_readme_and_the_explanation_list_the_words() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [sentence] = re.findall(r"A prediction is (.*?)\.\s", readme, re.DOTALL)
    assert tuple(re.findall("`([a-z-]+)`", sentence)) == WORDS
    explained = (ROOT / "docs/explanation/verdicts.md").read_text(encoding="utf-8")
    table = explained.partition("| prediction | meaning |")[2].partition("\n\n")[0]
    assert tuple(re.findall("^[|] `([a-z-]+)` [|]", table, re.MULTILINE)) == WORDS


def test_selectors_count_as_the_plan_does() -> None:
    counts = count_words(cell.prediction for cell in planned())
    for word in WORDS:
        said = run("plan", "--select", f"prediction={word}").stderr
        if counts[word]:
            assert f" {counts[word]} cells: " in said, word
        else:
            assert "has no cell that matches" in said
