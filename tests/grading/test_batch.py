"""A batch: who is graded on what, what is kept, what is graded anew, and that nothing stops it."""

import contextlib
import csv
import io
import json
import signal
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from rich.console import Console

from course_utils.errors import CourseError, GradingError
from course_utils.grading import batch as batches
from course_utils.grading import pages, report, store
from course_utils.grading.desk import OVERHEAD, Desk
from course_utils.grading.examination import Stopped
from course_utils.grading.model import UNGRADED, Answer, Notebook, Submission
from course_utils.grading.options import Options, cores, size, words
from tests.grading import notebooks
from tests.grading.desks import FakeDesk, handed_in

LOSS, L2, UNEVEN = "04.compute_loss", "04.l2_loss", "04.uneven_batch"
CLASS = [
    handed_in("ada", {LOSS: "right", L2: "right", UNEVEN: "right"}),
    handed_in("grace", {LOSS: "wrong", L2: "right"}),
    handed_in("alan", {LOSS: "other", UNEVEN: "right"}),
]


@pytest.fixture
def desk():
    return FakeDesk()


@pytest.fixture
def run(desk, tmp_path):
    """Grade submissions into one folder; its files are in `run.out`."""

    def grade(submissions=CLASS, **options):
        options = Options(**{"seed": 7, **options})
        return batches.grade_submissions(submissions, tmp_path / "out", options, desk.open)

    grade.out = tmp_path / "out"
    return grade


def table(out):
    text = (out / "gradebook.csv").read_text(encoding="utf-8-sig")
    return {row["key"]: row for row in csv.DictReader(io.StringIO(text))}


def test_a_row_a_student_a_column_an_exercise_and_the_total(run):
    run()
    rows = table(run.out)
    assert list(rows) == ["ada", "grace", "alan"]
    assert [rows["ada"][column] for column in (LOSS, L2, UNEVEN, "total", "possible")] == list("22377")
    assert [rows["grace"][column] for column in (LOSS, L2, UNEVEN, "total")] == list("0202")
    assert {row["status"] for row in rows.values()} == {"graded"}


def test_every_file_is_written_and_no_other(run):
    run()
    written = {path.relative_to(run.out).as_posix() for path in run.out.rglob("*") if path.is_file()}
    keys = ("ada", "alan", "grace")
    assert {name for name in written if not name.startswith(".work/")} == {
        *("gradebook.csv", "canvas.csv", "moodle.csv", "index.html", "overrides.csv"),
        *(f"results/{key}.json" for key in keys),
        *(f"feedback/{key}.html" for key in keys),
    }
    assert not (run.out / ".work" / "parts").exists()


def test_a_second_run_examines_nothing_and_opens_no_desk(run, desk):
    run()
    first, desk.examined = (run.out / "gradebook.csv").read_bytes(), []
    run()
    assert desk.examined == [] and desk.opened == 1
    assert (run.out / "gradebook.csv").read_bytes() == first


def test_equal_answers_are_examined_once(run, desk):
    run()
    assert sorted(desk.examined) == sorted(set(desk.examined))
    assert desk.examined.count((L2, "right")) == 1


def test_only_what_changed_is_examined_again(run, desk):
    run()
    desk.examined = []
    run([*CLASS[:2], handed_in("alan", {LOSS: "right", L2: "new", UNEVEN: "right"})])
    assert desk.examined == [(L2, "new")]  # ada has given the right loss already
    assert table(run.out)["alan"]["total"] == "5"


@pytest.mark.parametrize(
    "changed",
    [
        {"seed": 8},
        {"timeout": 3.0},
        {"memory": 1024**3},
    ],
    ids=str,
)
def test_another_seed_or_limit_examines_all_again(run, desk, changed):
    run()
    count, desk.examined = len(desk.examined), []
    run(**changed)
    assert len(desk.examined) == count


