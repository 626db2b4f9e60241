"""A launched job: each worker runs the script as itself, and the job ends as its first failing worker did."""

import json
import os
import socket
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from course_utils.cli import main
from course_utils.cluster import folders
from course_utils.cluster.launch import tasks
from course_utils.cluster.launch.console import COLOURS, Console
from course_utils.cluster.launcher import Launch, launch
from course_utils.cluster.worker import IN_WORKER
from course_utils.errors import ConfigError

WAYS = pytest.mark.parametrize("pool", [True, False], ids=["pool", "new Python"])

WHO = """
import json, os, sys
from pathlib import Path
import neighbour
config = json.loads(os.environ["TF_CONFIG"])
said = [__name__, Path(sys.argv[0]).name, sys.argv[1:], config["task"], config["cluster"], os.getpid()]
print(json.dumps(said))
"""


@WAYS
def test_the_script_runs_as_main_with_its_arguments_its_folder_and_a_tf_config_of_its_own(
    job, tmp_path, pool
):
    (tmp_path / "neighbour.py").touch()
    ended = job(WHO, "--steps", "3", workers=2, pool=pool)
    assert (ended.code, ended.said) == (0, "")
    said = [json.loads(line) for index in (0, 1) for line in ended.lines_of(f"worker {index}")]
    assert [worker[:4] for worker in said] == [
        ["__main__", "job.py", ["--steps", "3"], {"type": "worker", "index": index}] for index in (0, 1)
    ]
    assert said[0][4] == said[1][4] and len(set(said[0][4]["worker"])) == 2
    assert said[0][5] != said[1][5] != os.getpid()


def test_a_job_of_chief_servers_and_evaluator_ends_when_those_that_end_it_have(job):
    ended = job(
        """
        import json, os, threading
        task = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
        print("I am", task, flush=True)
        if task in ("ps", "worker"):
            threading.Event().wait()
        """,
        workers=1,
        chief=True,
        ps=1,
        evaluator=True,
    )
    assert ended.code == 0
    assert sorted(ended.out) == [
        "[chief]     I am chief",
        "[evaluator] I am evaluator",
        "[ps 0]      I am ps",
        "[worker 0]  I am worker",
    ]


def test_two_devices_in_each_of_two_workers_are_four_replicas(together):
    ended = together("print(int(step()))", workers=2, devices=2)
    assert ended.out == ["[worker 0] 4", "[worker 1] 4"] or ended.out == ["[worker 1] 4", "[worker 0] 4"]


@WAYS
@pytest.mark.parametrize(
    ("lines", "code", "words"),
    [
        ("sys.exit(7)", 7, "Worker 1 ended with exit code 7."),
        ("sys.exit('no good')", 1, "Worker 1 ended with exit code 1."),
        ("raise ValueError('mine')", 1, "Worker 1 raised ValueError: mine (exit code 1)."),
        ("os.kill(os.getpid(), 9)", 137, "Worker 1 was killed by SIGKILL."),
        ("os._exit(3)", 3, "Worker 1 ended with exit code 3."),
    ],
)
def test_the_job_ends_with_the_first_failure_its_exit_code_and_its_error(job, lines, code, words, pool):
    lines = f"""
        import os, sys, threading
        if '"index": 1' in os.environ["TF_CONFIG"]:
            {lines}
        threading.Event().wait()
        """
    ended = job(lines, workers=2, pool=pool)
    assert ended.code == code
    assert words in ended.said


@WAYS
def test_a_traceback_is_that_of_the_script_alone(job, pool):
    ended = job("def fail():\n    1 / 0\n\nfail()\n", workers=1, pool=pool)
    script = Path("job.py").resolve()
    told = [line for line in ended.lines_of("worker 0") if "^" not in line]
    assert told == [
        "Traceback (most recent call last):",
        f'  File "{script}", line 4, in <module>',
        "    fail()",
        f'  File "{script}", line 2, in fail',
        "    1 / 0",
        "ZeroDivisionError: division by zero",
    ]


def test_a_script_that_is_no_python_is_told_by_its_line(job):
    ended = job("one two\n", workers=1)
    assert ended.code == 1 and "Worker 0 raised SyntaxError" in ended.said
    assert "    one two" in ended.lines_of("worker 0")


def test_what_a_script_does_at_its_exit_and_in_its_threads_is_done(job):
    ended = job(
        """
        import atexit, threading, time
        atexit.register(print, "at exit")
        threading.Thread(target=lambda: (time.sleep(0.2), print("in a thread"))).start()
        """,
        workers=1,
    )
    assert ended.lines_of("worker 0") == ["in a thread", "at exit"]


