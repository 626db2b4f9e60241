"""The lessons as nbgrader wants them from an instructor: with solutions, which it takes out again.

Each lesson is an assignment: `nbgrader generate_assignment 04_loss_scaling` makes the learners' notebook, its
answer cells as in ours, and `nbgrader autograde 04_loss_scaling` grades what was handed in.
"""

from pathlib import Path

import nbformat

from course_utils.grading import bundle
from course_utils.notebooks import sources

CONFIG = '''\
"""nbgrader's settings for the lessons in source/, which hold SOLUTIONS: this folder is for instructors."""

c = get_config()  # noqa: F821

c.CourseDirectory.course_id = "distributed_tensorflow"
# A lesson's longest cell trains for some seconds; a check may take a minute.
c.ExecutePreprocessor.timeout = c.Execute.timeout = 180
# Between the two lines that mark a solution, nothing is to stay: the learner's stub stands above them.
c.ClearSolutions.code_stub = {"python": ""}
'''


def contents(paths: list[Path]) -> dict[str, bytes]:
    """Files of nbgrader's course folder for the lessons with these sources."""
    notebooks = {f"source/{path.stem}/{path.stem}.ipynb": bundle.written(_solved(path)) for path in paths}
    return {"nbgrader_config.py": CONFIG.encode()} | notebooks


def _solved(path: Path) -> nbformat.NotebookNode:
    """The lesson's notebook, with the reference in each answer cell between the marks that nbgrader knows."""
    from course_utils.exercises import reference_source

    notebook = sources.notebook(sources.read(path))
    for cell in notebook.cells:
        if (exercise_id := cell.metadata.get("exercise_id")) is not None:
            solution = reference_source(exercise_id).rstrip()
            cell.source = f"{cell.source}\n### BEGIN SOLUTION\n{solution}\n### END SOLUTION"
    return notebook
