"""Answers that attack the machine: each ends in the right words, and leaves nothing behind."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from course_utils.grading.model import Ended
from course_utils.grading.runner import Runner
from course_utils.grading.sandbox import Limits

ENTRY = "tests.grading.hostile_payloads:prepare"
REPOSITORY = Path(__file__).parents[2]
LIMITS = Limits(seconds=20, memory=1 << 30, processes=32, files=256, disk=64 << 20, file_size=16 << 20)
SECRET = "a secret of the instructor"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")


@pytest.fixture(scope="module")
def runner():
    os.environ["COURSE_TEST_SECRET"] = SECRET
    with Runner(jobs=1, limits=LIMITS, entry=ENTRY) as runner:
        del os.environ["COURSE_TEST_SECRET"]
        guard = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("outer_limit.py"), str(warm(runner).pid)]
        )
        yield runner
        assert guard.poll() is None, "the outer limit had to act"
    assert guard.wait(10) == 0


@pytest.fixture
def run(runner, tmp_path):
    """Run a payload; afterwards nothing may be left, and an honest answer is served."""

    def run(payload, *arguments, seconds=None):
        before.append(outside(tmp_path))
        raw = runner.run({"payload": payload, "arguments": arguments}, seconds)
        assert leftovers(runner) == []
        return raw

    before = []
    yield run
    assert outside(tmp_path) == before[0]
    honest = runner.run({"payload": "add", "arguments": [2, 3]})
    assert (honest.ended, honest.text) == (Ended.FINISHED, "5")


def warm(runner):
    return psutil.Process(runner._pool.process.pid)


def leftovers(runner):
    return [process.cmdline() for process in warm(runner).children(recursive=True)]


def outside(folder):
    """What there is of folders of runs, and where the payloads were told to write."""
    runs = Path(tempfile.gettempdir()).glob(f"course-run-{os.getpid()}-*")
    return [*runs, *sorted(folder.rglob("*"))]


def value(raw):
    assert raw.ended == Ended.FINISHED, raw
    return json.loads(raw.text)


@pytest.mark.parametrize("payload", ["loop", "loop_in_c", "ignore_everything_and_loop", "stop_itself"])
def test_what_never_ends_is_ended(run, payload):
    raw = run(payload, seconds=0.5)
    assert (raw.ended, raw.code, raw.text) == (Ended.TIME, None, "")
    assert raw.seconds >= 0.5


@pytest.mark.parametrize("payload", ["bomb", "bomb_of_bombs"])
def test_a_fork_bomb_is_stopped(run, payload):
    assert run(payload).ended == Ended.PROCESSES


def test_who_leaves_early_has_not_finished(run):
    assert (run("exit_at_once").ended, run("exit_at_once").code) == (Ended.EXITED, 0)
    raw = run("leave")
    assert (raw.ended, raw.code) == (Ended.EXITED, 1)


@pytest.mark.parametrize(("payload", "signal"), [("segmentation_fault", 11), ("kill_itself", 9)])
def test_a_crash_is_told_with_its_signal(run, payload, signal):
    raw = run(payload)
    assert (raw.ended, raw.code) == (Ended.CRASHED, -signal)


def test_thirty_gigabytes_are_refused(run):
    raw = run("allocate", 30 << 30)
    assert raw.ended == Ended.EXITED
    assert "MemoryError" in raw.printed


def test_memory_of_all_processes_together_is_limited(run):
    raw = run("touch_memory", 3)
    assert raw.ended == Ended.MEMORY
    assert LIMITS.memory < raw.memory < 3 * LIMITS.memory


def test_who_hides_from_being_measured_is_limited_too(run):
    assert run("hide_from_the_keeper").ended == Ended.MEMORY


def test_a_recursion_without_end_hurts_nobody(run):
    raw = run("recurse")
    assert raw.ended in (Ended.CRASHED, Ended.EXITED, Ended.MEMORY)


def test_of_a_gigabyte_printed_the_first_part_is_kept(run):
    raw = run("print_much", 1 << 30, seconds=60)
    assert value(raw) == "printed"
    assert raw.printed == ("x" * 1023 + "\n") * 20 == raw.printed[: 20 * 1024] or len(raw.printed) == 20_000


def test_too_much_that_comes_back_is_refused(run):
    raw = run("give_back", LIMITS.output)
    assert (raw.ended, raw.text) == (Ended.OUTPUT, "")
    assert len(value(run("give_back", LIMITS.output - 2))) == LIMITS.output - 2


def test_a_daemon_ends_with_its_answer(run, tmp_path):
    assert value(run("leave_a_daemon", str(tmp_path / "alive"))) == "left"


def test_threads_end_with_their_answer(run):
    assert value(run("leave_threads")) == "left"


def test_nothing_outside_its_folder_can_be_written(run, tmp_path):
    tmp_path.chmod(0o777)
    places = [tmp_path, REPOSITORY, REPOSITORY / "course_utils", REPOSITORY / "data", Path.home(), sys.prefix]
    places += ["/", "/usr", "/etc", "/dev", "/proc", "/sys", "/var/tmp", "/answer/.."]
    assert value(run("write", [str(Path(place, "written")) for place in places])) == []
    assert value(run("writable_mounts")) == ["/answer"]


def test_its_own_folder_it_may_delete(run):
    assert value(run("delete_folder")) == []


def test_nothing_else_can_be_deleted(run, tmp_path):
    file = tmp_path / "submission.ipynb"
    file.write_text("keep me")
    file.chmod(0o666)
    value(run("delete", [str(file), str(REPOSITORY / "data"), str(Path(sys.prefix) / "pyvenv.cfg")]))
    assert file.read_text() == "keep me"
    assert (Path(sys.prefix) / "pyvenv.cfg").exists()


def test_submissions_home_and_solutions_cannot_be_read(run, tmp_path):
    other = tmp_path / "submission.ipynb"
    other.write_text(SECRET)
    tmp_path.chmod(0o755)
    package = REPOSITORY / "course_utils"
    hidden = [other, tmp_path, REPOSITORY / ".git", REPOSITORY / "notebooks", "/etc/shadow", "/var", "/run"]
    hidden += [package / "solutions" / "lesson_04.py", package / "exercises" / "lesson_04.py"]
    assert value(run("read", [str(path) for path in hidden])) == []
    assert value(run("read", [str(package / "solutions"), str(package / "grading")])) == [[], []]
    assert value(run("read_through_proc", str(other))) == []


def test_what_it_needs_it_can_read(run):
    needed = [REPOSITORY / "course_utils" / "models.py", "/proc/self/status", "/etc/hosts"]
    assert len(value(run("read", [str(path) for path in needed]))) == len(needed)


def test_a_listener_outside_is_not_reached(run):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        assert value(run("connect", server.getsockname())) == "ConnectionRefusedError"
        with pytest.raises(BlockingIOError):
            server.accept()
    assert value(run("listen_to_itself")) == "reached"


def test_an_abstract_socket_outside_is_not_reached(run):
    name = f"course-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0" + name)
        server.listen()
        assert value(run("connect_by_name", name)) == "ConnectionRefusedError"


def test_no_secret_is_in_any_environment(run):
    environments = value(run("environments"))
    assert SECRET not in str(environments)
    assert environments[0]["HOME"] == "/answer"
    assert len(environments) > 1  # it could read its own through /proc


def test_its_disk_is_small(run):
    assert value(run("fill_disk")) <= LIMITS.disk


@pytest.mark.parametrize("payload", ["fill_with_files", "fill_shared_memory"])
def test_memory_that_belongs_to_no_process_is_refused(run, payload):
    assert value(run(payload)) == 0


def test_its_open_files_are_few(run):
    assert value(run("open_files")) < LIMITS.files


def test_it_has_no_file_descriptor_of_the_graders(run):
    answer, worker = value(run("file_descriptors"))
    own = {"/dev/null", "/proc/N/fd", "pipe:[N]", "socket:[N]"}
    assert {name for name in answer if not name.startswith("/answer/")} <= own
    assert answer.count("pipe:[N]") == 3  # what it prints, twice; what comes back
    assert {name for name in worker if not name.startswith("/answer/")} <= own
    assert worker.count("pipe:[N]") == 0


def test_who_closes_everything_has_said_nothing(run):
    assert run("close_everything").ended == Ended.EXITED


def test_it_can_kill_nothing_but_itself(run):
    raw = run("kill_everything", seconds=5)
    assert raw.ended in (Ended.FINISHED, Ended.CRASHED, Ended.TIME)


def test_nothing_of_the_kernel_is_within_its_reach(run):
    assert value(run("system_calls")) == []


def test_what_it_forges_is_only_what_it_could_have_returned(run):
    raw = run("write_to_the_pipes")
    assert raw.ended in (Ended.EXITED, Ended.FINISHED)
    assert raw.text in ("", "forged")
