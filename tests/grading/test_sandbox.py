"""The sandbox for those who come in peace, on machines that offer less, and when the grader dies."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from course_utils.grading import keeper, linux, runner, sandbox
from course_utils.grading.model import Ended
from course_utils.grading.sandbox import GROUP, KINDS, NAMESPACES, NO_PROC, RULES, Limits

REPOSITORY = Path(__file__).parents[2]
PAYLOADS, HOSTILE = "tests.grading.sandbox_payloads:prepare", "tests.grading.hostile_payloads:prepare"
LIMITS = Limits(seconds=20, memory=512 << 20, processes=32)
LIGHT = ["course_utils.grading.keeper"]
DEADLINE = 60

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="three of the four kinds are Linux's")


@pytest.fixture(scope="module")
def light():
    """A runner whose warm process has not imported TensorFlow: quick to start, the same otherwise."""
    light = runner.Runner(jobs=2, limits=LIMITS, entry=PAYLOADS)
    light.preload = LIGHT
    with light:
        yield light


@pytest.fixture(params=KINDS)
def run(light, request):
    """Run a payload in each kind of sandbox; nothing of it may be left."""

    def run(payload, *arguments, entry=PAYLOADS, seconds=None):
        light.kind, light.entry = request.param, entry
        raw = light.run({"payload": payload, "arguments": arguments}, seconds)
        assert psutil.Process(light._pool.process.pid).children(recursive=True) == []
        assert run_folders() == []
        return raw

    run.kind = request.param
    strongest = light.kind
    yield run
    light.kind, light.entry = strongest, PAYLOADS


def run_folders():
    return list(Path(tempfile.gettempdir()).glob(f"course-run-{os.getpid()}-*"))


def value(raw):
    assert raw.ended == Ended.FINISHED, raw
    return json.loads(raw.text)


def test_an_answer_comes_back_with_what_it_took(run):
    raw = run("add", 2, 3)
    assert (raw.ended, raw.text, raw.printed, raw.code) == (Ended.FINISHED, "5", "", 0)
    assert 0 < raw.seconds < DEADLINE


def test_the_kind_is_named(run):
    means = run("add", 2, 3).means
    assert ("namespaces of its own" in means) == (run.kind in (NAMESPACES, NO_PROC))
    assert ("without /proc" in means) == (run.kind == NO_PROC)
    assert ("the network can be reached" in means) == (run.kind in (RULES, GROUP))
    assert ("a filter of system calls" in means) == (run.kind != GROUP)


def test_what_it_prints_is_kept_and_an_error_is_told(run):
    raw = run("print_and_raise")
    assert (raw.ended, raw.code, raw.text) == (Ended.EXITED, 1, "")
    assert raw.printed.startswith("first words\nTraceback")
    assert "ValueError: no" in raw.printed


def test_it_has_a_home_and_a_temporary_folder(run):
    assert value(run("use_folders")) == [1, True, True, True]


def test_it_can_start_programs_and_processes(run):
    assert value(run("start_programs")) == [True, 3]
    assert value(run("use_processes")) == [1, 2, 3]


def test_what_never_ends_is_ended(run):
    assert run("ignore_everything_and_loop", entry=HOSTILE, seconds=0.3).ended == Ended.TIME


def test_a_fork_bomb_is_stopped(run):
    assert run("bomb", entry=HOSTILE).ended == Ended.PROCESSES


def test_memory_of_all_processes_together_is_limited(run):
    assert run("touch_memory", 3, entry=HOSTILE).ended == Ended.MEMORY


@pytest.mark.parametrize("kind", [RULES, GROUP])
@pytest.mark.parametrize("how", ["in plain sight", "locked", "deleted but open"])
def test_disk_is_limited_where_the_folder_is_the_machines(light, kind, how):
    light.kind, light.entry, light.limits = kind, HOSTILE, replace(LIMITS, disk=32 << 20)
    try:
        raw = light.run({"payload": "fill_disk_slowly", "arguments": [how]})
        assert raw.ended == Ended.DISK
        assert run_folders() == []
    finally:
        light.kind, light.entry, light.limits = NAMESPACES, PAYLOADS, LIMITS


def test_the_number_of_files_is_limited_there_too(tmp_path, monkeypatch):
    monkeypatch.setattr(keeper, "FILES", 50)
    (tmp_path / "inside").mkdir()
    for number in range(49):
        (tmp_path / "inside" / str(number)).touch()
    answer = SimpleNamespace(folder=str(tmp_path), processes=list)
    assert not keeper._Group.fills_disk(answer, 1 << 20)
    (tmp_path / "one more").touch()
    assert keeper._Group.fills_disk(answer, 1 << 20)


def test_a_daemon_ends_with_its_answer(run):
    assert value(run("leave_a_daemon", "alive", entry=HOSTILE)) == "left"


def test_crash_and_exit_are_told(run):
    assert run("segmentation_fault", entry=HOSTILE).code == -signal.SIGSEGV
    assert run("exit_at_once", entry=HOSTILE).ended == Ended.EXITED


def test_no_secret_is_in_its_environment(run):
    environment = value(run("environments", entry=HOSTILE))[0]
    assert environment.keys() <= {*sandbox.ENVIRONMENT, "HOME", "TMPDIR", "LC_CTYPE"}


def test_landlock_keeps_it_out_of_other_files_and_processes(light, tmp_path):
    other = tmp_path / "submission.ipynb"
    other.write_text("secret")
    hidden = [other, REPOSITORY / "course_utils" / "solutions" / "lesson_04.py", REPOSITORY / "notebooks"]
    light.kind, light.entry = RULES, HOSTILE
    try:
        first = light.run({"payload": "read", "arguments": [[str(path) for path in hidden]]})
        if "Landlock" not in first.means:
            pytest.skip("this kernel has no Landlock")
        assert value(first) == []
        assert value(light.run({"payload": "write", "arguments": [[str(other)]]})) == []
        value(light.run({"payload": "delete", "arguments": [[str(other)]]}))
        assert other.read_text() == "secret"
        secret = Path("/proc", str(os.getpid()), "environ")
        assert value(light.run({"payload": "read", "arguments": [[str(secret)]]})) == []
    finally:
        light.kind, light.entry = NAMESPACES, PAYLOADS


def test_landlock_keeps_it_out_of_shared_memory_which_the_next_answer_would_find(light):
    left = Path("/dev/shm", f"course-test-{os.getpid()}")
    light.kind, light.entry = RULES, HOSTILE
    try:
        raw = light.run({"payload": "write", "arguments": [[str(left)]]})
        if "Landlock" not in raw.means:
            pytest.skip("this kernel has no Landlock")
        assert value(raw) == []
    finally:
        light.kind, light.entry = NAMESPACES, PAYLOADS
        left.unlink(missing_ok=True)


def test_locks_of_multiprocessing_work_without_shared_memory(run):
    assert value(run("use_locks")) == ["taken", "not twice", "in time", "again by the same", 40, 2, "woken"]


def test_two_answers_at_once_do_not_see_each_other(light):
    counts = []
    threads = [
        threading.Thread(target=lambda: counts.append(value(light.run({"payload": "count_its_processes"}))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert len(counts) == 4
    assert len(set(counts)) == 1


def test_what_cannot_be_prepared_is_the_graders_fault_and_says_why(light):
    for entry, words in (
        ("prepare_badly", "the lesson is broken"),
        ("prepare_with_threads", "has started threads"),
    ):
        light.entry = f"tests.grading.sandbox_payloads:{entry}"
        raw = light.run({})
        assert raw.ended == Ended.BROKEN
        assert words in raw.printed
    light.entry = PAYLOADS
    assert value(light.run({"payload": "add", "arguments": [1, 1]})) == 2


def test_an_answer_whose_keeper_is_killed_is_run_again(light):
    light.entry = HOSTILE
    warm = psutil.Process(light._pool.process.pid)
    raws = []
    thread = threading.Thread(target=lambda: raws.append(light.run({"payload": "loop"}, 3)))
    thread.start()
    first = wait_for(warm.children)[0]
    first.kill()
    second = wait_for(lambda: [child for child in warm.children() if child.pid != first.pid])
    thread.join(DEADLINE)
    assert second
    assert [raw.ended for raw in raws] == [Ended.TIME]
    light.entry = PAYLOADS


def test_the_next_answer_gets_a_new_warm_process_when_that_was_killed(light):
    psutil.Process(light._pool.process.pid).kill()
    assert value(light.run({"payload": "add", "arguments": [1, 1]})) == 2


def test_closing_ends_what_runs():
    other = runner.Runner(entry=HOSTILE, kind=NAMESPACES)
    other.preload = LIGHT
    with other:
        raws = []
        thread = threading.Thread(target=lambda: raws.append(other.run({"payload": "loop"})))
        thread.start()
        family = wait_for(lambda: psutil.Process(other._pool.process.pid).children(recursive=True))
    thread.join(DEADLINE)
    assert [raw.ended for raw in raws] == [Ended.BROKEN]
    wait_for(lambda: not [member for member in family if alive(member)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("also", ["nobody else", "the warm process"])
def test_nothing_survives_a_killed_grader(kind, also, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "TMPDIR": str(tmp_path)}
    grader = subprocess.Popen(
        [sys.executable, "-m", "tests.grading.endless_grader", kind], env=environment, start_new_session=True
    )
    family = []
    try:
        process = psutil.Process(grader.pid)
        wait_for(lambda: len(busy(process)) >= 2)
        family = process.children(recursive=True)
        if also == "the warm process":
            family[0].suspend()
            grader.kill()
            family[0].kill()
        grader.kill()
        grader.wait()
        wait_for(lambda: not [member for member in family if alive(member)])
        wait_for(lambda: not list(tmp_path.iterdir()))
    finally:
        for member in [grader, *family]:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                member.kill()


def alive(process):
    """Not one that has ended and that whoever inherited it has not noticed yet."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def busy(process):
    """Its descendants that use the processor: answers that have begun to loop."""
    found = []
    for child in process.children(recursive=True)[1:]:  # the first is the warm process
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [child] * (child.cpu_times().user > 0.1)
    return found


