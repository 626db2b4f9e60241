"""LocalCluster: results in order, errors from where they arose, no waiting for ever."""

import json
import os
import threading
from pathlib import Path

import cluster_jobs as jobs
import numpy as np
import psutil
import pytest

from course_utils.cluster import (
    ClusterConfig,
    ClusterTimeout,
    LocalCluster,
    WorkerDied,
    WorkerError,
    free_addresses,
)
from course_utils.errors import ClusterError, ConfigError

QUIET = {"output": "quiet", "timeout": 60}


def test_workers_return_in_task_order_and_really_add_up():
    assert LocalCluster(3, **QUIET).run(jobs.join_and_add_up) == [(f"worker {i}", 6.0) for i in range(3)]


def test_arguments_travel_and_each_run_starts_afresh():
    def count(x, *, y):
        import builtins

        builtins.runs = getattr(builtins, "runs", 0) + 1
        return x + y, builtins.runs, os.getpid()

    with LocalCluster(2, **QUIET) as cluster:
        first, second = cluster.run(count, 1, y=2), cluster.run(count, 3, y=4)
    assert [r[:2] for r in first + second] == [(3, 1), (3, 1), (7, 1), (7, 1)]
    assert len({r[2] for r in first + second}) == 4


def test_two_devices_in_each_of_two_workers_are_four_replicas():
    assert LocalCluster(2, 2, **QUIET).run(jobs.join_and_add_up) == [("worker 0", 10.0), ("worker 1", 10.0)]


def test_a_chief_comes_first_and_trains_with_the_workers():
    cluster = LocalCluster(1, chief=True, **QUIET)
    assert cluster.tasks == ["chief", "worker 0"]
    assert cluster.run(jobs.join_and_add_up) == [("chief 0", 3.0), ("worker 0", 3.0)]


def test_servers_that_never_return_are_stopped_when_the_chief_and_evaluator_are_done():
    def serve_or_return():
        if jobs.me().startswith(("ps", "worker")):
            threading.Event().wait()
        return jobs.me()

    cluster = LocalCluster(1, chief=True, ps=1, evaluator=True, **QUIET)
    assert cluster.run(serve_or_return) == ["chief 0", None, None, "evaluator 0"]


def test_the_timeline_has_the_stages_of_each_worker_in_order():
    cluster = LocalCluster(2, **QUIET)
    cluster.run(jobs.join_and_add_up)
    assert len(cluster.timeline) == 2
    for worker in cluster.timeline:
        assert [stage for stage, _ in worker] == ["start", "server up", "connected", "first step", "exit"]
        times = [seconds for _, seconds in worker]
        assert times[0] > 0 and times[0] <= times[2] <= times[3] <= times[4]


def test_tensors_come_back_as_numpy_arrays():
    def values():
        import tensorflow as tf

        return {"tensor": tf.ones([2]), "variable": tf.Variable(3.0), "keras": tf.keras.Variable(4.0)}

    (result,) = LocalCluster(1, **QUIET).run(values)
    assert {
        kind: isinstance(value, (np.ndarray, np.generic)) for kind, value in result.items()
    } == dict.fromkeys(result, True)
    assert result["tensor"].tolist() == [1, 1] and result["variable"] == 3 and result["keras"] == 4


def test_each_output_line_carries_its_worker_and_logs_hold_all(capfd):
    cluster = LocalCluster(2, timeout=60)
    cluster.run(jobs.say, "hello")
    shown = capfd.readouterr().out.splitlines()
    for name in ("worker 0", "worker 1"):
        mine = [line.removeprefix(f"[{name}] ") for line in shown if line.startswith(f"[{name}] ")]
        assert mine == ["hello", "to stderr", "from below Python", "without an end"]
    assert len(shown) == 8 and cluster.logs[0].splitlines()[0] == "hello"


def test_nothing_stays_behind_after_a_run_that_worked(tmp_path):
    cluster = LocalCluster(2, log_dir=tmp_path, **QUIET)
    processes = cluster.run(os.getpid)
    assert not any(psutil.pid_exists(pid) for pid in processes)
    assert not list(tmp_path.iterdir())
    assert no_port_is_taken(cluster.configs)