# Restarts ---------------------------------------------------------------------------------------------

FAIL_TWICE = """
import os, sys
from pathlib import Path
if '"index": 1' in os.environ["TF_CONFIG"]:
    tries = Path("tries")
    tries.write_text(tries.read_text() + os.environ["TF_CONFIG"] + "\\n" if tries.exists() else "first\\n")
    sys.exit(len(tries.read_text().splitlines()) if len(tries.read_text().splitlines()) < 3 else 0)
"""


def test_a_job_that_failed_starts_again_as_a_whole_until_it_is_done(job):
    ended = job(FAIL_TWICE, workers=2, max_restarts=3)
    assert ended.code == 0
    assert "Worker 1 ended with exit code 1." in ended.said and "Restart 1 of 3 in 0 s." in ended.said
    assert ended.said.endswith("Finished after 2 of 3 restarts.\n")
    configs = Path("tries").read_text().splitlines()[1:]
    assert len(set(configs)) == 2  # another port each time


def test_restarts_end_at_their_limit_with_the_last_exit_code(job):
    ended = job(FAIL_TWICE, workers=2, max_restarts=1)
    assert ended.code == 2 and "The job was tried 2 times and did not finish." in ended.said
    assert ended.said.count("Restart ") == 1


def test_without_restarts_the_first_failure_is_the_end(job):
    ended = job(FAIL_TWICE, workers=2)
    assert ended.code == 1 and "Restart" not in ended.said


# Output -----------------------------------------------------------------------------------------------


def test_logs_have_a_folder_for_each_attempt_where_they_are_wanted(job, tmp_path):
    lines = "import sys; print('to the log'); sys.exit(4)"
    ended = job(lines, workers=1, max_restarts=1, log_dir=tmp_path / "logs")
    written = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.log")}
    assert sorted(written) == ["logs/attempt-1/worker-0.log", "logs/attempt-2/worker-0.log"]
    assert all(text.endswith("to the log\n") for text in written.values())
    assert f"output is kept in {tmp_path / 'logs'}." in ended.said


def test_logs_of_a_failed_job_are_kept_and_those_of_a_finished_one_are_not(job, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "RUNS", tmp_path / "runs")
    job("print('fine')", workers=1)
    assert not list(tmp_path.rglob("*.log"))
    job("print('bad'); raise SystemExit(1)", workers=1)
    (log,) = tmp_path.rglob("*.log")
    assert log.parts[-2:] == ("attempt-1", "worker-0.log") and log.read_text().endswith("bad\n")


def test_lines_carry_their_worker_in_its_colour_on_a_terminal_and_plainly_elsewhere(monkeypatch, capsys):
    console = Console(["worker 0", "worker 1"])
    console.show(1, ["hello"])
    assert capsys.readouterr().out == "[worker 1] hello\n"
    monkeypatch.setattr(click.utils, "should_strip_ansi", lambda *_: False)
    console.show(1, ["hello"])
    red, green, blue = COLOURS[1]
    assert capsys.readouterr().out == f"\x1b[38;2;{red};{green};{blue}m[worker 1]\x1b[0m hello\n"


def test_workers_have_the_colours_of_the_pictures():
    from course_utils import plots

    shown = ["#{:02X}{:02X}{:02X}".format(*colour) for colour in COLOURS]
    assert shown[:7] == list(plots.WORKERS[:7])  # the last, a dark grey, would not be seen on a dark terminal


