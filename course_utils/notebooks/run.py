"""Runs lessons one after another, or side by side, and says how each of them ended."""

import concurrent.futures
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat

from course_utils.notebooks import sources
from course_utils.notebooks.execute import CellFailed, execute

TIME_LIMITS = {"laptop": 300.0, "full": 7200.0}


@dataclass(frozen=True)
class Outcome:
    """How one lesson ended. `place` is `file:line` of the slowest cell, or of the cell that failed."""

    lesson: str
    seconds: float
    passed: bool
    slowest: float = 0.0
    place: str = ""
    message: str = ""
    traceback: str = ""


def run(
    paths: list[Path],
    *,
    profile: str = "laptop",
    jobs: int = 1,
    time_limit: float | None = None,
    save_in: Path | None = None,
    on_start: Callable[[str], None] = lambda lesson: None,
) -> Iterator[Outcome]:
    """Yields the outcome of each lesson as it ends, in the order of `paths` where `jobs` is 1.

    Executed notebooks go to the folder `save_in`, where given; the repository stays as it is. `time_limit`
    is in seconds for each lesson.
    """
    limit = time_limit or TIME_LIMITS[profile]
    if save_in is not None:
        save_in.mkdir(parents=True, exist_ok=True)
    if jobs == 1:
        for path in paths:
            on_start(path.stem)
            yield run_one(path, profile, limit, save_in)
        return
    # A process each: papermill changes the working folder of the whole process.
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=spawn) as pool:
        waiting = [pool.submit(run_one, path, profile, limit, save_in) for path in paths]
        for future in concurrent.futures.as_completed(waiting):
            yield future.result()


def run_one(path: Path, profile: str, time_limit: float, save_in: Path | None = None) -> Outcome:
    """The outcome of one lesson; what goes wrong in it is part of the outcome, not raised."""
    start = time.monotonic()
    lesson = sources.read(path)
    try:
        done = execute(
            sources.notebook(lesson),
            parameters={"profile": profile},
            time_limit=time_limit,
            save_to=save_in / f"{lesson.name}.ipynb" if save_in else None,
        )
    except CellFailed as error:
        place = lesson.place(error.cell_id)
        seconds = time.monotonic() - start
        return Outcome(lesson.name, seconds, False, 0.0, place, str(error), error.traceback)
    cell_id, slowest = max(cell_seconds(done).items(), key=lambda item: item[1])
    return Outcome(lesson.name, time.monotonic() - start, True, slowest, lesson.place(cell_id))


def cell_seconds(executed: nbformat.NotebookNode) -> dict[str, float]:
    """Seconds that each cell took, by cell id, out of what papermill noted."""
    timed = ((cell.id, cell.metadata.get("papermill", {}).get("duration")) for cell in executed.cells)
    return {cell_id: seconds for cell_id, seconds in timed if seconds is not None}
