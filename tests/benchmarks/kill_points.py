"""`python -m tests.benchmarks.kill_points 20 [--seed 11]`: kill workers at random; nothing may be lost.

Each point is a supervised job on two workers of which one, the chief or the other, is killed (SIGKILL) at a
random moment: while it starts, while it restores, in a step, or while it writes a checkpoint. It passes if
the job ends with the weights of a job that nobody disturbed (1e-6), on both workers, without a hang, and
without a process or a port left behind. The table says for each where it struck. Exit code 0 if all pass.

Three jobs: a loop with `Checkpoints`, `fit` with `Checkpoints`, and `fit` with Keras' BackupAndRestore. The
last is struck at the end of random batches only: it is not safe while it writes (course_utils.checkpoints
says why).
"""

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

import course_utils as cu
from course_utils.cluster import faults, ports
from course_utils.cluster.supervise import Attempt

STEPS, SAVE_EVERY, BATCH = 20, 5, 64
TOLERANCE = 1e-6
HANG_AFTER = 60.0
LONGEST_START = 0.8  # seconds; later, a job that was slow when it was measured may be over
HALF = "kill worker:1@step:12"  # how the jobs were left that are killed again while they restore


# The jobs, as they run on each worker ----------------------------------------------------------------


def loop(folder: Path) -> dict:
    """A custom loop with `Checkpoints`."""
    import keras
    import tensorflow as tf

    with _noted(folder) as note:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        with strategy.scope():
            model, optimizer = cu.models.mlp([256], seed=0), keras.optimizers.SGD(0.05, momentum=0.9)
            saved = cu.checkpoints.Checkpoints(folder / "job", model=model, optimizer=optimizer)
        first = saved.restore()
        batches = cu.checkpoints.data_from(first, _examples(), BATCH)
        batches = iter(strategy.experimental_distribute_dataset(batches))
        on_a_replica = cu.training.train_step(model, optimizer, BATCH)
        step = tf.function(lambda batch: strategy.run(on_a_replica, args=batch))
        note.first_step()
        for done in range(first + 1, STEPS + 1):
            step(next(batches))
            faults.step(done)
            if done % SAVE_EVERY == 0:
                with note.writing():
                    saved.save(done)
        return note.result(model)


