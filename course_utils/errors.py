"""The exceptions of the course: each says what was seen, what was expected, the likely cause, what to do."""


class CourseError(Exception):
    """Base of every error that the course raises on purpose.

    `seen` is one plain sentence that names the mistake; the other parts are optional and also sentences.
    `str(error)` joins them; the parts stay readable as attributes.
    """

    def __init__(self, seen: str, *, expected: str = "", cause: str = "", cure: str = ""):
        self.seen, self.expected, self.cause, self.cure = seen, expected, cause, cure
        labelled = [("", seen), ("Expected: ", expected), ("Likely cause: ", cause), ("What to do: ", cure)]
        super().__init__(" ".join(label + text for label, text in labelled if text))

    def __reduce__(self):
        # Errors travel between worker and caller; Exception's own reduce would lose the keyword parts.
        return _rebuild, (type(self), self.seen, self.expected, self.cause, self.cure)


def _rebuild(kind, seen, expected, cause, cure):
    return kind(seen, expected=expected, cause=cause, cure=cure)


class ConfigError(CourseError):
    """A cluster configuration that could not work: refused before anything starts."""


class ClusterError(CourseError):
    """A running cluster failed; see the subclasses in `course_utils.cluster`."""


class DataError(CourseError):
    """A data file is missing or damaged."""


class DeviceError(CourseError):
    """The devices asked for cannot be had in this process."""


class UpstreamError(CourseError):
    """A mend of TensorFlow or Keras does not apply to the version installed here."""


class ScheduleError(CourseError):
    """A learning-rate schedule was described by numbers that make none."""


class ExerciseError(CourseError):
    """An exercise was called with an unknown id or defined wrongly."""


class NotebookError(CourseError):
    """A lesson's source or notebook breaks a rule of the course, or did not run."""


class GradingError(CourseError):
    """Submissions cannot be found or graded: the path, an option or the place for the results is wrong."""


class ReleaseError(CourseError):
    """A release cannot be made: its place is taken, or a notebook is not what its source builds."""
