"""A time limit for Python code in this very process: a notebook's kernel cannot be forked or killed.

On the main thread a timer signal ends loops, sleeps and waits for locks. Elsewhere, and on Windows, a
watching thread raises in the observed one, which ends loops only. Neither ends a call that never comes back
from C++; work of that kind belongs in a `LocalCluster`, which has a limit of its own.
"""

import contextlib
import ctypes
import signal
import sys
import threading
import traceback
from types import CodeType


class TimeUp(BaseException):
    """The time is over. A BaseException, so that `except Exception` in an answer does not swallow it."""


@contextlib.contextmanager
def time_limit(seconds: float):
    """Raise TimeUp inside the block after `seconds`, and again each second if the block swallows it."""
    on_main_thread = threading.current_thread() is threading.main_thread()
    limit = _by_signal if on_main_thread and hasattr(signal, "setitimer") else _by_watching
    with limit(seconds):
        yield


def stop_threads_inside(code: CodeType) -> None:
    """Raise TimeUp in every other thread that runs this function: replicas of a MirroredStrategy are "
    "threads."""
    for thread_id, frame in sys._current_frames().items():
        if thread_id != threading.get_ident() and any(
            f.f_code is code for f, _ in traceback.walk_stack(frame)
        ):
            _raise_in(thread_id)


@contextlib.contextmanager
def _by_signal(seconds):
    armed = [True]

    def ring(number, frame):
        if armed[0]:
            raise TimeUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        armed[0] = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _by_watching(seconds):
    target, done, lock = threading.get_ident(), threading.Event(), threading.Lock()

    def watch():
        wait = seconds
        while not done.wait(wait):
            with lock:
                if not done.is_set():
                    _raise_in(target)
            wait = 1.0

    watcher = threading.Thread(target=watch, name="time limit of an exercise", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        with lock:
            done.set()
        watcher.join()


def _raise_in(thread_id):
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(TimeUp))