def fit(folder: Path) -> dict:
    """`fit` with `Checkpoints`, saved after each epoch."""
    import keras

    with _noted(folder) as note:
        strategy, model = _compiled()
        with strategy.scope():
            saved = cu.checkpoints.Checkpoints(folder / "job", model=model)

        def save(epoch, logs):
            with note.writing():
                saved.save((epoch + 1) * SAVE_EVERY)

        first = saved.restore()
        callbacks = [faults.callback(), keras.callbacks.LambdaCallback(on_epoch_end=save)]
        batches = cu.checkpoints.data_from(first, _examples(), BATCH)
        note.first_step()
        how = {"epochs": STEPS // SAVE_EVERY, "steps_per_epoch": SAVE_EVERY, "verbose": 0}
        model.fit(batches, initial_epoch=first // SAVE_EVERY, callbacks=callbacks, **how)
        return note.result(model)


def backup(folder: Path) -> dict:
    """`fit` with BackupAndRestore, in a folder of each worker's own."""
    import keras

    with _noted(folder) as note:
        strategy, model = _compiled()
        own = cu.checkpoints.own_folder(folder / "job", strategy)
        callbacks = [faults.callback(), keras.callbacks.BackupAndRestore(own)]
        images, labels = (part[: SAVE_EVERY * BATCH] for part in _examples())
        note.first_step()
        how = {"epochs": STEPS // SAVE_EVERY, "shuffle": False, "verbose": 0}
        model.fit(images, labels, batch_size=BATCH, callbacks=callbacks, **how)
        return note.result(model)


JOBS: dict[str, tuple[Callable, tuple[str, ...]]] = {
    "loop": (loop, ("start", "restore", "step", "write")),
    "fit": (fit, ("start", "restore", "step", "write")),
    "fit, backup": (backup, ("restore", "step")),
}


def _compiled():
    import keras
    import tensorflow as tf

    cu.keras_multiworker.enable()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = cu.models.mlp([256], seed=0)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss)
    return strategy, model


def _examples():
    data = cu.datasets.fashion_mnist()
    return data.train_images[:640], data.train_labels[:640]


class _Note:
    """What this worker leaves in the folder, so that a killed one can still be asked about."""

    def __init__(self, folder: Path):
        self.folder, self.began, self.writes = folder, time.monotonic(), []
        self.index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
        self.mark = folder / f"writing-{self.index}"
        if self.mark.exists():  # it was killed in there
            self.mark.rename(folder / f"struck-writing-{self.index}")
        with open(folder / "pids", "a") as pids:
            pids.write(f"{os.getpid()}\n")

    def first_step(self) -> None:
        self.started = time.monotonic() - self.began

    @contextlib.contextmanager
    def writing(self):
        began = time.monotonic()
        self.mark.touch()
        yield
        self.mark.unlink()
        self.writes.append(time.monotonic() - began)

    def result(self, model) -> dict:
        return {"weights": model.get_weights(), "start": self.started, "writes": self.writes}


@contextlib.contextmanager
def _noted(folder: Path):
    folder.mkdir(parents=True, exist_ok=True)
    note = _Note(folder)
    faults.step(0)  # so that a fault can strike while it starts
    yield note


# The points --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Undisturbed:
    """A job that nobody disturbs: its weights, and how long it starts and writes, in seconds."""

    weights: list
    start: float
    write: float


@dataclass(frozen=True)
class Point:
    """Which worker of which job is killed, and when."""

    job: str
    moment: str
    fault: faults.Fault


@dataclass(frozen=True)
class Found:
    """How a point ended; `wrong` is empty if it passed."""

    point: Point
    attempts: list[Attempt]
    apart: float
    in_a_write: bool
    wrong: str


def undisturbed(job: str, folder: Path) -> Undisturbed:
    """One quiet run of a job, in `folder`."""
    results = cu.LocalCluster(2, output="quiet").run(JOBS[job][0], folder / f"{job} whole")
    writes = [seconds for result in results for seconds in result["writes"]]
    return Undisturbed(results[0]["weights"], results[0]["start"], float(np.median(writes or [0])))


def half_done(job: str, folder: Path) -> Path:
    """The folder of the same job, killed in its third epoch."""
    half = folder / f"{job} half"
    if not half.exists():
        with contextlib.suppress(cu.cluster.WorkerDied):
            cu.LocalCluster(2, output="quiet", faults=HALF).run(JOBS[job][0], half)
    return half


def points(count: int, quiet: dict[str, Undisturbed], seed: int) -> list[Point]:
    """Random points: jobs, moments and tasks in turn, so that all are met; the rest is chance."""
    random = np.random.default_rng(seed)
    kinds = [(job, moment) for job, (_, moments) in JOBS.items() for moment in moments]
    kinds = [kinds[i] for i in random.permutation(len(kinds))]
    return [_point(*kinds[i % len(kinds)], (i + i // len(kinds)) % 2, quiet, random) for i in range(count)]


def _point(job: str, moment: str, index: int, quiet: dict[str, Undisturbed], random) -> Point:
    step = int(random.integers(1, STEPS))
    delay = float(random.uniform(0, 0.02))
    if moment in ("start", "restore"):
        step, delay = 0, float(random.uniform(0, min(quiet[job].start, LONGEST_START)))
    elif moment == "write":
        step = SAVE_EVERY * int(random.integers(1, STEPS // SAVE_EVERY))
        delay = float(random.uniform(0, quiet[job].write))
    elif job == "fit, backup":
        delay = 0.0
    return Point(job, moment, faults.Fault("kill", "worker", index, step, round(delay, 4)))


def strike(point: Point, quiet: Undisturbed, base: Path) -> Found:
    """Run one point and look at all that it left."""
    with tempfile.TemporaryDirectory(dir=base) as name:
        folder = Path(name)
        if point.moment == "restore":
            shutil.copytree(half_done(point.job, base) / "job", folder / "job")
        cluster = cu.LocalCluster(2, output="quiet", faults=str(point.fault), timeout=180)
        supervisor = cu.cluster.Supervisor(cluster, max_restarts=2, backoff=0.05, hang_after=HANG_AFTER)
        try:
            results = supervisor.run(JOBS[point.job][0], folder)
        except cu.errors.CourseError as error:
            return Found(point, supervisor.attempts, float("nan"), False, error.seen)
        apart = max(cu.training.largest_difference(r["weights"], quiet.weights) for r in results)
        hows = [attempt.ending.how for attempt in supervisor.attempts]
        pids = {int(line) for line in (folder / "pids").read_text().split()}
        wrong = problems(apart, hows) + left_behind(pids, cluster.configs[0])
        in_a_write = (folder / f"struck-writing-{point.fault.index}").exists()
        return Found(point, supervisor.attempts, apart, in_a_write, ", ".join(wrong))


def problems(apart: float, hows: list[str]) -> list[str]:
    """What is wrong with a job that ended so far from the undisturbed one, after attempts that ended so."""
    found = [f"{apart:.1e} apart"] if not apart <= TOLERANCE else []
    found += ["it hung"] if "hung" in hows else []
    return found + (["it was not killed"] if hows == ["finished"] else [])


def left_behind(pids: set[int], config: str) -> list[str]:
    """Those of the processes, and of the ports of a TF_CONFIG, that are still there."""
    orphans = [pid for pid in pids if psutil.pid_exists(pid)]
    addresses = json.loads(config)["cluster"]["worker"]
    taken = [address for address in addresses if ports.holder(int(address.rpartition(":")[2]))]
    return [f"process {pid} is still there" for pid in orphans] + [f"{address} is taken" for address in taken]


def row(number: int, found: Found) -> str:
    """A line of the table."""
    point = found.point
    who = "chief" if point.fault.index == 0 else "other"
    tries = " → ".join(
        f"{attempt.ending.how} at {attempt.ending.outcomes[point.fault.index].step}"
        for attempt in found.attempts
    )
    where = "in a write" if found.in_a_write else ""
    when = f"{point.fault.step:2}+{point.fault.delay * 1000:.0f} ms"
    return (
        f"{number:3}  {point.job:11} {who:5}  {point.moment:7} {when:>10}  {where:10}  {tries:36}"
        f"  {found.apart:7.1g}  {found.wrong or 'passed'}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Print the table; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=20)
    parser.add_argument("--seed", type=int, default=11)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="course-kill-") as folder:
        return run(options.count, options.seed, Path(folder))


def run(count: int, seed: int, folder: Path) -> int:
    """The same, with a folder to work in."""
    quiet = {job: undisturbed(job, folder) for job in JOBS}
    print(f"seed {seed}, {count} points; chief = worker 0, times after the step named")
    print(
        "  #  job         killed planned             struck      attempts, and the last step of the killed"
        " worker  apart"
    )
    passed = 0
    for number, point in enumerate(points(count, quiet, seed), start=1):
        found = strike(point, quiet[point.job], folder)
        print(row(number, found), flush=True)
        passed += not found.wrong
    print(f"{passed} of {count} passed (seed {seed})")
    return 0 if passed == count else 1


if __name__ == "__main__":
    sys.exit(main())
