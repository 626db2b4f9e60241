"""Workers that meet, and one that fails: who failed first, who left too early, who hangs and where."""

import os
import time
from types import SimpleNamespace

from course_utils.cluster import faults, output
from course_utils.cluster.config import Task
from course_utils.cluster.launch.members import Member
from course_utils.cluster.worker import IN_WORKER

HANG = 3  # seconds without a sign of life: the workers of these tests take steps of milliseconds


def test_the_first_error_is_told_not_the_one_that_it_caused(together):
    ended = together(
        """
        for number in range(1, 100):
            step()
            faults.step(number)
            if me == 1 and number == 5:
                raise ValueError("mine")
        """,
        workers=3,
    )
    assert ended.code == 1
    assert "Worker 1 raised ValueError: mine (after step 5, exit code 1)." in ended.said
    assert "Unavailable" not in ended.said


def test_one_that_leaves_too_early_with_exit_code_0_is_told_where_others_fail_for_it(together):
    ended = together(
        """
        step()
        faults.step(1)
        if me == 1:
            sys.exit()
        time.sleep(1)
        raise tf.errors.UnavailableError(None, None, "what TensorFlow raises after ten seconds")
        """,
        workers=2,
    )
    assert ended.code == 1
    assert "Worker 1 ended too early, with exit code 0 at step 1." in ended.said
    assert "Likely cause: Worker 0 raised" in ended.said and "it waited in vain" in ended.said


def test_one_that_leaves_too_early_is_told_where_others_wait_for_it(together):
    ended = together("step()\nif me == 0: sys.exit()\nstep()", workers=2, heartbeat=HANG)
    assert ended.code in (1, 124)  # by the error that TensorFlow has after a while, or by our patience
    assert (
        "Worker 0 ended too early" in ended.said
        or "worker 0 had ended with exit code 0" in ended.said.lower()
    )


def test_one_that_ends_in_the_middle_of_its_script_has_not_finished(job):
    ended = job(
        """
        import json, os
        from course_utils.cluster import faults
        faults.step(1)
        if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
            os._exit(0)
        """,
        workers=2,
    )
    assert ended.code == 1
    assert "Worker 1 ended too early, with exit code 0 at step 1. Likely cause: os._exit" in ended.said


def test_unequal_steps_are_told_also_where_nobody_fails(job):
    ended = job(
        """
        import json, os
        from course_utils.cluster import faults
        for step in range(1, 3 + json.loads(os.environ["TF_CONFIG"])["task"]["index"]):
            faults.step(step)
        """,
        workers=2,
    )
    assert ended.code == 0
    assert "not after equally many steps: worker 0 2, worker 1 3." in ended.said


STUCK = """
def spin():
    while True:
        pass

for number in range(1, 10):
    step()
    faults.step(number)
    if me == 1 and number == 5:
        spin()
"""


def test_a_worker_that_hangs_is_named_with_its_step_its_line_and_its_stack(together):
    ended = together(STUCK, workers=2, heartbeat=HANG)
    assert ended.code == 124
    assert f"No sign of life for {HANG} s. Worker 1 is stuck at step 5 in spin, job.py line" in ended.said
    assert "worker 0 waits at step 5 in <module>, job.py line" in ended.said and "(`step()`)" in ended.said
    (told,) = [part for part in ended.said.split("[launch] ") if part.startswith("Where it stood")]
    assert ", in spin\n" in told and "spin()\n" in told
    assert not any("Fatal Python error" in line for line in ended.out)


def test_a_new_python_that_hangs_says_where_too(job):
    ended = job(
        """
        import threading
        from course_utils.cluster import faults

        def wait():
            threading.Event().wait()

        faults.step(5)
        wait()
        """,
        workers=1,
        pool=False,
        heartbeat=HANG,
    )
    assert ended.code == 124
    assert "Worker 0 is stuck at step 5 in wait, job.py line 6 (`threading.Event().wait()`)." in ended.said
    assert ended.out == []


def test_a_worker_that_never_joins_is_told_with_who_waits_for_it(job):
    ended = job(
        """
        import os, time
        import tensorflow as tf
        if '"index": 1' in os.environ["TF_CONFIG"]:
            time.sleep(600)
        tf.distribute.MultiWorkerMirroredStrategy()
        """,
        workers=2,
        heartbeat=HANG,
    )
    assert ended.code == 124
    assert "Worker 1 is stuck in <module>, job.py line 5 (`time.sleep(600)`)" in ended.said
    assert "worker 0 waits for worker 1 to join" in ended.said


