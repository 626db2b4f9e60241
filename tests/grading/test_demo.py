"""The class that never was: it holds what it promises to hold, and its check notices a wrong gradebook."""

import csv
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from course_utils.exercises import catalogue
from course_utils.grading import collecting, gradebook, gradescope, pages
from course_utils.grading.demo import answers, comparing, files, planning
from course_utils.grading.model import Batch, BatchInfo, Graded, Result


@pytest.fixture(scope="module")
def planned():
    return planning.plan()


@pytest.fixture(scope="module")
def handed_in(planned, tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "submissions"
    planning.write(planned, folder)
    return folder


def test_it_is_100_students_and_the_same_ones_every_time(planned):
    assert len({one.student for one in planned}) == 100
    assert planning.plan() == planned
    assert planning.plan(seed=5) != planned


def test_every_known_mistake_is_made_and_counts(planned):
    made = Counter(
        (exercise_id, mistake)
        for one in planned
        for exercise_id, (_, mistake) in one.outcomes.items()
        if mistake
    )
    known = {(e.id, mistake.name) for e in catalogue.exercises_of(answers.LESSON) for mistake in e.mistakes}
    assert made.keys() == known


def test_every_kind_of_answer_form_and_way_is_there(planned):
    assert {one.form for one in planned} == {*files.FORMS}
    assert {one.way for one in planned} == {*planning.WAYS}
    written = {variant for one in planned if one.readable for variant in one.written.values()}
    for group in (
        answers.right(),
        answers.wrong(),
        answers.unfinished(),
        answers.endless(),
        answers.hostile(),
    ):
        assert written >= {*group}
    assert {one.status for one in planned} == {"graded", "unreadable", "nothing handed in"}
    assert sum(one.by_hand is not None for one in planned) == 2


def test_what_is_written_is_what_collecting_finds(planned, handed_in):
    found = {one.student: one for one in collecting.collect(handed_in)}
    assert found.keys() == {one.student for one in planned}
    for one in planned:
        (*notebooks,) = found[one.student].notebooks
        assert [bool(each.error) for each in notebooks] == (
            [] if one.form == files.NOTHING else [not one.readable]
        ), one
        assert (found[one.student].days_late > 0) == (one.way == planning.LATE)
        if one.readable:
            assert notebooks[0].answers.keys() == one.written.keys(), one


# --- the check of the gradebook


def as_planned(one: planning.Planned) -> Graded:
    """What grading has to make of a student, without grading."""
    results = []
    for exercise_id, (outcome, mistake) in one.outcomes.items():
        possible = float(catalogue.find(exercise_id).points)
        by_hand = one.by_hand if exercise_id == planning.BY_HAND else None
        points = by_hand if by_hand is not None else possible * (outcome == "passed")
        look = ("odd",) * (one.readable and one.written[exercise_id].look)
        results.append(
            Result(exercise_id, exercise_id, outcome, points, possible, mistake=mistake, look=look)
        )
    earned = sum(result.points for result in results)
    notes = ("It is none.",) * (one.status == "unreadable")
    return Graded(
        f"s{one.number}", one.student, one.status, tuple(results), notes=notes, penalty=earned - one.points
    )


def write_grades(students: list[Graded], folder: Path) -> Path:
    batch = Batch(tuple(students), tuple(answers.SIGNATURES), seed=1)
    texts = {"gradebook.csv": gradebook.gradebook(batch), "index.html": pages.class_page(batch, BatchInfo())}
    for one in students:
        texts[f"results/{one.key}.json"] = json.dumps(gradescope.results(one))
        texts[f"feedback/{one.key}.html"] = pages.student(one, BatchInfo())
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_a_gradebook_as_planned_is_found_to_be_right(planned, tmp_path):
    rows, strangers = comparing.compare(planned, write_grades([as_planned(one) for one in planned], tmp_path))
    assert [row for row in rows if row.differences] == []
    assert strangers == []


def change(one: Graded, **parts) -> Graded:
    first, *rest = one.results
    return replace(one, results=(replace(first, **parts), *rest))


@pytest.mark.parametrize(
    "spoil, said",
    [
        (lambda one: change(one, points=1.0), "total"),
        (lambda one: change(one, outcome="raised"), "04.compute_loss"),
        (lambda one: change(one, mistake="another"), "04.compute_loss"),
        (lambda one: change(one, look=("odd",)), "to look at"),
        (lambda one: replace(one, status="unreadable"), "status"),
        (lambda one: replace(one, student="Somebody Else"), "0 rows"),
    ],
)
def test_one_wrong_entry_in_the_gradebook_is_noticed(planned, tmp_path, spoil, said):
    some = [one for one in planned if one.points == 7 and one.way == "folder"][:3]
    grades = [as_planned(one) for one in some]
    rows, strangers = comparing.compare(some, write_grades([spoil(grades[0]), *grades[1:]], tmp_path))
    assert [bool(row.differences) for row in rows] == [True, False, False]
    assert any(said in told for told in rows[0].differences)
    assert strangers == (["s" + str(some[0].number)] if "rows" in said else [])


def test_a_student_too_many_and_a_missing_page_are_noticed(planned, tmp_path):
    some = [one for one in planned if one.points == 7 and one.way == "folder"][:2]
    write_grades([as_planned(one) for one in some], tmp_path)
    assert comparing.compare(some[:1], tmp_path)[1] == [f"s{some[1].number}"]
    (tmp_path / "feedback" / f"s{some[0].number}.html").unlink()
    rows, _ = comparing.compare(some, tmp_path)
    assert rows[0].differences == ("no page",)


def test_names_that_a_spreadsheet_would_run_are_found_again(planned, tmp_path):
    grades = write_grades([as_planned(one) for one in planned], tmp_path)
    with (grades / "gradebook.csv").open(encoding="utf-8-sig", newline="") as file:
        shown = [row["student"] for row in csv.DictReader(file)]
    assert "'=SUM(A1:A9)" in shown  # made harmless; the comparison above takes it for the same student
