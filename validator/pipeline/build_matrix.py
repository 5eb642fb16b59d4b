"""The main job: lock, build, probe and record every image spec, several at a time, with the chosen engine.

Each image ends as a recorded verdict, or as a result that says why there is none. Records are kept whatever
happens to the other images: a run that was stopped or killed continues when the same command is run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from ..model.spec import ImageSpec
from ..system import processes
from ..system.pools import THREAD_NAME, as_completed
from .image import process_image
from .run import Event, Phase, Result, Run, Status

#: Seconds after Ctrl-C for engines to remove containers. Don't wait longer for an engine that has stopped
#: answering; the next run removes what it left behind.
_CLEAN_UP_S = 10.0
#: With --fail-fast, these end the run as a failed cell does.
_ENDING = (Status.MISSING, Status.REFUSED)


def build_matrix(specs: Sequence[ImageSpec], run: Run) -> list[Result]:
    """Process the image specs and return their results in the same order, at least one for each.

    A machine with GPUs of several models gives one result for each of them. Ctrl-C ends the child processes;
    images that had not finished get the status `stopped`.
    """
    pool = ThreadPoolExecutor(max(1, run.options.jobs), thread_name_prefix=THREAD_NAME)
    interrupted = False
    futures: list[Future[list[Result]]] = [pool.submit(_process_unless_halted, spec, run) for spec in specs]
    try:
        for future in as_completed(futures):
            for result in future.result():
                run.on_event(Event(result.spec, Phase.DONE, result.detail, result))
    except KeyboardInterrupt:
        interrupted = True
        for other in futures:
            other.cancel()
        processes.stop_all()
        wait(futures, timeout=_CLEAN_UP_S)
    finally:
        pool.shutdown(wait=not interrupted)
    return [result for spec, future in zip(specs, futures, strict=True) for result in _outcome(spec, future)]


def _outcome(spec: ImageSpec, future: Future[list[Result]]) -> list[Result]:
    """Return the results of an image whose thread has ended or is stuck after Ctrl-C.

    This asks the thread itself, because it may have written a record just before Ctrl-C, or while the other
    children were being ended.
    """
    if not future.done() or future.cancelled() or future.exception() is not None:
        return [Result(spec, Status.STOPPED)]
    return future.result()


def _process_unless_halted(spec: ImageSpec, run: Run) -> list[Result]:
    # This has to be decided in the image's own thread. By the time the main thread collects a result, the
    # pool has already started the next image.
    if run.halted.is_set():
        return [
            Result(spec, Status.STOPPED, detail="not started, because another image failed (--fail-fast)")
        ]
    results = process_image(spec, run)
    ended = any(result.failed or result.status in _ENDING for result in results)
    if ended and not run.options.keep_going:
        run.halted.set()
    return results