def test_one_that_ends_without_joining_is_told_at_once(job):
    ended = job(
        """
        import os, sys
        import tensorflow as tf
        if '"index": 1' in os.environ["TF_CONFIG"]:
            sys.exit(0)
        tf.distribute.MultiWorkerMirroredStrategy()
        """,
        workers=2,
        heartbeat=1000,
    )
    assert ended.code == 1
    assert "Worker 1 ended with exit code 0 without making a strategy; worker 0 would wait" in ended.said


def test_a_worker_with_a_strategy_of_its_own_waits_for_nobody(job):
    ended = job(
        """
        import os, sys, time
        import tensorflow as tf
        if '"index": 1' in os.environ["TF_CONFIG"]:
            sys.exit(0)
        make = tf.distribute.cluster_resolver.SimpleClusterResolver

        class Slow(make):
            def cluster_spec(self):
                time.sleep(1)
                return super().cluster_spec()

        alone = tf.train.ClusterSpec({})
        tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=Slow(alone))
        time.sleep(1)
        """,
        workers=2,
    )
    assert (ended.code, ended.said) == (0, "")


def test_a_halted_worker_is_told_as_such(job):
    ended = job(
        """
        import os, signal, time
        if '"index": 1' in os.environ["TF_CONFIG"]:
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(600)
        """,
        workers=2,
        heartbeat=HANG,
    )
    assert ended.code == 124 and "Worker 1 is stuck (halted by SIGSTOP)" in ended.said


def test_lines_steps_and_before_the_first_step_work_are_signs_of_life(tmp_path, monkeypatch):
    log = output.Log(tmp_path / "worker-0.log")
    monkeypatch.setenv(faults.PROGRESS, str(tmp_path / "progress"))
    member = Member(Task("worker", 0), SimpleNamespace(progress=tmp_path / "progress"), log, 1)
    member.process = SimpleNamespace(pid=os.getpid(), exit_code=None, poll=lambda: None)

    def alive_at(idle):
        member.alive_at, member.idle = 0.0, SimpleNamespace(seconds=lambda pid: idle)
        member.look()
        return member.alive_at

    begin = time.monotonic()
    assert alive_at(idle=0) > begin > alive_at(idle=1000)
    log.file.write(b"hello\n")
    assert alive_at(idle=1000) > begin
    faults.step(1)
    stepped = alive_at(idle=1000)
    assert begin < stepped == alive_at(idle=0)  # who has reported a step has to report the next
    log.close()


def test_a_job_over_its_time_is_ended_and_says_where_it_stood(job):
    ended = job(
        "import time\nwhile True:\n    print(time.time())\n    time.sleep(0.05)\n", workers=1, timeout=2
    )
    assert ended.code == 124
    assert "The job did not finish within 2 s. Worker 0 is stuck in <module>, job.py line" in ended.said


def test_faults_fire_once_over_all_attempts(job):
    ended = job(
        """
        from course_utils.cluster import faults
        for step in range(1, 4):
            faults.step(step)
        """,
        workers=2,
        max_restarts=3,
        faults=("exception worker:0@step:2", "worker:1@step:3", "exit=9 worker:1@step:1"),
    )
    assert ended.code == 0 and "Finished after" in ended.said
    assert 1 <= ended.said.count("Restart ") <= 3


def test_faults_that_have_not_struck_are_told_with_how_far_it_got(job):
    ended = job(
        """
        import json, os
        from course_utils.cluster import faults
        for step in range(1, 4):
            if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
                faults.step(step)
        """,
        workers=2,
        max_restarts=1,
        faults=(
            "exception worker:1@step:2",
            "kill worker:1@step:40",
            "kill worker:1@step:3+500s",
            "worker:0@step:1",
        ),
    )
    assert ended.code == 0 and "'exception" not in ended.said
    told = [line for line in ended.said.splitlines() if "has not struck" in line]
    assert [line.removeprefix("[launch] The fault ").replace(" has not struck", "") for line in told] == [
        "'kill worker:1@step:40': the last step that worker 1 has reported is 3.",
        "'kill worker:1@step:3+500s': worker 1 has ended before 500 s had passed after step 3.",
        "'kill worker:0@step:1': worker 0 has reported no step. "
        "Its program has to call faults.step(k) after each.",
    ]


def test_a_worker_knows_its_name(job):
    ended = job(f"import os; print(os.environ[{IN_WORKER!r}])", workers=1)
    assert ended.lines_of("worker 0") == ["worker 0"]
