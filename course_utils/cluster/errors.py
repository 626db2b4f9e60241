"""What can go wrong while a cluster runs. A wrong configuration is a `ConfigError` and starts nothing."""

from course_utils.cluster.words import shortened
from course_utils.errors import ClusterError, CourseError

LONGEST_TRACEBACK = 20_000  # characters that are shown; `remote_traceback` has all


class WorkerError(ClusterError):
    """The function raised in a worker.

    `task` is its name ("worker 1"), `original` the exception itself where it could travel (else None),
    `remote_traceback` the worker's own traceback as text.
    """

    task: str = ""
    original: BaseException | None = None
    remote_traceback: str = ""

    def __str__(self) -> str:
        trace = shortened(self.remote_traceback, LONGEST_TRACEBACK)
        return f"{super().__str__()}\n\n{trace}" if trace else super().__str__()

    def __reduce__(self):
        return _rebuild, (super().__reduce__(), self.task, self.remote_traceback, self.original)

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the worker's traceback, not the machinery that brought it here."""
        return [
            *shortened(self.remote_traceback.rstrip(), LONGEST_TRACEBACK).splitlines(),
            "",
            f"{type(self).__name__}: {super().__str__()}",
        ]


class WorkerDied(ClusterError):
    """A worker process ended without a result: killed, crashed, `os._exit`, or gone before it joined."""


class ClusterTimeout(ClusterError):
    """The cluster hung: the message says who waits for whom, `stacks` has the Python stack of each worker."""

    stacks: dict[str, str] = {}  # noqa: RUF012 (replaced, never filled)


def plain(error: CourseError) -> CourseError:
    """The error without a traceback, and shown by a notebook as its sentences: they say all there is."""
    if not isinstance(error, WorkerError):
        error._render_traceback_ = lambda: _sentences(error)
    return error.with_traceback(None)


def _sentences(error: CourseError) -> list[str]:
    labels = {"expected": "Expected", "cause": "Likely cause", "cure": "What to do"}
    parts = [f"{label}: {getattr(error, part)}" for part, label in labels.items() if getattr(error, part)]
    return [f"{type(error).__name__}: {error.seen}", *parts]


def _rebuild(parts, task, remote_traceback, original):
    make, arguments = parts
    error = make(*arguments)
    error.task, error.remote_traceback, error.original = task, remote_traceback, original
    return error
