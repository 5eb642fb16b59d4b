"""A share of the mutated inputs, and the harness itself: it must notice what it is there to notice."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import settings

from validator.errors import InputError

from . import harness
from .harness import Harness, next_of, remember
from .mutators import mutate_bytes, mutate_json, mutate_text, reduced
from .targets import DOCUMENTED, ROOT, TARGETS, Target


@pytest.mark.slow
def test_a_share_of_mutated_inputs_ends_as_documented(tmp_path: Path) -> None:
    count = settings().max_examples
    every = max(5, count // 3)
    arguments = ["--count", str(count), "--every", str(every), "--first", "0", "--failures", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutations", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    found = list(tmp_path.iterdir())
    assert done.returncode == 0, done.stdout + done.stderr + "\n".join(map(str, found))
    assert f": {count * len(TARGETS)} inputs in" in done.stdout
    assert re.search(r", [1-9]\d* through the command line", done.stdout), done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", TARGETS)
def test_every_seed_is_valid_and_most_mutations_are_not_the_seed(kind: str, tmp_path: Path) -> None:
    target = TARGETS[kind]
    seeds = target.seeds()
    assert seeds
    for seed in seeds:
        target.read(seed, tmp_path)
    inputs = [target.input(random.Random(number)) for number in range(50)]
    assert len(set(inputs) - set(seeds)) > 35
    assert inputs == [target.input(random.Random(number)) for number in range(50)], (
        "they follow from the seed"
    )


KEPT: list[bytearray] = []


def ends_badly(data: bytes, _: Path) -> None:
    if b"bad" in data:
        raise KeyError("bad")
    if b"wrong" in data:
        raise InputError("wrong")
    if b"slow" in data:
        before = time.process_time()
        while time.process_time() < before + 30:
            pass
    if b"stuck" in data:
        threading.Event().wait(30)
    if b"large" in data:
        KEPT.append(bytearray(60 << 20))
    if b"crash" in data:
        os.abort()
    if b"long" in data:
        raise InputError("x" * 30_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "problem"),
    [
        (b"x bad y", r"KeyError at test_share\.py:\d+"),
        (b"slow", r"it takes too long \(test\)"),
        (b"stuck", "test: it does not end"),
        (b"large", "test: it takes too much memory"),
        (b"crash", "test: the process ends with -6"),
        (b"long", "a message of 30000 characters"),
        (b"wrong", None),
        (b"good", None),
    ],
)
def test_the_harness_notices_what_does_not_end_as_documented(
    seed: bytes, problem: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target(lambda: [seed], lambda chance, data: data, ends_badly)
    monkeypatch.setitem(TARGETS, "test", target)
    monkeypatch.setattr(harness, "LONGEST_S", 0.2)
    monkeypatch.setattr(harness, "STUCK_S", 2.0)
    monkeypatch.setattr(harness, "MOST_MEMORY", 40 << 20)
    monkeypatch.setattr(harness, "reduced", lambda data, fails: reduced(data, fails, most=20))
    monkeypatch.setattr(Target, "input", lambda self, chance: seed)
    run = Harness(0, tmp_path / "failures", kinds=("test",))
    assert run.run({"test": 7}, 2, 60) == {"test": 9}
    assert run.summary.inputs["test"] == 2
    if problem is None:
        assert run.summary.failures == {} and run.summary.refused["test"] == (2 if seed == b"wrong" else 0)
        return
    [(found, name)] = run.summary.failures.items()
    assert re.fullmatch(problem, found)
    kept = (tmp_path / "failures" / f"{name}.json").read_bytes()
    assert len(kept) <= len(seed)
    assert found in (tmp_path / "failures" / f"{name}.why.txt").read_text()


@pytest.mark.slow
def test_kinds_share_the_time_and_a_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "_BATCH_S", 0.0001)
    kinds = ("wheel-name", "apt")
    run = Harness(0, tmp_path, kinds=kinds)
    assert run.run({"apt": 5}, 7, 60) == {"wheel-name": 7, "apt": 12}
    assert run.summary.inputs == {"wheel-name": 7, "apt": 7}
    assert run.run({}, 7, 0) == dict.fromkeys(kinds, 0)


@pytest.mark.slow
def test_the_command_line_is_judged_by_its_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = ("records list --store {}", "--help")
    target = Target(lambda: [b"no store"], lambda chance, data: data, lambda data, place: None, commands)
    monkeypatch.setitem(TARGETS, "test", target)
    run = Harness(0, tmp_path, every=1, kinds=("test",))
    run.run({}, 1, 60)
    assert run.summary.commands == 2 and run.summary.failures == {}
    monkeypatch.setattr(harness, "_EXIT_CODES", (0,))
    run.run({}, 1, 60)
    assert list(run.summary.failures) == ["records list --store {}: exit 2"]


def test_a_run_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    assert next_of(state, 3) == {}
    remember(state, 3, {"apt": 70})
    remember(state, 3, {"page": 8})
    remember(state, 4, {"apt": 9})
    assert (next_of(state, 3), next_of(state, 4)) == ({"apt": 70, "page": 8}, {"apt": 9})


def test_a_failure_is_reduced_to_what_it_needs() -> None:
    assert reduced(b"x" * 500 + b"bad" + b"y" * 500, lambda data: b"bad" in data) == b"bad"


def test_mutations_are_of_every_sort() -> None:
    chance = random.Random(1)
    documents = {mutate_json(chance, b'{"a": [1, {"b": "text"}], "c": "d"}') for _ in range(3000)}
    for piece in (b"NaN", b"1e400", b"0" * 400, b"[" * 70, b"::error::", b"\\ud800", b'"surplus"', b"null"):
        assert any(piece in document for document in documents), piece
    assert any(document.count(b'"a"') > 1 for document in documents), "a key that stands twice"
    assert {len(mutate_bytes(chance, b"x" * 100)) for _ in range(300)} >= {99, 100, 101}
    texts = {mutate_text(chance, b"a: 1\nb: [x, y]\n") for _ in range(1000)}
    assert any(b"!!python" in text for text in texts) and any(b"\x1b[31m" in text for text in texts)
    assert all(issubclass(each, Exception) for each in DOCUMENTED)
