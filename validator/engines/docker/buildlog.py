"""Parses the output of `docker buildx --progress plain`, line by line.

The lines of a step begin with `#<number> `. The first one names the step; later ones contain its output,
after the time in seconds.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable

#: The number of last lines to keep, for each step and for the whole log.
_KEPT = 120

_STEP = re.compile(r"^#(?P<number>\d+) (?P<rest>.*)$")
#: `[cudnn 1/1] RUN …`. The steps `[internal] …` and `[context uv] …` are BuildKit's own.
_STAGE = re.compile(r"^\[(?P<stage>[a-z][\w.-]*)\s+\d+/\d+\] (?P<what>\w+)")
_OUTPUT = re.compile(r"^\d+\.\d+ ?(?P<text>.*)$")
_DONE = re.compile(r"^DONE (?P<seconds>[\d.]+)s$")
_EXPORT = re.compile(r"^(?P<what>exporting layers|unpacking to)\b")
_NAME_TAKEN = re.compile(r'image "[^"]+": already exists$')
_ERROR = re.compile(r"^ERROR: (?P<text>.*)$")


class BuildLog:
    """Collects the lines of one build. `progress` is called when a stage starts or finishes."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self._progress = progress
        self._stages: dict[str, str] = {}
        self._outputs: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=_KEPT))
        self._last: deque[str] = deque(maxlen=_KEPT)
        self._failed: str | None = None
        self._running: set[str] = set()
        self._exporting: set[str] = set()

    def feed(self, line: str) -> None:
        """Process one line."""
        self._last.append(line)
        match = _STEP.match(line)
        if match is None:
            return
        number, rest = match["number"], match["rest"]
        if stage := _STAGE.match(rest):
            # After the output of another step, a step is named again.
            if number not in self._stages:
                self._stages[number] = stage["stage"]
                if stage["what"] == "RUN":
                    self._running.add(number)
                    self._progress(f"layer {stage['stage']}")
        elif output := _OUTPUT.match(rest):
            self._outputs[number].append(output["text"])
        elif _ERROR.match(rest):
            # The first failure is the cause; BuildKit cancels the other steps.
            self._failed = self._failed or number
        elif (done := _DONE.match(rest)) and number in self._running:
            self._running.discard(number)
            self._progress(f"layer {self._stages[number]}: done in {float(done['seconds']):.0f} s")
        elif (export := _EXPORT.match(rest)) and export["what"] not in self._exporting:
            self._exporting.add(export["what"])
            self._progress(export["what"].removesuffix(" to") + (" the image" if "unpack" in rest else ""))

    @property
    def failed_stage(self) -> str | None:
        """The stage whose step failed first, or None if it is BuildKit's own."""
        return self._stages.get(self._failed) if self._failed else None

    @property
    def failed_output(self) -> str:
        """The output of the failed step."""
        return "\n".join(self._outputs[self._failed]) if self._failed else ""

    @property
    def tail(self) -> str:
        """The last lines of the whole build."""
        return "\n".join(self._last)

    @property
    def name_was_taken(self) -> bool:
        """True if the build failed because another process tagged the image at the same time."""
        return bool(_NAME_TAKEN.search(self.error))

    @property
    def error(self) -> str:
        """The last error that the builder printed."""
        errors = [line for line in self._last if line.startswith("ERROR: ")]
        return errors[-1].removeprefix("ERROR: ") if errors else ""
