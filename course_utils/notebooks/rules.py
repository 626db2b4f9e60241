"""The rules that every lesson keeps: each one small function that yields what breaks it."""

import ast
import itertools
import re
import statistics
from collections.abc import Callable, Iterator

import nbformat

from course_utils.notebooks import nbgrader, sources
from course_utils.notebooks.sources import Cell, Lesson

SETUP_LINES = 8
MEDIAN_CODE_LINES = 8
MAX_CODE_LINES = 30
MAX_CODE_COLUMNS = 88  # what JupyterLab shows beside its file browser on a laptop's screen
MAX_PROSE_WORDS = 120
CELLS = range(25, 46)
USUAL_EXERCISES = 3
CELLS_WITHOUT_HEADING = 4

Findings = Iterator[tuple[Cell | None, int, str]]  # cell, line within the cell's text from 0, what is wrong

SOURCE_RULES: dict[str, Callable[[Lesson], Findings]] = {}
BUILT_RULES: dict[str, Callable[[Lesson, nbformat.NotebookNode], Findings]] = {}


def source_rule(function):
    """The same function, registered under its name as a rule over a lesson's source."""
    SOURCE_RULES[function.__name__] = function
    return function


def built_rule(function):
    """The same function, registered under its name as a rule over a built notebook."""
    BUILT_RULES[function.__name__] = function
    return function


# Names, size and rhythm


@source_rule
def name(lesson: Lesson) -> Findings:
    if not sources.NAME.fullmatch(lesson.name):
        yield None, 0, f"The name {lesson.name!r} is not two digits and snake_case, as in 04_loss_scaling."


@source_rule
def title(lesson: Lesson) -> Findings:
    first = lesson.cells[0]
    if not re.match(rf"# {re.escape(lesson.number)} · .+\?\n", first.text + "\n"):
        yield first, 0, f"The first line must be `# {lesson.number} · ` and the lesson's one question."


@source_rule
def number_of_cells(lesson: Lesson) -> Findings:
    # A further exercise brings its question, its answer cell and its check, and need not crowd others out.
    answers = sum(cell.exercise_id is not None for cell in lesson.cells)
    most = CELLS.stop - 1 + 3 * max(0, answers - USUAL_EXERCISES)
    count = len(lesson.cells)
    if not CELLS.start <= count <= most:
        yield None, 0, f"The lesson has {count} cells; {CELLS.start} to {most} fit."


@source_rule
def heading_often(lesson: Lesson) -> Findings:
    without = 0
    for cell in lesson.cells:
        without = 0 if cell.headings else without + 1
        if without == CELLS_WITHOUT_HEADING + 1:
            yield (
                cell,
                0,
                f"{without} cells in a row have no heading; put one that states the question or the finding.",
            )


@source_rule
def prose_length(lesson: Lesson) -> Findings:
    for cell in _markdown(lesson):
        words = len(re.findall(r"[^\s|]*\w[^\s|]*", sources.FENCED.sub("", cell.text)))
        if words > MAX_PROSE_WORDS:
            yield (
                cell,
                0,
                f"{words} words in one cell; at most {MAX_PROSE_WORDS}. Cut, or let something run between.",
            )


@source_rule
def code_length(lesson: Lesson) -> Findings:
    for cell in _code(lesson):
        if _length(cell) > MAX_CODE_LINES:
            yield cell, 0, f"{_length(cell)} lines of code in one cell; at most {MAX_CODE_LINES}."


@source_rule
def code_length_median(lesson: Lesson) -> Findings:
    median = statistics.median([_length(cell) for cell in _code(lesson)] or [0])
    if median > MEDIAN_CODE_LINES:
        yield None, 0, f"The median code cell has {median:g} lines; at most {MEDIAN_CODE_LINES}."


@source_rule
def code_width(lesson: Lesson) -> Findings:
    for cell in _code(lesson):
        for offset, line in enumerate(cell.text.splitlines()):
            if len(line) > MAX_CODE_COLUMNS:
                yield cell, offset, f"{len(line)} columns of code; {MAX_CODE_COLUMNS} fit without scrolling."


# The parts of a lesson, and their order


@source_rule
def setup_cell(lesson: Lesson) -> Findings:
    first = next(_code(lesson), None)
    if first is None:
        yield None, 0, "There is no code cell."
        return
    if "import course_utils as cu" not in first.text:
        yield first, 0, "The first code cell is the set-up: it must `import course_utils as cu`."
    if _length(first) > SETUP_LINES:
        yield first, 0, f"The set-up cell has {_length(first)} lines; at most {SETUP_LINES}."


