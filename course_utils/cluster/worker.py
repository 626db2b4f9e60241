"""What runs inside a worker process: take the job, make the environment, call the function, tell the caller.

The channel carries small tuples, their first element says what they are:
caller -> worker: ("job", Job), ("stacks",); worker -> caller: ("stage", name, time),
("strategy", TF_CONFIG seen), ("stacks", text), ("report", JSON), ("result", path), ("error", RemoteError).
"""

import contextlib
import ctypes
import faulthandler
import io
import linecache
import os
import pickle
import re
import sys
import threading
import time
import traceback
import types
from dataclasses import dataclass, replace
from multiprocessing import connection
from pathlib import Path

from course_utils.cluster import reports
from course_utils.cluster.zygote import die_with_parent, kill_group, start_as_leader
from course_utils.errors import ClusterError, ConfigError

IN_WORKER = "COURSE_WORKER"  # set in each worker's environment, to its name


@dataclass(frozen=True)
class Job:
    """All that a worker has to know."""

    task: str
    tf_config: str | None
    alone_is_wrong: bool  # a strategy without TF_CONFIG would leave the others waiting
    folder: str  # of this run: payload in, result out
    number: int  # among the `workers` that train
    workers: int
    devices: int
    threads: int
    environment: dict[str, str]
    directory: str
    path: list[str]
    sources: dict[str, list[str]]  # source lines of notebook cells, by file name
    progress: str  # the file in which it leaves its last step
    ends_on_error: bool  # its process ends when the function has raised, as a script's would


@dataclass(frozen=True)
class RemoteError:
    """An exception on its way to the caller."""

    kind: str
    message: str
    traceback: str
    pickled: bytes | None
    consequence: bool  # raised because another worker is gone
    ours: bool  # a sentence of this package about the cluster, complete in itself


def main_forked(channel_fd: int, log_fd: int, zygote: int) -> int:
    """Be a worker that the zygote has just forked; returns the exit code."""
    if not start_as_leader(log_fd, zygote):
        return 1
    return _serve(connection.Connection(channel_fd))


def main_spawned(address: str) -> None:
    """Be a worker that was started as a program of its own; never returns."""
    die_with_parent()
    key = os.environ.pop("COURSE_CHANNEL_KEY").encode()
    os._exit(_serve(connection.Client(address, authkey=key)))


def _serve(channel: connection.Connection) -> int:
    caller = Caller(channel)
    try:
        _, job = channel.recv()
    except (EOFError, OSError):
        return 1
    caller.watch()
    reports.caller = caller
    _line_buffered()
    sys.modules["__main__"] = types.ModuleType("__main__")
    returned = _call(job, caller)
    _flush()
    # A worker whose function has returned stays until it is killed: others may still need its gRPC server.
    if returned or not job.ends_on_error:
        threading.Event().wait()
    return 1


def _call(job: Job, caller: "Caller") -> bool:
    """Whether the function of the job returned; what it returned or raised is on its way to the caller."""
    try:
        _prepare(job, caller)
        function, args, kwargs = _unpack(job)
        caller.stage("start")
        result = function(*args, **kwargs)
        _send_result(result, job, caller)
    except SystemExit as error:
        return _send_exit(error, job, caller)
    except BaseException as error:
        caller.send("error", describe_error(error))
        return False
    return True


class Caller:
    """The other end of the channel; ends this process when it is gone."""

    def __init__(self, channel: connection.Connection):
        self.channel = channel
        self._lock = threading.Lock()

    def send(self, *message) -> None:
        with self._lock, contextlib.suppress(OSError):
            self.channel.send(message)

    def stage(self, name: str) -> None:
        self.send("stage", name, time.monotonic())

    def watch(self) -> None:
        threading.Thread(target=self._watch, args=[threading.get_ident()], daemon=True).start()

    def _watch(self, main_thread: int) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                message, *_ = self.channel.recv()
                if message == "stacks":
                    self.send("stacks", _stack(main_thread))
        _end_family()


def _end_family() -> None:
    if os.name == "posix":
        kill_group(os.getpid())
    os._exit(1)


def _stack(thread: int) -> list[tuple[str, int, str, str]]:
    """File, line number, function and source line of each frame of a thread, outermost first."""
    frame = sys._current_frames().get(thread)
    summary = traceback.extract_stack(frame) if frame else []
    return [(entry.filename, entry.lineno or 0, entry.name, entry.line or "") for entry in summary]


def _line_buffered() -> None:
    sys.stdin = open(os.devnull)  # noqa: SIM115 (for the life of the process)
    for name, fd in (("stdout", 1), ("stderr", 2)):
        text = io.TextIOWrapper(
            io.FileIO(fd, "w", closefd=False), encoding="utf-8", errors="backslashreplace", write_through=True
        )
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)
    with contextlib.suppress(ValueError, OSError):
        faulthandler.enable(sys.stderr)  # a crash in native code leaves a trace in the log


