"""A supervised job: all workers start anew after a failure, up to a limit, and each try tells its end."""

import json
import os
import threading
import time

import cluster_jobs as jobs
import pytest

from course_utils.cluster import GaveUp, LocalCluster, Supervisor, faults
from course_utils.cluster.supervise import Attempt, Ending, Restarts, keep_trying
from course_utils.errors import ConfigError

STEPS = 6


def supervisor(faults="", *, workers=2, timeout=60, **options):
    return Supervisor(
        LocalCluster(workers, output="quiet", timeout=timeout, faults=faults), backoff=0, **options
    )


def count(folder, steps=STEPS):
    """Takes steps that all workers take together, from where the file says that the job is."""
    strategy = jobs.join()
    file = folder / "done"
    first = int(file.read_text()) if file.exists() else 0
    jobs.add_up(strategy)  # all have read before anyone writes
    for done in range(first, steps):
        faults.step(done)
        jobs.add_up(strategy)
        if jobs.me() == "worker 0":
            (folder / "new").write_text(str(done + 1))
            os.replace(folder / "new", file)
    return first, os.getpid(), json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]


def test_all_workers_start_again_with_new_processes_and_ports_and_go_on(tmp_path):
    job = supervisor("kill worker:1@step:3, kill worker:0@step:99", max_restarts=1)
    told = f"'kill worker:0@step:99' has not struck: the last step that worker 0 has reported is {STEPS - 1}"
    with pytest.warns(UserWarning, match=told) as warned:
        results = job.run(count, tmp_path)
    assert [warning.filename for warning in warned] == [__file__]
    crashed, finished = job.attempts
    assert (crashed.ending.how, crashed.ending.culprit) == ("crashed", "worker 1")
    assert crashed.ending.reason == "Worker 1 was killed by SIGKILL."
    assert [outcome.first_step for outcome in crashed.ending.outcomes] == [0, 0]
    assert finished.ending.how == "finished" and finished.ending.reason == ""
    (resumed,) = {first for first, _, _ in results}
    assert resumed in (2, 3)  # worker 0 may not have written its third step yet
    assert [outcome.first_step for outcome in finished.ending.outcomes] == [resumed] * 2
    assert [outcome.step for outcome in finished.ending.outcomes] == [STEPS - 1] * 2


def test_an_attempt_is_recorded_with_its_times_and_those_of_each_worker(tmp_path):
    job = supervisor("exception worker:0@step:2, exit=3 worker:1@step:4")
    job.run(count, tmp_path)
    assert [attempt.number for attempt in job.attempts] == [1, 2, 3]
    assert "A fault was asked for: exception worker:0@step:2" in job.attempts[0].ending.reason
    assert "exit code 3" in job.attempts[1].ending.reason
    moments = [moment for attempt in job.attempts for moment in (attempt.start, attempt.end)]
    assert moments == sorted(moments) and moments[0] >= 0
    for attempt in job.attempts:
        assert len(attempt.timeline) == 2 and all(dict(stages)["start"] > 0 for stages in attempt.timeline)
    assert "attempt 2: crashed after" in str(job.attempts[1])
    processes = {outcome.value[1] for outcome in job.attempts[2].ending.outcomes}
    assert len(processes) == 2


def test_a_job_that_always_fails_is_given_up_at_the_limit():
    def fail():
        raise ValueError(f"mine, {jobs.me()}")

    job = supervisor(max_restarts=2)
    with pytest.raises(
        GaveUp, match=r"tried 3 times and never finished\. The last time it crashed: Worker"
    ) as end:
        job.run(fail)
    assert len(end.value.attempts) == len(job.attempts) == 3
    assert "raised ValueError: mine" in end.value.ending.reason


def test_a_stopped_worker_is_a_hang_and_no_crash(tmp_path):
    job = supervisor("stop worker:1@step:3", hang_after=1.5)
    job.run(count, tmp_path)
    hung, finished = job.attempts
    assert (hung.ending.how, hung.ending.culprit) == ("hung", "worker 1")
    assert "No worker has finished a step for 1.5 s" in hung.ending.reason
    assert "worker 1 is stopped (SIGSTOP)" in hung.ending.reason
    assert hung.ending.outcomes[1].status == "stopped" and finished.ending.how == "finished"