def test_how_many_run_side_by_side_changes_nothing(run, desk):
    run(jobs=1)
    first, desk.examined = (run.out / "gradebook.csv").read_bytes(), []
    run(jobs=4)
    assert desk.examined == [] and (run.out / "gradebook.csv").read_bytes() == first


def test_a_changed_exercise_is_examined_again(run, desk, monkeypatch):
    run()
    desk.examined = []
    monkeypatch.setattr(store, "version", lambda lesson: f"another version of {lesson}")
    run()
    assert len(desk.examined) == 7


def test_what_can_change_a_verdict_makes_another_version_and_nothing_else(tmp_path, monkeypatch):
    for name in ("exercises/lesson_04.py", "exercises/lesson_05.py", "exercises/judging.py", "models.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    for name in ("grading/desk.py", "grading/gradebook.py", "notebooks/lint.py", "cli.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.setattr(store, "PACKAGE", tmp_path)

    def changed_by(name):
        before = store.version.__wrapped__("04")
        (tmp_path / name).write_text(f"{name} = 2")
        return store.version.__wrapped__("04") != before

    assert all(
        map(changed_by, ("exercises/lesson_04.py", "exercises/judging.py", "models.py", "grading/desk.py"))
    )
    rest = ("exercises/lesson_05.py", "grading/gradebook.py", "notebooks/lint.py", "cli.py")
    assert not any(map(changed_by, rest))


def test_the_seed_is_drawn_once_and_kept(run, desk):
    first = run(seed=None)
    count, desk.examined = len(desk.examined), []
    assert run(seed=None).seed == first.seed > 0
    assert count and not desk.examined


def test_the_learners_own_seed_is_refused(run):
    with pytest.raises(GradingError, match="learners' own"):
        run(seed=0)


@pytest.mark.parametrize("told, again", [(("all",), 7), (("04",), 7), ((L2,), 2)], ids=str)
def test_regrading_examines_what_is_named(run, desk, told, again):
    run()
    desk.examined = []
    run(regrade=told)
    assert len(desk.examined) == again


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "\0" * 200,
        lambda text: text.replace('"points": 0.0', '"points": 2.0'),
        lambda text: "[" * 100_000,
    ],
    ids=["empty", "cut off", "a list", "zeros", "points changed", "deep"],
)
def test_a_damaged_result_is_examined_again(run, desk, damage):
    run()
    good = (run.out / "gradebook.csv").read_bytes()
    kept = sorted((run.out / ".work" / "answers" / LOSS).glob("*.json"))
    wrong = next(path for path in kept if '"wrong"' in path.read_text())
    wrong.write_text(damage(wrong.read_text()))
    desk.examined = []
    run()
    assert desk.examined == [(LOSS, "wrong")]
    assert (run.out / "gradebook.csv").read_bytes() == good


def test_a_damaged_memory_of_the_last_run_stops_nothing(run):
    run()
    (run.out / ".work" / "run.json").write_text('{"seed": "seven", "written": 3')
    assert run(seed=None).seed > 0


def test_a_fault_of_the_grader_is_one_result_flagged_and_tried_again(run, desk):
    submissions = [*CLASS, handed_in("linus", {LOSS: "bug", L2: "right"})]
    batch = run(submissions)
    linus = next(graded for graded in batch.graded if graded.key == "linus")
    assert linus.results[0].outcome == UNGRADED and "ZeroDivisionError" in linus.results[0].look[0]
    assert table(run.out)["linus"][LOSS] == table(run.out)["linus"]["total"] == ""
    assert table(run.out)["linus"]["status"] == "not all graded"
    assert table(run.out)["ada"]["total"] == "7"
    assert "ZeroDivisionError: in the grader itself" in (run.out / "faults.txt").read_text()
    desk.examined = []
    desk.examine = lambda exercise_id, answer, alone: FakeDesk.examine(
        desk, exercise_id, replace(answer, source="right")
    )
    run(submissions)
    assert len(desk.examined) == 1
    assert table(run.out)["linus"]["total"] == "4" and not (run.out / "faults.txt").exists()


