"""The solved lesson: each answer cell replaced by the reference answer's own source."""

import dataclasses
import json
import tempfile
from pathlib import Path

from course_utils.notebooks import sources
from course_utils.notebooks.execute import execute


def solved(lesson: sources.Lesson) -> sources.Lesson:
    """The lesson with the reference in each answer cell. Raises ExerciseError where there is no solution."""
    from course_utils.exercises import reference_source

    def solve(cell):
        if cell.exercise_id is None:
            return cell
        return dataclasses.replace(cell, text=reference_source(cell.exercise_id).rstrip("\n"))

    return dataclasses.replace(lesson, cells=tuple(solve(cell) for cell in lesson.cells))


def outcomes(path: Path, *, time_limit: float = 300) -> dict[str, str]:
    """Outcome of each of the lesson's exercises, by id, after the solved lesson ran from top to bottom.

    An exercise that was never checked is "not attempted". Raises `execute.CellFailed`.
    """
    lesson = solved(sources.read(path))
    with tempfile.TemporaryDirectory(prefix="course-") as folder:
        progress = Path(folder) / "progress.json"
        execute(sources.notebook(lesson), time_limit=time_limit, progress=progress)
        saved = json.loads(progress.read_text(encoding="utf-8"))["exercises"] if progress.exists() else {}
    ids = [cell.exercise_id for cell in lesson.cells if cell.exercise_id is not None]
    return {exercise_id: saved.get(exercise_id, {}).get("outcome", "not attempted") for exercise_id in ids}
