"""Points by hand: read from CSV as people save it, every mistake told with its line, kept over regrades."""

from dataclasses import replace

import pytest

from course_utils.errors import GradingError
from course_utils.grading import batch as batches
from course_utils.grading import overrides
from course_utils.grading.model import Graded, Result, Submission
from course_utils.grading.options import Options
from tests.grading.desks import FakeDesk, handed_in

STUDENTS = [Submission("ada", "Ada Lovelace"), Submission("g1", "Grace"), Submission("g2", "Grace")]
POINTS = {"04.compute_loss": 2.0, "04.l2_loss": 2.0}
HEADER = "student,exercise,points,comment\n"


@pytest.fixture
def read(tmp_path):
    def read(text, encoding="utf-8"):
        path = tmp_path / "overrides.csv"
        path.write_bytes(text.encode(encoding))
        rows = overrides.read(path, STUDENTS, POINTS, ["05.train_step"])
        return [(row.student, row.exercise_id, row.points, row.comment) for row in rows]

    return read


def test_a_student_is_known_by_key_or_by_name(read):
    assert read(HEADER + "ada,04.l2_loss,1.5,\nAda Lovelace,,3,Agreed\n") == [
        ("ada", "04.l2_loss", 1.5, ""),
        ("ada", "", 3.0, "Agreed"),
    ]


@pytest.mark.parametrize(
    "text, encoding",
    [
        (HEADER + 'ada,04.l2_loss,1.5,"Well, almost é"\n', "utf-8-sig"),
        ("student;exercise;points;comment\r\nada;04.l2_loss;1,5;Well, almost é\r\n", "utf-8"),
        ("Points\tComment\tStudent\tExercise\n1.5\tWell, almost é\tada\t04.l2_loss\n\n\t\t\t\n", "utf-8"),
    ],
    ids=["Excel, UTF-8", "Excel, German", "tabs, other order, empty rows"],
)
def test_it_is_read_as_spreadsheets_save_it(read, text, encoding):
    assert read(text, encoding) == [("ada", "04.l2_loss", 1.5, "Well, almost é")]


def test_the_template_is_an_empty_file_of_this_kind(read):
    assert read(overrides.TEMPLATE) == []


def test_a_comment_alone_leaves_the_points(read):
    assert read(HEADER + "ada,04.l2_loss,,Look again\n") == [("ada", "04.l2_loss", None, "Look again")]


def test_exercises_that_are_not_graded_now_are_left_for_another_run(read):
    assert read(HEADER + "ada,05.train_step,1,\nada,04.l2_loss,0,\n") == [("ada", "04.l2_loss", 0.0, "")]


@pytest.mark.parametrize(
    "row, told",
    [
        ("adda,04.l2_loss,1,", "line 3: there is no student 'adda'; did you mean 'ada'?"),
        ("Grace,04.l2_loss,1,", "line 3: 2 students are called 'Grace'; give the key: g1, g2"),
        ("ada,04.l2_los,1,", "line 3: there is no exercise '04.l2_los'; did you mean '04.l2_loss'?"),
        ("ada,04.l2_loss,-1,", "line 3: -1 points are below 0"),
        ("ada,04.l2_loss,2.5,", "line 3: 2.5 points are more than the 2 that there are"),
        ("ada,,4.5,", "line 3: 4.5 points are more than the 4 that there are"),
        ("ada,04.l2_loss,full,", "line 3: 'full' is not a number of points"),
        ("ada,04.l2_loss,nan,", "line 3: 'nan' is not a number of points"),
        ("ada,04.l2_loss,inf,", "line 3: 'inf' is not a number of points"),
        ("ada,04.l2_loss,,", "line 3: there are neither points nor a comment"),
        ("ada,04.compute_loss,2,", "line 3: line 2 is on the same student and exercise"),
        (",04.l2_loss,1,", "line 3: there is no student ''"),
    ],
)
def test_a_mistake_is_told_with_its_line(read, row, told):
    with pytest.raises(GradingError) as error:
        read(f"{HEADER}ada,04.compute_loss,1,fine\n{row}\n")
    assert told in str(error.value) and "nothing was graded" in str(error.value)