def wait_for(condition):
    end = time.monotonic() + DEADLINE
    while not (found := condition()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)
    return found


@pytest.mark.parametrize(
    ("refused", "kind"), [("nothing", NAMESPACES), ("/proc", NO_PROC), ("user namespaces", RULES)]
)
def test_on_a_machine_that_refuses_it_takes_the_next_best(refused, kind):
    said = subprocess.run(
        [sys.executable, "-c", LESSER_MACHINE, refused],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )
    found, means = said.stdout.strip().split(": ", 1)
    assert found == kind, said.stderr
    assert ("no stronger kind: " in means) == (refused != "nothing")
    reason = {
        "/proc": "mount: Operation not permitted",
        "user namespaces": "unshare: No space left on device",
    }
    assert reason.get(refused, "") in means


LESSER_MACHINE = """
import os, sys
from pathlib import Path
from course_utils.grading import linux, sandbox
user, group = os.geteuid(), os.getegid()
linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
Path("/proc/self/setgroups").write_text("deny")
Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
if sys.argv[1] == "user namespaces":
    Path("/proc/sys/user/max_user_namespaces").write_text("0")
if sys.argv[1] == "/proc":  # as in a container: partly covered, so that a whole one may not be mounted
    linux.mount("tmpfs", "/proc/tty", "tmpfs")
print(*sandbox.strongest(), sep=": ")
"""