def test_what_timed_out_is_examined_once_more_when_all_others_are_done(run, desk):
    slow = [handed_in("slow", {LOSS: "slow", L2: "endless"}), *CLASS]
    batch = run(slow, jobs=3)
    assert [result.outcome for result in batch.graded[0].results] == ["passed", "timed out", "not attempted"]
    assert sorted(desk.alone) == [(LOSS, "slow"), (L2, "endless")]
    assert sorted(desk.examined[-2:]) == sorted(desk.alone) and len(desk.examined) == 9 + 2
    desk.examined = []
    run(slow)
    assert desk.examined == []


def test_a_second_look_is_taken_with_nothing_beside_it(run, desk):
    beside, at_once, lock = [], [], threading.Lock()
    examine = desk.examine

    def watched(exercise_id, answer, alone):
        with lock:
            at_once.append(exercise_id)
        time.sleep(0.02)  # so that two at a time would meet
        result = examine(exercise_id, answer, alone)
        with lock:
            beside.extend([len(at_once)] if alone else [])
            at_once.remove(exercise_id)
        return result

    desk.examine = watched
    run([handed_in("slow", {LOSS: "slow", L2: "endless", UNEVEN: "endless"}), *CLASS], jobs=3)
    assert beside == [1, 1, 1]


def test_a_second_look_has_twice_the_time():
    class Runs(Exception):
        pass

    class Runner:
        def run(self, job, seconds):
            raise Runs(job["seconds"], seconds - OVERHEAD)

    def given(**how):
        with pytest.raises(Runs) as ran:
            Desk(Runner(), 7, timeout=9.0).examine(LOSS, Answer(LOSS, "def compute_loss(): pass"), **how)
        return ran.value.args

    assert given() == (9.0, 9.0) and given(alone=True) == (18.0, 18.0)


def test_a_full_disk_ends_the_batch_with_its_own_error(run, monkeypatch):
    def full(self, key, result):
        raise OSError(28, "No space left on device", "out/.work")

    monkeypatch.setattr(store.Store, "write", full)
    with pytest.raises(OSError, match="No space left"):
        run()
    monkeypatch.undo()
    run()


def test_what_is_printed_names_what_needs_a_hand_and_tells_programs(run, desk, monkeypatch):
    submissions = [*CLASS, handed_in("linus", {LOSS: "bug"})]
    monkeypatch.setattr(report.batches, "grade", lambda *_: run(submissions))
    console = Console(file=io.StringIO(), width=200)
    assert report.grade(run.out, run.out, Options(), console) == 1
    told = console.file.getvalue()
    assert "1 answer could not be graded" in told and "1 answer to look at by hand" in told
    assert "4 students × 3 exercises: 5 passed; on average 3 of 7 points." in told.splitlines()[-1]
    monkeypatch.setattr(report.batches, "grade", lambda *_: run())
    assert report.grade(run.out, run.out, Options(), console) == 0


def test_a_log_has_a_line_for_each_tenth_that_is_examined():
    console = Console(file=io.StringIO(), width=200)
    with report.bar(console) as watch:
        for done in (0, 0, 1, 1, 3, 9, 15, 29, 30):
            watch(done, 30)
    assert console.file.getvalue().splitlines() == [
        f"examining answers: {done} of 30" for done in (0, 3, 9, 15, 29, 30)
    ]


def test_a_page_that_cannot_be_made_stops_nothing(run, monkeypatch):
    made = pages.student

    def fails_for_one(graded, info):
        if graded.key == "grace":
            raise ValueError("no page for you")
        return made(graded, info)

    monkeypatch.setattr(pages, "student", fails_for_one)
    run()
    assert (run.out / "feedback" / "ada.html").exists() and not (run.out / "feedback" / "grace.html").exists()
    assert "no page for you" in (run.out / "faults.txt").read_text()