def test_the_code_that_autograph_writes_goes_with_the_run():
    def file_of_generated_code():
        import tensorflow as tf

        def absolute(x):
            return x if x > 0 else -x

        written = tf.autograph.to_graph(absolute).__code__.co_filename
        return written, os.path.exists(written)

    for method in ("fork", "spawn"):
        ((written, was_there),) = LocalCluster(1, output="quiet", start_method=method).run(
            file_of_generated_code
        )
        assert was_there and not os.path.exists(written)


def test_grandchildren_end_with_their_worker(tmp_path):
    LocalCluster(2, **QUIET).run(jobs.start_grandchildren, str(tmp_path / "pids"))
    pids = [int(pid) for file in tmp_path.iterdir() for pid in file.read_text().split()]
    assert len(pids) == 4
    _, alive = psutil.wait_procs([psutil.Process(p) for p in pids if psutil.pid_exists(p)], timeout=5)
    assert not alive


# An error ---------------------------------------------------------------------------------------------


def test_an_exception_arrives_with_its_own_traceback_and_source_line(tmp_path):
    cluster = LocalCluster(2, log_dir=tmp_path, **QUIET)
    with pytest.raises(WorkerError, match="Worker 1 raised ValueError: my own mistake") as caught:
        cluster.run(jobs.fail_in, "worker 1", jobs.raise_mine)
    error = caught.value
    assert error.task == "worker 1" and isinstance(error.original, ValueError)
    assert 'raise ValueError("my own mistake")' in error.remote_traceback
    assert "course_utils" not in error.remote_traceback
    (kept,) = tmp_path.iterdir()
    assert str(kept) in error.cure and "cluster.logs" not in str(error)
    assert sorted(file.name for file in kept.iterdir()) == ["worker-0.log", "worker-1.log"]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (jobs.kill_myself, "Worker 1 was killed by SIGKILL"),
        (jobs.exit_from_below, "Worker 1 ended with exit code 3 before its function returned"),
    ],
)
def test_a_death_is_told_as_it_was_not_as_the_error_it_caused_elsewhere(how, words):
    with pytest.raises(WorkerDied, match=words):
        LocalCluster(3, **QUIET).run(jobs.fail_in, "worker 1", how)


def test_sys_exit_with_a_code_is_an_error_and_without_one_is_not():
    with pytest.raises(WorkerError, match=r"Worker 0 called sys\.exit\(4\)"):
        LocalCluster(2, **QUIET).run(jobs.fail_in, "worker 0", jobs.exit_properly)

    def leave():
        raise SystemExit

    assert LocalCluster(1, **QUIET).run(leave) == [None]


def test_an_exception_that_cannot_travel_still_tells_what_it_was():
    def fail():
        class Odd(Exception):
            def __init__(self, a, b):
                super().__init__(a)

        raise Odd("odd", threading.Lock())

    with pytest.raises(WorkerError, match="Worker 0 raised Odd: odd") as caught:
        LocalCluster(1, **QUIET).run(fail)
    assert caught.value.original is None


def test_an_exception_that_cannot_say_what_it_is_is_told_by_its_type():
    def fail():
        class Mute(Exception):
            def __str__(self):
                return self.nothing

        raise Mute

    with pytest.raises(WorkerError) as caught:
        LocalCluster(1, **QUIET).run(fail)
    assert caught.value.seen == "Worker 0 raised Mute." and "raise Mute" in caught.value.remote_traceback


def test_a_very_long_message_is_shortened_where_it_is_shown():
    def fail():
        raise ValueError("begin" + "x" * 5_000_000 + "end")

    with pytest.raises(WorkerError) as caught:
        LocalCluster(1, **QUIET).run(fail)
    error = caught.value
    assert "ValueError: beginx" in error.seen and "characters left out" in error.seen
    assert len(error.seen) < 1000 and error.seen.endswith("xend.")
    assert len(str(error)) < 30_000 and len("".join(error._render_traceback_())) < 30_000
    assert len(error.remote_traceback) > 5_000_000 < len(str(error.original))


def test_a_result_that_cannot_travel_is_named():
    with pytest.raises(ClusterError, match="Worker 0 returned a lock, which cannot travel"):
        LocalCluster(1, **QUIET).run(threading.Lock)


