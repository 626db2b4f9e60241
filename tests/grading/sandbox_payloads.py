"""What honest answers need of the sandbox."""

import contextlib
import json
import multiprocessing
import os
import subprocess
import tempfile
import threading
from pathlib import Path


def prepare(job):
    """The payload that the job names, with its arguments."""
    function = globals()[job["payload"]]
    return lambda: json.dumps(function(*job.get("arguments", ())))


def prepare_badly(job):
    raise ValueError("the lesson is broken")


def prepare_with_threads(job):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return str


def add(a, b):
    return a + b


def print_and_raise():
    print("first words")
    raise ValueError("no")


def use_folders():
    """Names of what it made: here, in the temporary folder, and a folder of its own."""
    Path("here").write_text("x")
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile() as file:
        inside = [Path(name).is_relative_to(os.environ["TMPDIR"]) for name in (folder, file.name)]
    return [os.listdir(os.getcwd()).count("here"), *inside, os.path.expanduser("~") == os.getcwd()]


def start_programs():
    done = subprocess.run(["/bin/sh", "-c", "echo $HOME; exit 3"], capture_output=True, text=True)
    return [done.stdout.strip() == os.getcwd(), done.returncode]


def use_processes():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(abs, [-1, -2, -3])


def use_locks():
    """What became of each kind of lock, in this process and between two."""
    forks = multiprocessing.get_context("fork")
    lock, recursive, total, gate = forks.Lock(), forks.RLock(), forks.Value("i", 0), forks.Condition()
    seen = ["taken" if lock.acquire() else "refused"]
    seen.append("twice" if lock.acquire(timeout=0.01) else "not twice")
    threading.Timer(0.05, lock.release).start()
    seen.append("in time" if lock.acquire(timeout=10) else "too late")
    with recursive, recursive:
        seen.append("again by the same")

    def count():
        for _ in range(20):
            with total:
                total.value += 1

    def wake():
        with gate:
            gate.notify_all()

    _join([forks.Process(target=count) for _ in range(2)])
    bounded = forks.BoundedSemaphore(2)
    with contextlib.suppress(ValueError):
        bounded.release()
        bounded.release()
    with gate:
        waker = forks.Process(target=wake)
        waker.start()
        woken = gate.wait(10)
    waker.join(10)
    return [*seen, total.value, bounded.get_value(), "woken" if woken else "asleep"]


def _join(processes):
    for process in processes:
        process.start()
    for process in processes:
        process.join(10)


def count_its_processes():
    return len([name for name in os.listdir("/proc") if name.isdigit()])


def sum_over_workers(workers):
    import course_utils as cu

    def total():
        import tensorflow as tf

        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        ones = strategy.run(tf.function(lambda: tf.constant(1.0)))
        return float(strategy.reduce("SUM", ones, axis=None))

    started = os.environ["TMPDIR"]
    sums = cu.LocalCluster(workers=workers, output="quiet").run(total)
    return [*sums, os.listdir(started)]