@source_rule
def parameters_cell(lesson: Lesson) -> Findings:
    cells = [cell for cell in lesson.cells if "parameters" in cell.tags]
    if len(cells) != 1:
        yield None, 0, f"{len(cells)} cells are tagged `parameters`; one must be."
    for cell in cells[:1]:
        if not re.search(r'^profile = "laptop"$', cell.text, re.MULTILINE):
            yield (
                cell,
                0,
                'The parameters cell must say `profile = "laptop"`; `course run --profile` replaces it.',
            )


@source_rule
def parts_in_order(lesson: Lesson) -> Findings:
    places = [(part, _first_with(lesson, pattern)) for part, pattern in _PARTS]
    for part, place in places:
        if place is None:
            yield None, 0, f"The lesson has no part {part!r}."
    there = [(part, place) for part, place in places if place is not None]
    for (before, first), (part, place) in itertools.pairwise(there):
        if place < first:
            yield lesson.cells[place], 0, f"{part!r} must come after {before!r}."


_PARTS = (
    ("Predict", r"^#+ .*\bPredict\b"),
    ("Exercise", r"^#+ Exercise \d\d\.\d"),
    ("What must be true now", r"^## What must be true now$"),
    ("Take away", r"^> \*\*Take[ -]away\.?\*\*"),
)


@source_rule
def predict_cell(lesson: Lesson) -> Findings:
    start = _first_with(lesson, _PARTS[0][1])
    if start is not None and not any("predict" in cell.tags for cell in lesson.cells[start:]):
        yield (
            lesson.cells[start],
            0,
            "Under `Predict` there must be a cell tagged `predict` with a line to fill in.",
        )


@source_rule
def closing_assertions(lesson: Lesson) -> Findings:
    start = _first_with(lesson, _PARTS[2][1])
    if start is None:
        return
    asserts = (_asserts(tree) for cell in lesson.cells[start:] if (tree := _tree(cell)) is not None)
    if not any(asserts):
        yield lesson.cells[start], 0, "`What must be true now` must be followed by a cell that asserts it."


@source_rule
def next_lesson(lesson: Lesson) -> Findings:
    later = [path for path in sorted(lesson.path.parent.glob("*.py")) if path.stem > lesson.name]
    last = lesson.cells[-1]
    links = dict(reversed(link) for link in re.findall(r"\[([^\]]+)\]\(([^)]+)\)", last.text))
    if not later:
        return
    following = sources.read(later[0])
    text = links.get(f"{following.name}.ipynb")
    if text is None:
        yield (
            last,
            0,
            f"The last cell must link to the next lesson: [{following.title}]({following.name}.ipynb).",
        )
    elif text != following.title:
        yield last, 0, f"The link says {text!r}; the next lesson is called {following.title!r}."


@source_rule
def links_exist(lesson: Lesson) -> Findings:
    for cell in _markdown(lesson):
        for offset, line in enumerate(cell.text.splitlines()):
            for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", line):
                if not target.startswith(("https://", "attachment:")) and not _exists(lesson, target):
                    yield cell, offset, f"The link to {target!r} leads nowhere."


# Exercises


@source_rule
def exercises_known(lesson: Lesson) -> Findings:
    for cell in lesson.cells:
        if ("exercise" in cell.tags) != (cell.exercise_id is not None):
            yield cell, 0, "An answer cell carries both: the tag `exercise` and an `exercise_id`."
        elif cell.exercise_id is not None and cell.exercise_id not in known_exercises():
            yield cell, 0, f"No exercise is called {cell.exercise_id!r}."


@source_rule
def exercises_once(lesson: Lesson) -> Findings:
    seen = set()
    for cell in lesson.cells:
        if cell.exercise_id in seen:
            yield cell, 0, f"The exercise {cell.exercise_id!r} has two answer cells."
        if cell.exercise_id:
            seen.add(cell.exercise_id)


@source_rule
def exercises_complete(lesson: Lesson) -> Findings:
    here = {cell.exercise_id for cell in lesson.cells}
    for known in sorted(known_exercises()):
        if known.startswith(lesson.number + ".") and known not in here:
            yield None, 0, f"The exercise {known!r} has no answer cell in this lesson."