def test_a_variable_that_cannot_be_sent_is_named():
    lock = threading.Lock()

    def use():
        return lock

    with pytest.raises(ClusterError, match=r"The variable 'lock' of use \(a lock\) cannot be sent"):
        LocalCluster(1, **QUIET).run(use)
    with pytest.raises(ClusterError, match=r"Argument 2 of print \(a lock\) cannot be sent"):
        LocalCluster(1, **QUIET).run(print, 1, lock)


def test_a_worker_that_deletes_the_folder_of_the_run_is_told_so(tmp_path):
    def delete():
        import gc
        import shutil

        from course_utils.cluster.worker import Job

        print("said before")
        for job in [thing for thing in gc.get_objects() if isinstance(thing, Job)]:
            shutil.rmtree(job.folder)
        print("said after")

    cluster = LocalCluster(1, log_dir=tmp_path, **QUIET)
    with pytest.raises(ClusterError, match="Worker 0 cannot use the folder of this run") as caught:
        cluster.run(delete)
    assert "deleted the folder" in caught.value.cause
    assert cluster.logs == ["said before\nsaid after\n"]


def test_a_deleted_working_directory_is_named(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ClusterError, match="folder in which this process works has been deleted"):
        LocalCluster(1, **QUIET).run(os.getpid)


def test_folders_of_others_do_not_disturb_and_those_of_dead_callers_go(tmp_path, monkeypatch):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = "course-run-999999999-abcdefg_"
    others = ["course-run-", "course-run-mine", "course-run-99999999999-x", "course-run-999999999-mine"]
    for name in [dead, *others]:
        (tmp_path / name).mkdir()
    assert LocalCluster(1, **QUIET).run(jobs.me) == ["worker 0"]
    assert sorted(folder.name for folder in tmp_path.iterdir()) == sorted(others)


def test_a_folder_for_logs_that_cannot_be_made_is_refused_before_anything_starts(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"log_dir='.*file/logs', cannot be made: Not a directory"):
        LocalCluster(1, log_dir=tmp_path / "file" / "logs", **QUIET).run(os.getpid)


def test_where_the_folder_for_logs_has_no_place_they_are_kept_elsewhere(tmp_path, monkeypatch):
    import tempfile

    (tmp_path / "temporary").mkdir()
    (tmp_path / ".course").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr("course_utils.cluster.folders.RUNS", Path(".course/runs"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WorkerError) as caught:
        LocalCluster(1, **QUIET).run(jobs.raise_mine)
    (log,) = (tmp_path / "temporary").rglob("worker-0.log")
    assert f"kept in {log.parent}." in caught.value.cure


def test_a_cluster_inside_a_worker_is_refused():
    def nested():
        LocalCluster(1).run(print)

    with pytest.raises(ClusterError, match="a worker cannot start a cluster of its own"):
        LocalCluster(1, **QUIET).run(nested)


# A hang -----------------------------------------------------------------------------------------------


def test_a_worker_that_ends_early_is_named_with_those_that_still_wait():
    with pytest.raises(ClusterTimeout) as caught:
        LocalCluster(2, **QUIET).run(jobs.return_early, "worker 1")
    assert "Worker 1 ended after" in str(caught.value)
    assert "worker 0 waits in add_up, cluster_jobs.py line" in str(caught.value)
    assert "total = step()" in caught.value.stacks["worker 0"]


def test_who_reads_a_metric_alone_is_told_so_and_what_to_do():
    with pytest.raises(ClusterTimeout) as caught:
        LocalCluster(2, **QUIET).run(jobs.read_metric_alone, "worker 0")
    assert "Worker 1 ended after" in caught.value.seen
    assert "worker 0 waits in read_metric_alone" in caught.value.seen and "mean.result()" in caught.value.seen
    assert "worker 1 has finished" in caught.value.seen
    assert "Every worker must take part in each collective" in caught.value.cure


def test_a_stack_waits_in_tensorflow_only_where_tensorflow_waits():
    import multiprocessing.pool

    from course_utils.cluster.diagnosis import in_tensorflow

    mine, python = ("/somewhere/train.py", 1, "train", ""), (threading.__file__, 1, "wait", "")
    tensorflow = ("/x/site-packages/tensorflow/python/ops.py", 1, "run", "")
    mapped = (multiprocessing.pool.__file__, 1, "map", "")
    assert in_tensorflow([mine, tensorflow]) and in_tensorflow([mine, tensorflow, mapped, python])
    assert not in_tensorflow([tensorflow, mine]) and not in_tensorflow([tensorflow, mine, python])
    assert not in_tensorflow([python]) and not in_tensorflow([]) and not in_tensorflow(None)


def test_a_worker_that_never_joins_is_named_at_once():
    with pytest.raises(WorkerDied, match="Worker 0 ended without making a strategy; worker 1 would wait"):
        LocalCluster(2, **QUIET).run(jobs.join_unless, "worker 0")


def test_a_timeout_says_who_waits_for_whom():
    cluster = LocalCluster(2, output="quiet", timeout=4)
    with pytest.raises(ClusterTimeout) as caught:
        cluster.run(jobs.sleep_before_joining, "worker 1")
    assert "worker 0 waits for worker 1 to join" in str(caught.value)
    assert "worker 1 has not made its strategy and is in sleep_before_joining" in str(caught.value)
    with pytest.raises(ClusterTimeout) as caught:
        cluster.run(jobs.sleep_in, "worker 1")
    assert "worker 0 waits in add_up" in str(caught.value)
    assert "worker 1 is in sleep_in, cluster_jobs.py line" in str(caught.value)
    assert "time.sleep(600)" in str(caught.value)


def test_a_stopped_worker_is_named_and_ended():
    with pytest.raises(ClusterError, match=r"worker 1 is stopped \(SIGSTOP\)"):
        LocalCluster(2, output="quiet", timeout=4).run(jobs.fail_in, "worker 1", jobs.stop_myself)


# A wrong configuration --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (jobs.compute_first, "used TensorFlow before it made its strategy"),
        (jobs.remove_tf_config, "made its strategy without TF_CONFIG"),
        (jobs.set_tf_config_afterwards, "made its strategy without TF_CONFIG"),
        (jobs.all_say_worker_0, "Process 1 says it is worker 0, which process 0 is already"),
    ],
)
def test_a_fault_made_inside_the_function_is_answered_at_once(job, words):
    with pytest.raises(ConfigError, match=words):
        LocalCluster(2, **QUIET).run(job)


