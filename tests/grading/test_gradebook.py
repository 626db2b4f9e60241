"""What people, Canvas, Moodle, Gradescope and CI read: the same bytes for the same results."""

import csv
import io
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from course_utils.grading import gradebook, gradescope, junit
from course_utils.grading.model import UNGRADED, Batch, Graded, Line, Result

LOSS = Result("04.compute_loss", "A loss", "passed", 2.0, 2.0, message="Right.")
L2 = Result(
    "04.l2_loss",
    "An L2 term",
    "failed",
    0.0,
    3.0,
    mistake="added once a replica",
    message="It is 4 times too big.",
    try_this="Divide it.",
    about="4 replicas",
    lines=(Line("loss", "8", "2", False), Line("parts", "4", "4", True)),
    where="line 2: return total",
    look=("It reads the clock.",),
    seconds=1.25,
    memory=2**20,
)


def graded(key="ada", student="Ada Lovelace", results=(LOSS, L2), **more):
    return Graded(key, student, more.pop("status", "graded"), results, **more)


def batch(*students):
    return Batch(students or (graded(),), (LOSS.exercise_id, L2.exercise_id), seed=7)


def rows(text):
    return list(csv.reader(io.StringIO(text.removeprefix(gradebook.MARK), newline="")))


def test_the_gradebook_has_a_row_a_student_and_a_column_an_exercise():
    late = graded("grace", "Grace", penalty=0.5, days_late=2.0, comment="Agreed.")
    assert rows(gradebook.gradebook(batch(graded(), late))) == [
        ["key", "student", "04.compute_loss", "04.l2_loss", "late", "total", "possible", "status", "comment"],
        ["ada", "Ada Lovelace", "2", "0", "0", "2", "5", "graded", ""],
        ["grace", "Grace", "2", "0", "0.5", "1.5", "5", "graded", "Agreed."],
    ]


def test_excel_is_told_that_the_gradebook_is_utf_8_and_programs_are_not():
    assert gradebook.gradebook(batch()).startswith("\ufeff")
    assert not gradebook.canvas(batch(), "Lesson 04").startswith("\ufeff")
    assert not gradebook.moodle(batch()).startswith("\ufeff")


@pytest.mark.parametrize(
    "name", ["=HYPERLINK(1)", "+1+1", "-2+3", "@SUM(1)", "\t=1", "  =1", "\r=1", "＝1", "=1\n=2"], ids=repr
)
def test_no_name_is_a_formula(name):
    for text in (
        gradebook.gradebook(batch(graded(student=name))),
        gradebook.canvas(batch(graded(student=name)), "x"),
        gradebook.moodle(batch(graded(student=name, comment=name))),
    ):
        cells = [cell for row in rows(text)[1:] for cell in row if "1" in cell or "2+3" in cell]
        assert cells and not any(cell.strip().startswith(("=", "+", "-", "@", "＝")) for cell in cells)
        assert all("\n" not in cell and "\r" not in cell for cell in cells)


def test_numbers_and_ordinary_names_are_left_alone():
    for name in ('O\'Neil, "Ann"', "Zoë 🎓", "../../etc", "7", "-"):
        assert rows(gradebook.gradebook(batch(graded(student=name))))[1][1] == name


def test_points_are_written_to_the_hundredth_without_needless_zeros():
    assert [gradebook.number(points) for points in (0.0, 2.0, 1.5, 2 / 3, 10.0, 100.0, 12345.67)] == [
        *("0", "2", "1.5", "0.67", "10", "100", "12345.67"),
    ]


def test_what_could_not_be_graded_leaves_the_total_empty_until_a_hand_gives_points():
    ungraded = replace(L2, outcome=UNGRADED, mistake=None, message="A fault of ours.")
    lacking = graded(results=(LOSS, ungraded), status="not all graded")
    assert rows(gradebook.gradebook(batch(lacking)))[1][2:6] == ["2", "", "0", ""]
    assert rows(gradebook.canvas(batch(lacking), "x"))[2][5] == ""
    assert rows(gradebook.moodle(batch(lacking)))[1][2] == ""
    by_hand = graded(results=(LOSS, replace(ungraded, points=3.0, by_hand=True)))
    assert rows(gradebook.gradebook(batch(by_hand)))[1][2:6] == ["2", "3", "0", "5"]


def test_canvas_reads_its_five_columns_the_assignment_and_the_points_possible():
    text = gradebook.canvas(batch(graded(ids={"canvas": "4711"}), graded("b", "B")), "Loss scaling (99)")
    assert rows(text) == [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Loss scaling (99)"],
        ["    Points Possible", "", "", "", "", "5"],
        ["Ada Lovelace", "4711", "", "", "", "2"],
        ["B", "", "", "", "", "2"],
    ]