def _prepare(job: Job, caller: Caller) -> None:
    os.environ.clear()  # a forked process has the environment of the moment when the warm one was started
    os.environ.update(job.environment)
    if job.tf_config is not None:
        os.environ["TF_CONFIG"] = job.tf_config
    os.environ[IN_WORKER] = job.task
    os.chdir(job.directory)
    sys.path[:] = job.path
    sys.argv = [""]
    for name, lines in job.sources.items():
        # No modification time: linecache then never asks the disk for these.
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    from course_utils.cluster import probes
    from course_utils.upstream import generated_files

    probes.share_out(job.number, job.workers, job.devices, job.threads)
    probes.install(job, caller)
    if "tensorflow" in sys.modules:
        generated_files.keep_in(job.folder)


def _unpack(job: Job):
    from course_utils.cluster import probes

    with _folder_of_run(job):
        payload = Path(job.folder, "payload.pickle").read_bytes()
    function, args, kwargs = pickle.loads(payload)
    probes.check_untouched(job.task, function)
    return function, args, kwargs


def _send_result(result, job: Job, caller: Caller) -> None:
    from course_utils.cluster import travel

    data = travel.pack_result(result, f"{job.task.capitalize()} returned")
    path = Path(job.folder, f"result-{os.getpid()}.pickle")
    with _folder_of_run(job):
        path.write_bytes(data)
    caller.send("result", str(path))


@contextlib.contextmanager
def _folder_of_run(job: Job):
    try:
        yield
    except OSError as error:
        raise ClusterError(
            f"{job.task[0].upper()}{job.task[1:]} cannot use the folder of this run, {job.folder}: "
            f"{error.strerror}.",
            cause="the disk is full, or the function or another program has deleted the folder.",
        ) from None


def _send_exit(error: SystemExit, job: Job, caller: Caller) -> bool:
    """Whether it counts as a return: `sys.exit()` does."""
    if error.code in (None, 0):
        caller.stage("sys.exit")
        _send_result(None, job, caller)
        return True
    described = describe_error(error)
    caller.send("error", replace(described, kind="SystemExit", message=f"sys.exit({error.code!r})"))
    return False


def describe_error(error: BaseException) -> RemoteError:
    """The exception as plain data, its traceback as text without the frames of this package."""
    _leave_out_our_frames(error)
    text = "".join(traceback.format_exception(error))
    pickled = _pickled(error.with_traceback(None))
    return RemoteError(
        kind=type(error).__name__,
        message=_message(error),
        traceback=without_our_nodes(text),
        pickled=pickled,
        consequence=_is_consequence(error),
        ours=isinstance(error, (ClusterError, ConfigError)) and pickled is not None,
    )


def _message(error: BaseException) -> str:
    """What the exception says; nothing where that raises itself."""
    try:
        return str(error)
    except Exception:
        return ""


def _pickled(error: BaseException) -> bytes | None:
    """The exception as bytes that can be read again; None if it cannot travel."""
    import cloudpickle

    try:
        data = cloudpickle.dumps(error)
        pickle.loads(data)
    except Exception:
        return None
    return data


def without_our_nodes(text: str) -> str:
    """A traceback without our part of TensorFlow's list of where a node was made, which says nothing."""
    return _OUR_NODES.sub("", text)


_OUR_NODES = re.compile(
    rf'  File "(<string>|<frozen runpy>|{re.escape(os.path.dirname(__file__))}[^"]*)", line \d+, in \S+\n\n'
)


def _leave_out_our_frames(error: BaseException) -> None:
    here = os.path.dirname(__file__)
    trace = error.__traceback__
    while trace is not None and os.path.dirname(trace.tb_frame.f_code.co_filename) == here:
        trace = trace.tb_next
    error.__traceback__ = trace


# What TensorFlow raises in a worker when another one has gone.
_GONE = ("UnavailableError", "CancelledError", "AbortedError", "DeadlineExceededError")
_GONE_WORDS = (
    "socket closed",
    "connection reset",
    "connection refused",
    "broken pipe",
    "heartbeat",
    "aborted",
)


def _is_consequence(error: BaseException) -> bool:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return says_that_another_has_gone(kinds, _message(error))


def says_that_another_has_gone(kinds: set[str], message: str) -> bool:
    """Whether an error, by the names of its type and that one's bases, tells of a missing worker."""
    if kinds & set(_GONE):
        return True
    return "OpError" in kinds and any(word in message.lower() for word in _GONE_WORDS)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)