@source_rule
def exercises_checked(lesson: Lesson) -> Findings:
    for cell in lesson.cells:
        if cell.exercise_id is not None:
            later = lesson.cells[cell.index + 1 :]
            checks = [other for other in later if cell.exercise_id in nbgrader.checked(other.text)]
            if not checks:
                yield cell, 0, f'No later cell calls cu.check("{cell.exercise_id}", ...).'
            for other in checks[1:]:
                yield other, 0, f"{cell.exercise_id!r} is checked already; its points are those of one cell."


@source_rule
def checks_alone(lesson: Lesson) -> Findings:
    for cell in _code(lesson):
        if len(nbgrader.checked(cell.text)) > 1:
            yield cell, 0, "This cell checks more than one exercise; nbgrader gives points by the cell."


@source_rule
def nothing_left_to_do(lesson: Lesson) -> Findings:
    for cell, offset, line in _lines(lesson):
        if re.search(r"\bTODO\b", line):
            yield cell, offset, f"A TODO is left: {line.strip()}"


# What a notebook must not do


@source_rule
def no_sleep(lesson: Lesson) -> Findings:
    for cell, call in _calls(lesson):
        if _called(call).split(".")[-1] == "sleep":
            yield cell, call.lineno - 1, "A sleep: wait for what you need, with a limit."


@source_rule
def no_absolute_path(lesson: Lesson) -> Findings:
    for cell, offset, line in _lines(lesson):
        for path in ABSOLUTE_PATH.findall(line):
            yield (
                cell,
                offset,
                f"An absolute path, {path!r}: use a temporary folder or a path from the course.",
            )


@source_rule
def no_fixed_port(lesson: Lesson) -> Findings:
    for cell, offset, line in _lines(lesson, kinds=("code",)):
        for port in FIXED_PORT.findall(line):
            yield (
                cell,
                offset,
                f"A fixed port, {port!r}: somebody else may hold it; let the course choose free ones.",
            )


@source_rule
def no_network(lesson: Lesson) -> Findings:
    for cell, offset, line in _lines(lesson, kinds=("code",)):
        for address in NETWORK.findall(line):
            if not address.startswith(LOCAL_OR_DOCUMENTATION):
                yield cell, offset, f"A network address, {address!r}: lessons use the loopback alone."


@source_rule
def figures_have_alt_text(lesson: Lesson) -> Findings:
    for cell, call in _calls(lesson):
        called = _called(call)
        alt = next((keyword.value for keyword in call.keywords if keyword.arg == "alt"), None)
        if called in ("plt.show", "fig.show", "figure.show", "pyplot.show"):
            yield (
                cell,
                call.lineno - 1,
                "Show figures with plots.show(figure, alt=...), so that they have an alt text.",
            )
        elif called.endswith("plots.show") and (
            alt is None or (isinstance(alt, ast.Constant) and not alt.value)
        ):
            yield (
                cell,
                call.lineno - 1,
                "plots.show needs alt=..., one sentence that says what the picture shows.",
            )


@source_rule
def code_parses(lesson: Lesson) -> Findings:
    for cell in _code(lesson):
        try:
            ast.parse(_plain(cell.text))
        except SyntaxError as error:
            yield cell, (error.lineno or 1) - 1, f"The code does not parse: {error.msg}."


ABSOLUTE_PATH = re.compile(
    r"(?<![\w.:/>])(?:/(?:home|Users|tmp|var|root|usr|opt|mnt|etc|data|work|private)(?:/[\w.-]*)*|~/[\w.-]+|[A-Z]:\\\w+)"
)
FIXED_PORT = re.compile(
    r"(?:localhost|127\.\d+\.\d+\.\d+|0\.0\.0\.0|\[?::1\]?):[1-9]\d{1,4}\b"
    r"|\bport\w*\s*=\s*[1-9]\d+|--port[= ][1-9]\d+"
)
NETWORK = re.compile(r"https?://[^\s\"')]+|\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b")
# Loopback, and the addresses that RFC 5737 sets aside for documentation: no machine has them.
LOCAL_OR_DOCUMENTATION = (
    "127.",
    "0.0.0.0",
    "192.0.2.",
    "198.51.100.",
    "203.0.113.",
    "http://localhost",
    "http://127.",
)


@source_rule
def allowances_known(lesson: Lesson) -> Findings:
    for cell in lesson.cells:
        for allowed in cell.allowances:
            if allowed not in SOURCE_RULES and allowed not in BUILT_RULES:
                yield cell, 0, f"lint_allows names {allowed!r}, which is no rule."


# The built notebook