def test_students_of_one_name_are_told_apart_by_key_unless_the_platform_knows_them():
    twins = [graded("alice", "Alice"), graded("alice-2", "alice "), graded("b", "B")]
    names = [row[0] for row in rows(gradebook.canvas(batch(*twins), "x"))[2:]]
    assert names == ["Alice [alice]", "alice [alice-2]", "B"]
    assert [row[1] for row in rows(gradebook.moodle(batch(*twins)))[1:]] == names
    known = [graded("alice", "Alice", ids={"canvas": "1"}), graded("alice-2", "Alice", ids={"canvas": "2"})]
    assert [row[0] for row in rows(gradebook.canvas(batch(*known), "x"))[2:]] == ["Alice", "Alice"]


def test_moodle_reads_participant_grade_when_it_was_changed_and_feedback():
    header, row = rows(gradebook.moodle(batch(graded(ids={"moodle": "123"}, comment="See <me> & bring it"))))
    # Moodle's importer refuses a worksheet without these three.
    assert {"Identifier", "Grade", "Last modified (grade)"} <= {*header}
    told = dict(zip(header, row, strict=True))
    assert told["Identifier"] == "Participant 123" and told["Grade"] == "2" and told["Maximum Grade"] == "5"
    assert told["Last modified (grade)"] == "-"
    assert told["Feedback comments"].split("<br>") == [
        "A loss: 2 of 2 points.",
        "An L2 term: 0 of 3 points (added once a replica).",
        "See &lt;me&gt; &amp; bring it",
    ]


def test_there_is_nothing_in_the_gradebooks_that_differs_from_run_to_run():
    slow = batch(graded(results=(LOSS, replace(L2, seconds=9.9, memory=77)), seconds=9.9))
    for write in (gradebook.gradebook, gradebook.moodle, lambda b: gradebook.canvas(b, "x"), junit.junit):
        assert write(slow) == write(batch())
    assert gradescope.results(slow.graded[0]) == gradescope.results(graded())


# Gradescope ---------------------------------------------------------------------------------------------


def test_gradescope_gets_a_test_an_exercise():
    told = gradescope.results(graded())
    assert told["score"] == 2.0 and told["visibility"] == "visible"
    passed, failed = told["tests"]
    assert (passed["name"], passed["score"], passed["max_score"], passed["status"]) == (
        "A loss",
        2,
        2,
        "passed",
    )
    assert (failed["number"], failed["score"], failed["max_score"], failed["status"]) == (
        *("04.l2_loss", 0, 3, "failed"),
    )
    assert failed["output"].splitlines() == [
        "failed, added once a replica",
        "It is 4 times too big.",
        "4 replicas",
        "line 2: return total",
        "loss: yours 8, expected 2",
        "Divide it.",
    ]


def test_gradescope_gets_nothing_that_is_for_the_instructor_alone():
    assert "clock" not in str(gradescope.results(graded()))


def test_gradescope_is_told_of_lateness_points_by_hand_and_what_is_missing():
    late = gradescope.results(graded(penalty=0.5, days_late=1.0))
    assert late["score"] == 1.5 and "Late by 1 days: 0.5 points less." in late["output"]
    by_hand = replace(L2, points=1.5, by_hand=True, comment="Half right.")
    assert gradescope.results(graded(results=(LOSS, by_hand)))["score"] == 3.5
    assert "1.5 points by hand" in gradescope.test(by_hand)["output"]
    assert gradescope.results(graded(total=4.0, penalty=1.0))["score"] == 4.0
    lacking = gradescope.results(graded(results=(LOSS, replace(L2, outcome=UNGRADED))))
    assert "status" not in lacking["tests"][1] and "could be graded yet" in lacking["output"]


# JUnit --------------------------------------------------------------------------------------------------


def test_junit_has_a_suite_a_student_and_a_case_an_exercise():
    skipped = replace(L2, outcome="not attempted", mistake=None)
    broken = replace(L2, outcome=UNGRADED)
    root = ElementTree.fromstring(
        junit.junit(batch(graded(), graded("b", "B", (LOSS, skipped)), graded("c", "C", (LOSS, broken))))
    )
    suites = root.findall("testsuite")
    counts = [[suite.get(name) for name in ("tests", "failures", "errors", "skipped")] for suite in suites]
    assert [suite.get("name") for suite in suites] == ["ada", "b", "c"]
    assert counts == [["2", "1", "0", "0"], ["2", "0", "0", "1"], ["2", "0", "1", "0"]]
    failure = suites[0].find("testcase/failure")
    assert failure.get("type") == "added once a replica" and "Divide it." in failure.text


def test_junit_is_xml_whatever_stands_in_an_answer():
    nasty = "\x00\x1b[31m ]]> <b> & \ud800 \uffff 🎓"
    text = junit.junit(
        batch(graded(student=nasty, results=(LOSS, replace(L2, message=nasty, mistake=nasty))))
    )
    root = ElementTree.fromstring(text.encode("utf-8", "strict"))
    assert "<b> &" in root.find("testsuite/testcase/failure").text