def test_all_mistakes_are_told_at_once_with_the_lines_where_rows_begin(read):
    rows = 'ada,04.l2_loss,1,"over\ntwo lines"\nbob,,1,\n' + "ada,04.l2_loss,9,\n" * 20
    with pytest.raises(GradingError) as error:
        read(HEADER + rows)
    assert "21 mistakes" in str(error.value) and "line 4: there is no student 'bob'" in str(error.value)
    assert "line 5: 9 points" in str(error.value) and "and 11 more" in str(error.value)


@pytest.mark.parametrize(
    "text, told",
    [
        ("name,mark\nada,3\n", "should name the columns, but it is 'name,mark'"),
        ("", "should name the columns"),
        (HEADER + "ada,04.l2_loss,1,well, almost\n", "line 2: there are more cells than columns"),
        (HEADER + 'ada,04.l2_loss,1,"well\n', "damaged at line"),
    ],
    ids=["other columns", "empty", "comma in a comment", "open quote"],
)
def test_a_file_of_another_kind_is_refused(read, text, told):
    with pytest.raises(GradingError, match=told):
        read(text)


def test_latin_1_is_refused_with_what_to_do(read):
    with pytest.raises(GradingError, match="CSV UTF-8"):
        read(HEADER + "ada,04.l2_loss,1,déjà vu\n", "latin-1")


def test_points_by_hand_stand_in_place_of_the_graders():
    result = Result("04.l2_loss", "L2", "failed", 0.0, 2.0)
    graded = Graded("ada", "Ada", "graded", (result, replace(result, exercise_id="04.compute_loss")))
    rows = [
        overrides.ByHand("ada", "04.l2_loss", 1.5, "Half"),
        overrides.ByHand("eve", "04.compute_loss", 2.0, ""),
    ]
    by_hand = overrides.apply(graded, rows)
    assert by_hand.earned == 1.5 and by_hand.results[0].by_hand and by_hand.results[0].comment == "Half"
    assert by_hand.results[1] == graded.results[1]
    total = overrides.apply(graded, [overrides.ByHand("ada", "", 1.0, "Agreed")])
    assert (total.earned, total.comment) == (1.0, "Agreed")
    assert overrides.apply(graded, [overrides.ByHand("ada", "", None, "Only this")]).earned == 0.0


# In a batch ---------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    """Grade one late student, with a policy; the total."""
    desk = FakeDesk()

    def grade(**options):
        submissions = [handed_in("ada", {"04.compute_loss": "right", "04.l2_loss": "wrong"}, days_late=2.5)]
        options = Options(seed=7, late_policy="10% per day", **options)
        batch = batches.grade_submissions(submissions, tmp_path / "out", options, desk.open)
        return batch.graded[0].earned

    grade.told = lambda: (tmp_path / "out" / "moodle.csv").read_text()
    grade.desk, grade.own = desk, tmp_path / "out" / "overrides.csv"
    return grade


def test_the_first_run_writes_a_template_and_what_is_filled_in_counts_from_then_on(run):
    assert run() == 1.4
    assert run.own.read_text() == overrides.TEMPLATE
    run.own.write_text(HEADER + "ada,04.l2_loss,2,Agreed\n")
    assert [run(), run(regrade=("all",)), run(jobs=1)] == [2.8, 2.8, 2.8]
    assert run.own.read_text() == HEADER + "ada,04.l2_loss,2,Agreed\n"


def test_a_total_by_hand_stands_as_it_is_and_lateness_takes_nothing_off(run):
    run()
    assert "Late by 2.5 days" in run.told()
    run.own.write_text(HEADER + "ada,,3,Agreed\n")
    assert run() == 3.0
    assert "Late" not in run.told() and "Agreed" in run.told()


def test_a_file_elsewhere_is_remembered_and_missed_when_it_is_gone(run, tmp_path):
    elsewhere = tmp_path / "mine.csv"
    elsewhere.write_text(HEADER + "ada,04.l2_loss,2,\n")
    assert [run(overrides=elsewhere), run()] == [2.8, 2.8]
    elsewhere.unlink()
    with pytest.raises(GradingError, match=r"mine\.csv, which should hold points by hand, is not there"):
        run()


def test_a_mistake_in_it_is_told_before_anything_is_graded(run, tmp_path):
    wrong = tmp_path / "wrong.csv"
    wrong.write_text(HEADER + "ada,04.l2_loss,20,\n")
    with pytest.raises(GradingError, match="20 points are more than the 2"):
        run(overrides=wrong)
    assert run.desk.opened == 0
