"""One notebook, executed in a kernel of its own, within a time limit, in a clean environment."""

import contextlib
import logging
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat

from course_utils.errors import NotebookError

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

# What every kernel of the course gets, whatever the shell that starts it holds.
KERNEL_ENVIRONMENT = {
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "PYTHONHASHSEED": "0",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    "COLUMNS": "100",
    "JUPYTER_PREFER_ENV_PATH": "1",  # the kernel "python3" of this environment, not one in the reader's home
}
# A TF_CONFIG left in the shell would make the kernel itself a member of some cluster; a log level would keep
# course_utils from quietening TensorFlow.
UNWANTED = ("TF_CONFIG", "TF_CPP_MIN_LOG_LEVEL")


class CellFailed(NotebookError):
    """A cell raised, ran out of time, or took its kernel with it; `.cell_id` says which, `.traceback` how.

    Before an error's traceback stands what the cell had printed until then.
    """

    def __init__(self, seen, *, cell_id="", traceback="", **parts):
        super().__init__(seen, **parts)
        self.cell_id, self.traceback = cell_id, traceback
        if traceback:  # whoever shows the exception, such as pytest, shows this too
            self.add_note(f"In cell {cell_id}:\n{traceback}" if cell_id else traceback)


def execute(
    notebook: nbformat.NotebookNode,
    *,
    parameters: dict | None = None,
    time_limit: float = 300,
    save_to: Path | None = None,
    progress: Path | None = None,
    on_cell: Callable[[nbformat.NotebookNode], None] = lambda cell: None,
) -> nbformat.NotebookNode:
    """The notebook with the outputs of a fresh kernel; its cells carry papermill's timings.

    The kernel works in a temporary folder, and what it leaves there is removed. `parameters` replace those of
    the cell tagged `parameters`; `time_limit` is in seconds, for the whole notebook. `save_to`, where given,
    holds the notebook as far as it came, also after a failure. `progress` is the file for the outcomes of
    checks: a temporary one unless given, so that a learner's own stays as it is. Raises CellFailed.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="course-")))
        output = Path(save_to or folder / "notebook.ipynb").resolve()
        work = folder / "work"
        work.mkdir()
        stack.enter_context(kernel_environment(progress=(progress or folder / "progress.json").resolve()))
        said = stack.enter_context((folder / "kernel.log").open("w+", encoding="utf-8", errors="replace"))
        return _run(notebook, output, work, parameters or {}, _Deadline(time_limit, on_cell), said)


@contextlib.contextmanager
def kernel_environment(progress: Path) -> Iterator[None]:
    """The environment that kernels of the course are started in; the caller's own comes back at the end."""
    before = dict(os.environ)
    os.environ.update(KERNEL_ENVIRONMENT, COURSE_PROGRESS=str(progress))
    for name in UNWANTED:
        os.environ.pop(name, None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class _Deadline:
    """Gives nbclient the seconds that are left for each cell, and remembers which cell is running."""

    def __init__(self, limit, on_cell):
        self.limit, self.on_cell = limit, on_cell
        self.start, self.cell_id = time.monotonic(), ""

    def __call__(self, cell):
        self.cell_id = cell.id
        self.on_cell(cell)
        return max(1.0, self.start + self.limit - time.monotonic())


def _run(notebook, output, work, parameters, deadline, said):
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # what matters is raised
    try:
        return papermill.execute_notebook(
            nbformat.from_dict(notebook),
            str(output),
            parameters=parameters,
            kernel_name="python3",
            progress_bar=False,
            cwd=work,
            timeout_func=deadline,
            kernel_manager_class=_kernel_manager(said),
            extra_arguments=["--IPKernelApp.log_level=40"],  # errors
        )
    except papermill.PapermillExecutionError as error:
        raise CellFailed(
            f"{error.ename}: {_first_line(error.evalue)}",
            cell_id=deadline.cell_id,
            traceback=_printed(output, deadline.cell_id) + _COLOUR.sub("", "\n".join(error.traceback)),
        ) from None
    except CellTimeoutError:
        raise CellFailed(
            f"The time limit of {deadline.limit:.0f} s for the lesson ran out in this cell.",
            cause="The machine is slower or busier than the limit allows for, or the cell waits in vain.",
            cure="Run it alone; give a longer --time-limit; or open the lesson and run this cell by hand.",
            cell_id=deadline.cell_id,
        ) from None
    except DeadKernelError:
        raise CellFailed(
            "The kernel died while this cell ran.",
            cause="The machine ran out of memory, or native code crashed.",
            cure="Run `course doctor` to see the free memory, then run this lesson alone.",
            cell_id=deadline.cell_id,
            traceback=_last_words(said),
        ) from None
    except RuntimeError as error:
        if deadline.cell_id:
            raise
        raise CellFailed(
            f"The kernel did not start: {error}",
            cause="Its packages are damaged or missing.",
            cure="Run `course doctor`.",
            traceback=_last_words(said),
        ) from None


def _kernel_manager(said):
    """A class of managers whose kernels write what does not reach the notebook to the file `said`."""
    from jupyter_client import AsyncKernelManager

    class KernelManager(AsyncKernelManager):
        async def start_kernel(self, **options):
            return await super().start_kernel(stdout=said, stderr=said, **options)

    return KernelManager


def _printed(output, cell_id):
    """What a cell of the notebook that papermill has saved wrote to its streams, a warning above all."""
    saved = nbformat.read(output, as_version=4)
    outputs = [o for cell in saved.cells if cell.id == cell_id for o in cell.get("outputs", ())]
    return "".join(o.text for o in outputs if o.output_type == "stream")


def _last_words(said, lines=30):
    said.seek(0)
    return "".join(said.readlines()[-lines:])


def _first_line(text):
    return (text.strip() or "(no message)").splitlines()[0]