def test_files_of_students_who_are_gone_go_and_others_stay(run):
    run()
    mine = run.out / "feedback" / "notes.txt"
    mine.write_text("mine")
    run(CLASS[:2])
    assert (
        not (run.out / "feedback" / "alan.html").exists() and not (run.out / "results" / "alan.json").exists()
    )
    assert mine.read_text() == "mine" and (run.out / "feedback" / "ada.html").exists()


def test_two_batches_into_one_folder_at_a_time_are_refused(run):
    with store.Store(run.out), pytest.raises(GradingError, match="Another `course grade`"):
        run()
    run()


# Stopping -----------------------------------------------------------------------------------------------


class StoppableDesk(FakeDesk):
    """A desk whose answers wait until it is left; then they have a result that must not count."""

    def __init__(self, after: int):
        super().__init__()
        self.after, self.ended = after, threading.Event()

    @contextlib.contextmanager
    def open(self, program, options):
        with super().open(program, options) as desk:
            try:
                yield desk
            finally:
                self.ended.set()

    def examine(self, exercise_id, answer, alone=False):
        if len(self.examined) >= self.after:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            assert self.ended.wait(30)
            return FakeDesk.examine(self, exercise_id, Answer(exercise_id, "killed"))
        return super().examine(exercise_id, answer, alone)