def test_a_tensor_of_the_notebook_in_the_function_is_named():
    import tensorflow as tf

    tensor = tf.ones(3)

    def use():
        jobs.join()
        return tensor

    with pytest.raises(ConfigError, match="use brings tensors, variables or a model"):
        LocalCluster(2, **QUIET).run(use)


def test_configurations_of_your_own_are_run_in_the_order_given():
    config = ClusterConfig(worker=free_addresses(2))
    results = LocalCluster(2, **QUIET).run_with(config.tf_configs()[::-1], jobs.join_and_add_up)
    assert results == [("worker 1", 3.0), ("worker 0", 3.0)]


def test_configurations_may_come_one_by_one():
    config = ClusterConfig(worker=free_addresses(2))
    assert LocalCluster(2, **QUIET).run_with(iter(config.tf_configs()), jobs.me) == ["worker 0", "worker 1"]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("nothing", [[], (text for text in ()), 5, "{}", None])
def test_no_configuration_to_run_with_is_refused(nothing, check):
    with pytest.raises(ConfigError, match=r"no process at all|run_with got (an int|one text|None)"):
        LocalCluster(2, check=check, **QUIET).run_with(nothing, jobs.me)


def test_a_function_may_have_a_parameter_of_any_name():
    cluster = LocalCluster(1, **QUIET)
    assert cluster.run(lambda fn, self: fn + self, fn=3, self=4) == [7]
    texts = ClusterConfig(worker=free_addresses(1)).tf_configs()
    assert cluster.run_with(texts, lambda configs: configs, configs=5) == [5]


def test_a_function_that_was_called_instead_of_passed_is_refused():
    with pytest.raises(ConfigError, match="run got a list where it needs a function"):
        LocalCluster(2, **QUIET).run([1, 2])
    with pytest.raises(ConfigError, match="run got an int where"):
        LocalCluster(2, **QUIET).run(3)


def test_a_port_that_is_taken_behind_the_check_is_named_too():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        config = ClusterConfig(worker=[f"127.0.0.1:{port}", *free_addresses(1)])
        with pytest.raises(ConfigError, match=f"Port {port}.*worker 0.*process {os.getpid()}"):
            LocalCluster(2, check=False, **QUIET).run_with(config.tf_configs(), jobs.join)


