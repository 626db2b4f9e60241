"""What the parts of grading hand to each other: plain records, from the file handed in to the gradebook.

collecting → Submission (with reading → Notebook → Answer)
examining (in the sandbox, by runner) → Raw
verdicts (outside) → Result
batch → Graded, a student's whole; gradebook, feedback and class page are written from these
"""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

UNGRADED = "could not be graded"  # an outcome beside those of exercises: a fault of ours, not of the answer
UNREADABLE = "unreadable"  # the status of a student of whose files none could be read


@dataclass(frozen=True)
class Answer:
    """What a notebook answers to one exercise: Python source, without magics; `notes` are for the learner."""

    exercise_id: str
    source: str
    imports: str = ""  # import statements found elsewhere in the same notebook
    helpers: str = ""  # definitions of the learner's own, found elsewhere in the same notebook, that it uses
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Notebook:
    """One file that was handed in, as read. `error` says why nothing could be read; else it is empty."""

    name: str
    lesson: str | None = None  # two digits
    release: str | None = None
    answers: dict[str, Answer] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Submission:
    """All that one student handed in. `key` is unique and safe as a file name; `student` is what people read.

    `ids` holds what the learning platform calls the student ("canvas", "moodle", "nbgrader").
    """

    key: str
    student: str
    notebooks: tuple[Notebook, ...] = ()
    ids: dict[str, str] = field(default_factory=dict)
    days_late: float = 0.0
    notes: tuple[str, ...] = ()


class Ended(StrEnum):
    """How the process of an answer ended."""

    FINISHED = "finished"
    EXITED = "exited"  # it ended itself before it was done: os._exit, sys.exit in a thread
    CRASHED = "crashed"  # by a signal of its own making: segmentation fault, abort
    TIME = "out of time"
    MEMORY = "out of memory"
    PROCESSES = "too many processes"
    DISK = "too much on disk"
    OUTPUT = "too much came back"
    BROKEN = "the sandbox could not be made"


@dataclass(frozen=True)
class Raw:
    """What came out of the sandbox: untrusted text that should be records (`observing.from_text`)."""

    ended: Ended
    text: str = ""
    printed: str = ""  # the first part of what it printed
    code: int | None = None  # exit code; negative: the signal
    seconds: float = 0.0
    memory: int = 0  # bytes, at its peak, all its processes together
    means: str = ""  # which kind of sandbox it was, in words


@dataclass(frozen=True)
class Line:
    """Yours beside expected, as texts."""

    label: str
    yours: str
    expected: str
    equal: bool


@dataclass(frozen=True)
class Result:
    """The verdict on one exercise of one student, in words and points."""

    exercise_id: str
    title: str
    outcome: str  # a value of exercises.model.Outcome
    points: float
    possible: float
    mistake: str | None = None
    message: str = ""
    try_this: str = ""
    about: str = ""
    lines: tuple[Line, ...] = ()
    where: str = ""
    printed: str = ""
    source: str = ""
    notes: tuple[str, ...] = ()
    look: tuple[str, ...] = ()  # what an instructor should look at by hand
    comment: str = ""  # by hand, from overrides.csv
    by_hand: bool = False  # the points are by hand too
    seconds: float = 0.0
    memory: int = 0

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "Result":
        """What `to_json` gave; raises TypeError or KeyError for anything else."""
        lists = {name: tuple(stored[name]) for name in ("notes", "look")}
        lines = tuple(Line(**line) for line in stored["lines"])
        return cls(**{**stored, **lists, "lines": lines})


@dataclass(frozen=True)
class Graded:
    """A student's whole: the results of all exercises of the lessons graded, in order."""

    key: str
    student: str
    status: str  # "graded", "not all graded", "nothing handed in", "unreadable"
    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()
    ids: dict[str, str] = field(default_factory=dict)
    days_late: float = 0.0
    penalty: float = 0.0  # points taken off for being late; none where the total is by hand
    total: float | None = None  # by hand, from overrides.csv: stands as it is
    comment: str = ""
    seconds: float = 0.0

    @property
    def earned(self) -> float:
        """Points, after the penalty, or the total by hand."""
        if self.total is not None:
            return self.total
        return max(0.0, sum(result.points for result in self.results) - self.penalty)

    @property
    def possible(self) -> float:
        """Points that could be earned."""
        return sum(result.possible for result in self.results)


@dataclass(frozen=True)
class BatchInfo:
    """What the pages say of a run besides its results."""

    title: str = "Grades"  # such as "Lesson 04"
    when: str = ""  # in words, such as "30 November 2026, 21:34"
    limits: str = ""  # in words, such as "20 s and 2 GiB an answer"
    seconds: float = 0.0  # the whole run took
    memory: int = 0  # bytes, the whole run at its peak
    release: str | None = None  # the release that answers were held against


@dataclass(frozen=True)
class Batch:
    """All that one run has graded: gradebook, feedback and class page are written from it."""

    graded: tuple[Graded, ...]  # in the order of their names
    exercises: tuple[str, ...]  # the ids, in the order of the lessons
    seed: int
    means: str = ""  # which kind of sandbox it was, in words
    late_policy: str = ""  # as the instructor wrote it
    notes: tuple[str, ...] = ()  # for the instructor

    @property
    def possible(self) -> float:
        """Points that a student could earn."""
        return self.graded[0].possible if self.graded else 0.0
