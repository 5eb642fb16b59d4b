"""Lock, build, probe and record every image spec, several at a time.

Each image ends as a recorded verdict, or as a result that says why there is none. What is recorded stays,
whatever happens to the rest: a run that is stopped or killed goes on where it was by being started again.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from enum import Enum

from ..engines.base import Engine
from ..engines.docker import BasePolicy, find
from ..engines.venv import VenvEngine
from ..errors import MissingError
from ..model.spec import ImageSpec
from ..system import processes
from ..system.sources import PackageSources
from .image import measure
from .work import Event, Phase, Result, Status, Work

#: What ends a run that is not to keep going, besides a cell that failed.
_ENDING = (Status.MISSING, Status.REFUSED)


def build_matrix(specs: Sequence[ImageSpec], work: Work) -> list[Result]:
    """Work through the image specs; the results are in the order of `specs`.

    On Ctrl-C the children are ended, and what had not finished has the status `stopped`.
    """
    pool = ThreadPoolExecutor(max_workers=max(1, work.options.jobs), thread_name_prefix="image")
    futures: list[Future[Result]] = [pool.submit(_in_turn, spec, work) for spec in specs]
    try:
        for future in as_completed(futures):
            result = future.result()
            work.listen(Event(result.spec, Phase.DONE, result.detail, result))
    except KeyboardInterrupt:
        for other in futures:
            other.cancel()
        processes.stop_all()
    finally:
        pool.shutdown(wait=True)
    return [_outcome(spec, future) for spec, future in zip(specs, futures, strict=True)]


def _outcome(spec: ImageSpec, future: Future[Result]) -> Result:
    """What came of an image, now that its thread has ended.

    Asked of the thread: a record may have been written just before Ctrl-C, or while the others were ended.
    """
    if future.cancelled() or future.exception() is not None:
        return Result(spec, Status.STOPPED)
    return future.result()


def _in_turn(spec: ImageSpec, work: Work) -> Result:
    # Decided here and not where results are collected: there, the next image would have begun by then.
    if work.halted.is_set():
        return Result(spec, Status.STOPPED, detail="after another had failed")
    result = measure(spec, work)
    if not work.options.keep_going and (result.failed or result.status in _ENDING):
        work.halted.set()
    return result


# Which engine a run uses: the one that was named, or docker where one answers.


class EngineChoice(str, Enum):
    """What may be asked for."""

    AUTO = "auto"
    DOCKER = "docker"
    VENV = "venv"


def choose_engine(
    choice: EngineChoice,
    sources: PackageSources,
    base: BasePolicy = BasePolicy.AUTO,
    cache: str | None = None,
) -> tuple[Engine, str]:
    """The engine, and one line that says which it is and why. cache: see `DockerEngine`.

    Raises MissingError when docker was named and none answers.
    """
    if choice is EngineChoice.VENV:
        engine: Engine = VenvEngine(sources)
        return engine, f"venv, as asked: {engine.describe()}"
    try:
        engine = find(sources, base, cache)
    except MissingError as error:
        if choice is EngineChoice.DOCKER:
            raise
        engine = VenvEngine(sources)
        return engine, f"venv, since docker can't be used ({error}): {engine.describe()}"
    why = "as asked" if choice is EngineChoice.DOCKER else "since it answers"
    return engine, f"docker, {why}: {engine.describe()}"
