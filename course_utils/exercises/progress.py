"""What a learner has done so far, kept in `.course/progress.json`.

Looked for upwards from the working folder; the environment variable COURSE_PROGRESS names another file, or
`off`. A damaged file is set aside and begun anew. Where nothing can be written, the state is kept in memory
and the learner is told: it costs the saving, not the check.
"""

import contextlib
import json
import os
import time
from pathlib import Path

from course_utils.exercises.model import Outcome

try:
    import fcntl
except ImportError:  # Windows: the last writer wins
    fcntl = None

SETTING = "COURSE_PROGRESS"
_unsaved: dict[Path | None, dict] = {}  # by file: the states that could not be written to it


class Progress:
    """The exercises' states in one file. The writing methods return what went wrong in saving, or ''."""

    def __init__(self, path: Path | None):
        self.path = path
        self.trouble = ""

    @classmethod
    def here(cls) -> "Progress":
        """The progress that belongs to the working folder."""
        setting = os.environ.get(SETTING)
        if setting == "off":
            return cls(None)
        try:
            return cls(Path(setting) if setting else _project_folder() / ".course" / "progress.json")
        except OSError:  # the working folder was removed
            return cls(None)

    def outcome(self, exercise_id: str) -> Outcome:
        """The best outcome so far: once passed, it stays passed."""
        return Outcome(self._state(exercise_id).get("outcome", Outcome.NOT_ATTEMPTED))

    def attempts(self, exercise_id: str) -> int:
        """How many times an attempted answer was checked."""
        return self._state(exercise_id).get("attempts", 0)

    def hints(self, exercise_id: str) -> int:
        """The number of the last hint shown, counted from 1; 0 if none was."""
        return self._state(exercise_id).get("hints", 0)

    def record(self, exercise_id: str, outcome: Outcome) -> str:
        """Count a check."""
        if outcome is Outcome.NOT_ATTEMPTED:
            return ""

        def change(state):
            state["attempts"] = state.get("attempts", 0) + 1
            if state.get("outcome") != Outcome.PASSED:
                state["outcome"] = str(outcome)

        return self._change(exercise_id, change)

    def record_hint(self, exercise_id: str, number: int) -> str:
        """Remember that a hint was shown."""
        return self._change(exercise_id, lambda state: state.update(hints=max(number, state.get("hints", 0))))

    def _state(self, exercise_id):
        return self._read().get(exercise_id, {})

    def _change(self, exercise_id, change):
        try:
            with self._locked():
                states = self._read()
                change(states.setdefault(exercise_id, {}))
                self._write(states)
        except OSError as error:
            return f"Progress could not be saved ({error.strerror or error})."
        return self.trouble

    @contextlib.contextmanager
    def _locked(self):
        """Hold the file alone, so that two notebooks do not lose each other's results."""
        with contextlib.ExitStack() as stack:
            if self.path is not None:
                with contextlib.suppress(OSError):  # then writing will fail too, and be reported
                    self.path.parent.mkdir(parents=True, exist_ok=True)
                    _wait_for(stack.enter_context(open(self.path.with_suffix(".lock"), "a")))
            yield

    def _read(self):
        return {**self._saved(), **_unsaved.get(self.path, {})}

    def _saved(self):
        if self.path is None:
            return {}
        try:
            states = _parsed(self.path.read_text(encoding="utf-8"))
        except OSError:  # most often there is no file yet
            return {}
        except UnicodeDecodeError:
            states = None
        if states is None:
            self._set_aside()
        return states or {}

    def _write(self, states):
        """Write so that a reader sees the old file or the new one, never half of one."""
        _unsaved[self.path] = states
        if self.path is None:
            return
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            draft.write_text(json.dumps({"exercises": states}, indent=1, sort_keys=True), encoding="utf-8")
            os.replace(draft, self.path)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
        del _unsaved[self.path]

    def _set_aside(self):
        aside = self.path.with_suffix(".damaged.json")
        self.trouble = f"The saved progress was damaged and begins anew; the old file is {aside.name}."
        with contextlib.suppress(OSError):
            os.replace(self.path, aside)


def _project_folder():
    """The nearest folder upwards that is the course, or else has progress; else the working folder.

    A folder `.course` alone says nothing: the logs of failed clusters go to one in their working folder.
    """
    here = Path.cwd()
    for mark in ("course_utils", ".course/progress.json"):
        for folder in (here, *here.parents):
            if (folder / mark).exists():
                return folder
    return here


def _parsed(text):
    """The states by exercise id, or None if the text is not what we write."""
    try:
        states = json.loads(text)["exercises"]
        sound = all(
            _is_count(state.get("attempts", 0))
            and _is_count(state.get("hints", 0))
            and Outcome(state.get("outcome", Outcome.NOT_ATTEMPTED))
            for state in states.values()
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return states if sound else None


def _is_count(value):
    return type(value) is int and value >= 0


def _wait_for(file, seconds=2.0):
    """Lock it; after `seconds` go on without, since a stopped process must not stop the others."""
    ends = time.monotonic() + seconds
    while fcntl and time.monotonic() < ends:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.02)
