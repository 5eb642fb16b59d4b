"""Show a run: what it takes, its progress on stderr while it runs, its results, and what to do with them.

A terminal shows one live line per image. Other outputs get plain lines.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..engines.protocol import Built
from ..errors import MissingError
from ..fleet.run_store import WORDS
from ..model.record import Verdict
from ..model.spec import NO_GPU, ImageSpec, image_reference
from ..pipeline.makers import Estimate
from ..pipeline.run import Event, Phase, Result, Status
from ..registry.names import image_tag
from ..reports.printable import counted, one_line, printable
from ..reports.terminal import rows_table, styled
from .options import print_status

# A table on standard error that is drawn again while work goes on, with plain lines above it.


_Table = TypeVar("_Table", bound="LiveTable")


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise the BrokenPipeError again. rich would raise SystemExit in the thread that prints."""
        raise


class LiveTable:
    """Use it as a context manager. Only a terminal shows the table.

    table: returns its present state, and is called at once. per_second: how often it is drawn.
    label: the beginning of each line.
    """

    def __init__(self, table: Callable[[], Table], per_second: int, label: str = "") -> None:
        self._label = label
        self._console = _Console(stderr=True, highlight=False)
        self._started = time.monotonic()
        self._live = (
            Live(get_renderable=table, console=self._console, refresh_per_second=per_second, transient=True)
            if self._console.is_terminal
            else None
        )

    @property
    def is_shown(self) -> bool:
        """True on a terminal."""
        return self._live is not None

    def __enter__(self: _Table) -> _Table:
        if self._live:
            self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._live:
            self._live.__exit__(*error)

    def say(self, line: str) -> None:
        """Print a line with the time since the beginning."""
        self._console.print(Text(printable(f"{self._label}[{self.clock()}] {line}")), soft_wrap=True)

    def clock(self) -> str:
        """Return the time since the beginning, as `MM:SS`."""
        return clock(time.monotonic() - self._started)


def clock(seconds: float) -> str:
    """Return a duration as `MM:SS`."""
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


#: The seconds between two plain lines about the same phase of an image. With -v, every line is shown.
_INTERVAL_S = 20.0


@dataclass
class _State:
    """since, changed, printed: when the phase began, the detail came, and a line was last printed."""

    phase: Phase
    since: float
    detail: str = ""
    changed: float = 0.0
    printed: float = 0.0


