"""Clusters in a real Jupyter kernel: interrupt, restart and kill; columns; `%%workers`."""

import os
import re
import time
from pathlib import Path

import psutil
import pytest
from jupyter_client.manager import KernelManager

DEADLINE = 120

ENDLESS = """
def endless(folder):
    import os, threading
    import tensorflow as tf
    tf.distribute.MultiWorkerMirroredStrategy()
    open(f"{folder}/{os.getpid()}", "w").close()
    threading.Event().wait()

cu.LocalCluster(2, output="quiet").run(endless, folder)
"""


class Notebook:
    """A kernel as a notebook server drives it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.manager = KernelManager()
        self.manager.start_kernel(
            cwd=str(folder), env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        )
        self.connect()

    def connect(self):
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=DEADLINE)
        self.run(f"import course_utils as cu\n%load_ext course_utils\nfolder = {str(self.folder)!r}")

    def run(self, code, fails=False):
        """What the cell put out, a list of nbformat-like dictionaries."""
        outputs = []
        reply = self.client.execute_interactive(code, timeout=DEADLINE, output_hook=outputs.append)
        assert (reply["content"]["status"] == "error") is fails, outputs
        return [message["content"] | {"kind": message["msg_type"]} for message in outputs]

    def text(self, code, fails=False):
        outputs = self.run(code, fails)
        return "".join(o.get("text", "") + "\n".join(o.get("traceback", [])) for o in outputs)

    def start_endless(self):
        """Start a cluster that does not end by itself; returns its processes."""
        for file in self.folder.iterdir():
            if file.name.isdigit():
                file.unlink()
        self.endless = self.client.execute(ENDLESS)
        wait_for(lambda: sum(file.name.isdigit() for file in self.folder.iterdir()) == 2)
        return psutil.Process(self.manager.provisioner.process.pid).children(recursive=True)

    def error_of_endless(self):
        """The name of the exception that ended it."""
        while True:
            reply = self.client.get_shell_msg(timeout=DEADLINE)
            if reply["parent_header"]["msg_id"] == self.endless:
                return reply["content"]["ename"]

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def wait_for(condition):
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def assert_gone(processes):
    _, alive = psutil.wait_procs(processes, timeout=DEADLINE)
    assert not alive


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    notebook = Notebook(tmp_path_factory.mktemp("kernel"))
    yield notebook
    notebook.close()


def test_autograph_finds_the_source_of_a_cell_in_the_workers(notebook):
    said = notebook.text("""
def count(n):
    import tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    @tf.function
    def total():
        x = tf.constant(0)
        for i in tf.range(n):
            x += i
        return x
    return int(total())

print(cu.LocalCluster(2).run(count, 4))
""")
    assert said == "[6, 6]\n"


def test_an_error_names_the_cell_and_its_line(notebook):
    said = notebook.text(
        "def fail():\n    raise ValueError('mine')\ncu.LocalCluster(2).run(fail)", fails=True
    )
    assert "raise ValueError('mine')" in said and "Cell In[" in said
    assert "WorkerError: Worker" in said and "raised ValueError: mine" in said
    assert "course_utils" not in said and "ipykernel" not in said


def test_workers_runs_the_cell_side_by_side_and_brings_values_back(notebook):
    outputs = notebook.run("""%%workers 2 --push folder --get place,total
import json, os
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
place = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
print("I am", place, "in", folder == os.getcwd())
@tf.function
def step():
    return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.fill([1], 1.0)))
