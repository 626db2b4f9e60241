"""Python without what only a notebook understands: magics, shell lines, and the course's own checks."""

import ast
import contextlib
import re
import warnings
from collections import Counter

# Where a cell has more characters, or more magics, it is not given to IPython, which takes its time then.
MAX_FOR_IPYTHON, MAX_MAGICS = 20_000, 30
RUNS_PYTHON = {"time", "timeit", "capture", "prun", "workers", "python", "python3", "debug"}
VERBS = {"check", "hint", "solution", "progress"}

# Possessive where a long line could be matched in many ways: a hostile one must not take minutes.
_CELL_MAGIC = re.compile(r"\s*+%%(\w*)[^\n]*(\n|$)")
_START = r"^([ \t]*+)([\w, ]++=[ \t]*+)?"
_TRANSFORMED = re.compile(
    rf"{_START}get_ipython\(\)\.(?:run_line_magic|system|getoutput|run_cell_magic)\b.*$"
)
_LINE = re.compile(rf"{_START}([%!].*|\?.*|[\w.]++\?\??)$", re.MULTILINE)
_VERB_LINE = re.compile(rf"^(?:cu\.|course_utils\.)?(?:{'|'.join(sorted(VERBS))})\(.*\)[ \t]*+;?[ \t]*+$")


def parsed(source: str) -> ast.Module | None:
    """The source as a tree; None where it is not Python. Nothing of it is run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def python_of(source: str) -> tuple[str, list[str]]:
    """The cell's Python with as many lines as before where that can be, and notes on what was left out."""
    text, notes = _without_cell_magics(source)
    if text is None:
        return "", notes
    pattern = _TRANSFORMED
    if parsed(text) is None:
        text, pattern = _transformed(text)
    text, left_out = _without_line_magics(text, pattern)
    return _without_verbs(text), notes + left_out


def _without_cell_magics(source):
    notes = []
    while match := _CELL_MAGIC.match(source):
        name, line = match[1], match[0].strip()
        if name not in RUNS_PYTHON:
            return None, [*notes, _not_python(line)]
        notes.append(_left_out(line))
        source = source[match.end() :]
    return source, notes


def _not_python(line):
    return (
        f"This cell begins with `{_short(line)}`, so it is not run as Python and defines nothing. Delete "
        "that line, run the cell again, and hand the notebook in once more."
    )


def _left_out(line):
    return f"`{_short(line)}` was left out: only Python is graded."


def _short(line):
    return line if len(line) <= 60 else line[:57] + "…"


def _without_line_magics(text, pattern):
    """Each magic as `pass`, so that a block whose only line it was stays a block."""
    lines, notes = text.split("\n"), []
    for number, line in enumerate(lines):
        if match := pattern.match(line):
            written = _as_written(line)
            lines[number] = match[1] + _instead(written, match[2])
            notes.append(_left_out(written))
    return "\n".join(lines), notes[:3] + [f"So were {len(notes) - 3} more lines like it."] * (len(notes) > 3)


def _instead(written, target):
    timed = written.removeprefix("%time ")
    if timed != written and parsed(timed):
        return timed
    return f"{target}None  # {written}" if target else f"pass  # {written}"


def _transformed(text):
    """With magics as calls, one a line, as IPython has it; and the pattern of a line that was one."""
    indented = text.lstrip("\n")[:1] in (
        " ",
        "\t",
    )  # perhaps the end of the cell before, which IPython cannot know
    if not indented and len(text) <= MAX_FOR_IPYTHON and len(_LINE.findall(text)) <= MAX_MAGICS:
        from IPython.core.inputtransformer2 import TransformerManager

        # It gives up on some texts that are no Python; then lines are looked at one by one.
        with contextlib.suppress(Exception):
            return TransformerManager().transform_cell(text).rstrip("\n"), _TRANSFORMED
    return text, _LINE


def _as_written(line):
    """The magic as a learner wrote it, from the call that IPython made of it."""
    statement = parsed(line.strip())
    try:
        call = statement.body[0].value
        words = [str(argument.value) for argument in call.args]
        if words[0] == "pinfo":
            return f"{words[1]}?"
        return f"%{' '.join(words).strip()}" if "magic" in call.func.attr else f"!{words[0]}"
    except (AttributeError, IndexError):
        return line.strip()


def _without_verbs(text):
    """Without the lines that call `cu.check` and its like: grading does that itself."""
    tree = parsed(text)
    if tree is None:
        return "\n".join("" if _VERB_LINE.match(line) else line for line in text.split("\n"))
    lines = text.split("\n")
    shared = Counter(number for statement in tree.body for number in _span(statement))
    for statement in filter(_is_verb, tree.body):
        if all(shared[number] == 1 for number in _span(statement)):
            for number in _span(statement):
                lines[number - 1] = ""
    return "\n".join(lines)


def _span(statement):
    return range(statement.lineno, statement.end_lineno + 1)


def _is_verb(statement):
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    function = statement.value.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return function.value.id in ("cu", "course_utils") and function.attr in VERBS
    return isinstance(function, ast.Name) and function.id in VERBS
