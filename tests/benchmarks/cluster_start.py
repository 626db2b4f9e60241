"""Four workers up to their first all-reduce: a warm `LocalCluster` against two other ways.

The other ways are four separate `python` processes, and TensorFlow's internal `multi_process_runner`,
warm too. The clock of each side starts at the call. It ends, for the separate processes, when the last of
them has printed what the all-reduce gave (their exit is not counted); for the two others, when the call
has returned every result.
"""

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import course_utils as cu
from course_utils.cluster import ClusterConfig
from course_utils.cluster.ports import HeldPort

from .measure import console, in_turn, print_ratios

WORKERS = 4
REPEATS = 5
LIMIT = 180  # seconds that any single start may take

FIRST_ALL_REDUCE = '''
import tensorflow as tf


def first_all_reduce():
    """The sum over all workers of one 1 each, so the number of workers."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def step():
        return strategy.reduce("SUM", strategy.run(lambda: tf.ones(())), axis=None)

    return float(step())
'''
PRINT_IT = FIRST_ALL_REDUCE + "\n\nprint(first_all_reduce(), flush=True)\n"


def main() -> None:
    """Print how many times faster the warm pool is."""
    console.print(f"\n[bold]{WORKERS} workers up to the first all-reduce[/bold] (median of {REPEATS})")
    warm_cluster(0)  # the first use starts the pool: one import of TensorFlow
    with TensorFlowRunner() as runner:
        runner.run(0)
        sides = {
            "separate processes": separate_processes,
            "multi_process_runner": runner.run,
            "LocalCluster": warm_cluster,
        }
        seconds = in_turn(sides, REPEATS)
    print_ratios("Cluster start", seconds, "separate processes", {"LocalCluster": 6})


def warm_cluster(_round: int) -> float:
    """Seconds that `LocalCluster.run` takes."""
    namespace = {}
    exec(
        compile(FIRST_ALL_REDUCE, "first_all_reduce", "exec"), namespace
    )  # as a notebook cell: pickled by value
    begin = time.perf_counter()
    results = cu.LocalCluster(workers=WORKERS, timeout=LIMIT, output="quiet").run(
        namespace["first_all_reduce"]
    )
    seconds = time.perf_counter() - begin
    _expect(results)
    return seconds


def separate_processes(_round: int) -> float:
    """Seconds until the last of four `python` processes has printed the sum."""
    begin = time.perf_counter()
    ports = [HeldPort() for _ in range(WORKERS)]
    config = ClusterConfig(worker=[port.address for port in ports])
    processes = [_start(config.tf_config("worker", index)) for index in range(WORKERS)]
    watchdog = threading.Timer(LIMIT, lambda: [process.kill() for process in processes])
    watchdog.start()
    try:
        _expect([float(process.stdout.readline() or "nan") for process in processes])
        return time.perf_counter() - begin
    finally:
        watchdog.cancel()
        for port in ports:
            port.release()
        for process in processes:
            process.kill()
            process.communicate(timeout=LIMIT)


class TensorFlowRunner:
    """TensorFlow's internal `multi_process_runner`, in a process of its own that stays warm.

    It makes itself the executable of `multiprocessing`, so that its fork server has TensorFlow imported; for
    that it has to be the main program, and executable: a copy with this interpreter in its first line.
    """

    def __enter__(self) -> "TensorFlowRunner":
        self._folder = tempfile.TemporaryDirectory()
        script = Path(self._folder.name) / "tensorflow_runner"
        code = Path(__file__).with_name("tensorflow_runner").read_text()
        script.write_text(f"#!{sys.executable}\n{code}")
        script.chmod(0o700)
        self._process = subprocess.Popen(
            [script, str(WORKERS), str(LIMIT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self

    def run(self, _round: int) -> float:
        """Seconds that one `multi_process_runner.run` takes."""
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("seconds "):
                return float(line.split()[1])
        raise RuntimeError("TensorFlow's multi_process_runner ended without a result.")

    def __exit__(self, *_error) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=LIMIT)
        self._folder.cleanup()


def _start(tf_config: str) -> subprocess.Popen:
    environment = {"TF_CONFIG": tf_config, "TF_CPP_MIN_LOG_LEVEL": "3", "PATH": ""}
    return subprocess.Popen(
        [sys.executable, "-c", PRINT_IT],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _expect(results: list[float]) -> None:
    if results != [WORKERS] * WORKERS:
        raise RuntimeError(f"The all-reduce gave {results}, not {WORKERS} on each worker.")


if __name__ == "__main__":
    main()
