"""Test what open pages are told."""

from __future__ import annotations

from validator.errors import MissingError
from validator.model.run_progress import RunProgress
from validator.serve.events import Events
from validator.serve.watch import Watch


class World:
    """A store with a version, and runs."""

    def __init__(self) -> None:
        self.version = "1"
        self.runs: list[RunProgress] = []
        self.written: list[str] = []
        self.said: list[str] = []
        self.fault = ""
        self.events = Events()
        self.watch = Watch(
            self.events, self.ask, self.written.append, lambda: self.runs, self.said.append, "1"
        )

        self.error: type[Exception] = MissingError

    def ask(self) -> str:
        if self.fault:
            raise self.error(self.fault)
        return self.version

    def told(self) -> str:
        """Return what a page that opens now is told."""
        stream = self.events.stream(beat_s=0.01)
        next(stream)
        return next(stream).decode()


def run(state: str, started: str) -> RunProgress:
    return RunProgress("nightly", started, started, 2, 1, state, "/secret/run", "boot")


def test_new_records_write_a_new_page_and_then_tell_of_it() -> None:
    world = World()
    world.watch.check()
    assert (world.written, "page" in world.told()) == ([], False)
    world.version = "2"
    world.watch.check()
    world.watch.check()
    assert world.written == ["2"]
    assert 'event: page\ndata: "2"' in world.told()


def test_a_fault_is_told_once_and_ends() -> None:
    world = World()
    world.fault = "the store is gone \x1b[31m"
    world.watch.check()
    world.watch.check()
    assert world.said == ["error: the store is gone \\x1b[31m"]
    assert "the store is gone" in world.told()
    world.fault, world.version = "", "2"
    world.watch.check()
    assert 'event: trouble\ndata: ""' in world.told()
    assert world.written == ["2"]


def test_a_mistake_of_this_program_is_told_and_does_not_end_the_watch() -> None:
    world = World()
    world.fault, world.error = "too deep", RecursionError
    world.watch.check()
    assert world.said == ["error: RecursionError: too deep"]
    world.fault, world.version = "", "2"
    world.watch.check()
    assert world.written == ["2"]


def test_pages_see_runs_that_go_on_or_the_newest_that_ended() -> None:
    world = World()
    ended = [run("vanished", "2026-01-03"), run("finished", "2026-01-02")]
    world.runs = ended
    world.watch.check()
    assert "vanished" in world.told() and '"state":"finished"' not in world.told()
    world.runs = [*ended, run("running", "2026-01-01")]
    world.watch.check()
    assert '"state":"running"' in world.told() and "vanished" not in world.told()
    assert "/secret/run" not in world.told()
