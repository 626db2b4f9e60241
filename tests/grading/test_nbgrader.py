"""The real nbgrader takes our lessons: it releases and validates them, and gives the points that we give."""

from pathlib import Path

import nbformat
import pytest
from nbgraders_own import Nbgrader, Unreachable, install

from course_utils.exercises import catalogue
from course_utils.grading import batch
from course_utils.grading.model import UNGRADED
from course_utils.grading.options import Options
from course_utils.grading.release import release
from course_utils.notebooks import sources

# nbgrader runs the lesson four times; the first test may have to install it.
pytestmark = pytest.mark.timeout(900)
LESSON = "02_where_does_the_batch_go"  # one that runs in some seconds
RIGHT = {
    "02.keep_the_global_batch": """\
def keep_the_global_batch(context, dataset, global_batch):
    return dataset.batch(context.get_per_replica_batch_size(global_batch))
""",
    "02.shares": """\
def shares(batch_size, replicas):
    share, left = -(-batch_size // replicas), batch_size
    return [left - (left := max(left - share, 0)) for _ in range(replicas)]
""",
    "02.pick_the_function": """\
def pick_the_function(strategy, dataset, batched_for):
    if batched_for == "one replica":
        return strategy.distribute_datasets_from_function(lambda context: dataset)
    return strategy.experimental_distribute_dataset(dataset)
""",
}
PARTLY = {
    "02.keep_the_global_batch": RIGHT["02.keep_the_global_batch"],
    "02.shares": "def shares(batch_size, replicas):\n    return [batch_size // replicas] * replicas\n",
}
WRONG = {
    "02.keep_the_global_batch": "def keep_the_global_batch(context, dataset, global_batch):\n    1 / 0\n",
    "02.shares": "class Equal(list):\n    __eq__ = lambda *_: True\n\nshares = lambda *_: Equal()\n",
    "02.pick_the_function": "pick_the_function = 5\n",
}
STUDENTS = {"right": RIGHT, "partly": PARTLY, "wrong": WRONG}


@pytest.fixture(scope="module")
def nbgrader(tmp_path_factory):
    """nbgrader on a course folder of ours, with a release made and handed in by three students."""
    try:
        python = install()
    except Unreachable as error:
        pytest.skip(f"nbgrader cannot be installed here: {error}")
    folder = tmp_path_factory.mktemp("nbgrader") / "course"
    release(folder, (LESSON,), nbgrader=True)
    ours = Nbgrader(python, folder)
    ours.run("generate_assignment", LESSON, "--create")
    for student, answers in STUDENTS.items():
        hand_in(folder, student, answers)
    return ours


def handed_in(folder, student) -> Path:
    return folder / "submitted" / student / LESSON / f"{LESSON}.ipynb"


def hand_in(folder, student, answers):
    path = handed_in(folder, student)
    path.parent.mkdir(parents=True)
    notebook = read(folder / "release" / LESSON / f"{LESSON}.ipynb")
    if student != "right":  # who has removed all but the set-up, answers and checks: it runs faster, too
        setup = next(cell for cell in notebook.cells if "import course_utils" in cell.source)
        notebook.cells = [cell for cell in notebook.cells if cell is setup or "nbgrader" in cell.metadata]
    for cell in notebook.cells:
        cell.source = answers.get(cell.metadata.get("exercise_id"), cell.source)
        if student == "wrong" and cell.source.startswith("cu.check("):
            cell.source = "pass"  # who takes the check away gets nothing either
    nbformat.write(notebook, path)


def read(path):
    return nbformat.read(path, as_version=nbformat.NO_CONVERT)


@pytest.fixture(scope="module")
def validated_and_graded(nbgrader):
    """What validating said of a submission; meanwhile, all are graded."""
    validating = nbgrader.start("validate", str(handed_in(nbgrader.folder, "partly")))
    try:
        nbgrader.run("autograde", LESSON, "--create")
        said, _ = validating.communicate(timeout=120)
    finally:
        validating.kill()
        validating.wait()
    return said


def test_what_nbgrader_releases_has_our_stubs_and_no_solution(nbgrader):
    released = read(nbgrader.folder / "release" / LESSON / f"{LESSON}.ipynb")
    ours = sources.notebook(sources.read(sources.find((LESSON,))[0]))
    assert [cell.source.rstrip() for cell in released.cells] == [cell.source.rstrip() for cell in ours.cells]
    assert released.metadata.course.lesson == LESSON and "+" in released.metadata.course.release


def test_validating_tells_the_verdicts_words_for_each_answer_that_earns_nothing(validated_and_graded):
    assert "VALIDATION FAILED ON 2 CELL(S)" in validated_and_graded
    for words in ("Recognised: always divides", "Nothing to check yet"):
        assert words in validated_and_graded, words


def test_nbgrader_gives_the_points_that_we_give(nbgrader, validated_and_graded, tmp_path):
    points = {exercise.id: exercise.points for exercise in catalogue.exercises_of(LESSON[:2])}
    graded = batch.grade(nbgrader.folder / "submitted", tmp_path / "grades", Options(seed=7)).graded
    results = [result for each in graded for result in each.results]
    assert [result for result in results if result.outcome == UNGRADED] == []
    ours = {each.student: {result.exercise_id: result.points for result in each.results} for each in graded}
    theirs = {
        student: {name.removeprefix("check-").replace("-", ".", 1): score for name, score in scores.items()}
        for student, scores in nbgrader.grades().items()
    }
    assert theirs == ours
    assert ours["right"] == points
    assert ours["wrong"] == dict.fromkeys(points, 0)
