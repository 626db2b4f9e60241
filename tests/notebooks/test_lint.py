"""Every rule of the lint has an example here that breaks it; what only looks like an offence passes."""

import nbformat
import pytest

from course_utils.notebooks import lint, rules, sources
from course_utils.notebooks.lint import Finding

pytestmark = pytest.mark.usefixtures("one_exercise")

# Rule -> what to replace in the good lesson, by what, and the line that the finding must point to.
TWO_SECTIONS = "".join(f"\n# %% [markdown]\n# ## Finding {n}\n\n# %%\nprint({n})\n" for n in (7, 8))
BAD_SOURCES = {
    "title": ("# # 90 · Does one and one make two?", "# # Adding", "# # Adding"),
    "number_of_cells": (TWO_SECTIONS, "", None),
    "heading_often": ("print(4)", "print(4)" + "\n\n# %%\n1" * 4, "1"),
    "prose_length": ("# One, and another one.", "# " + "word " * 121, "# # 90 · Does one and one make two?"),
    "code_length": ("print(4)", "\n".join(f"print({n})" for n in range(31)), "print(0)"),
    "code_length_median": ("\nprint(", "\n" + "print()\n" * 8 + "print(", None),
    "code_width": ("print(4)", "print(" + "4" * 83 + ")", "print(" + "4" * 83 + ")"),
    "setup_cell": ("import course_utils as cu", "import course_utils", "import course_utils"),
    "parameters_cell": ('# %% tags=["parameters"]', "# %%", None),
    "parts_in_order": ("# > **Take away.** It does.", "# It does.", None),
    "predict_cell": ('# %% tags=["predict"]', "# %%", "# ### Predict"),
    "closing_assertions": ("assert 1 + 1 == 2", "1 + 1 == 2", "# ## What must be true now"),
    "links_exist": ("# One, and another one.", "# [One](nowhere.md).", "# [One](nowhere.md)."),
    "exercises_known": ('exercise_id="90.total"', 'exercise_id="90.sum"', "def total(a, b):"),
    "exercises_once": (
        "# %%\ncu.check",
        '# %% tags=["exercise"] exercise_id="90.total"\ntotal = 1\n\n# %%\ncu.check',
        "total = 1",
    ),
    "exercises_complete": ('# %% tags=["exercise"] exercise_id="90.total"', "# %%", None),
    "checks_alone": (
        'cu.check("90.total", total)',
        'cu.check("90.total", total)\ncu.check("90.mean", mean)',
        'cu.check("90.total", total)',
    ),
    "exercises_checked": ('cu.check("90.total", total)', '# cu.check("90.total", total)', "def total(a, b):"),
    "nothing_left_to_do": ("# About 1 line.", "# TODO: ask.", "# TODO: ask."),
    "no_sleep": ("print(4)", "import time\ntime.sleep(4)", "time.sleep(4)"),
    "no_absolute_path": ("print(4)", 'print(4)\nopen("/tmp/x")', 'open("/tmp/x")'),
    "no_fixed_port": ("print(4)", 'print("localhost:12345")', 'print("localhost:12345")'),
    "no_network": ("print(4)", 'print("http://example.org/data")', 'print("http://example.org/data")'),
    "figures_have_alt_text": ("print(4)", "plt.show()", "plt.show()"),
    "code_parses": ("print(4)", "print(4)\nprint 5", "print 5"),
    "allowances_known": ("# %%\nprint(4)", '# %% lint_allows="naps"\nprint(4)', "print(4)"),
}
# Further examples of rules that have more than one side.
MORE_BAD_SOURCES = [
    ("setup_cell", "import course_utils as cu", "import course_utils as cu\n" + "import os\n" * 8),
    ("parameters_cell", 'profile = "laptop"', 'profile = "quick"'),
    ("number_of_cells", TWO_SECTIONS, TWO_SECTIONS * 6),
    ("parts_in_order", "# ### Predict", "# ### What must be true now"),
    ("exercises_known", ' exercise_id="90.total"', ""),
    ("exercises_checked", "assert 1 + 1 == 2", 'assert 1 + 1 == 2\ncu.check("90.total", total)'),
    ("no_sleep", "print(4)", "from time import sleep\nsleep(1)"),
    ("no_absolute_path", "print(4)", 'open("~/notes.txt")'),
    ("no_absolute_path", "# One, and another one.", "# See /home/ada/notes."),
    ("no_fixed_port", "print(4)", "start(port=8080)"),
    ("no_network", "print(4)", 'hosts = ["10.0.0.1:2222"]'),
    ("figures_have_alt_text", "print(4)", "cu.plots.show(figure)"),
    ("figures_have_alt_text", "print(4)", 'cu.plots.show(figure, alt="")'),
]
# What looks like an offence and is none.
INNOCENT = [
    'print("/job:worker/replica:0/task:0/device:CPU:0")',
    "port = cu.cluster.free_port()",
    'hosts = ["192.0.2.1:2222", "worker-0.example:2222"]',
    'address = "127.0.0.1:0"',
    'cu.plots.show(figure, alt="A line that rises.")',
    "%matplotlib inline\nprint(4)",
]


