"""What a class has done, in figures: totals, exercises, mistakes, and what to look at by hand."""

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from course_utils.grading.model import UNGRADED, Graded, Result
from course_utils.grading.pages.text import KINDS, number

ENOUGH = 10  # students; from fewer, a correlation says next to nothing
MOST_COLUMNS = 13


@dataclass(frozen=True)
class Column:
    """One column of the distribution: totals in a range, in words, and how many students have one."""

    label: str
    count: int
    share: float  # of the highest column


@dataclass(frozen=True)
class Item:
    """One exercise over the whole class."""

    exercise_id: str
    title: str
    possible: float
    outcomes: dict[str, int]  # outcome -> how many, in the order of KINDS, without zeros
    mean: float  # points
    discrimination: float | None
    mistakes: tuple["Made", ...]

    @property
    def students(self) -> int:
        """How many have a result."""
        return sum(self.outcomes.values())

    @property
    def strength(self) -> str:
        """The discrimination in a word (the limits are Ebel's, Essentials of Educational Measurement)."""
        if self.discrimination is None:
            return ""
        limits = ((0.4, "strong"), (0.3, "good"), (0.2, "fair"), (-0.1, "weak"))
        return next((word for limit, word in limits if self.discrimination >= limit), "reversed")


@dataclass(frozen=True)
class Made:
    """One way to go wrong at an exercise, and who did."""

    name: str  # empty: none that we know
    outcome: str
    students: tuple[Graded, ...]
    share: float  # of the most frequent one at any exercise


@dataclass(frozen=True)
class Look:
    """What to look at by hand of one student: pairs of exercise (None: all of it) and reasons."""

    student: Graded
    reasons: tuple[tuple[Result | None, tuple[str, ...]], ...]


def counted_in(graded: Sequence[Graded]) -> list[Graded]:
    """Those whose answers were seen: the class figures are about them."""
    return [one for one in graded if one.status not in ("nothing handed in", "unreadable")]


def columns(graded: Sequence[Graded]) -> list[Column]:
    """The distribution of totals, rounded down: one column a point where those are few, else about ten."""
    if not graded:
        return []
    top = max(1.0, *(one.possible for one in graded), *(one.earned for one in graded))
    width = 1 if top < MOST_COLUMNS else math.ceil(top / 10)
    found = Counter(max(0, math.floor(one.earned / width + 1e-9)) for one in graded)
    most = max(found.values())
    return [
        Column(_range(i * width, width, top), found[i], found[i] / most)
        for i in range(math.floor(top / width + 1e-9) + 1)
    ]


def middle(graded: Sequence[Graded]) -> tuple[float, float]:
    """Mean and median of the totals."""
    totals = [one.earned for one in graded] or [0.0]
    return statistics.fmean(totals), statistics.median(totals)


def items(graded: Sequence[Graded]) -> list[Item]:
    """The item analysis: exercise by exercise, in the order of the results."""
    by_id: dict[str, list[tuple[Graded, Result]]] = {}
    for one in graded:
        for result in one.results:
            by_id.setdefault(result.exercise_id, []).append((one, result))
    most = max((n for pairs in by_id.values() for n in _ways(pairs).values()), default=1)
    return [_item(pairs, most) for pairs in by_id.values()]


def to_look_at(graded: Sequence[Graded]) -> list[Look]:
    """All that wants an instructor's eye: files that could not be read, answers flagged or not graded."""
    looks = (Look(one, tuple(_reasons(one))) for one in graded)
    return [look for look in looks if look.reasons]


def remarks(one: Graded) -> str:
    """What there is to say of a student in a line: status, errors, points by hand."""
    errors = [
        r.message.removeprefix("An error stopped your answer. ")
        for r in one.results
        if r.outcome in ("raised", UNGRADED) and r.message
    ]
    by_hand = one.total is not None or any(r.by_hand for r in one.results)
    said = [one.status if one.status != "graded" else "", "points by hand" if by_hand else "", *errors[:1]]
    return " · ".join(part for part in said if part)


def discrimination(scores: Sequence[float], rests: Sequence[float]) -> float | None:
    """How well an exercise tells those who do well elsewhere from those who do not, from -1 to 1.

    The point-biserial correlation of its points with the rest of the total (Pearson's, which it is where
    points are all or nothing). None from fewer than ENOUGH students, or where all have the same.
    """
    if len(scores) < ENOUGH or len(set(scores)) < 2 or len(set(rests)) < 2:
        return None
    return statistics.correlation(scores, rests)


def _range(start, width, top):
    last = min(start + width - 1, math.floor(top))
    return number(start) if last <= start else f"{number(start)}–{number(last)}"


def _item(pairs, most):
    results = [result for _, result in pairs]
    found = Counter(result.outcome if result.outcome in KINDS else UNGRADED for result in results)
    scores = [result.points for result in results]
    rests = [sum(other.points for other in one.results) - result.points for one, result in pairs]
    return Item(
        results[0].exercise_id,
        results[0].title,
        results[0].possible,
        {name: found[name] for name in KINDS if found[name]},
        statistics.fmean(scores),
        discrimination(scores, rests),
        tuple(_made(pairs, most)),
    )


def _ways(pairs):
    """How often each way to go wrong was gone: (mistake or "", outcome) -> number."""
    return Counter(
        (result.mistake or "", result.outcome)
        for _, result in pairs
        if result.mistake or result.outcome in ("failed", "raised", "timed out")
    )


def _made(pairs, most):
    ways = sorted(_ways(pairs).items(), key=lambda way: (-way[1], way[0]))
    for (name, outcome), count in ways:
        students = [one for one, r in pairs if (r.mistake or "", r.outcome) == (name, outcome)]
        yield Made(name, outcome, tuple(sorted(students, key=by_name)), count / most)


def by_name(one: Graded) -> tuple[str, str]:
    """The order in which people look for a student."""
    return one.student.casefold(), one.key


def _reasons(one):
    if one.status == "unreadable":
        yield None, one.notes or ("Nothing that was handed in could be read.",)
    for result in one.results:
        lost = (result.message or "It could not be graded.",) if result.outcome not in KINDS[:-1] else ()
        if lost or result.look:
            yield result, tuple(itertools.chain(lost, result.look))
