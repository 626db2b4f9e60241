"""The output of the workers: read from their log files, shown line by line, side by side, or not."""

import html
import re
import sys
import time
from collections import deque
from pathlib import Path

LOG_LIMIT = 20_000_000  # bytes of one log file; what comes before is let go
LINE_LIMIT = 100_000  # bytes after which a line counts as complete
KEPT_LINES = 20_000  # of each worker, in memory
SHOWN_LINES = 2_000  # of each worker, on the screen
COLUMN_LINES = 200  # of each worker, side by side

# Said by TensorFlow on every machine without a GPU, harmless and in the way. The log files keep it.
_NOISE = re.compile(
    r"WARNING: All log messages before absl::InitializeLog"
    r"|[IWE]\d{4} [\d:.]+ +\d+ (cuda_|cudart_stub|port\.cc|cpu_feature_guard|computation_placer)"
)


class Log:
    """One worker's output, read while it is written."""

    def __init__(self, path: Path, keep_noise: bool = False):
        self.path, self.keep_noise = path, keep_noise
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.dropped = 0  # bytes of the file that were let go
        self._position, self._partial = 0, b""
        # Both stay open: a worker may delete the file.
        # Append mode: the file may be cut short while the worker writes.
        self.file = open(path, "ab", buffering=0)  # noqa: SIM115 (closed by `close`)
        self._reader = open(path, "rb")  # noqa: SIM115

    def read(self, last: bool = False) -> list[str]:
        """The lines that were completed since the last call; at the `last`, also one without its end."""
        self._reader.seek(self._position)
        data = self._partial + self._reader.read(LOG_LIMIT)
        self._position = self._reader.tell()
        *whole, self._partial = data.split(b"\n")
        if (last and self._partial) or len(self._partial) > LINE_LIMIT:
            whole.append(self._partial)
            self._partial = b""
        lines = [_final_text(line) for line in whole]
        lines = [line for line in lines if self.keep_noise or not _NOISE.match(line)]
        self.lines.extend(lines)
        self._let_go()
        return lines

    def _let_go(self) -> None:
        if self._position > LOG_LIMIT:
            self.dropped += self._position
            self._position = 0
            self.file.truncate(0)

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)

    def close(self) -> None:
        self.file.close()
        self._reader.close()


def _final_text(line: bytes) -> str:
    """A line as a terminal would leave it, without colours: a progress bar rewrites itself after a return."""
    return _ANSI.sub("", line.decode(errors="replace")).rstrip("\r\b").rpartition("\r")[2]


_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Quiet:
    """Shows nothing. What `LocalCluster(output=…)` takes has these methods, and `start`."""

    def start(self, names: list[str]) -> None:
        """None; a run of these workers begins."""

    def show(self, number: int, lines: list[str]) -> None:
        """None; worker `number` has written these lines."""

    def report(self, number: int, values: dict) -> None:
        """None; worker `number` has called `cluster.report(values)`."""

    def close(self) -> None:
        """None; the run is over."""


class Lines(Quiet):
    """Prints each line with the worker's name before it."""

    def __init__(self, names: list[str]):
        self.names, self.shown = names, [0] * len(names)

    def show(self, number: int, lines: list[str]) -> None:
        for line in lines:
            self.shown[number] += 1
            if self.shown[number] <= SHOWN_LINES:
                print(f"[{self.names[number]}] {line}")
            elif self.shown[number] == SHOWN_LINES + 1:
                print(
                    f"[{self.names[number]}] … more than {SHOWN_LINES} lines; LocalCluster(…).logs has more"
                )

    def close(self) -> None:
        sys.stdout.flush()


class Columns(Quiet):
    """Side by side in a notebook, updated in place; the last state stays in the saved notebook."""

    def __init__(self, names: list[str]):
        self.names = names
        self.columns = [deque(maxlen=COLUMN_LINES) for _ in names]
        self.handle, self.changed, self.next_time = None, False, 0.0

    def show(self, number: int, lines: list[str]) -> None:
        self.columns[number].extend(lines)
        self.changed = self.changed or bool(lines)
        if self.changed and time.monotonic() >= self.next_time:
            self._draw()

    def close(self) -> None:
        if self.changed:
            self._draw()

    def _draw(self) -> None:
        from IPython.display import display

        if self.handle is None:
            self.handle = display(self, display_id=True)
        else:
            self.handle.update(self)
        self.changed, self.next_time = False, time.monotonic() + 0.1

    def _repr_html_(self) -> str:
        cells = "".join(map(_column_html, self.names, self.columns, range(len(self.names))))
        return f'<div style="display:flex;flex-wrap:wrap;gap:12px">{cells}</div>'

    def __repr__(self) -> str:
        return "\n".join(
            f"[{name}] {line}" for name, lines in zip(self.names, self.columns, strict=True) for line in lines
        )


def _column_html(name: str, lines, number: int) -> str:
    # min-width 0: a long line wraps inside its column instead of widening the page.
    from course_utils.plots import worker_colour

    body = html.escape("\n".join(lines)) or "&nbsp;"
    return (
        f'<div style="flex:1 1 16em;min-width:0;border-top:3px solid {worker_colour(number)}">'
        f'<div style="font-weight:600;padding:2px 0">{html.escape(name)}</div>'
        f'<pre style="margin:0;max-height:30em;overflow-y:auto;{_WRAP};font-size:12px">{body}</pre></div>'
    )


_WRAP = "white-space:pre-wrap;overflow-wrap:anywhere"


def make_display(output: str, names: list[str]):
    """The display for "lines", "columns", "quiet" or a display; columns are lines outside a notebook."""
    if not isinstance(output, str):
        output.start(names)
        return output
    if output == "quiet":
        return Quiet()
    return Columns(names) if output == "columns" and _in_notebook() else Lines(names)


def _in_notebook() -> bool:
    """Whether a front end that shows HTML is listening."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    shell = get_ipython()
    return shell is not None and hasattr(shell, "kernel")