def test_an_interrupt_keeps_what_is_done_and_a_second_run_goes_on(run, tmp_path, desk):
    stoppable = StoppableDesk(after=3)
    with pytest.raises(Stopped, match="3 of 7 answers"):
        batches.grade_submissions(CLASS, run.out, Options(seed=7, jobs=1), stoppable.open)
    assert not (run.out / "gradebook.csv").exists()
    assert len(list((run.out / ".work" / "answers").rglob("*.json"))) == 3
    run()
    assert len(desk.examined) == 4
    whole = FakeDesk()
    batches.grade_submissions(CLASS, tmp_path / "undisturbed", Options(seed=7), whole.open)
    for name in ("gradebook.csv", "canvas.csv", "moodle.csv", "results/grace.json"):
        assert (run.out / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()


# Who is graded on what ------------------------------------------------------------------------------------


def test_the_lessons_that_were_handed_in_count(run):
    other = Submission(
        "eve", "Eve", (Notebook("a.ipynb", answers={"05.train_step": Answer("05.train_step", "x")}),)
    )
    batch = run([*CLASS, replace(other, notebooks=(replace(other.notebooks[0], lesson="04", answers={}),))])
    assert batch.exercises == (LOSS, L2, UNEVEN)
    assert {result.outcome for result in batch.graded[-1].results} == {"not attempted"}
    assert table(run.out)["eve"]["status"] == "graded"


def test_lessons_and_exercises_can_be_chosen(run):
    assert run(only=(L2,)).exercises == (L2,)
    assert run(lessons=("4",), only=("04",)).exercises == (LOSS, L2, UNEVEN)
    both = run(lessons=("04", "05")).exercises
    assert both[:3] == (LOSS, L2, UNEVEN) and {exercise_id[:2] for exercise_id in both[3:]} == {"05"}


@pytest.mark.parametrize(
    "options, told",
    [
        ({"only": ("04.compute_los",)}, 'Did you mean "04.compute_loss"'),
        ({"lessons": ("44",)}, "no lesson '44'"),
        ({"regrade": ("everything",)}, "no lesson 'everything'"),
        ({"late_policy": "a little"}, "cannot be read at 'a little'"),
    ],
    ids=str,
)
def test_a_wrong_option_is_told_before_anything_is_graded(run, desk, options, told):
    with pytest.raises(CourseError, match=told):
        run(**options)
    assert not desk.opened


def test_a_note_tells_of_a_lesson_that_few_have_handed_in(run):
    many = [handed_in(f"s{number:02}", {LOSS: "right"}) for number in range(19)]
    stray = handed_in("stray", {})
    stray = replace(stray, notebooks=(replace(stray.notebooks[0], lesson="03"),))
    assert "Lesson 03 counts for all, but was handed in by 1 of 20" in run([*many, stray]).notes[0]
    assert run([*many, stray], lessons=("04",)).notes == ()


def test_nothing_to_grade_is_an_error_that_says_why(run):
    unreadable = Submission("x", "X", (Notebook("x.ipynb", error="It is a PDF under another name."),))
    with pytest.raises(GradingError, match=r"x\.ipynb: It is a PDF"):
        run([unreadable])
    with pytest.raises(GradingError, match="no submission"):
        run([])


def test_what_could_not_be_read_and_what_was_not_handed_in_differ(run):
    unreadable = Submission("pdf", "P", (Notebook("x.ipynb", error="It is a PDF under another name."),))
    nothing = Submission("none", "N")
    other = Submission("other", "O", (Notebook("y.ipynb", lesson="05"),))
    batch = run([*CLASS, unreadable, nothing, other], lessons=("04",))
    status = {graded.key: graded.status for graded in batch.graded}
    assert (status["pdf"], status["none"], status["other"]) == ("unreadable", *["nothing handed in"] * 2)
    assert next(g for g in batch.graded if g.key == "pdf").notes == (
        "x.ipynb: It is a PDF under another name.",
    )


def test_what_could_not_be_read_has_no_total_and_says_why_wherever_points_go(run):
    unreadable = Submission("pdf", "P", (Notebook("x.ipynb", error="It is a PDF under another name."),))
    run([*CLASS, unreadable])
    row = table(run.out)["pdf"]
    assert [row[name] for name in (LOSS, L2, UNEVEN, "total")] == [""] * 4
    with open(run.out / "canvas.csv", encoding="utf-8", newline="") as file:
        assert [line[-1] for line in csv.reader(file) if line[0] == "P"] == [""]
    with open(run.out / "moodle.csv", encoding="utf-8", newline="") as file:
        told = next(line for line in csv.DictReader(file) if line["Full name"] == "P")
    assert told["Grade"] == "" and "x.ipynb: It is a PDF" in told["Feedback comments"]
    assert "0 of 2" not in told["Feedback comments"]
    tests = json.loads((run.out / "results" / "pdf.json").read_text())["tests"]
    assert all("x.ipynb: It is a PDF" in test["output"] for test in tests) and len(tests) == 3
    assert not any("Nothing to check yet" in test["output"] for test in tests)


def test_points_by_hand_count_for_what_could_not_be_read(run):
    unreadable = Submission("pdf", "P", (Notebook("x.ipynb", error="It is a PDF under another name."),))
    run.out.mkdir()
    by_hand = run.out / "overrides.csv"
    by_hand.write_text(f"student,exercise,points,comment\npdf,{LOSS},1,Read on paper.\n")
    run([*CLASS, unreadable])
    assert (table(run.out)["pdf"][LOSS], table(run.out)["pdf"]["total"]) == ("1", "")
    by_hand.write_text("student,exercise,points,comment\npdf,,5,Read on paper.\n")
    run([*CLASS, unreadable])
    assert table(run.out)["pdf"]["total"] == "5"


def test_students_of_one_name_are_pointed_out(run):
    twins = [handed_in("alice", {LOSS: "right"}, "alice"), handed_in("alice-2", {}, "Alice ")]
    assert run([*CLASS, *twins]).notes == (
        "2 students are called alice: alice, alice-2. Look twice where you import grades.",
    )


@pytest.mark.parametrize(
    "path, out", [("s", "s/ada/out"), ("s", "s"), ("s/ada", "s"), ("s", "link")], ids=str
)
def test_grades_are_not_written_among_submissions(path, out, desk, tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "open_desk", desk.open)
    notebooks.write(tmp_path / "s", "ada", {LOSS: "right"})
    (tmp_path / "link").symlink_to(tmp_path / "s" / "ada")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(GradingError, match="lie one in the other"):
        batches.grade(tmp_path / path, tmp_path / out, Options(seed=7))
    assert sorted(tmp_path.rglob("*")) == before
    batches.grade(tmp_path / "s", tmp_path / "s-out", Options(seed=7))


def test_of_two_notebooks_the_later_counts_unless_it_is_empty(run):
    def twice(old, new):
        notebooks = [
            handed_in("a", {LOSS: s}, name=f"hw-{n}.ipynb").notebooks[0] for n, s in ((9, old), (10, new))
        ]
        return run([Submission("a", "A", tuple(notebooks))]).graded[0].results[0]

    assert twice("wrong", "right").outcome == "passed"
    assert twice("right", "wrong").outcome == "failed"
    assert twice("right", "wrong").notes == ()
    assert twice("right", "").outcome == "passed"
    assert "that in hw-9.ipynb was graded" in twice("right", "").notes[0]


def test_notes_stay_with_the_student_that_they_are_about(run, desk):
    notes = {"a": (), "b": ("A magic was left out.",), "c": ("Two cells were joined.",)}
    answers = {key: Answer(LOSS, "right", notes=told) for key, told in notes.items()}
    submissions = [Submission(k, k, (Notebook("n", "04", answers={LOSS: v}),)) for k, v in answers.items()]
    graded = run(submissions, only=(LOSS,)).graded
    assert len(desk.examined) == 1
    assert {each.key: each.results[0].notes for each in graded} == notes


def test_lateness_is_counted_from_when_it_was_due(desk, tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "open_desk", desk.open)
    for student, handed in (("ada", "2026-11-30 11:00:00 UTC"), ("grace", "2026-12-02 11:00:00 UTC")):
        folder = tmp_path / "submitted" / student
        notebooks.write(folder, "ps4", {LOSS: "right", L2: "right"})
        (folder / "ps4" / "timestamp.txt").write_text(handed)
    due = datetime(2026, 11, 30, 12, tzinfo=UTC)
    options = Options(seed=7, late_policy="10% per day", due=due)
    batch = batches.grade(tmp_path / "submitted", tmp_path / "out", options)
    totals = {graded.student: (graded.earned, graded.penalty) for graded in batch.graded}
    assert totals == {"ada": (4.0, 0.0), "grace": (3.2, 0.8)}


def test_a_late_policy_without_a_time_when_it_was_due_is_pointed_out(run):
    assert "say when the work was due" in run(late_policy="1 point per day").notes[0]
    assert run(late_policy="1 point per day", due=datetime(2026, 11, 30)).notes == ()
    assert run([replace(CLASS[0], days_late=1.0)], late_policy="1 point per day").notes == ()


def test_a_class_of_which_nobody_knows_when_it_handed_in_is_pointed_out(desk, tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "open_desk", desk.open)
    for student in ("ada", "grace"):
        notebooks.write(tmp_path / "s", student, {LOSS: "right"})
    due = datetime(2026, 11, 28)

    def notes(**options):
        return batches.grade(tmp_path / "s", tmp_path / "out", Options(seed=7, **options)).notes

    assert "not known for 2 of 2 students" in notes(late_policy="10% per day", due=due)[0]
    assert notes() == ()


# What it is told --------------------------------------------------------------------------------------------


def test_memory_is_read_in_words():
    assert [size(text) for text in ("2GiB", "512 MiB", "1.5g", "4096")] == [
        2 * 1024**3,
        2**29,
        1_500_000_000,
        4096,
    ]
    for wrong in ("much", "0", "-1GiB", "2 GiB each"):
        with pytest.raises(GradingError, match="no amount of memory"):
            size(wrong)


def test_words_may_be_given_together_or_apart():
    assert words(("04,05", "06 07")) == ("04", "05", "06", "07")


def test_results_are_json_for_gradescope(run):
    run()
    grace = json.loads((run.out / "results" / "grace.json").read_text())
    assert grace["score"] == 2 and [test["score"] for test in grace["tests"]] == [0, 2, 0]


def test_there_is_a_core_to_work_on():
    assert cores() >= 1
