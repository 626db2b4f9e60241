"""The coverage map: read from its document, and held against the lessons and tests that are there."""

import pytest
from click.testing import CliRunner

from course_utils.cli import main
from course_utils.errors import NotebookError
from course_utils.notebooks import coverage

HEAD = "# How\n\n## First\n\n| what is taught | lesson and cell | test |\n|---|---|---|\n"
GOOD = "| rings | 90 · One and one<br>90 · Sum | `tests/test_it.py::test_sum`<br>`notebooks/90_one.ipynb` |\n"


@pytest.fixture
def root(tmp_path):
    (tmp_path / "notebooks/source").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    source = "# %% [markdown]\n# # 90 · One\n\n# %% [markdown]\n# ## One and one\n# text\n# ### Sum\n"
    (tmp_path / "notebooks/source/90_one.py").write_text(source)
    (tmp_path / "notebooks/90_one.ipynb").write_text("{}")
    (tmp_path / "TEACHERS.md").write_text("# Teachers\n\n## Sum\n")
    (tmp_path / "tests/test_it.py").write_text("def test_sum():\n    pass\n\n\ndef helper():\n    pass\n")
    return tmp_path


def rows(root, *lines):
    (root / "CONTRIBUTING.md").write_text(HEAD + "".join(lines))
    return coverage.read(root)


def test_a_row_with_its_cells_and_tests_is_complete(root):
    (row,) = rows(root, GOOD)
    assert row == coverage.Row(
        "First",
        "rings",
        ("90 · One and one", "90 · Sum"),
        ("tests/test_it.py::test_sum", "notebooks/90_one.ipynb"),
    )


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("One and one", "Two", "lesson 90 has no heading 'Two'"),
        ("90 · Sum", "91 · Sum", "lesson 91 has no heading 'Sum'"),
        ("90 · Sum", "TEACHERS.md · Sums", "TEACHERS.md has no heading 'Sums'"),
        ("90 · Sum", "GONE.md · Sum", "GONE.md has no heading 'Sum'"),
        ("90 · Sum", "lesson ninety", "'lesson ninety' is not of the form `09 · Heading`"),
        ("::test_sum", "::test_gone", "tests/test_it.py has no test_gone"),
        ("::test_sum", "::helper", "tests/test_it.py has no helper"),
        ("::test_sum", "", "tests/test_it.py has no test named"),
        ("90_one.ipynb", "91_two.ipynb", "there is no notebooks/91_two.ipynb"),
        ("90 · One and one<br>90 · Sum", " ", "names no cell"),
        ("`tests/test_it.py::test_sum`<br>`notebooks/90_one.ipynb`", "", "names no test"),
    ],
)
def test_what_is_not_there_is_a_problem(root, old, new, problem):
    (row,) = rows(root, GOOD.replace(old, new))
    assert row.problems == (problem,)


def test_a_page_of_the_repository_may_prove_what_no_lesson_teaches(root):
    (row,) = rows(root, GOOD.replace("90 · Sum", "TEACHERS.md · Sum"))
    assert row.problems == () and "TEACHERS.md · Sum" in row.cells


def test_other_tables_are_no_rows_and_sections_are_told_apart(root):
    other = (
        "\n## Second\n\n| a | b | c |\n|---|---|---|\n| 1 | 2 | 3 |\n\n## Third\n\n"
        + HEAD.partition("First\n\n")[2]
    )
    assert [row.section for row in rows(root, GOOD, other, GOOD)] == ["First", "Third"]


def test_without_a_document_or_a_map_it_says_what_is_missing(root):
    with pytest.raises(NotebookError, match="clone of the course"):
        coverage.read(root)
    with pytest.raises(NotebookError, match="has no coverage map"):
        rows(root)


def test_the_command_shows_the_courses_own_map_and_nothing_in_it_is_missing():
    result = CliRunner().invoke(main, ["coverage"])
    complete = [row for row in coverage.read() if not row.problems]
    assert result.exit_code == 0, result.output
    assert f"{len(complete)} of {len(complete)} rows" in result.output


def test_the_command_fails_where_a_row_is_incomplete(root, monkeypatch):
    incomplete = rows(root, GOOD.replace("test_sum", "test_gone"))
    monkeypatch.setattr(coverage, "read", lambda: incomplete)
    result = CliRunner().invoke(main, ["coverage"])
    assert result.exit_code == 1
    assert "tests/test_it.py has no test_gone" in result.output
