"""`check` as nbgrader sees it: an error for what is not right, and nothing that it would mind for what is."""

import nbclient
import nbformat
import pytest

from course_utils.notebooks.execute import kernel_environment

NOISY = """\
import logging, os, sys, warnings
import course_utils as cu
import tensorflow as tf

to_the_old_stderr = logging.StreamHandler(sys.stderr)

def compute_loss(per_example_loss, global_batch_size):
    logging.getLogger("noisy").handlers = [to_the_old_stderr]
    logging.getLogger("noisy").warning("logged")
    warnings.warn("warned")
    print("printed", file=sys.stderr)
    os.write(2, b"native\\n")
    return tf.reduce_sum(per_example_loss) / global_batch_size
"""
CHECK = 'cu.check("04.compute_loss", compute_loss)'
LOUD = 'print("loud", file=sys.stderr)'
TOO_BIG = """\
def compute_loss(per_example_loss, global_batch_size):
    return tf.reduce_mean(per_example_loss)
"""
STUB = "def compute_loss(per_example_loss, global_batch_size): ..."


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Outputs of the cells of a notebook that runs as nbgrader runs it, and the files that it left."""
    folder = tmp_path_factory.mktemp("nbgrader")
    work = folder / "work"
    work.mkdir()
    cells = [NOISY, CHECK, LOUD, TOO_BIG, CHECK, STUB, CHECK]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    with kernel_environment(progress=work / "progress.json"), pytest.MonkeyPatch.context() as patch:
        patch.setenv("NBGRADER_EXECUTION", "autograde")
        patch.delenv("PYTEST_CURRENT_TEST", raising=False)  # where it is set, kernels ignore native output
        client = nbclient.NotebookClient(
            notebook, timeout=120, allow_errors=True, resources={"metadata": {"path": str(work)}}
        )
        client.execute()
    return [cell.outputs for cell in notebook.cells], list(work.iterdir())


def kinds(output):
    return output.output_type, output.get("name", "")


def test_a_right_answer_leaves_nothing_that_nbgrader_takes_for_an_error_or_for_points(outputs):
    shown = outputs[0][1]
    assert {kinds(output) for output in shown} == {("stream", "stdout"), ("display_data", "")}
    said = "".join(output.text for output in shown if output.output_type == "stream")
    for word in ("logged", "warned", "printed", "native"):
        assert word in said, word
    card = next(output.data for output in shown if output.output_type == "display_data")
    assert "Passed" in card["text/plain"] and "<" in card["text/html"]


def test_after_a_check_stderr_is_itself_again(outputs):
    loud = outputs[0][2]
    assert {kinds(output) for output in loud} == {("stream", "stderr")}
    assert "".join(output.text for output in loud) == "loud\n"  # a kernel may send a line in two pieces


@pytest.mark.parametrize(("cell", "told"), [(4, "Not right yet"), (6, "Not attempted")])
def test_any_other_answer_makes_the_cell_fail_in_the_words_of_its_verdict(cell, told, outputs):
    (error,) = [output for output in outputs[0][cell] if output.output_type == "error"]
    assert error.ename == "NotPassed"
    assert told in error.evalue and "0 of 2 points" in error.evalue
    assert "\n".join(error.traceback) == error.evalue


def test_nbgraders_runs_leave_no_progress_of_the_learner_behind(outputs):
    assert outputs[1] == []