class Progress(LiveTable):
    """Show the events of a run. Use it as a context manager.

    total: the number of images. label: the beginning of each line.
    """

    def __init__(self, total: int, label: str = "") -> None:
        self._total = total
        self._finished: set[ImageSpec] = set()
        self._states: dict[ImageSpec, _State] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._verbose = logging.getLogger().isEnabledFor(logging.INFO)
        super().__init__(self._table, 4, label)

    def __call__(self, event: Event) -> None:
        """Show an event. May be called from any thread."""
        with self._lock:
            if event.phase is Phase.DONE:
                self._states.pop(event.spec, None)
                self._finished.add(event.spec)
                if event.result:
                    self.say(f"{event.spec}: {sentence(event.result)}")
                return
            now = time.monotonic()
            state = self._states.get(event.spec)
            new = state is None or state.phase is not event.phase
            if state is None or new:
                state = self._states[event.spec] = _State(event.phase, now)
            state.detail, state.changed = event.detail, now
            if not self.is_shown and (new or self._verbose or now - state.printed >= _INTERVAL_S):
                self._say_state(event.spec, state, now)

    def __enter__(self) -> Progress:
        if not self.is_shown:
            self._thread.start()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._ended.set()
        super().__exit__(*error)

    def _run(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            while not self._ended.wait(1.0):
                self.beat()

    def beat(self) -> None:
        """Say again what is being done, if there was nothing new to say for some time."""
        with self._lock:
            now = time.monotonic()
            for spec, state in self._states.items():
                if now - state.printed >= _INTERVAL_S:
                    self._say_state(spec, state, now)

    def _say_state(self, spec: ImageSpec, state: _State, now: float) -> None:
        lasting = f" (for {clock(now - state.changed)})" if now - state.changed >= 1 else ""
        state.printed = now
        self.say(f"{spec}: {state.phase.value} {state.detail}".rstrip() + lasting)

    def _table(self) -> Table:
        now = time.monotonic()
        table = Table.grid(padding=(0, 1))
        header = f"{len(self._finished)} of {self._total} done, {self.clock()}"
        table.add_row(Text(header, style="bold"), "", "", "")
        with self._lock:
            for spec, state in self._states.items():
                detail = Text(one_line(state.detail), no_wrap=True, overflow="ellipsis", style="dim")
                table.add_row(spec.identifier, state.phase.value, clock(now - state.since), detail)
        return table


def sentence(result: Result) -> str:
    """Return a phrase such as `unproven: no GPU` or `unchanged: unproven: no GPU`."""
    if result.record is not None:
        verdict = f"{result.record.verdict.value}: {result.record.reason}"
        return verdict if result.status is Status.MEASURED else f"{result.status.value}: {verdict}"
    return f"{result.status.value}: {result.detail}" if result.detail else result.status.value


def results_table(results: Sequence[Result]) -> Table:
    """Return a table with one row per image."""
    rows: list[tuple[str, str | Text, str]] = []
    for result in results:
        record = result.record
        if record is None:
            rows.append((result.spec.identifier, result.status.value, result.detail))
        else:
            note = "" if result.status is Status.MEASURED else f" ({result.detail})"
            rows.append((result.spec.identifier, styled(record.verdict.value), record.reason + note))
    return rows_table(("image", "result", "why"), rows, whole=True)


def totals(results: Sequence[Result]) -> str:
    """Return `1 built, 1 validated, 0 unchanged`, followed by other results that occurred."""

    counts = Counter(result.status for result in results)
    measured = [result.record for result in results if result.record and result.status is Status.MEASURED]
    always = {
        "built": sum(result.built for result in results),
        "validated": sum(record.verdict is not Verdict.BROKEN for record in measured),
        "unchanged": counts[Status.UNCHANGED],
    }
    others = {
        "pushed": sum(result.published is not None and result.published.sent for result in results),
        "failed": sum(result.failed for result in results),
        "refused": counts[Status.REFUSED],
        "skipped": counts[Status.SKIPPED],
        "missing": counts[Status.MISSING],
        "stopped": counts[Status.STOPPED],
    }
    shown = [*always.items(), *((name, number) for name, number in others.items() if number)]
    return ", ".join(f"{number} {name}" for name, number in shown)


# Show a run of a fleet: how many cells of each host class are waiting, running, done, failed, lost, missing.
#
# A terminal shows a live table. Other outputs get a line when the numbers change, at most every few seconds.


class FleetProgress(LiveTable):
    """Show the tallies of a run. Use it as a context manager."""

    def __init__(self) -> None:
        self._tally: Mapping[str, Counter[str]] = {}
        self._printed = 0.0
        self._last = ""
        super().__init__(lambda: tally_table(self._tally, self.clock()), 2)

    def show(self, tally: Mapping[str, Counter[str]]) -> None:
        """Show the numbers of cells by host class and state."""
        self._tally = tally
        now = time.monotonic()
        if self.is_shown or now - self._printed < _INTERVAL_S:
            return
        line = "; ".join(
            f"{name}: {', '.join(f'{counts[word]} {word}' for word in WORDS if counts[word])}"
            for name, counts in sorted(tally.items())
        )
        if line != self._last:
            self._last, self._printed = line, now
            self.say(line)


def tally_table(tally: Mapping[str, Counter[str]], title: str = "host class") -> Table:
    """Return a table with one row per host class and one column per state that occurs."""
    words = [word for word in WORDS if any(counts[word] for counts in tally.values())]
    rows = [(name, *(str(tally[name][word] or "") for word in words)) for name in sorted(tally)]
    return rows_table((title, *words), rows)


# Say before a build how much it takes, and after it what to do with the images.


#: At most this many images are listed with their digests.
_SHOWN = 10


def say_estimate(found: Estimate) -> None:
    """Print how much a run downloads and stores."""
    if found.there:
        print_status(f"{counted(found.there, 'image')} already here: nothing to download.")
    if found.images:
        here = found.wheels - found.download
        cached = f" ({_gb(here)} of wheels are in the cache)" if here else ""
        most = f"up to {_gb(found.download)} of wheels" if found.download else "nothing"
        print_status(
            f"{counted(found.images, 'image')}: {most} to download{cached};"
            f" the largest image takes about {_gb(found.largest)}."
        )
    if found.unlocked:
        print_status(f"{counted(found.unlocked, 'image')} still to lock, whose size is not known yet.")


def say_next_steps(
    results: Sequence[Result],
    repository: str | None,
    profile: str | None,
    layout: Path | None = None,
    engine: str = "auto",
) -> None:
    """Print the images of a run, how one of them is started here, and how they are measured on a GPU.

    layout: the OCI layout that the images were written to. engine: `docker`, `podman`, or `auto` if neither
    has them.
    """
    found = [(result, name) for result in results if (name := image_name(result, layout)) is not None]
    if not found:
        return
    print_status("Images:")
    for result, name in found[:_SHOWN]:
        # Not every engine finds a local image by this digest, so it is not a part of the name.
        digest = None if result.published is not None else local_digest(result)
        print_status(f"  {name} ({digest})" if digest is not None else f"  {name}")
    if len(found) > _SHOWN:
        print_status(f"  and {len(found) - _SHOWN} more")
    if layout is not None:
        print_status(f"Load {'it' if len(found) == 1 else 'them'} into a Docker Engine:")
        print_status(f"  tar -C {shlex.quote(str(layout))} -c . | docker load")
        return
    result, name = found[0]
    where, line = _run_line(name, result.spec, engine)
    print_status(where)
    print_status(f"  {shlex.join(line)}")
    # A machine with a GPU pulls what was pushed, or builds it.
    unmeasured = [
        each.spec.identifier
        for each, _ in found
        if each.spec.variant.has_cuda and (each.record is None or each.record.host_class == NO_GPU)
    ]
    if unmeasured:
        words = ["validator", "build-matrix"]
        if profile is not None:
            words += ["--profile", profile]
        if len(unmeasured) == 1:
            words += ["--select", f"image={unmeasured[0]}"]
        if repository:
            words += ["--pull-from", repository]
        print_status("Measure it on a machine with a GPU:")
        print_status(f"  {shlex.join(words)}")


#: A step of training that each release runs. It says where the result was computed.
_TRAIN = (
    "import tensorflow as tf; model = tf.keras.Sequential([tf.keras.layers.Dense(1)]);"
    ' model.compile("sgd", "mse"); model.fit(tf.ones((8, 4)), tf.ones((8, 1)));'
    ' print("GPUs:", tf.config.list_physical_devices("GPU"))'
)
#: `library_path` of the engine, as a shell writes it.
_LIBRARIES = (
    'export LD_LIBRARY_PATH="$(ls -d "$VIRTUAL_ENV"/lib/python3*/site-packages/nvidia/*/lib | paste -sd: -)'
    '${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"'
)


def say_environments(made: Iterable[Built]) -> None:
    """Print how the virtual environments of a run are used."""
    found = list(made)
    if not found:
        return
    print_status("Environments:")
    for built in found[:_SHOWN]:
        print_status(f"  {built.reference}")
    if len(found) > _SHOWN:
        print_status(f"  and {len(found) - _SHOWN} more")
    needs_path = found[0].spec.variant.has_cuda
    print_status(f"Use it in a shell{', and let the loader find NVIDIA libraries' if needs_path else ''}:")
    print_status(f"  source {shlex.quote(found[0].reference)}/bin/activate")
    if needs_path:
        print_status(f"  {_LIBRARIES}")
    print_status("Then train a step:")
    print_status(f"  python -c {shlex.quote(_TRAIN)}")


def image_name(result: Result, layout: Path | None) -> str | None:
    """Return the name of an image, with the digest if it is in a registry; None if there is no image."""
    if result.published is not None:
        repository = result.published.reference.partition("@")[0]
        return f"{repository}:{result.published.tag}@{result.published.digest}"
    if local_digest(result) is None:
        return None
    return f"{layout}:{image_tag(result.spec)}" if layout else image_reference(result.spec.identifier)


def local_digest(result: Result) -> str | None:
    return result.digest or (result.record.image_digest if result.record else None)


def _run_line(name: str, spec: ImageSpec, kind: str) -> tuple[str, list[str]]:
    """Return where an image can be started, and the command. kind: the engine that has it."""
    from ..delivery.choose import this_host
    from ..delivery.pull import Engine
    from ..delivery.start import Image, Start, User, devices_of, docker_command, podman_command, user_of

    image = Image(name, name, (), certified=False, port=spec.port)
    user, host, devices, directory = User(os.getuid(), os.getgid()), None, None, None
    try:
        engine = Engine(kind)
    except MissingError:
        start = Start(image, host, devices, user, terminal="-it")
        return "Start it on a machine with a Docker Engine:", docker_command(start)
    try:
        if engine.is_local:
            user, directory = user_of(engine.info, user.uid, user.gid), Path.cwd()
        with contextlib.suppress(MissingError):
            if spec.variant.has_cuda:
                host, devices = this_host(), devices_of(engine.info)
    finally:
        engine.close()
    where = ", with this directory as the working directory" if directory else ""
    start = Start(image, host, devices, user, directory, terminal="-it")
    command = podman_command(start) if engine.is_podman else docker_command(start)
    return f"Start it here{where}:", command


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