def test_wrong_configurations_of_your_own_are_refused_before_anything_starts():
    config = ClusterConfig(worker=["127.0.0.1:1001", "127.0.0.1:1002"])
    cluster = LocalCluster(2, **QUIET)
    with pytest.raises(ConfigError, match="no TF_CONFIG"):
        cluster.run_with([config.tf_config("worker", 0), None], os.getpid)
    assert cluster.timeline == []


def test_hosts_that_are_not_this_machine_are_refused():
    config = ClusterConfig(worker=["192.0.2.1:1001", "192.0.2.2:1002"])
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1, the address of worker 0, is not this machine"):
        LocalCluster(2, **QUIET).run_with(config.tf_configs(), os.getpid)


def test_one_port_under_two_names_of_this_machine_is_not_called_taken():
    import socket

    port = free_addresses(1)[0].rpartition(":")[2]
    config = ClusterConfig(worker=[f"0.0.0.0:{port}", f"{socket.gethostname()}:{port}"])
    with pytest.raises(ConfigError, match=f"worker 0 and worker 1 both have port {port} of this machine"):
        LocalCluster(2, **QUIET).run_with(config.tf_configs(), os.getpid)


def test_a_port_that_is_taken_is_named_with_who_has_it():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        config = ClusterConfig(worker=[f"127.0.0.1:{port}"])
        with pytest.raises(ConfigError, match=f"Port {port}.*worker 0.*process {os.getpid()}"):
            LocalCluster(1, **QUIET).run_with(config.tf_configs(), os.getpid)


def test_tf_config_in_the_callers_own_process_is_refused(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ["a:1"]}}))
    with pytest.raises(ConfigError, match="TF_CONFIG is set in this notebook's own process"):
        LocalCluster(2, **QUIET).run(os.getpid)


WRONG_ARGUMENTS = [
    *[{"workers": wrong} for wrong in (0, "2", 2.0, True, None)],
    {"devices_per_worker": 0},
    {"ps": -1},
    *[{"timeout": wrong} for wrong in ("60", None, [60], 0, -1, float("nan"), True)],
    {"chief": "no"},
    {"evaluator": 2},
    {"check": "yes"},
    {"output": "loud"},
    {"start_method": "thread"},
    {"log_dir": 3},
    *[{"env": wrong} for wrong in ("A=1", {"A": 1}, {1: "A"}, {"A=B": "1"}, {"A": None})],
]


@pytest.mark.parametrize("wrong", WRONG_ARGUMENTS, ids=str)
def test_arguments_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))) as caught:
        LocalCluster(**wrong)
    assert caught.value.expected


def test_a_number_in_the_environment_is_answered_with_the_text_to_write():
    with pytest.raises(ConfigError, match=r"gives A the value 1, which is an int") as caught:
        LocalCluster(env={"A": 1})
    assert caught.value.cure == 'Write env={"A": "1"}.'


def test_numbers_of_numpy_are_numbers():
    cluster = LocalCluster(np.int64(2), timeout=np.float32(5), chief=np.bool_(True))
    assert cluster.tasks == ["chief", "worker 0", "worker 1"] and cluster.timeout == 5


# Again and again --------------------------------------------------------------------------------------


def test_two_clusters_in_two_threads_do_not_disturb_each_other():
    found = {}
    threads = [
        threading.Thread(
            target=lambda n=n: found.update({n: LocalCluster(n, **QUIET).run(jobs.join_and_add_up)})
        )
        for n in (1, 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [total for _, total in found[1]] == [1.0] and [total for _, total in found[2]] == [3.0, 3.0]


def test_a_killed_warm_process_is_noticed_and_replaced():
    from course_utils.cluster import pool

    cluster = LocalCluster(2, **QUIET)

    def kill_the_warm_process():
        jobs.join()
        if jobs.me() == "worker 1":
            os.kill(os.getppid(), 9)
        threading.Event().wait()

    before = pool.the_pool().process.pid
    with pytest.raises(WorkerDied, match="killed by SIGKILL"):
        cluster.run(kill_the_warm_process)
    assert cluster.run(jobs.me) == ["worker 0", "worker 1"]
    assert pool.the_pool().process.pid != before


def no_port_is_taken(configs):
    from course_utils.cluster.ports import holder

    addresses = json.loads(configs[0])["cluster"]["worker"]
    return not any(holder(int(address.split(":")[1])) for address in addresses)