def found(path):
    return {finding.rule for finding in lint.lint(path)}


def test_a_good_lesson_has_no_findings(write):
    assert lint.lint(write()) == []


@pytest.mark.parametrize("rule", BAD_SOURCES)
def test_a_bad_source_is_found_by_its_rule_at_its_line(rule, write, good):
    old, new, line = BAD_SOURCES[rule]
    assert old in good
    path = write(good.replace(old, new))
    finding = next(finding for finding in lint.lint(path) if finding.rule == rule)
    assert finding.file == "notebooks/source/90_one_and_one.py"
    if line is None:
        assert (finding.line, finding.cell) == (1, None)
    else:
        assert path.read_text().splitlines()[finding.line - 1] == line.rstrip()


@pytest.mark.parametrize(("rule", "old", "new"), MORE_BAD_SOURCES)
def test_the_other_sides_of_a_rule_are_found_too(rule, old, new, write, good):
    assert old in good
    assert rule in found(write(good.replace(old, new)))


@pytest.mark.parametrize("code", INNOCENT)
def test_what_only_looks_like_an_offence_is_let_pass(code, write, good):
    assert lint.lint(write(good.replace("print(4)", code))) == []


def test_a_bad_name_is_found(write):
    assert "name" in found(write(name="90_OneAndOne"))


def test_the_last_cell_links_to_the_next_lesson_by_its_title(write, good):
    following = good.replace("90 · Does one", "91 · Does two")
    write(following, name="91_two_and_two")
    assert "next_lesson" in found(write())
    wrong = good + "#\n# Next: [91 · Some other title?](91_two_and_two.ipynb)\n"
    assert "next_lesson" in found(write(wrong))
    right = good + "#\n# Next: [91 · Does two and one make two?](91_two_and_two.ipynb)\n"
    assert found(write(right)) == set()


def test_a_cell_may_be_excused_from_one_rule_by_name(write, good):
    nap = '# %% lint_allows="no_sleep"\nimport time\ntime.sleep(1)\nopen("/tmp/x")'
    assert found(write(good.replace("# %%\nprint(4)", nap))) == {"no_absolute_path"}


def build_by_hand(path, change):
    """Writes the notebook of a source as if it had been executed, then changed."""
    lesson = sources.read(path)
    built = sources.notebook(lesson)
    code = [cell for cell in built.cells if cell.cell_type == "code"]
    for count, cell in enumerate(code, 1):
        cell.execution_count = count
    change(code[3], built)
    nbformat.write(built, lesson.notebook_path)


def stream(text):
    return nbformat.v4.new_output("stream", text=text)


def picture(metadata):
    return nbformat.v4.new_output("display_data", data={"image/png": "iVBORw0KGgo="}, metadata=metadata)


BAD_NOTEBOOKS = {
    "executed_in_order": lambda cell, built: cell.update(execution_count=7),
    "no_error_output": lambda cell, built: cell.outputs.append(
        nbformat.v4.new_output("error", ename="ValueError", evalue="no", traceback=[])
    ),
    "outputs_name_no_machine": lambda cell, built: cell.outputs.append(stream("saved in /home/ada/x")),
    "pictures_have_alt_text": lambda cell, built: cell.outputs.append(picture({})),
    "ids_stable": lambda cell, built: cell.update(id="another"),
}


@pytest.mark.parametrize("rule", BAD_NOTEBOOKS)
def test_a_bad_notebook_is_found_by_its_rule_alone(rule, write):
    path = write()
    build_by_hand(path, BAD_NOTEBOOKS[rule])
    assert found(path) == {rule}


def test_a_good_notebook_has_no_findings(write):
    path = write()
    described = {"image/png": {"alt": "A line that rises."}}
    build_by_hand(path, lambda cell, built: cell.outputs.append(picture(described)))
    assert lint.lint(path) == []


def test_every_rule_has_an_example_that_breaks_it():
    elsewhere = {"name", "next_lesson"}
    assert set(BAD_SOURCES) | elsewhere == set(rules.SOURCE_RULES)
    assert set(BAD_NOTEBOOKS) == set(rules.BUILT_RULES)


def test_a_finding_names_file_line_cell_and_rule():
    finding = Finding("notebooks/source/04_a.py", 12, 3, "no_sleep", "A sleep.")
    assert str(finding) == "notebooks/source/04_a.py:12: cell 3: A sleep. [no_sleep]"
