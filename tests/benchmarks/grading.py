"""`course grade` against the real nbgrader on the same notebook and submissions; then a class of 100.

Both get the same files, as nbgrader lays them out, and are timed as commands, from start to exit. nbgrader
runs the whole notebook of each student; `course grade` the answers alone, each in a sandbox. Their points are
compared as well.
"""

import csv
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import nbformat
import psutil

from course_utils.exercises import catalogue
from course_utils.grading.release import release
from tests.grading.nbgraders_own import Nbgrader, Unreachable, install, said_by

from .measure import console, in_turn, print_ratios

LESSON = "04_loss_scaling"
SIDE_BY_SIDE, ROUNDS = 15, 2  # students a round, each round other ones
CLASS = 100
RATIO, MINUTES, GIBIBYTES = 10, 3, 4  # the bars
LIMIT = 1800  # seconds that any single command may take
TWO_CORES = "--jobs", "2"

ANSWERS = {
    "04.compute_loss": [
        "    return tf.reduce_sum(per_example_loss) / global_batch_size",
        "    return tf.nn.compute_average_loss(per_example_loss, global_batch_size=global_batch_size)",
        "    return tf.reduce_mean(per_example_loss)",
    ],
    "04.l2_loss": [
        "    squares = tf.add_n([tf.reduce_sum(weight**2) for weight in weights])\n"
        "    replicas = tf.distribute.get_strategy().num_replicas_in_sync\n"
        "    return tf.reduce_sum(per_example_loss) / global_batch_size + strength * squares / replicas",
        "    squares = tf.add_n([tf.reduce_sum(weight**2) for weight in weights])\n"
        "    return tf.reduce_sum(per_example_loss) / global_batch_size + strength * squares",
    ],
    "04.uneven_batch": [
        "    here = tf.cast(tf.size(per_example_loss), tf.float32)\n"
        "    there = tf.distribute.get_replica_context().all_reduce('SUM', here)\n"
        "    return tf.reduce_sum(per_example_loss) / there",
        "    return tf.reduce_mean(per_example_loss)",
        "    return tf.reduce_sum(per_example_loss) / 16",
    ],
}


def main() -> None:
    """Print seconds a submission on both sides and their ratio; then time and memory of a class of 100."""
    try:
        python = install()
    except Unreachable as error:
        sys.exit(f"nbgrader cannot be installed here: {error}")
    with tempfile.TemporaryDirectory(prefix="course-bench-") as folder:
        nbgrader = Nbgrader(python, Path(folder) / "course")
        release(nbgrader.folder, (LESSON,), nbgrader=True)
        nbgrader.run("generate_assignment", LESSON, "--create")
        _compare(nbgrader)
        _grade_a_class(nbgrader.folder, Path(folder) / "class")


def _compare(nbgrader):
    submitted = nbgrader.folder / "submitted"
    points = {"nbgrader": {}, "course grade": {}}

    def theirs(round_):
        _hand_in(nbgrader.folder, submitted, _students(round_))
        began = time.monotonic()
        nbgrader.run("autograde", LESSON, "--create", limit=LIMIT)  # those of earlier rounds are passed over
        seconds = time.monotonic() - began
        points["nbgrader"] |= {student: sum(scores.values()) for student, scores in nbgrader.grades().items()}
        return seconds / SIDE_BY_SIDE

    def ours(round_):
        own = nbgrader.folder.parent / f"round-{round_}"
        _hand_in(nbgrader.folder, own / "submitted", _students(round_))
        began = time.monotonic()
        _grade(own / "submitted", own / "grades")
        seconds = time.monotonic() - began
        points["course grade"] |= _totals(own / "grades")
        return seconds / SIDE_BY_SIDE

    console.print(f"\n[bold]Grading {LESSON}[/bold]: {SIDE_BY_SIDE} submissions a round, seconds for each")
    seconds = in_turn({"nbgrader": theirs, "course grade": ours}, ROUNDS)
    print_ratios("Seconds a submission", seconds, "nbgrader", {"course grade": RATIO})
    _print_points(points["nbgrader"], points["course grade"])


def _print_points(theirs, ours):
    other = [
        f"{student}: {theirs.get(student)} and {ours.get(student)}"
        for student in sorted(theirs.keys() | ours.keys())
        if theirs.get(student) != ours.get(student)
    ]
    mean = statistics.mean(theirs.values())
    told = f"NO: {'; '.join(other)}" if other else f"yes, {mean:.1f} on average"
    console.print(f"Both gave the same points: {told}")


def _grade_a_class(course, folder):
    _hand_in(course, folder / "submitted", range(1000, 1000 + CLASS))
    began = time.monotonic()
    with _Memory() as memory:
        _grade(folder / "submitted", folder / "grades", memory.watch)
    minutes = (time.monotonic() - began) / 60
    console.print(
        f"\n[bold]{CLASS} submissions of {LESSON}[/bold], no two answers alike: "
        f"{minutes:.1f} min, at most {MINUTES}: {'yes' if minutes <= MINUTES else 'NO'}; "
        f"{memory.most:.1f} GiB at the peak, under {GIBIBYTES}: {'yes' if memory.most < GIBIBYTES else 'NO'}"
    )


def _grade(submitted, out, watch=lambda process: None):
    command = [sys.executable, "-m", "course_utils.cli", "grade", submitted, "--out", out, *TWO_CORES]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    watch(process)
    said_by(process, "course grade", LIMIT)


def _totals(out):
    with (out / "gradebook.csv").open(encoding="utf-8-sig", newline="") as file:
        return {row["student"]: float(row["total"]) for row in csv.DictReader(file)}


def _students(round_):
    return range(round_ * SIDE_BY_SIDE, (round_ + 1) * SIDE_BY_SIDE)


def _name(number):
    return f"student{number:04}"


def _hand_in(course, submitted, numbers):
    """What these students hand in: right and wrong answers in turn, no two alike."""
    notebook = nbformat.read(course / "release" / LESSON / f"{LESSON}.ipynb", as_version=nbformat.NO_CONVERT)
    for number in numbers:
        for place, cell in enumerate(c for c in notebook.cells if "exercise_id" in c.metadata):
            cell.source = _answer(cell.metadata.exercise_id, number, place)
        path = submitted / _name(number) / LESSON / f"{LESSON}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, path)


def _answer(exercise_id, number, place):
    kinds = ANSWERS[exercise_id]
    body = kinds[(number // (place + 1)) % len(kinds)]
    return f"def {catalogue.find(exercise_id).signature}:\n    my_number = {number}\n{body}"


class _Memory:
    """The most memory, in GiB, that a command and what it started held at once; shared pages count once."""

    def __enter__(self):
        self.most, self._over = 0.0, threading.Event()
        return self

    def watch(self, process):
        self._thread = threading.Thread(target=self._sample, args=(psutil.Process(process.pid),))
        self._thread.start()

    def _sample(self, parent):
        while not self._over.wait(0.3):
            self.most = max(self.most, _held_by(parent) / 2**30)

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


def _held_by(parent):
    total = 0
    try:
        processes = [parent, *parent.children(recursive=True)]
    except psutil.Error:
        return 0
    for process in processes:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:  # it has ended meanwhile
            continue
    return total