def test_of_a_hang_in_the_function_itself_it_is_known_who_and_where(tmp_path):
    def hang_once(folder):
        strategy = jobs.join()
        jobs.add_up(strategy)
        faults.step(0)
        if jobs.me() == "worker 1" and not (folder / "hung").exists():
            (folder / "hung").touch()
            threading.Event().wait()
        jobs.add_up(strategy)

    job = supervisor(hang_after=1)
    job.run(hang_once, tmp_path)
    ending = job.attempts[0].ending
    assert (ending.how, ending.culprit) == ("hung", "worker 1")
    assert "No worker has finished a step for 1 s" in ending.reason
    assert "worker 1 is in hang_once" in ending.reason and "worker 0 waits in add_up" in ending.reason


def test_without_reports_the_time_limit_ends_a_hang():
    def wait():
        if jobs.me() == "worker 1":
            threading.Event().wait()

    with pytest.raises(GaveUp, match=r"did not finish within 0\.5 s: .*worker 1 .*is in wait"):
        supervisor(max_restarts=0, hang_after=0.1, timeout=0.5).run(wait)


def test_workers_that_save_and_leave_are_preempted_and_the_last_of_them_has_time_to(tmp_path):
    def leave_once(folder):
        mine = folder / jobs.me()
        if not mine.exists():
            if jobs.me() == "worker 1":
                threading.Event().wait(1)  # it writes for longer than the other
            mine.touch()
            raise SystemExit(42)

    job = supervisor()
    job.run(leave_once, tmp_path)
    assert [attempt.ending.how for attempt in job.attempts] == ["preempted", "finished"]
    assert "sys.exit(42)" in job.attempts[0].ending.reason


def test_a_parameter_server_that_dies_ends_the_attempt_and_a_worker_of_a_coordinator_does_not(tmp_path):
    def serve_or_wait(folder):
        faults.step(1)
        first_attempt = not (folder / "second").exists()
        if jobs.me() == "chief 0":
            if not first_attempt:
                return "done"
            (folder / "chief has looked").touch()
        if jobs.me().startswith("ps") and first_attempt:
            while not (folder / "chief has looked").exists():
                time.sleep(0.01)
            (folder / "second").touch()
            jobs.kill_myself()
        threading.Event().wait()

    cluster = LocalCluster(1, chief=True, ps=1, output="quiet", timeout=30, faults="exit=3 worker:0@step:1")
    job = Supervisor(cluster, backoff=0.5)
    results = job.run(serve_or_wait, tmp_path)
    assert [attempt.ending.culprit for attempt in job.attempts] == ["ps 0", ""]
    assert results[0] == "done"


def test_what_no_restart_can_mend_is_raised_at_once():
    job = supervisor()
    with pytest.raises(ConfigError, match="before"):
        job.run(jobs.compute_first)
    assert job.attempts == []


# The loop itself -------------------------------------------------------------------------------------


def scripted(*hows):
    """An attempt that ends as the script says, and the list of the numbers that it was called with."""
    called = []

    def attempt(number):
        called.append(number)
        return Ending(hows[min(number, len(hows)) - 1], reason="It did.")

    return attempt, called


def test_waits_grow_and_are_limited():
    attempt, called = scripted("crashed")
    waits = []
    with pytest.raises(GaveUp) as end:
        keep_trying(attempt, Restarts(limit=4, backoff=2, longest=10), wait=waits.append)
    assert called == [1, 2, 3, 4, 5] and waits == [2, 4, 8, 10]
    assert len(end.value.attempts) == 5


def test_a_finished_attempt_is_the_last():
    attempt, called = scripted("hung", "preempted", "finished", "crashed")
    heard = []
    attempts = keep_trying(attempt, Restarts(3, 0), heard.append)
    assert called == [1, 2, 3] and heard == attempts
    assert [attempt.ending.how for attempt in attempts] == ["hung", "preempted", "finished"]
    assert isinstance(attempts[0], Attempt) and attempts[0].end <= attempts[1].start


def test_no_restart_means_one_attempt():
    attempt, called = scripted("crashed")
    with pytest.raises(GaveUp, match="tried once"):
        keep_trying(attempt, Restarts(0))
    assert called == [1]


@pytest.mark.parametrize(
    "options", [{"max_restarts": -1}, {"max_restarts": 1.5}, {"backoff": -1}, {"hang_after": 0}]
)
def test_senseless_options_are_refused(options):
    with pytest.raises(ConfigError, match="cannot be"):
        Supervisor(LocalCluster(1), **options)


@pytest.mark.parametrize("cluster", [5, None, "worker:0", LocalCluster])
def test_a_supervisor_without_a_cluster_is_refused_when_it_is_made(cluster):
    with pytest.raises(ConfigError, match=r"has no cluster to watch.*LocalCluster\(workers=2\)"):
        Supervisor(cluster)
