"""Built notebooks: equal to their source but for outputs, free of the machine, told apart when they drift."""

import sys

import nbformat
import pytest

from course_utils.errors import NotebookError
from course_utils.notebooks import build, sources
from course_utils.notebooks.execute import CellFailed

SMALL = """\
# %% [markdown]
# # 90 · One?

# %%
import os, sys, tempfile, traitlets
print(os.__file__, traitlets.__file__)
print(os.getcwd(), sys.prefix, tempfile.gettempdir() + "/a b", object())
os.write(2, b"I0000 00:00:1796047428.18 15433 port.cc:153] oneDNN custom operations are on.\\n")

# %%
class Shown:
    def _repr_mimebundle_(self, **_):
        return {"text/plain": "shown", "application/vnd.jupyter.widget-view+json": {"model_id": "1"}}

Shown()

# %%
os.write(2, b"I0000 00:00:1796047428.18 15433 port.cc:153] oneDNN custom operations are on.\\n");
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A small notebook's source, built twice: path and both texts."""
    folder = tmp_path_factory.mktemp("small") / "notebooks"
    (folder / "source").mkdir(parents=True)
    path = folder / "source" / "90_one.py"
    path.write_text(SMALL, encoding="utf-8")
    return path, build.build(path).read_text(encoding="utf-8"), build.build(path).read_text(encoding="utf-8")


def test_two_builds_are_equal_to_the_byte(small):
    _, first, second = small
    assert first == second


def test_a_built_notebook_names_nothing_of_its_machine_or_run(small):
    _, text, _ = small
    for trace in ("papermill", "jupytext", "end_time"):
        assert trace not in text
    built = nbformat.reads(text, as_version=nbformat.NO_CONVERT)
    assert [cell.execution_count for cell in built.cells if cell.cell_type == "code"] == [1, 2, 3]
    assert built.cells[1].outputs[0].text.count("<temporary folder>") == 2
    assert built.cells[2].outputs[0].data == {"text/plain": "shown"}
    assert built.cells[3].outputs == []
    shown = "".join(cell.outputs[0].get("text", "") for cell in built.cells[1:3])
    assert shown.startswith("lib/python3")
    assert " site-packages/traitlets/__init__.py\n" in shown
    for trace in ("/tmp", "/home", sys.prefix, sys.base_prefix, "0x7", "port.cc"):
        assert trace not in shown, trace


def test_a_fresh_notebook_has_not_drifted(small):
    assert build.drift(small[0]) is None


CHANGES = {
    "source of cell 1": lambda built: built.cells[1].update(source="print(2)"),
    "source of cell 0": lambda built: built.cells[0].update(source="# 90 · Two?"),
    "metadata of cell 2": lambda built: built.cells[2].metadata.update(tags=["stable"]),
    "id of cell 2": lambda built: built.cells[2].update(id="other"),
    "cell_type of cell 3": lambda built: built.cells[3].update(
        cell_type="markdown", id=built.cells[3].id, source=built.cells[3].source
    ),
    "has 3 cells, its source 4": lambda built: built.cells.pop(),
    "the notebook's metadata": lambda built: built.metadata.kernelspec.update(name="mine"),
}


@pytest.mark.parametrize("named", CHANGES)
def test_drift_is_named_by_lesson_and_first_differing_cell_with_the_cure(named, small, write):
    _, text, _ = small
    path = write(SMALL, name="90_one")
    built = nbformat.reads(text, as_version=nbformat.NO_CONVERT)
    CHANGES[named](built)
    sources.read(path).notebook_path.write_text(nbformat.v4.nbjson.writes(built), encoding="utf-8")
    sentence = build.drift(path)
    assert sentence.startswith("90_one.ipynb ")
    assert named in sentence
    assert "`make notebooks`" in sentence


def test_new_outputs_alone_are_no_drift(small, write):
    path = write(SMALL, name="90_one")
    built = nbformat.reads(small[1], as_version=nbformat.NO_CONVERT)
    built.cells[1].outputs = []
    nbformat.write(built, sources.read(path).notebook_path)
    assert build.drift(path) is None


def test_metadata_are_brought_up_to_date_and_nothing_else(small, write):
    path = write(SMALL, name="90_one")
    notebook = sources.read(path).notebook_path
    built = nbformat.reads(small[1], as_version=nbformat.NO_CONVERT)
    built.cells[1].metadata = {"tags": ["stable"]}
    built.metadata.kernelspec.name = "mine"
    nbformat.write(built, notebook)
    assert build.refresh(path) == notebook
    assert notebook.read_text(encoding="utf-8") == small[1]


@pytest.mark.parametrize("named", [named for named in CHANGES if "metadata" not in named])
def test_what_only_a_build_mends_is_refused_when_metadata_are_refreshed(named, small, write):
    path = write(SMALL, name="90_one")
    built = nbformat.reads(small[1], as_version=nbformat.NO_CONVERT)
    CHANGES[named](built)
    text = nbformat.v4.nbjson.writes(built)
    sources.read(path).notebook_path.write_text(text, encoding="utf-8")
    with pytest.raises(NotebookError, match=named):
        build.refresh(path)
    assert sources.read(path).notebook_path.read_text(encoding="utf-8") == text


def test_a_missing_notebook_is_drift(write):
    assert "90_one.ipynb is missing" in build.drift(write(SMALL, name="90_one"))


def test_a_build_that_fails_leaves_the_notebook_of_before(write):
    path = write("# %%\n1 / 0\n", name="90_one")
    notebook = sources.read(path).notebook_path
    notebook.write_text("as before", encoding="utf-8")
    with pytest.raises(CellFailed):
        build.build(path)
    assert notebook.read_text(encoding="utf-8") == "as before"
