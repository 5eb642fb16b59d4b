"""`plan`, the page, the README and the explanation have the same words for predictions, and count alike."""

from __future__ import annotations

import re

from validator.cli.planning import load_plan
from validator.model.prediction import EAGER_ONLY, WORDS, Outcome, PlannedCell, Reason, count_words, decide
from validator.reports.overview import overview
from validator.reports.page.site import ENTRY, site
from validator.resources import shipped_matrix

from ..commands import ROOT, run
from .page.values import sources

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
