"""A batch of submissions graded: answers examined side by side, results kept, everything written.

What stands in the output folder:

    gradebook.csv, canvas.csv, moodle.csv     see `gradebook`
    results/STUDENT.json                      see `gradescope`
    feedback/STUDENT.html, index.html         see `pages`
    overrides.csv                             for points by hand: a template, written once
    faults.txt                                what went wrong in the grader itself, if anything did
    .work/                                    results kept for the next run (`store`); it may be deleted

The batch goes on whatever one file, one answer or one page does. It ends early only for the instructor's
Ctrl-C; what was graded until then is kept.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from course_utils.errors import GradingError
from course_utils.exercises import catalogue
from course_utils.exercises.model import Outcome
from course_utils.grading import collecting, gradebook, late, overrides, writing
from course_utils.grading import options as told
from course_utils.grading.examination import Examination, Examiner, Watch
from course_utils.grading.gradebook import lacks_points
from course_utils.grading.model import (
    UNREADABLE,
    Answer,
    Batch,
    BatchInfo,
    Graded,
    Notebook,
    Result,
    Submission,
)
from course_utils.grading.options import Options
from course_utils.grading.overrides import ByHand
from course_utils.grading.store import Store, Terms

OpenDesk = Callable[[Terms, Options], AbstractContextManager[Examiner]]


def grade(path: Path, out: Path, options: Options | None = None, watch: Watch | None = None) -> Batch:
    """The batch of all submissions under `path`, graded and written into `out`.

    Raises CourseError, before anything is graded, where an option, points by hand or the paths are wrong;
    `examination.Stopped` where the instructor stops it.
    """
    from course_utils.grading import sandbox

    options = options or Options()
    _check(options)
    _refuse_one_within_the_other(Path(path).resolve(), Path(out).resolve())
    submissions = collecting.collect(path, options.due)
    return grade_submissions(submissions, out, options, open_desk, watch, sandbox.means())


@contextmanager
def open_desk(terms: Terms, options: Options) -> Iterator[Examiner]:
    """A desk with sandboxes, opened when the first answer is to be examined: that imports TensorFlow once."""
    from course_utils.grading import desk
    from course_utils.grading.runner import Runner
    from course_utils.grading.sandbox import Limits

    # The known wrong answers run in this process; what TensorFlow thinks of them is of no use here.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    with Runner(options.jobs, Limits(memory=options.memory)) as runner:
        yield desk.Desk(runner, terms.seed, options.timeout)


def grade_submissions(
    submissions: Sequence[Submission],
    out: Path,
    options: Options,
    open_desk: OpenDesk,
    watch: Watch | None = None,
    means: str = "",
) -> Batch:
    """The same for submissions that are read already, examined by a desk that `open_desk` opens.

    `means` says in words what kind of sandbox that has.
    """
    began = time.monotonic()
    policy = _check(options)
    with Store(out) as store:
        plan = _plan(submissions, store, options, out)
        with Examination(store, plan.terms, plan.regrade, open_desk, options, watch) as examination:
            work = [_Work(submission, plan.exercises) for submission in submissions]
            _examine(work, examination)
            graded = [_graded(each, examination, policy, plan.by_hand) for each in work]
            batch = Batch(
                graded=tuple(graded),
                exercises=plan.exercises,
                seed=plan.terms.seed,
                means=means,
                late_policy=options.late_policy,
                notes=plan.notes,
            )
            info = _info(batch, options, time.monotonic() - began, examination)
            writing.write_all(batch, info, store, out, options, examination.faults)
    return batch


@dataclass(frozen=True)
class _Plan:
    """All that is settled before anything is graded."""

    exercises: tuple[str, ...]
    terms: Terms
    regrade: frozenset[str]
    by_hand: list[ByHand]
    notes: tuple[str, ...]


def _check(options: Options) -> late.Policy:
    """The late policy, once the options make sense."""
    told.check_seed(options.seed)
    told.selected((*options.only, *options.regrade))
    return late.parse(options.late_policy) if options.late_policy else late.Policy()


def _refuse_one_within_the_other(path: Path, out: Path) -> None:
    """None; what we write would be taken for handed in by the next run, or lie among learners' files."""
    if out.is_relative_to(path) or path.is_relative_to(out):
        raise GradingError(
            f"The submissions ({path.name}) and the folder for the grades ({out.name}) lie one in the other.",
            cause="pages and grades would lie among what was handed in, and the next run would read them.",
            cure="Give a folder beside the submissions, as in `course grade downloads --out grades`.",
        )


