"""What Python itself writes about an error or a hang, read back from a worker's output."""

import linecache
import re
from dataclasses import dataclass

from course_utils.cluster.worker import says_that_another_has_gone

# A SyntaxError of the script itself has no traceback, only its line.
_TRACEBACK = re.compile(r'Traceback \(most recent call last\):$|  File ".*", line \d+$')
_ERROR = re.compile(r"(?P<type>[^\W\d][\w.]*)(?:: (?P<message>.*))?$")
_DUMP, _THREAD = "Fatal Python error: Aborted", re.compile(r"(Current thread|Thread) 0x")
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)')
MESSAGE_LINES = 100  # after which an error's message is long enough


@dataclass(frozen=True)
class LastError:
    """The exception with which a program ended: its type, with its module, and its message."""

    type: str
    message: str

    @property
    def kind(self) -> str:
        """The type's own name."""
        return self.type.rpartition(".")[2]

    @property
    def consequence(self) -> bool:
        """Whether it only says that another worker has gone."""
        bases = {"OpError"} if self.type.startswith("tensorflow.") else set()
        return says_that_another_has_gone({self.kind} | bases, self.message)


def last_error(lines: list[str]) -> LastError | None:
    """The exception of the last traceback in a program's output; None if there is none."""
    starts = [number for number, line in enumerate(lines) if _TRACEBACK.match(line)]
    after = lines[starts[-1] + 1 :] if starts else []
    for number, line in enumerate(after):
        if line and not line.startswith(" "):
            match = _ERROR.match(line)
            rest = after[number + 1 : number + MESSAGE_LINES]
            message = "\n".join([match["message"] or "", *rest]).strip() if match else line
            return LastError(match["type"] if match else "an error", message)
    return None


def main_stack(lines: list[str]) -> list[tuple[str, int, str, str]] | None:
    """File, line number, function and source line of the main thread's frames, outermost first.

    Out of what faulthandler writes when a process is aborted; None if it wrote nothing.
    """
    starts = [number for number, line in enumerate(lines) if line == _DUMP]
    if not starts:
        return None
    threads = []
    for line in lines[starts[-1] + 1 :]:
        if _THREAD.match(line):
            threads.append([])
        elif threads and (frame := _FRAME.match(line)):
            threads[-1].append(frame)
    main = threads[-1] if threads else []  # newest thread first: the main one is the last
    return [_with_source(frame) for frame in reversed(main)]


def without_dump(lines: list[str]) -> list[str]:
    """The lines up to where faulthandler began."""
    return lines[: lines.index(_DUMP)] if _DUMP in lines else lines


def _with_source(frame: re.Match) -> tuple[str, int, str, str]:
    file, line = frame["file"], int(frame["line"])
    return file, line, frame["name"], linecache.getline(file, line).rstrip("\n")
