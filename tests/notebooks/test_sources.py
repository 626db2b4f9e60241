"""Sources: found by number, read into cells with ids that stay, turned into notebooks."""

import nbformat
import pytest

from course_utils import exercises
from course_utils.errors import NotebookError
from course_utils.notebooks import sources


def ids(path):
    return [cell.id for cell in sources.read(path).cells]


def test_lessons_are_found_by_number_by_name_or_all(folder, write):
    first, second = write(name="04_first"), write(name="07_second")
    assert sources.find((), folder) == [first, second]
    assert sources.find(("7", "04_first.ipynb"), folder) == [first, second]
    assert sources.find(("07",), folder) == [second]


def test_an_unknown_lesson_is_refused_with_those_that_exist(folder, write):
    write(name="04_first")
    with pytest.raises(NotebookError, match=r"no lesson '05'.*04_first"):
        sources.find(("04", "05"), folder)


def test_every_build_gives_the_same_ids_and_they_are_valid(write, good):
    path = write()
    assert ids(path) == ids(write(good))
    assert len(set(ids(path))) == len(ids(path))
    nbformat.validate(sources.notebook(sources.read(path)))


def test_an_edit_moves_only_the_ids_of_its_own_section(write, good):
    before = ids(write())
    added = '# ## Finding 3\n\n# %%\nprint("new")\n'
    after = ids(write(good.replace("# ## Finding 3\n", added)))
    assert [i for i in before if i not in after] == []
    assert [i for i in after if i not in before] == ["finding-3-3"]


def test_an_answer_cell_is_called_after_its_exercise_wherever_it_stands(write, good):
    assert "answer-90-total" in ids(write())
    assert "answer-90-total" in ids(write(good.replace("## Exercise 90.1", "## Exercise 90.7")))


def test_headings_alike_give_ids_that_differ(write, good):
    for old, new in (("Finding 1", "Finding"), ("Finding 2", "Finding"), ("Finding 3", "Finding_2")):
        good = good.replace(old, new)
    found = ids(write(good))
    assert {"finding-1", "finding_2-1", "finding_2-1_2"} <= set(found)
    assert len(set(found)) == len(found)


def test_a_cell_knows_its_line_tags_and_exercise(write, good):
    path = write()
    cell = next(cell for cell in sources.read(path).cells if cell.exercise_id)
    assert path.read_text().splitlines()[cell.line] == "def total(a, b):"
    assert cell.tags == ("exercise",)
    assert sources.read(path).place(cell.id) == f"notebooks/source/90_one_and_one.py:{cell.line}"


def test_magics_are_live_in_the_notebook(write):
    path = write(
        "# %% [markdown]\n# # 90\n\n# %%\n# %%workers 2\nprint(1)\n\n# %%\n# %load_ext course_utils\n"
    )
    built = sources.notebook(sources.read(path))
    assert [cell.source for cell in built.cells[1:]] == ["%%workers 2\nprint(1)", "%load_ext course_utils"]


def test_stable_cells_carry_the_tag_that_nbval_compares_by(write, good):
    built = sources.notebook(
        sources.read(write(good.replace('tags=["predict"]', 'tags=["predict", "stable"]')))
    )
    tagged = [cell for cell in built.cells if "stable" in cell.metadata.get("tags", [])]
    assert [cell.metadata.tags for cell in tagged] == [["predict", "stable", "nbval-check-output"]]


def test_the_notebook_says_its_lesson_and_nothing_of_the_machine(write):
    metadata = sources.notebook(sources.read(write())).metadata
    assert metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "course": {"lesson": "90_one_and_one"},
    }


def test_answer_and_check_carry_what_nbgrader_needs_and_other_cells_nothing():
    built = sources.notebook(sources.read(sources.find(("04",))[0]))
    known = {
        cell.source.splitlines()[0]: cell.metadata.nbgrader
        for cell in built.cells
        if "nbgrader" in cell.metadata
    }
    points = {exercise.id: exercise.points for exercise in exercises.catalogue.exercises_of("04")}
    assert len(known) == 6
    assert known["def compute_loss(per_example_loss, global_batch_size):"] == {
        "schema_version": 3,
        "grade_id": "answer-04-compute_loss",
        "grade": False,
        "locked": False,
        "solution": True,
        "task": False,
    }
    assert known['cu.check("04.compute_loss", compute_loss)'] == {
        "schema_version": 3,
        "grade_id": "check-04-compute_loss",
        "grade": True,
        "locked": True,
        "points": points["04.compute_loss"],
        "solution": False,
        "task": False,
    }


def test_a_lesson_of_a_release_says_which(write, folder):
    path = write()
    (folder.parent / "RELEASE.json").write_text('{"id": "0.1.0+abc"}', encoding="utf-8")
    assert sources.notebook(sources.read(path)).metadata.course == {
        "lesson": "90_one_and_one",
        "release": "0.1.0+abc",
    }


def test_text_before_the_first_marker_is_refused(write):
    with pytest.raises(NotebookError, match="does not begin with a cell marker"):
        sources.read(write("import os\n\n# %%\n1\n"))


def test_headings_in_code_fences_are_none():
    assert sources.headings("# One\n```\n# two\n```\n## Three") == ["One", "Three"]
