"""The folders of a run: a temporary one while it goes on, and where its logs are kept when it fails."""

import contextlib
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

from course_utils.errors import ConfigError

RUNS = Path(".course/runs")  # where the logs of failed runs are kept
KEPT_RUNS = 10


def temporary() -> Path:
    """A new temporary folder for one run; those of killed callers go first."""
    base = Path(tempfile.gettempdir()).resolve()
    for old in base.glob("course-run-*"):
        if _owner_is_gone(old):
            shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"course-run-{os.getpid()}-", dir=base))


def for_logs(log_dir: str | os.PathLike | None) -> Path:
    """The folder under which logs are kept, made if the caller has named it; else ConfigError."""
    if not log_dir:
        return RUNS if _can_make(RUNS) else Path(tempfile.gettempdir()) / RUNS
    try:
        Path(log_dir).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The folder for logs, log_dir={str(log_dir)!r}, cannot be made: {error.strerror}.",
            cure="Name a folder that you may write to, or leave log_dir out.",
        ) from None
    return Path(log_dir)


def kept_name(folder: Path) -> str:
    """The name under which the logs of the run in a temporary `folder` are kept, unlike any other."""
    return f"run-{time.strftime('%Y%m%d-%H%M%S')}-{folder.name[-4:]}"


def keep(folder: Path, kept: Path) -> None:
    """Move the logs of a failed run to where its error says, and let the oldest such runs go."""
    with contextlib.suppress(OSError):
        for log in folder.rglob("*.log"):
            target = kept / log.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(log, target)
        for old in sorted(kept.parent.glob("run-*"))[:-KEPT_RUNS]:
            shutil.rmtree(old, ignore_errors=True)


def _can_make(folder: Path) -> bool:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return there.is_dir() and os.access(there, os.W_OK)


def _owner_is_gone(folder: Path) -> bool:
    import psutil

    ours = _RUN_FOLDER.fullmatch(folder.name)
    return bool(ours) and not psutil.pid_exists(int(ours[1]))


_RUN_FOLDER = re.compile(r"course-run-([1-9]\d{0,8})-[a-z0-9_]{8}")  # as `temporary` names them
