"""`python -m tests.benchmarks.verdicts 20 [--seeds 3 7] [--only 04 08.one_file]`: is every verdict right?

For every exercise and seed, through the whole desk (sandbox, text, judge): the reference as source and each
answer in `also_right` must earn full points; each known wrong answer none. Wrong answers that fail under the
name of another mistake are counted too. Exit code 0 if no verdict is wrong.

The reference is handed in as a learner would, as source. The others are lambdas among the lesson's exercises:
they are taken from there inside the sandbox.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from course_utils import devices
from course_utils.exercises import all_exercises, find, reference_source
from course_utils.exercises.model import Exercise
from course_utils.grading import examining, stripping
from course_utils.grading.desk import DEVICES, Desk
from course_utils.grading.model import Answer, Result
from course_utils.grading.runner import Runner
from tests.benchmarks.measure import console

Which = (
    tuple[str, int, int] | None
)  # "right" or "wrong", the number of the answer, the variant; None: as source


@dataclass(frozen=True)
class Verdict:
    """What the desk said to one answer."""

    exercise: Exercise
    seed: int
    which: Which
    result: Result

    @property
    def is_wrong(self) -> bool:
        """Whether a right answer did not get full points, or a wrong one got any."""
        due = 0 if self.which and self.which[0] == "wrong" else self.exercise.points
        return self.result.points != due

    @property
    def is_misnamed(self) -> bool:
        """Whether a wrong answer failed under another name than its own."""
        if not self.which or self.which[0] == "right":
            return False
        return self.result.mistake != self.exercise.mistakes[self.which[1]].name

    def __str__(self) -> str:
        who = "reference" if self.which is None else " ".join(map(str, self.which))
        told = self.result
        said = f"{told.outcome}, {told.points:g} points, mistake {told.mistake!r}: {told.message[:150]}"
        return f"{self.exercise.id}, seed {self.seed}, {who}: {said}"


def prepare(job: dict[str, Any]) -> Callable[[], str]:
    """The entry in the sandbox: as in grading, but an answer with a number is one of the lesson's own."""
    which = job.pop("which", None)
    if which is None:
        return examining.prepare(job)
    answer = _answer(find(job["exercise"]), which)
    exercise = stripping.stripped(job["exercise"], job["seed"])

    def examine() -> str:
        devices.simulate(DEVICES)
        return examining.observed(exercise, answer, job["seconds"], job["token"])

    return examine


def main(arguments: list[str]) -> int:
    """0 if no verdict was wrong."""
    options = _parser().parse_args(arguments)
    chosen = [e for e in all_exercises() if not options.only or e.id.startswith(tuple(options.only))]
    started, verdicts = time.monotonic(), []
    with Runner(jobs=options.jobs, entry=f"{__spec__.name}:prepare") as runner:
        for seed in options.seeds or range(options.count):
            for exercise in chosen:
                verdicts += _tell(exercise, seed, _verdicts(runner, exercise, seed, options.jobs))
    _print_table(verdicts, time.monotonic() - started)
    return int(any(verdict.is_wrong for verdict in verdicts))


def _parser():
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.verdicts")
    parser.add_argument("count", type=int, nargs="?", default=20, help="seeds from 0 on")
    parser.add_argument("--seeds", type=int, nargs="+", help="these seeds instead")
    parser.add_argument("--only", nargs="+", default=(), help="lessons or exercises")
    parser.add_argument("--jobs", type=int, default=2)
    return parser


class _Taken:
    """A runner whose jobs take the answer from the lesson's exercises."""

    def __init__(self, runner: Runner, which: Which):
        self.runner, self.which = runner, which

    def run(self, job, seconds=None):
        return self.runner.run({**job, "which": self.which}, seconds)


def _verdicts(runner, exercise, seed, jobs) -> list[Verdict]:
    def verdict(which):
        desk = Desk(runner if which is None else _Taken(runner, which), seed)
        answer = Answer(exercise.id, reference_source(exercise.id) if which is None else "…")
        return Verdict(exercise, seed, which, desk.examine(exercise.id, answer))

    with ThreadPoolExecutor(jobs) as threads:
        return list(threads.map(verdict, _every(exercise)))


def _every(exercise) -> Iterator[Which]:
    yield None
    yield from (("right", number, 0) for number in range(len(exercise.also_right)))
    for number, mistake in enumerate(exercise.mistakes):
        yield from (("wrong", number, variant) for variant in range(len(mistake.answers)))


def _answer(exercise, which):
    kind, number, variant = which
    return exercise.also_right[number] if kind == "right" else exercise.mistakes[number].answers[variant]


def _tell(exercise, seed, verdicts):
    """The verdicts, with a line for each that is not as it should be."""
    wrong = [verdict for verdict in verdicts if verdict.is_wrong]
    misnamed = [verdict for verdict in verdicts if verdict.is_misnamed and not verdict.is_wrong]
    counts = f"{len(verdicts)} verdicts, {len(wrong)} wrong, {len(misnamed)} under another name"
    console.print(f"seed {seed}, {exercise.id}: {counts}", markup=False)
    for verdict in [*wrong, *misnamed]:
        console.print(f"  {verdict}", markup=False)
    return verdicts


def _print_table(verdicts, seconds):
    table = Table(title=f"Verdicts, in {seconds:.0f} s", title_justify="left")
    for heading in ("lesson", "right answers", "wrong answers", "wrong verdicts", "under another name"):
        table.add_column(heading, justify="left" if heading == "lesson" else "right")
    for lesson in [*sorted({verdict.exercise.lesson for verdict in verdicts}), "all"]:
        mine = [v for v in verdicts if lesson in (v.exercise.lesson, "all")]
        kinds = Counter("wrong" if v.which and v.which[0] == "wrong" else "right" for v in mine)
        counts = (
            kinds["right"],
            kinds["wrong"],
            sum(v.is_wrong for v in mine),
            sum(v.is_misnamed for v in mine),
        )
        table.add_row(lesson, *map(str, counts))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
