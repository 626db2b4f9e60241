"""`python -m tests.benchmarks.verdicts 20 [--only 04 08.one_file] [--record FILE]`: is every verdict right?

For every exercise and seed, through the whole desk (sandbox, text, judge): the reference as source and each
answer in `also_right` must earn full points; each known wrong answer none. Wrong answers that fail under the
name of another mistake are counted too. Exit code 0 if no verdict is wrong.

The reference is handed in as a learner would, as source. The others are lambdas among the lesson's
exercises: they are taken from there inside the sandbox, a group of them in one, since a new process costs
more than most of them. A verdict that comes out wrong so, and every one of a group that did not come to its
end, is told once more in a sandbox of its own, as each answer of a class has one: that one counts.

The whole takes hours on a laptop. With `--record` it may be stopped and called again: verdicts are kept in
the file, and one that is there is not told again unless something has changed that could change it.
"""

import argparse
import contextlib
import hashlib
import inspect
import itertools
import json
import linecache
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from course_utils import devices
from course_utils.exercises import all_exercises, find, reference_source
from course_utils.exercises.model import Exercise
from course_utils.grading import examining, stripping
from course_utils.grading.desk import DEVICES, OVERHEAD, PATIENCE, Desk
from course_utils.grading.model import Answer, Ended, Result
from course_utils.grading.runner import Runner
from course_utils.grading.store import version
from tests.benchmarks.measure import console

# "right" or "wrong", the number of the answer, the variant; None: as source
Which = tuple[str, int, int] | None
GROUP = 8  # answers that share a sandbox


@dataclass(frozen=True)
class Verdict:
    """What the desk said to one answer."""

    exercise: Exercise
    seed: int
    which: Which
    outcome: str
    points: float
    mistake: str | None
    message: str

    @classmethod
    def of(cls, exercise: Exercise, seed: int, which: Which, told: Result) -> "Verdict":
        """The verdict of a result of the desk's."""
        return cls(exercise, seed, which, told.outcome, told.points, told.mistake, told.message)

    @property
    def is_wrong(self) -> bool:
        """Whether a right answer did not get full points, or a wrong one got any."""
        due = 0 if self.which and self.which[0] == "wrong" else self.exercise.points
        return self.points != due

    @property
    def is_misnamed(self) -> bool:
        """Whether a wrong answer failed under another name than its own."""
        if not self.which or self.which[0] == "right":
            return False
        return self.mistake != self.exercise.mistakes[self.which[1]].name

    def __str__(self) -> str:
        who = "reference" if self.which is None else " ".join(map(str, self.which))
        said = f"{self.outcome}, {self.points:g} points, mistake {self.mistake!r}: {self.message[:150]}"
        return f"{self.exercise.id}, seed {self.seed}, {who}: {said}"


_KEPT = ["which", "outcome", "points", "mistake", "message"]


class Record:
    """Verdicts in a file, a line of JSON for each exercise and seed; without a file, none are kept."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.found = path, 0
        lines = path.read_text().splitlines() if path and path.exists() else []
        self._kept = {}
        for line in lines:
            with contextlib.suppress(ValueError):  # a line that was being written when the run was stopped
                line = json.loads(line)
                self._kept[line["code"], line["exercise"], line["seed"]] = line["verdicts"]

    def of(self, exercise: Exercise, seed: int) -> list[Verdict]:
        """The verdicts that the same code told earlier; empty where there are none."""
        kept = self._kept.get((_code(exercise), exercise.id, seed), [])
        self.found += len(kept)
        return [Verdict(exercise, seed, which and tuple(which), *told) for which, *told in kept]

    def keep(self, exercise: Exercise, seed: int, verdicts: list[Verdict]) -> None:
        """Write them down."""
        if self.path:
            told = [[getattr(verdict, part) for part in _KEPT] for verdict in verdicts]
            line = {"code": _code(exercise), "exercise": exercise.id, "seed": seed, "verdicts": told}
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")


def _code(exercise) -> str:
    """A digest of all that can change the verdicts on an exercise, and of how they are asked for here."""
    return version(exercise.lesson) + hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]


def prepare(job: dict[str, Any]) -> Callable[[], str]:
    """The entry in the sandbox: as in grading, but a job with a group looks at the lesson's own answers."""
    group = job.pop("group", None)
    if group is None:
        return examining.prepare(job)
    answers = [_answer(find(job["exercise"]), which) for which in group]
    _keep_source(find(job["exercise"]).observe)
    exercise = stripping.stripped(job["exercise"], job["seed"])

    def examine() -> str:
        devices.simulate(DEVICES)
        return json.dumps(
            [examining.observed(exercise, answer, job["seconds"], job["token"]) for answer in answers]
        )

    return examine


def _keep_source(function):
    """Lets tf.function read a lesson's answers, whose file is out of sight in the sandbox.

    A learner's answer is in no file and keeps its source the same way. Without a time of change (None), no
    one asks whether the file is still as it was.
    """
    path = inspect.getsourcefile(function)
    lines = linecache.getlines(path)
    linecache.cache[path] = (sum(map(len, lines)), None, lines, path)