def _plan(submissions, store, options, out):
    exercises = _exercises(submissions, options)
    kept = store.remembered()
    by_hand_file = _by_hand_file(options, kept, out, store)
    points = {exercise_id: catalogue.find(exercise_id).points for exercise_id in exercises}
    course = [exercise.id for exercise in catalogue.all_exercises()]
    rows = overrides.read(by_hand_file, submissions, points, course) if by_hand_file else []
    seed = options.seed or kept.get("seed") or told.new_seed()
    store.remember(seed=seed, overrides=str(by_hand_file or ""))
    return _Plan(
        exercises=exercises,
        terms=Terms(seed, options.timeout, options.memory),
        regrade=told.selected(options.regrade),
        by_hand=rows,
        notes=(
            *_lessons_met(submissions, exercises),
            *_namesakes_told(submissions),
            *_by_hand_told(rows, by_hand_file),
            *_lateness_unknown(submissions, options),
        ),
    )


def _exercises(submissions, options):
    """The ids that count; GradingError where there is nothing to grade."""
    if not submissions:
        raise GradingError("Nothing was handed in: no submission was found.")
    found = {lesson for submission in submissions for lesson in _lessons(submission)}
    exercises = told.exercises(options, found)
    if not exercises:
        read = [notebook for submission in submissions for notebook in submission.notebooks]
        why = next((f"{notebook.name}: {notebook.error}" for notebook in read if notebook.error), "")
        raise GradingError(
            "No notebook of a lesson with exercises was found.",
            cause=why,
            cure="Name the lessons, `--lessons 04`, to grade all the same.",
        )
    return exercises


def _by_hand_file(options, kept, out, store):
    """Where points by hand are: as told, as told the last time, or in the output folder. None: nowhere."""
    own = out.resolve() / "overrides.csv"
    path = Path(options.overrides or kept.get("overrides") or own).resolve()
    if path.exists():
        return path
    if path != own:
        raise GradingError(f"{path}, which should hold points by hand, is not there.", cure=_WHERE)
    store.write_text(own, overrides.TEMPLATE)
    return None


_WHERE = "Say where it is: `--overrides PATH`. It is remembered for the next run."


def _by_hand_told(rows, path):
    return [f"{len(rows)} {'row' if len(rows) == 1 else 'rows'} by hand, from {path.name}."] if rows else []


def _lateness_unknown(submissions, options):
    if options.late_policy and not options.due and not any(each.days_late for each in submissions):
        yield "The late policy took nothing off: say when the work was due, `--due 2026-11-30T23:59`."
    unknown = sum(collecting.UNKNOWN_WHEN in each.notes for each in submissions)
    if options.late_policy and options.due and unknown:
        yield (
            f"When they handed in is not known for {unknown} of {len(submissions)} students: counted as in "
            "time. The downloads of learning platforms tell it; for the others, take points off by hand."
        )


def _namesakes_told(submissions):
    for name, keys in gradebook.namesakes((each.key, each.student) for each in submissions).items():
        who = ", ".join(keys)
        yield f"{len(keys)} students are called {name}: {who}. Look twice where you import grades."


def _lessons_met(submissions, exercises):
    """A note where few have handed in a lesson that counts for all: most often it is there by mistake."""
    for lesson in sorted({exercise_id[:2] for exercise_id in exercises}):
        count = sum(lesson in _lessons(submission) for submission in submissions)
        if 0 < count <= len(submissions) // 10:
            yield (
                f"Lesson {lesson} counts for all, but was handed in by {count} of {len(submissions)} only; "
                "say `--lessons` to choose."
            )


def _lessons(submission: Submission) -> set[str]:
    """The lessons that a student handed in."""
    read = [notebook for notebook in submission.notebooks if not notebook.error]
    answered = {exercise_id[:2] for notebook in read for exercise_id in notebook.answers}
    return answered | {notebook.lesson for notebook in read if notebook.lesson}


_EARLIER = "The latest notebook holds no answer to this, so that in {} was graded."