# What cannot work --------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_named_with_who_has_it_and_tried_again(job):
    with socket.socket() as thief:
        thief.bind(("127.0.0.1", 0))
        thief.listen()
        port = thief.getsockname()[1]
        ended = job("print('started')", workers=1, port=port, max_restarts=1)
    assert ended.code == 1 and ended.out == []
    assert ended.said.count(f"Port {port}, where worker 0 is to listen, is taken by") == 2
    assert f"(process {os.getpid()})" in ended.said
    assert job("print('started')", workers=1, port=port).code == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"script": Path("nowhere.py")}, "There is no script 'nowhere.py'"),
        ({"workers": 0}, "A job needs a worker or a chief."),
        ({"faults": ("kill worker:2@step:1",)}, "meant for worker 2, which this job does not have"),
        ({"faults": ("burn worker:0@step:1",)}, "no fault of the kind 'burn'"),
        ({"faults": ("exit=256 worker:0@step:1",)}, "cannot end with a code above 255"),
        ({"port": 65535}, "There is no port 65536 for worker 1"),
        ({"pool": False, "devices": 2}, "A new Python has one device"),
        ({"log_dir": Path(__file__) / "inside"}, "cannot be made"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(options, words, monkeypatch):
    monkeypatch.setattr(tasks, "GPUS", Path("nowhere"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(ConfigError, match=words):
        launch(Launch(**{"script": Path(__file__), **options}))


def test_a_worker_cannot_launch_another_job(monkeypatch):
    monkeypatch.setenv(IN_WORKER, "worker 1")
    with pytest.raises(ConfigError, match="This is worker 1 of a cluster already"):
        launch(Launch(Path(__file__)))


def test_new_pythons_share_the_gpus_where_there_are_enough(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    two = Launch(Path(__file__), workers=2, devices=2, pool=False)
    tasks.check_plain(two)
    seen = [tasks.environment(two, 1, number)["CUDA_VISIBLE_DEVICES"] for number in (0, 1)]
    assert seen == ["4,5", "6,7"]
    three = Launch(Path(__file__), workers=3, devices=2, pool=False)
    assert tasks.environment(three, 1, 0)["CUDA_VISIBLE_DEVICES"] == "4,5,6,7"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(tasks, "GPUS", Path("nowhere"))
    assert "CUDA_VISIBLE_DEVICES" not in tasks.environment(two, 1, 0)


def test_each_process_has_its_share_of_threads_unless_the_caller_says_otherwise(monkeypatch):
    job = Launch(Path(__file__), workers=2)
    names = "TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"
    for name in names:
        monkeypatch.delenv(name, raising=False)
    assert [tasks.environment(job, 3, 0)[name] for name in names] == ["3", "3"]
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert [tasks.environment(job, 3, 0)[name] for name in names] == ["3", "8"]


# The command --------------------------------------------------------------------------------------------


def test_the_command_hands_on_what_it_is_told(monkeypatch):
    told = []
    monkeypatch.setattr("course_utils.cluster.launcher.launch", lambda options: told.append(options) or 5)
    words = "launch --workers 3 --chief --ps 1 --evaluator --devices 2 --max-restarts 3 --log-dir D --no-pool"
    words += " --timeout 9 --heartbeat 8 --grace 7 --backoff 6 --port 4000 --fail worker:1@step:40"
    words += " train.py -- --a b"
    assert CliRunner().invoke(main, words.split()).exit_code == 5
    assert told == [
        Launch(
            Path("train.py"),
            ("--a", "b"),
            workers=3,
            chief=True,
            ps=1,
            evaluator=True,
            devices=2,
            max_restarts=3,
            backoff=6,
            log_dir=Path("D"),
            pool=False,
            timeout=9,
            heartbeat=8,
            grace=7,
            port=4000,
            faults=("worker:1@step:40",),
        )
    ]


@pytest.mark.parametrize("words", ["train.py --steps 3 -- x", "train.py -- --steps 3 -- x"])
def test_arguments_after_the_script_are_the_scripts_own(words, monkeypatch):
    told = []
    monkeypatch.setattr("course_utils.cluster.launcher.launch", lambda options: told.append(options) or 0)
    assert CliRunner().invoke(main, ["launch", *words.split()]).exit_code == 0
    assert told == [Launch(Path("train.py"), ("--steps", "3", "--", "x"))]


def test_an_argument_that_reads_like_an_option_of_the_launcher_is_told(monkeypatch):
    monkeypatch.setattr("course_utils.cluster.launcher.launch", lambda options: 0)
    told = (
        CliRunner().invoke(main, ["launch", "train.py", "--workers", "4", "--steps", "3", "--fail=x"]).stderr
    )
    assert told.splitlines() == [
        "--workers stands after train.py, and is handed to it.",
        "--fail=x stands after train.py, and is handed to it.",
    ]
    assert CliRunner().invoke(main, ["launch", "train.py", "--", "--workers", "4"]).stderr == ""


def test_an_option_that_does_not_exist_is_not_taken_for_the_script():
    result = CliRunner().invoke(main, ["launch", "--worker", "3", "train.py"])
    assert result.exit_code == 2 and "No such option '--worker'" in result.output


def test_the_command_says_in_a_sentence_what_cannot_work():
    result = CliRunner().invoke(main, ["launch", "nowhere.py"])
    assert result.exit_code == 1 and "Error: There is no script 'nowhere.py'." in result.output
