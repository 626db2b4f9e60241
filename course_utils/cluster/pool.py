"""Worker processes, seen from the caller: forked from one warm process, or spawned where fork is not safe."""

import atexit
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing import connection
from pathlib import Path

from course_utils.cluster.worker import IN_WORKER
from course_utils.cluster.zygote import FORK, KILL, NUMBER, READY, WORKER, kill_group, serve
from course_utils.errors import ClusterError

PRELOAD = ["course_utils.cluster.warm"]
START_DEADLINE = 180  # seconds for one import of TensorFlow on a very busy machine
FORK_DEADLINE = 30
END_DEADLINE = 10  # seconds for the kernel to end a killed process


def default_method() -> str:
    """ "fork" where a forked child may use what its parent imported, "spawn" elsewhere (macOS, Windows)."""
    return "fork" if sys.platform == "linux" else "spawn"


class Pool:
    """A warm process, started now. For clusters, use `the_pool()`.

    It imports `preload` and calls `entry` in each fork ("module:function", see zygote), in `environment`.
    """

    def __init__(self, environment: dict[str, str], preload: list[str] = PRELOAD, entry: str = WORKER):
        self.owner = os.getpid()
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process)
        with theirs:
            # A session of its own: an interrupt of the notebook must not reach it.
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _BOOT,
                    _search_path(),
                    str(theirs.fileno()),
                    json.dumps(preload),
                    entry,
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self.errors,
                stderr=self.errors,
                start_new_session=True,
                env=environment,
            )
        self.warm = False

    def usable(self) -> bool:
        """Whether the process lives and is a child of this very process (a forked kernel has none)."""
        return self.owner == os.getpid() and self.process.poll() is None

    def wait_until_warm(self) -> None:
        if self.warm:
            return
        self.control.settimeout(START_DEADLINE)
        with contextlib.suppress(OSError):
            self.warm = self.control.recv(len(READY)) == READY
        self.control.settimeout(None)
        if not self.warm:
            raise self._failed(
                "The warm process, which imports TensorFlow once for all workers, did not start."
            )

    def fork(self, channel: socket.socket, log: int) -> "ForkedWorker":
        """A new worker that talks over `channel` and writes to the file descriptor `log`."""
        ours, theirs = socket.socketpair()
        try:
            with theirs, channel:
                socket.send_fds(self.control, [FORK], [theirs.fileno(), channel.fileno(), log])
            ours.settimeout(FORK_DEADLINE)
            pid = _read_number(ours)
            if pid is None:
                raise ConnectionError
        except OSError:
            ours.close()
            raise self._failed("The warm process ended while it started a worker.") from None
        except BaseException:  # an interrupt: the broken lifeline ends the worker
            ours.close()
            raise
        return ForkedWorker(pid, ours)

    def _failed(self, seen: str) -> ClusterError:
        """The error to raise, with what the process said last; it is ended."""
        cause = self._said() or "it was killed, or the machine is short of memory."
        self.close()
        return ClusterError(
            seen, cause=cause, cure="Run it again; if that does not help, run `course doctor`."
        )

    def close(self) -> None:
        """End the process; its workers end with it."""
        if self.owner != os.getpid():
            return
        self.control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_DEADLINE if self.warm else 0)  # while it imports it has no workers yet
        self.process.kill()
        self.process.wait()
        self.errors.close()

    def _said(self) -> str:
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


# The warm processes of this kernel by log level, usually one: the only global state of the package.
_lock = threading.Lock()
_pools: dict[str, Pool] = {}


def the_pool(log_level: str = "2") -> Pool:
    """The warm process of this kernel, started or restarted if need be; waits until it is warm."""
    with _lock:
        pool = _started(log_level)
        pool.wait_until_warm()
        return pool


def warm_up(wait: bool = True) -> None:
    """Start the process that imports TensorFlow once for all workers; `wait` until it has.

    Without waiting it imports while the notebook goes on, best called before the notebook's own imports.
    Does nothing where workers are spawned.
    """
    if default_method() == "fork" and IN_WORKER not in os.environ:
        with _lock:
            _started("2")
        if wait:
            the_pool()


def _started(log_level: str) -> Pool:
    pool = _pools.get(log_level)
    if pool is None or not pool.usable():
        if pool is not None:
            pool.close()
        # TensorFlow reads the level once, at its import: another level needs another process.
        pool = _pools[log_level] = Pool(worker_environment(log_level))
    return pool


class ForkedPool(Pool):
    """A warm process that is a fork of this one, which must be warm itself, clean, and of one thread."""

    def __init__(self, private: tuple[int, ...]):
        self.owner = os.getpid()
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process)
        self.process = _ForkedProcess(lambda: serve(theirs, self.owner), [self.control.fileno(), *private])
        theirs.close()
        self.warm = False


class _ForkedProcess:
    """What a pool asks of its process, for one that was forked to call `function`."""

    def __init__(self, function, close: list[int]):
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            with contextlib.suppress(BaseException):
                os.setsid()
                for fd in close:
                    os.close(fd)
                function()
            os._exit(0)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float = END_DEADLINE) -> int:
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("the warm process", timeout)
            time.sleep(0.01)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def adopt_fork(*private: int, log_level: str = "2") -> None:
    """From now on clusters of this process fork their workers from a copy of it as it is now.

    For a process that is warm already, has one thread and has used no device: a grader's, before the answer.
    The copy, and so the workers, do without the file descriptors that are `private`.
    """
    with _lock:
        _pools[log_level] = ForkedPool(private)