class _Work:
    """What one student handed in to each exercise: the later of several notebooks first."""

    def __init__(self, submission: Submission, exercises: Iterable[str]):
        self.submission = submission
        self.chains = {exercise_id: list(_handed_in(submission, exercise_id)) for exercise_id in exercises}

    def chosen(self, exercise_id: str, examination: Examination) -> Result:
        """The result that counts: of the first that was attempted, with what the learner should know."""
        chain = self.chains[exercise_id]
        if not chain:
            return examination.result(exercise_id, None)
        attempted = (
            handed_in
            for handed_in in chain
            if examination.result(exercise_id, handed_in[1]).outcome != Outcome.NOT_ATTEMPTED
        )
        notebook, answer = next(attempted, chain[0])
        result = examination.result(exercise_id, answer)
        earlier = [] if notebook is chain[0][0] else [_EARLIER.format(notebook.name)]
        return replace(result, notes=(*answer.notes, *result.notes, *earlier))


def _handed_in(submission: Submission, exercise_id: str) -> Iterable[tuple[Notebook, Answer]]:
    latest_first = submission.notebooks[::-1]
    return (
        (notebook, notebook.answers[exercise_id])
        for notebook in latest_first
        if exercise_id in notebook.answers
    )


def _examine(work: Sequence[_Work], examination: Examination) -> None:
    """Examine the latest answer to each exercise; where it turns out to be empty, the one before."""
    examination.examine(
        (exercise_id, chain[0][1] if chain else None)
        for each in work
        for exercise_id, chain in each.chains.items()
    )
    depth = 1
    while deeper := [
        (exercise_id, chain[depth][1])
        for each in work
        for exercise_id, chain in each.chains.items()
        if len(chain) > depth and _all_empty(exercise_id, chain[:depth], examination)
    ]:
        examination.examine(deeper)
        depth += 1


def _all_empty(exercise_id, chain, examination):
    outcomes = {examination.result(exercise_id, answer).outcome for _, answer in chain}
    return outcomes == {Outcome.NOT_ATTEMPTED}


def _graded(work: _Work, examination: Examination, policy: late.Policy, by_hand: Iterable[ByHand]) -> Graded:
    """The student's whole, with points by hand and what lateness takes off."""
    submission = work.submission
    results = tuple(work.chosen(exercise_id, examination) for exercise_id in work.chains)
    graded = Graded(
        key=submission.key,
        student=submission.student,
        status="graded",
        results=results,
        notes=(*submission.notes, *_notebook_notes(submission)),
        ids=submission.ids,
        days_late=submission.days_late,
        seconds=sum(result.seconds for result in results),
    )
    if _status(submission, graded) == UNREADABLE:
        why = [f"{notebook.name}: {notebook.error}" for notebook in submission.notebooks]
        graded = replace(graded, results=tuple(_unread(result, why) for result in results))
    graded = overrides.apply(graded, by_hand)
    penalty = (
        policy.penalty(graded.earned, graded.possible, graded.days_late) if graded.total is None else 0.0
    )
    return replace(graded, penalty=penalty, status=_status(submission, graded))


def _unread(result: Result, why: Sequence[str]) -> Result:
    """The result with the true reason in place of "nothing to check yet"."""
    told = " ".join(("Nothing that you handed in could be read, so there was no answer to look at.", *why))
    return replace(result, message=told, try_this="Hand in the notebook itself, as Jupyter saves it: .ipynb.")


def _notebook_notes(submission):
    for notebook in submission.notebooks:
        for note in filter(None, (notebook.error, *notebook.notes)):
            yield f"{notebook.name}: {note}"


def _status(submission: Submission, graded: Graded) -> str:
    if graded.total is None and any(map(lacks_points, graded.results)):
        return "not all graded"
    if any(result.outcome != Outcome.NOT_ATTEMPTED for result in graded.results):
        return "graded"
    if submission.notebooks and all(notebook.error for notebook in submission.notebooks):
        return UNREADABLE
    lessons = {result.exercise_id[:2] for result in graded.results}
    return "graded" if lessons & _lessons(submission) else "nothing handed in"


def _info(batch: Batch, options: Options, seconds: float, examination: Examination) -> BatchInfo:
    lessons = sorted({exercise_id[:2] for exercise_id in batch.exercises})
    own = "each exercise's own time limit" if options.timeout is None else f"{options.timeout:g} s"
    return BatchInfo(
        title=("Lesson " if len(lessons) == 1 else "Lessons ") + ", ".join(lessons),
        when=time.strftime("%d %B %Y, %H:%M").lstrip("0"),
        limits=f"{own} and {options.memory / told.GIB:g} GiB an answer",
        seconds=seconds,
        memory=examination.memory,
    )
