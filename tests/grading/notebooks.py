"""Submissions made from the real notebook of lesson 04, as learners would hand them in."""

from pathlib import Path

import nbformat

from course_utils.exercises.solutions import reference_source
from course_utils.notebooks.sources import FOLDER

NOTEBOOK = next(FOLDER.glob("04_*.ipynb"))
LOSS, L2, UNEVEN = "04.compute_loss", "04.l2_loss", "04.uneven_batch"
RIGHT = {exercise_id: reference_source(exercise_id) for exercise_id in (LOSS, L2, UNEVEN)}
HEAD = "def compute_loss(per_example_loss, global_batch_size):\n    "
ANSWERS = {
    "mean": HEAD + "return tf.reduce_mean(per_example_loss)\n",
    "sum": HEAD + "return tf.reduce_sum(per_example_loss)\n",
    "raises": HEAD + "return 1 / 0\n",
    "exits": HEAD + "import os\n    os._exit(0)\n",
    "endless": HEAD + "while True:\n        pass\n",
    "syntax": HEAD + "return (\n",
}
EXPECTED = {  # what each student should get for the three exercises
    "right": [2, 2, 3],
    "two-right": [2, 2, 0],
    "untouched": [0, 0, 0],
    "own-cell": [2, 0, 0],
    **{name: [0, 0, 0] for name in ANSWERS},
    "no-notebook": [None, None, None],  # nothing to read, so no points until a hand gives some
    "nothing": [0, 0, 0],
}


def write_all(folder: Path) -> None:
    """A dozen students, a folder each."""
    write(folder, "right", RIGHT)
    write(folder, "two-right", {LOSS: RIGHT[LOSS], L2: RIGHT[L2]})
    write(folder, "untouched", {})
    write(folder, "own-cell", {LOSS: RIGHT[LOSS]}, more="import os\nprint('a cell of my own')")
    for name, source in ANSWERS.items():
        write(folder, name, {LOSS: source})
    (folder / "no-notebook").mkdir()
    (folder / "no-notebook" / "homework.ipynb").write_bytes(b"%PDF-1.7 a renamed PDF")
    (folder / "nothing").mkdir()


def write(folder: Path, student: str, answers: dict[str, str], more: str = "") -> None:
    """One student's notebook, with these answers in their cells."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        if cell.metadata.get("exercise_id") in answers:
            cell.source = answers[cell.metadata["exercise_id"]]
    if more:
        notebook.cells.append(nbformat.v4.new_code_cell(more))
    (folder / student).mkdir(parents=True)
    nbformat.write(notebook, folder / student / NOTEBOOK.name)