@atexit.register
def close_the_pool() -> None:
    """End the warm process. The next cluster starts another."""
    while _pools:
        _pools.popitem()[1].close()


class ForkedWorker:
    """A worker forked by the warm process, which watches it and kills it when its lifeline breaks."""

    def __init__(self, pid: int, lifeline: socket.socket):
        self.pid, self.lifeline, self.exit_code = pid, lifeline, None
        lifeline.setblocking(False)

    def poll(self) -> int | None:
        """The exit code (negative: the signal that killed it), None while it runs."""
        if self.exit_code is None:
            try:
                code = _read_number(self.lifeline)
            except BlockingIOError:
                return None
            except OSError:
                code = None
            if code is None:  # the warm process is gone; the kernel has killed its workers with it
                kill_group(self.pid)
                code = -signal.SIGKILL
            self.exit_code = code
            self.lifeline.close()
        return self.exit_code

    def kill(self) -> None:
        if self.exit_code is None:
            with contextlib.suppress(OSError):
                self.lifeline.send(KILL)

    def wait(self, seconds: float) -> None:
        """Until it has ended; if the warm process does not answer, kill from here."""
        if self.exit_code is None:
            connection.wait([self.lifeline], seconds)
        if self.poll() is None:
            kill_group(self.pid)
            self.exit_code = -signal.SIGKILL
            self.lifeline.close()


class SpawnedWorker:
    """A worker started like any other program. Slower, the same otherwise."""

    def __init__(self, process: subprocess.Popen):
        self.process, self.pid = process, process.pid

    @property
    def exit_code(self) -> int | None:
        return self.process.returncode

    def poll(self) -> int | None:
        """The exit code (negative: the signal that killed it), None while it runs."""
        if self.process.returncode is None and self.process.poll() is not None:
            self._end_children()
        return self.process.returncode

    def kill(self) -> None:
        if self.process.returncode is None:
            self._end_children()
            self.process.kill()

    def wait(self, seconds: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)

    def _end_children(self) -> None:
        if os.name == "posix":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        else:
            _end_descendants(self.pid)


def start_forked(log: int, log_level: str) -> tuple[ForkedWorker, connection.Connection]:
    """A forked worker and the caller's end of its channel; `log` is the file descriptor that it writes to."""
    pool = the_pool(log_level)
    ours, theirs = socket.socketpair()
    try:
        worker = pool.fork(theirs, log)
    except BaseException:
        ours.close()
        raise
    return worker, connection.Connection(ours.detach())


def start_spawned(log: int, log_level: str) -> tuple[SpawnedWorker, connection.Connection]:
    """A spawned worker and the caller's end of its channel, once it has called back."""
    key = secrets.token_hex(16)
    folder = tempfile.mkdtemp(prefix="course-")
    address = os.path.join(folder, "s") if os.name == "posix" else rf"\\.\pipe\course-{key}"
    try:
        with connection.Listener(address, authkey=key.encode()) as listener:
            process = subprocess.Popen(
                [sys.executable, "-c", _BOOT_SPAWNED, _search_path(), address],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=worker_environment(log_level) | {"COURSE_CHANNEL_KEY": key},
            )
            worker = SpawnedWorker(process)
            try:
                return worker, _call_back(listener, worker)
            except BaseException:
                worker.kill()
                worker.wait(END_DEADLINE)
                raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _call_back(listener: connection.Listener, worker: SpawnedWorker) -> connection.Connection:
    """The channel, once the worker has opened it; it does so before it imports anything slow."""
    box: list[connection.Connection] = []
    waiting = threading.Thread(target=lambda: box.append(listener.accept()), daemon=True)
    waiting.start()
    end = time.monotonic() + START_DEADLINE
    while waiting.is_alive() and worker.poll() is None and time.monotonic() < end:
        waiting.join(0.02)
    if box:
        return box[0]
    raise ClusterError("A worker process ended before it could start.", cure="Run `course doctor`.")


# Both ways to start get the caller's search path, and never its main module.
_BOOT = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from course_utils.cluster.zygote import main
main(int(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4])
"""
_BOOT_SPAWNED = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from course_utils.cluster.worker import main_spawned
main_spawned(sys.argv[2])
"""


def _search_path() -> str:
    here = str(Path(__file__).parents[2])
    path = [entry or os.getcwd() for entry in sys.path]
    return json.dumps(path if here in path else [*path, here])


def worker_environment(log_level: str) -> dict[str, str]:
    """The caller's environment as it is now, without what must not reach a worker."""
    kept = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    # NumPy's own threads would only compete with TensorFlow's, and a forked process should have none.
    return kept | {"TF_CPP_MIN_LOG_LEVEL": log_level, "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def _read_number(sock: socket.socket) -> int | None:
    data = sock.recv(NUMBER.size)
    return NUMBER.unpack(data)[0] if len(data) == NUMBER.size else None


def _end_descendants(pid: int) -> None:
    import psutil

    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()
