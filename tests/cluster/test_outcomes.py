"""LocalCluster.outcomes: the first failure does not end the run, so that one sees what the others see."""

import os
import sys
import threading

import cluster_jobs as jobs
import psutil
import pytest

from course_utils.cluster import ClusterTimeout, LocalCluster, WorkerDied, WorkerError, faults
from course_utils.cluster import outcomes as outcomes_module
from course_utils.errors import ConfigError


def cluster(workers=2, timeout=30, **options):
    return LocalCluster(workers, output="quiet", timeout=timeout, **options)


def train(steps=1_000_000):
    """Add up numbers, a step after the other; returns how many were done."""
    strategy = jobs.join()
    jobs.add_up(strategy)
    for done in range(steps):
        faults.step(done)
        jobs.add_up(strategy)
    return steps


def test_survivors_of_a_killed_worker_tell_what_they_saw_and_when(tmp_path):
    survivor, killed = cluster(faults="kill worker:1@step:4", log_dir=tmp_path).outcomes(train)
    assert (killed.task, killed.status, killed.step, killed.value) == ("worker 1", "killed", 4, None)
    assert isinstance(killed.error, WorkerDied) and "Worker 1 was killed by SIGKILL" in str(killed)
    assert 0 < killed.struck <= killed.seconds and survivor.struck is None
    assert survivor.status == "raised" and isinstance(survivor.error, WorkerError)
    assert "Error" in survivor.error.seen and survivor.error.remote_traceback
    assert survivor.step in (3, 4, 5) and survivor.seconds >= killed.seconds - 0.1
    (kept,) = tmp_path.iterdir()  # as the errors say
    assert str(kept) in survivor.error.cure and len(list(kept.glob("*.log"))) == 2


def test_one_that_leaves_by_sys_exit_has_not_returned():
    def leave():
        faults.step(1)
        if jobs.me() == "worker 1":
            raise SystemExit(0)
        return "done"

    returned, left = cluster().outcomes(leave)
    assert (returned.status, returned.value, returned.error) == ("returned", "done", None)
    assert (left.status, left.value, left.step) == ("exited", None, 1)
    assert "Worker 1 called sys.exit() and did not return." in str(left)


def test_a_fit_without_the_mend_names_it():
    def fit():
        import keras
        import numpy as np

        with jobs.join().scope():
            model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        model.fit(np.ones((4, 1)), np.ones((4, 1)), verbose=0)

    with pytest.raises(WorkerError, match=r"PerReplica.*unsupported type") as raised:
        cluster(timeout=60).run(fit)
    assert "keras_multiworker.enable()" in raised.value.cause


def test_workers_that_return_have_values_and_no_error_and_a_fault_that_was_not_met_is_told(tmp_path):
    with pytest.warns(
        UserWarning, match="'kill worker:1@step:9' has not struck: the last step.* is 2"
    ) as warned:
        outcomes = cluster(faults="kill worker:1@step:9", log_dir=tmp_path).outcomes(train, steps=3)
    assert [warning.filename for warning in warned] == [__file__]
    for outcome in outcomes:
        assert (outcome.status, outcome.value, outcome.error, outcome.step) == ("returned", 3, None, 2)
        assert outcome.seconds > 0 and "returned" in str(outcome)
    assert not list(tmp_path.iterdir())


def test_all_that_fail_by_themselves_are_told():
    def fail():
        if jobs.me() == "worker 0":
            raise ValueError("mine")
        if jobs.me() == "worker 1":
            os._exit(3)
        if jobs.me() == "worker 2":
            jobs.exit_properly()

    raised, exited, left = cluster(3).outcomes(fail)
    assert raised.status == "raised" and isinstance(raised.error.original, ValueError)
    assert exited.status == "exited" and "exit code 3" in exited.error.seen
    assert left.status == "raised" and left.error.original.args == (4,)


def test_a_worker_that_raised_ends_as_a_script_would_and_one_that_returned_stays(tmp_path):
    def say_pid(folder):
        (folder / jobs.me()).write_text(str(os.getpid()))
        if jobs.me() == "worker 0":
            raise ValueError
        if jobs.me() == "worker 1":
            return
        others = [folder / name for name in ("worker 0", "worker 1")]
        while not all(file.exists() and file.read_text() for file in others):
            pass
        raised, returned = (int(file.read_text()) for file in others)
        while psutil.pid_exists(raised):
            pass
        return psutil.pid_exists(returned)

    _, _, seen = cluster(3).outcomes(say_pid, tmp_path)
    assert seen.value is True, seen


def test_who_still_runs_at_the_time_limit_is_cut_off_where_it_was():
    def wait_in_vain(name):
        if jobs.me() == name:
            threading.Event().wait()

    returned, waiting = cluster(timeout=0.5).outcomes(wait_in_vain, "worker 1")
    assert returned.status == "returned"
    assert waiting.status == "cut off" and isinstance(waiting.error, ClusterTimeout)
    assert (
        "in wait_in_vain, test_outcomes.py line" in waiting.error.seen
        and "threading.Event().wait()" in str(waiting)
    )
    assert waiting.seconds >= 0.5


@pytest.mark.parametrize(("how", "status"), [("return", "returned"), ("sys.exit", "exited")])
def test_who_waits_in_vain_for_one_that_left_is_cut_off_long_before_the_time_limit(how, status, monkeypatch):
    monkeypatch.setattr(outcomes_module, "LEFT_BEHIND", 1.0)

    def leave_early(how):
        strategy = jobs.join()
        jobs.add_up(strategy)
        if jobs.me() == "worker 1":
            return {"return": lambda: "early", "sys.exit": lambda: sys.exit(0)}[how]()
        jobs.add_up(strategy)
        return "late"

    waiting, left = cluster(timeout=120).outcomes(leave_early, how)
    assert left.status == status and left.seconds < waiting.seconds < 100
    assert waiting.status == "cut off" and isinstance(waiting.error, ClusterTimeout)
    assert "worker 1" in waiting.error.cause.lower()


def test_who_works_on_after_another_has_left_is_let_finish(monkeypatch):
    monkeypatch.setattr(outcomes_module, "LEFT_BEHIND", 0.2)

    def work_on():
        jobs.add_up(jobs.join())
        if jobs.me() == "worker 0":
            threading.Event().wait(2)  # elsewhere than in TensorFlow
        return "done"

    assert [outcome.value for outcome in cluster(timeout=60).outcomes(work_on)] == ["done", "done"]


def test_a_stopped_worker_alone_does_not_hold_up_the_run():
    def stop(name):
        if jobs.me() == name:
            jobs.stop_myself()

    _, stopped = cluster(timeout=60).outcomes(stop, "worker 1")
    assert stopped.seconds < 60
    assert stopped.status == "stopped" and "stopped by SIGSTOP" in stopped.error.seen


def test_a_wrong_configuration_is_still_refused():
    with pytest.raises(ConfigError, match="before"):
        cluster().outcomes(jobs.compute_first)