total = float(step()[0])
total + place
""")
    shown = [o for o in outputs if o["kind"] == "display_data"]
    assert len(shown) == 1
    last = [o for o in outputs if o["kind"] in ("display_data", "update_display_data")][-1]["data"]
    for column, words in enumerate(
        (["worker 0", "I am 0 in True", "2.0"], ["worker 1", "I am 1 in True", "3.0"])
    ):
        part = last["text/html"].split("<pre")[column] + last["text/html"].split("<pre")[column + 1]
        assert all(word in part for word in words)
    assert "[worker 1] I am 1 in True" in last["text/plain"]
    assert notebook.text("print(place, total)") == "[0, 1] [2.0, 2.0]\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("0", "'0' is not a whole number from 1"),
        ("2 --devices x", "'x' is not a whole number from 1"),
        ("2 --timeout soon", "'soon' is not a number of seconds greater than 0"),
        ("2 --timeout -1", "'-1' is not a number of seconds"),
        ("2 --timeout nan", "'nan' is not a number of seconds"),
        ("2 --sideways", "unrecognized arguments: --sideways"),
        ("2 --push nothing_here", "no variable of that name"),
        ("2 --get 1x", "'1x' is not a variable's name"),
        ("2 --get absent", "--get asks for absent, which the cell has not set"),
    ],
)
def test_wrong_options_of_workers_are_explained(notebook, line, words):
    assert words in notebook.text(f"%%workers {line}\n1", fails=True)


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("1\nx = = 1", "SyntaxError in line 3 of the cell, `x = = 1`: invalid syntax"),
        ("if 1:\nx", "SyntaxError in line 3 of the cell, `x`: expected an indented block"),
        ("1\n!ls", "line 3 of the cell, `!ls`, is for IPython"),
        ("%time 1", "line 2 of the cell, `%time 1`, is for IPython"),
        ("files = !ls", "line 2 of the cell, `files = !ls`, is for IPython"),
        ("def f():\n    await g()", "SyntaxError in line 3 of the cell, `await g()`: 'await' outside async"),
        ("print?", "line 2 of the cell, `print?`, is for IPython"),
        (
            "import asyncio\nawait asyncio.sleep(0)",
            "line 3 of the cell, `await asyncio.sleep(0)`, awaits outside",
        ),
    ],
)
def test_what_is_no_script_is_told_in_one_sentence_before_any_worker_starts(notebook, cell, words):
    outputs = notebook.run(f"%%workers 2\n{cell}", fails=True)
    said = "".join(o.get("text", "") + "\n".join(o.get("traceback", [])) for o in outputs)
    assert f"UsageError: %%workers: {words}" in said
    assert len(said.strip().splitlines()) == 1


def test_a_name_of_the_notebook_that_the_cell_lacks_is_answered_with_what_to_write(notebook):
    notebook.run("import math as m\nfactor = 3")
    assert "What to do: Write %%workers … --push factor." in notebook.text(
        "%%workers 1\nfactor * 2", fails=True
    )
    assert "What to do: Write the import of m in the cell." in notebook.text("%%workers 1\nm.pi", fails=True)
    assert "--push" not in notebook.text("%%workers 1\nnowhere", fails=True)


def test_an_error_of_the_cell_names_its_number_and_line(notebook):
    said = notebook.text("%%workers 1\nx = 1\nx / 0", fails=True)
    assert re.search(r"Cell In\[\d+\], line 3, in <module>\n    x / 0", said)
    assert "workers cell" not in said and "magic.py" not in said and "cluster.logs" not in said


def test_variables_that_cannot_travel_are_named(notebook):
    notebook.run("import threading\nlock = threading.Lock()")
    said = notebook.text("%%workers 1 --push lock\n1", fails=True)
    assert "--push lock: a lock cannot be sent to the workers" in said
    assert "run_script" not in said and "magic.py" not in said
    said = notebook.text("%%workers 1 --get bolt\nimport threading\nbolt = threading.Lock()", fails=True)
    assert "--get bolt: worker 0 has a lock, which cannot travel" in said and "run_script" not in said


def test_a_tensor_that_is_pushed_is_named_and_one_that_is_got_becomes_an_array(notebook):
    cell = "%%workers 2 --get ones\nimport tensorflow as tf\nones = tf.ones(2)"
    notebook.run(cell)
    assert notebook.text("print([type(each).__name__ for each in ones])") == "['ndarray', 'ndarray']\n"
    notebook.run("import tensorflow as tf\ntensor = tf.ones(2)")
    said = notebook.text("%%workers 1 --push tensor\n1", fails=True)
    assert "--push tensor: an EagerTensor is or has a tensor" in said and "tensor.numpy()" in said


def test_an_interrupt_ends_the_workers_and_the_next_run_works(notebook):
    family = notebook.start_endless()
    workers = [process for process in family if process.ppid() != notebook.manager.provisioner.process.pid]
    notebook.manager.interrupt_kernel()
    assert notebook.error_of_endless() == "KeyboardInterrupt"
    assert_gone(workers)
    assert notebook.text("print(cu.LocalCluster(2).run(lambda: 7))") == "[7, 7]\n"


def test_a_restart_of_the_kernel_ends_everything(notebook):
    family = notebook.start_endless()
    notebook.client.stop_channels()
    notebook.manager.restart_kernel()
    assert_gone(family)
    notebook.connect()


def test_a_killed_kernel_ends_everything(notebook):
    family = notebook.start_endless()
    os.kill(notebook.manager.provisioner.process.pid, 9)
    assert_gone(family)


def test_columns_are_escaped_and_bounded():
    from course_utils.cluster.output import COLUMN_LINES, Columns

    columns = Columns(["worker 0"])
    columns.columns[0].extend([f"<b>{number}</b>" for number in range(COLUMN_LINES + 1)])
    page = columns._repr_html_()
    assert "&lt;b&gt;200&lt;/b&gt;" in page and "<b>" not in page and "&lt;b&gt;0&lt;" not in page


def test_a_program_asking_for_columns_outside_a_notebook_gets_lines(capsys):
    from course_utils.cluster.output import make_display

    make_display("columns", ["worker 0"]).show(0, ["hello"])
    assert capsys.readouterr().out == "[worker 0] hello\n"