def main(arguments: list[str]) -> int:
    """0 if no verdict was wrong."""
    options = _parser().parse_args(arguments)
    chosen = [e for e in all_exercises() if not options.only or e.id.startswith(tuple(options.only))]
    started, told, record = time.monotonic(), [], Record(options.record)
    with Runner(jobs=options.jobs, entry=f"{__spec__.name}:prepare") as runner:
        for seed in options.seeds or range(options.count):
            for exercise in chosen:
                verdicts = record.of(exercise, seed)
                if not verdicts:
                    verdicts = _verdicts(runner, exercise, seed, options.jobs)
                    record.keep(exercise, seed, verdicts)
                told += _tell(exercise, seed, verdicts)
    _print_table(told, time.monotonic() - started)
    if options.record:
        console.print(f"{record.found} of {len(told)} verdicts were told earlier, by the same code.")
    return int(any(verdict.is_wrong for verdict in told))


def _parser():
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.verdicts")
    parser.add_argument("count", type=int, nargs="?", default=20, help="seeds from 0 on")
    parser.add_argument("--seeds", type=int, nargs="+", help="these seeds instead")
    parser.add_argument("--only", nargs="+", default=(), help="lessons or exercises")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--record", type=Path, help="a file that keeps verdicts, so that a run may be stopped"
    )
    return parser


def _verdicts(runner, exercise, seed, jobs) -> list[Verdict]:
    every = list(_every(exercise))
    groups = [every[start : start + GROUP] for start in range(0, len(every), GROUP)]
    with ThreadPoolExecutor(jobs) as threads:
        reference = threads.submit(_of_the_reference, runner, exercise, seed)
        of_groups = threads.map(lambda group: _of_group(runner, exercise, seed, group), groups)
        return [reference.result(), *itertools.chain.from_iterable(of_groups)]


def _of_the_reference(runner, exercise, seed) -> Verdict:
    answer = Answer(exercise.id, reference_source(exercise.id))
    return Verdict.of(exercise, seed, None, Desk(runner, seed).examine(exercise.id, answer))


def _of_group(runner, exercise, seed, group) -> list[Verdict]:
    """A verdict for each of a group; each alone where that did not come to its end, or where one is wrong."""
    told = _examined(runner, exercise, seed, group)
    if len(group) == 1:
        return told
    return [
        verdict if verdict and not verdict.is_wrong else _of_group(runner, exercise, seed, [which])[0]
        for verdict, which in zip(told or [None] * len(group), group, strict=True)
    ]


def _examined(runner, exercise, seed, group) -> list[Verdict]:
    """What the desk says to answers that share a sandbox; nothing where several did not come to their end."""
    token, seconds = secrets.token_hex(16), PATIENCE * exercise.time_limit
    job = {"exercise": exercise.id, "seed": seed, "token": token, "seconds": seconds, "group": group}
    raw = runner.run(job, seconds * len(group) + OVERHEAD)
    texts = json.loads(raw.text) if raw.ended is Ended.FINISHED else [raw.text] * (len(group) == 1)
    desk, answer = Desk(runner, seed), Answer(exercise.id, "…")
    results = [desk.judged(exercise, answer, replace(raw, text=text), token) for text in texts]
    return [Verdict.of(exercise, seed, which, result) for which, result in zip(group, results, strict=False)]


def _every(exercise) -> Iterator[Which]:
    yield from (("right", number, 0) for number in range(len(exercise.also_right)))
    for number, mistake in enumerate(exercise.mistakes):
        yield from (("wrong", number, variant) for variant in range(len(mistake.answers)))


def _answer(exercise, which):
    kind, number, variant = which
    return exercise.also_right[number] if kind == "right" else exercise.mistakes[number].answers[variant]


def _tell(exercise, seed, told):
    """The verdicts, with a line for each that is not as it should be."""
    wrong = [verdict for verdict in told if verdict.is_wrong]
    misnamed = [verdict for verdict in told if verdict.is_misnamed and not verdict.is_wrong]
    counts = f"{len(told)} verdicts, {len(wrong)} wrong, {len(misnamed)} under another name"
    console.print(f"seed {seed}, {exercise.id}: {counts}", markup=False)
    for verdict in [*wrong, *misnamed]:
        console.print(f"  {verdict}", markup=False)
    return told


def _print_table(told, seconds):
    table = Table(title=f"Verdicts, in {seconds:.0f} s", title_justify="left")
    for heading in ("lesson", "right answers", "wrong answers", "wrong verdicts", "under another name"):
        table.add_column(heading, justify="left" if heading == "lesson" else "right")
    for lesson in [*sorted({verdict.exercise.lesson for verdict in told}), "all"]:
        mine = [v for v in told if lesson in (v.exercise.lesson, "all")]
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