@built_rule
def executed_in_order(lesson: Lesson, built) -> Findings:
    expected = {cell.id: count for count, cell in enumerate(_code(lesson), 1)}
    for cell, code in _pairs(lesson, built, "code"):
        if code.execution_count != expected[cell.id]:
            seen = f"{code.execution_count}, not {expected[cell.id]}"
            yield cell, 0, f"The execution count is {seen}: build the notebook again."
            return


@built_rule
def no_error_output(lesson: Lesson, built) -> Findings:
    for cell, code in _pairs(lesson, built, "code"):
        for output in code.outputs:
            if output.output_type == "error" and "raises-exception" not in cell.tags:
                yield cell, 0, f"The notebook shows an error: {output.ename}: {output.evalue[:80]}"


@built_rule
def outputs_name_no_machine(lesson: Lesson, built) -> Findings:
    for cell, code in _pairs(lesson, built, "code"):
        for text in output_texts(code):
            for path in ABSOLUTE_PATH.findall(text)[:1]:
                yield cell, 0, f"The output names a folder of the machine that built it, {path!r}."


@built_rule
def pictures_have_alt_text(lesson: Lesson, built) -> Findings:
    for cell, code in _pairs(lesson, built, "code"):
        for output in code.outputs:
            if "image/png" in output.get("data", {}) and not output.metadata.get("image/png", {}).get("alt"):
                yield cell, 0, "A picture has no alt text: show it with plots.show(figure, alt=...)."


@built_rule
def ids_stable(lesson: Lesson, built) -> Findings:
    # The source gives every cell an id of its own, so equal ids are also present and unique.
    for cell, theirs in zip(lesson.cells, built.cells, strict=False):
        if theirs.get("id") != cell.id:
            seen = f"{theirs.get('id')!r}; its source gives {cell.id!r}"
            yield cell, 0, f"The built cell's id is {seen}: build the notebook again."
            return


def output_texts(code) -> Iterator[str]:
    """Every text in a code cell's outputs."""
    for output in code.outputs:
        yield output.get("text", "")
        yield "\n".join(output.get("traceback", ()))
        yield from (str(value) for kind, value in output.get("data", {}).items() if kind.startswith("text/"))


def known_exercises() -> set[str]:
    """Ids of all exercises of the course."""
    from course_utils import exercises

    return {exercise.id for exercise in exercises.all_exercises()}


def _pairs(lesson, built, kind):
    """Pairs of cell and built cell that stand for each other; `ids_stable` reports the others."""
    by_id = {cell.get("id"): cell for cell in built.cells if cell.cell_type == kind}
    return [(cell, by_id[cell.id]) for cell in lesson.cells if cell.kind == kind and cell.id in by_id]


def _markdown(lesson):
    return (cell for cell in lesson.cells if cell.kind == "markdown")


def _code(lesson):
    return (cell for cell in lesson.cells if cell.kind == "code")


def _length(cell):
    return sum(bool(line.strip()) for line in cell.text.splitlines())


def _first_with(lesson, pattern):
    matches = (cell.index for cell in _markdown(lesson) if re.search(pattern, cell.text, re.MULTILINE))
    return next(matches, None)


def _exists(lesson, target):
    # The other lessons' notebooks are derived: what counts is that their source is there.
    if target.endswith(".ipynb") and "/" not in target:
        return (lesson.path.parent / target).with_suffix(".py").exists()
    return (lesson.notebook_path.parent / target).exists()


def _plain(text):
    """The cell's text without IPython's own lines, so that Python can parse it; line numbers stay."""
    lines = text.splitlines()
    return "\n".join("pass" if re.match(r"[%!]", line.lstrip()) else line for line in lines)


def _tree(cell):
    if cell.kind != "code":
        return None
    try:
        return ast.parse(_plain(cell.text))
    except SyntaxError:
        return None


def _calls(lesson):
    for cell in _code(lesson):
        for node in ast.walk(_tree(cell) or ast.Module([], [])):
            if isinstance(node, ast.Call):
                yield cell, node


def _called(call):
    try:
        return ast.unparse(call.func)
    except ValueError:
        return ""


def _asserts(tree):
    calls = (_called(node) for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(node, ast.Assert) for node in ast.walk(tree)) or any(
        called.split(".")[-1].startswith("assert_") for called in calls
    )


def _lines(lesson, kinds=("code", "markdown")):
    for cell in lesson.cells:
        if cell.kind in kinds:
            yield from ((cell, offset, line) for offset, line in enumerate(cell.text.splitlines()))
