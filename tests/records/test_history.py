"""The newest record of each cell at a time, and where a cell got worse, for any history."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.model.record import Verdict
from validator.records.history import (
    Entry,
    decline,
    differences,
    finished,
    goodness,
    histories,
    newest_by_cell,
    regressions,
)

from .values import record

START = datetime(2026, 11, 1, tzinfo=timezone.utc)
#: Later than every entry.
NOW = START + timedelta(days=100)
GOOD = (Verdict.CERTIFIED, Verdict.UNPROVEN)
LETTERS = {
    "C": Verdict.CERTIFIED,
    "U": Verdict.UNPROVEN,
    "F": Verdict.FAILED,
    "B": Verdict.BROKEN,
    "W": Verdict.WORKS_ON_CPU,
}


def day(number: float) -> datetime:
    return START + timedelta(days=number)


def entry(number: int, letter: str, cell: str = "cell", *, keyed: bool = True) -> Entry:
    """Return an entry that was measured on that day."""
    return Entry(f"{cell}-{number:04d}", cell, LETTERS[letter], day(number).isoformat(), keyed)


def history(letters: str, cell: str = "cell") -> list[Entry]:
    """Return one entry per day."""
    return [entry(number, letter, cell) for number, letter in enumerate(letters)]


def places(letters: str) -> tuple[int | None, int | None, int]:
    """Return the positions of the last good and the first bad entry, and the number between them."""
    entries = history(letters)
    found = decline(entries)
    assert found.newest is entries[-1]
    return (
        None if found.last_good is None else entries.index(found.last_good),
        None if found.first_bad is None else entries.index(found.first_bad),
        found.between,
    )


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("CF", (0, 1, 0)),
        ("CCFF", (1, 2, 0)),
        ("CFCF", (2, 3, 0)),
        ("UUFBF", (1, 2, 0)),
        ("CB", (0, 1, 0)),
        # Unproven is neither good nor bad in a cell that was certified ...
        ("CUUFF", (0, 3, 2)),
        ("CUFUU", (0, 2, 1)),
        # ... unless nothing worse came.
        ("CCU", (1, 2, 0)),
        ("CUU", (0, 1, 0)),
        # So it is in a cell without CUDA.
        ("WUF", (0, 2, 1)),
        ("WU", (0, 1, 0)),
        ("UW", (1, None, 0)),
        # No bad one.
        ("C", (0, None, 0)),
        ("FUC", (2, None, 0)),
        ("CFC", (2, None, 0)),
        ("FU", (1, None, 0)),
        # No good one.
        ("F", (None, 0, 0)),
        ("BFBF", (None, 0, 0)),
    ],
)
def test_the_last_good_and_the_first_bad(letters: str, expected: tuple[int | None, int | None, int]) -> None:
    assert places(letters) == expected


@pytest.mark.parametrize(
    ("letters", "since", "found"),
    [
        ("CF", 0, True),
        ("CF", 0.5, True),
        # It was bad before.
        ("CF", 1, False),
        ("CFF", 1.5, False),
        # It was good for a while in between.
        ("FCF", 0, True),
        ("CU", 0, True),
        ("UF", 0, True),
        ("FU", 0, False),
        ("CFC", 0, False),
        # What never was good did not get worse.
        ("FB", 0, False),
        # The first record is younger than the time.
        ("CF", -5, True),
        ("F", -5, False),
    ],
)
def test_a_regression_is_a_verdict_that_was_better_at_that_time_or_since(
    letters: str, since: float, found: bool
) -> None:
    assert bool(regressions(history(letters), day(since), NOW)) is found


def test_a_regression_names_the_last_good_record_even_if_it_is_older() -> None:
    entries = [*history("CUF", "one"), *history("CCC", "two")]
    # A day ago it was unproven already; what was lost since is that nothing failed.
    found = regressions(entries, day(1), NOW)
    assert [(each.newest.id, each.last_good and each.last_good.id) for each in found] == [
        ("one-0002", "one-0001")
    ]
    found = regressions(entries, day(0), NOW)
    assert [
        (each.last_good and each.last_good.id, each.first_bad and each.first_bad.id) for each in found
    ] == [("one-0000", "one-0002")]


def test_an_imported_report_counts_only_in_a_cell_without_other_records() -> None:
    imported = entry(5, "U", keyed=False)
    assert histories([*history("CC"), imported], NOW)["cell"] == history("CC")
    assert regressions([*history("CC"), imported], day(0), NOW) == []
    assert histories([imported], NOW)["cell"] == [imported]


def dated(name: str, finished: str, verdict: Verdict = Verdict.FAILED) -> Entry:
    return Entry(name, "cell", verdict, finished, True)


@pytest.mark.parametrize(
    "finished", ["yesterday", "zzzz", "", "2999-01-01T00:00:00Z", (NOW + timedelta(minutes=11)).isoformat()]
)
def test_a_record_whose_time_cannot_be_right_is_never_the_newest(finished: str) -> None:
    odd = dated("odd", finished)
    assert histories([odd, *history("C")], NOW) == {"cell": history("C")}
    assert newest_by_cell([odd, *history("C")], NOW) == {"cell": history("C")[0]}
    assert newest_by_cell([odd, *history("C")], NOW, day(-1)) == {}
    assert newest_by_cell([odd], NOW) == {}
    assert regressions([*history("C"), odd], day(0), NOW) == []


def test_clocks_may_differ_by_ten_minutes() -> None:
    ahead = dated("ahead", (NOW + timedelta(minutes=9)).isoformat())
    assert newest_by_cell([*history("C"), ahead], NOW) == {"cell": ahead}


def test_times_are_compared_as_times_not_as_text() -> None:
    # As text, the later one comes first.
    early = Entry("early", "cell", Verdict.CERTIFIED, "2026-11-01T12:00:00+02:00", True)
    late = Entry("late", "cell", Verdict.FAILED, "2026-11-01T11:00:00Z", True)
    assert histories([late, early], NOW)["cell"] == [early, late]


entries = st.lists(
    st.builds(
        entry,
        st.integers(0, 30),
        st.sampled_from("CUFB"),
        st.sampled_from(["one", "two"]),
        keyed=st.booleans(),
    ),
    unique_by=lambda each: each.id,
)


@given(entries, st.integers(-1, 31), st.randoms())
def test_the_order_of_the_records_does_not_matter(found: list[Entry], since: int, random: object) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert newest_by_cell(shuffled, NOW) == newest_by_cell(found, NOW)
    assert regressions(shuffled, day(since), NOW) == regressions(found, day(since), NOW)


@given(entries, st.integers(-1, 31))
def test_a_snapshot_has_the_newest_record_of_its_time(found: list[Entry], at: int) -> None:
    for cell, newest in newest_by_cell(found, NOW, day(at)).items():
        assert newest.cell == cell and finished(newest) <= day(at)
        own = [each for each in found if each.cell == cell and finished(each) <= day(at)]
        counted = [each for each in own if each.keyed] or own
        assert max(finished(each) for each in counted) == finished(newest)
    assert newest_by_cell(found, NOW, day(31)) == newest_by_cell(found, NOW)


@given(entries, entries)
def test_differences_are_complete_and_symmetric(one: list[Entry], two: list[Entry]) -> None:
    before, after = newest_by_cell(one, NOW), newest_by_cell(two, NOW)
    found = differences(before, after)
    same = {cell for cell in before.keys() & after.keys() if before[cell].verdict is after[cell].verdict}
    assert {pair.either.cell for pair in found} == (before.keys() | after.keys()) - same
    assert [(pair.after, pair.before) for pair in found] == [
        (pair.before, pair.after) for pair in differences(after, before)
    ]
    assert differences(before, before) == []


@given(st.text("CUFB", min_size=1, max_size=12))
def test_all_after_the_last_good_is_worse_and_all_between_is_unproven(letters: str) -> None:
    found: Sequence[Entry] = history(letters)
    good, bad, between = places(letters)
    if good is None:
        assert set(letters) <= {"F", "B"}
        return
    assert all(goodness(each.verdict) < goodness(found[good].verdict) for each in found[good + 1 :])
    assert all(goodness(each.verdict) <= goodness(found[good].verdict) for each in found)
    assert (bad is None) is (good == len(found) - 1)
    if bad is not None:
        assert bad - good - 1 == between
        assert all(each.verdict is Verdict.UNPROVEN for each in found[good + 1 : bad])


@given(entries, st.integers(-1, 31))
def test_a_regression_is_worse_than_its_last_good_record(found: list[Entry], since: int) -> None:
    told = regressions(found, day(since), NOW)
    for each in told:
        assert each.last_good is not None and each.first_bad is not None
        assert goodness(each.newest.verdict) < goodness(each.last_good.verdict)
        assert finished(each.last_good) <= finished(each.first_bad) <= finished(each.newest)
    before, now = newest_by_cell(found, NOW, day(since)), newest_by_cell(found, NOW)
    kept = {each.cell for each in found if each.keyed}
    for cell in before.keys() & kept:
        # The plain reading: good then, and worse now.
        was, is_ = before[cell], now[cell]
        if was.keyed and was.verdict in GOOD and goodness(is_.verdict) < goodness(was.verdict):
            assert cell in {each.newest.cell for each in told}


def test_an_entry_is_a_record_in_short() -> None:
    assert Entry.of(record(3, key="")) == Entry(
        record(3, key="").id, record(3).cell, Verdict.UNPROVEN, record(3).finished, False
    )
