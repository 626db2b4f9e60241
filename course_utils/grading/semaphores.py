"""Locks between processes without files in shared memory.

`multiprocessing` makes its locks of POSIX semaphores, files in shared memory, where an answer could
leave others that the next one finds. So an answer without a file system of its own is kept out of there; yet
TensorFlow's collectives ask for such locks. These are counters in the kernel that only the forks of a process
know, and that end with them.
"""

import _multiprocessing
import os
import select
import threading
import time
from multiprocessing import heap

RECURSIVE = 0  # the kind of `multiprocessing.RLock`; all others count


def install() -> None:
    """None; all that `multiprocessing` makes in this process and its forks from now on is of this kind."""
    _multiprocessing.SemLock = SemLock
    heap.Arena._dir_candidates = []  # arrays that processes share: in the temporary folder


class SemLock:
    """What `multiprocessing.synchronize` needs of `_multiprocessing.SemLock`; Linux only."""

    SEM_VALUE_MAX = _multiprocessing.SemLock.SEM_VALUE_MAX
    name = None  # nobody else can open it

    def __init__(self, kind: int, value: int, maxvalue: int, name: str, unlink: bool):
        self.handle = os.eventfd(value, os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.kind, self.maxvalue = kind, maxvalue
        self._after_fork()

    def __del__(self):
        if hasattr(self, "handle"):
            os.close(self.handle)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_) -> None:
        self.release()

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Whether it was got, at once or within `timeout` seconds; None: however long it takes."""
        if not (self.kind == RECURSIVE and self._is_mine()):
            end = None if timeout is None else time.monotonic() + max(0.0, timeout)
            while not self._take():
                if not block or not self._wait(end):
                    return False
        self.owner = threading.get_ident()
        self.held += 1
        return True

    def release(self) -> None:
        """Give it back; AssertionError, ValueError as the original."""
        if self.kind == RECURSIVE:
            if not self._is_mine():
                raise AssertionError("attempt to release recursive lock not owned by thread")
            if self.held > 1:
                self.held -= 1
                return
        elif self.maxvalue < self.SEM_VALUE_MAX and self._get_value() >= self.maxvalue:
            raise ValueError("semaphore or lock released too many times")
        self.held -= 1
        os.eventfd_write(self.handle, 1)

    def _take(self) -> bool:
        try:
            return os.eventfd_read(self.handle) == 1
        except BlockingIOError:
            return False

    def _wait(self, end: float | None) -> bool:
        """Whether it may be free; False when the time is over."""
        waiting = select.poll()
        waiting.register(self.handle, select.POLLIN)
        return bool(waiting.poll(None if end is None else max(0.0, end - time.monotonic()) * 1000))

    def _after_fork(self) -> None:
        self.held, self.owner = 0, None

    def _count(self) -> int:
        return self.held

    def _is_mine(self) -> bool:
        return self.held > 0 and self.owner == threading.get_ident()

    def _is_zero(self) -> bool:
        return not self._wait(time.monotonic())

    def _get_value(self) -> int:
        """Only reading tells: take all there is, and give it back."""
        value = 0
        while self._take():
            value += 1
        if value:
            os.eventfd_write(self.handle, value)
        return value