def test_a_course_below_the_temporary_folder_has_the_strongest_sandbox_too(tmp_path):
    if sandbox.strongest()[0] != NAMESPACES:
        pytest.skip("this machine has no namespaces to lose")
    shutil.copytree(REPOSITORY / "course_utils", tmp_path / "course_utils")
    program = (
        "from course_utils.grading import sandbox; print(sandbox.__file__); print(sandbox.strongest()[0])"
    )
    said = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    file, kind = said.stdout.splitlines()
    assert file.startswith(str(tmp_path)) and kind == NAMESPACES, said.stderr


def test_what_is_refused_is_named():
    with pytest.raises(OSError, match="mount: "):
        linux.mount("nothing", "/no/such/folder", "tmpfs")


@pytest.mark.parametrize("kind", [NAMESPACES, RULES])
def test_a_cluster_works_inside_and_shares_what_was_imported(kind):
    with runner.Runner(limits=Limits(memory=2 << 30), entry=PAYLOADS, kind=kind) as warm:
        raw = warm.run({"payload": "sum_over_workers", "arguments": [3]})
        assert value(raw) == [3.0, 3.0, 3.0, []]
        assert raw.memory < 1.2e9  # three imports of their own would be more


def test_where_fork_is_not_safe_each_answer_has_a_process_of_its_own():
    with runner.Runner(limits=LIMITS, entry=PAYLOADS, kind=GROUP, start_method="spawn") as spawning:
        assert value(spawning.run({"payload": "add", "arguments": [2, 3]})) == 5
        spawning.entry = HOSTILE
        assert spawning.run({"payload": "loop"}, 0.3).ended == Ended.TIME
        assert spawning.run({"payload": "bomb"}).ended == Ended.PROCESSES
        assert value(spawning.run({"payload": "leave_a_daemon", "arguments": ["alive"]})) == "left"
    assert run_folders() == []


@pytest.mark.parametrize("command", ["grade", "validate"])
def test_on_windows_one_sentence_says_what_to_do(command, tmp_path):
    (tmp_path / "in").mkdir()
    notebook = tmp_path / "in" / "04.ipynb"
    shutil.copy(REPOSITORY / "notebooks" / "04_loss_scaling.ipynb", notebook)
    words = {
        "grade": ["grade", notebook.parent, "--out", tmp_path / "out"],
        "validate": ["validate", notebook],
    }
    program = (
        "import sys; sys.modules |= {'fcntl': None, 'resource': None}; "
        "from course_utils.cli import main; main()"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, *map(str, words[command])],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )
    assert said.returncode == 1
    assert "run it in WSL 2" in " ".join(said.stderr.split())
    assert "Traceback" not in said.stderr
