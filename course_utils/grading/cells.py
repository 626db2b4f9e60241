"""From the cells of a notebook to its answers: by metadata, else by the name that an answer defines.

A cell counts for the exercise that its metadata names. Where none does, a cell that defines the name does,
wherever it stands. Several cells of one exercise are joined in the order in which they stand; a copy that is
still what was handed out is left out as soon as there is another one. Nothing here runs any of it.
"""

import ast
import functools
import re
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import CodeType, FunctionType

from course_utils.exercises import attempt, catalogue
from course_utils.exercises.model import Exercise
from course_utils.exercises.needs import UNREADABLE, names_bound, names_used
from course_utils.grading.answers import release_cells
from course_utils.grading.magics import parsed, python_of
from course_utils.grading.model import Answer

MAX_SOURCE = 100_000  # characters of one cell; the longest answer of the course has about 2,000
MAX_PIECES = 10  # that a cell may have been cut into
MAX_COPIES = 20  # cells that count for one exercise, the last ones
MAX_HELPERS = 50  # definitions that an answer may take from other cells
_DEFINITION = re.compile(r"^(?:(?:async +)?def|class) +(\w+)|^(\w+) *+(?::[^=\n]*)?=(?!=)", re.MULTILINE)
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_WITHOUT_NAMES = ast.Constant | ast.List | ast.Dict | ast.Tuple | ast.Set | ast.BinOp


@dataclass(frozen=True, eq=False)
class Cell:
    """One code cell: `number` counts all cells of the notebook from 1; `marked` is what its metadata says."""

    number: int
    source: str
    marked: str | None = None
    notes: tuple[str, ...] = ()
    pieces: int = 1

    @functools.cached_property
    def tree(self) -> ast.Module | None:
        """The source as Python reads it; None where it is not Python."""
        return parsed(self.source)

    @functools.cached_property
    def functions(self) -> frozenset[str]:
        """Names that it may give a function or class at the top level."""
        return frozenset(name for name, is_plain in self._definitions if not is_plain)

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """Names that it binds at the top level."""
        return frozenset(name for name, _ in self._definitions)

    @functools.cached_property
    def _definitions(self):
        if self.tree is None:
            return [(match[1] or match[2], False) for match in _DEFINITION.finditer(self.source)]
        return [found for node in self.tree.body for found in _definitions(node)]

    def defines(self, exercise: Exercise) -> bool:
        """Whether it gives the exercise's name a value of the right kind, at the top level."""
        return exercise.name in (self.functions if exercise.is_function else self.names)


def code_cell(number: int, source: str, marked: str | None) -> Cell:
    """A cell with what is not Python taken out of its source."""
    if len(source) > MAX_SOURCE:
        note = f"Cell {number} has more than {MAX_SOURCE:,} characters and was not read. Shorten it."
        return Cell(number, "", marked, (note,))
    python, notes = python_of(source)
    return Cell(number, python, marked, tuple(notes))


def lesson_of(cells: Iterable[Cell]) -> str | None:
    """The lesson that most of the answers belong to, by metadata, else by names that only one lesson uses."""
    cells = list(cells)
    marked = Counter(cell.marked[:2] for cell in cells if cell.marked)
    named = Counter(e.lesson for e in _by_unique_name().values() if any(cell.defines(e) for cell in cells))
    for votes in (marked, named):
        if votes:
            return min(votes, key=lambda lesson: (-votes[lesson], lesson))
    return None


def answers(cells: list[Cell], lesson: str | None) -> dict[str, Answer]:
    """The answers in these cells, by the id of the exercise, in the order of the course."""
    book = _Book(_rejoined(cells), lesson)
    found: dict[str, Answer] = {}
    for exercise in catalogue.all_exercises():
        mine, notes = _cells_for(exercise, book)
        if mine:
            found[exercise.id] = _answer(exercise, mine[-MAX_COPIES:], notes, book)
    return found


def is_untouched(exercise: Exercise, source: str) -> bool:
    """Whether the source still is what was handed out: it computes nothing. Found without running it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = compile(source, "<answer>", "exec", dont_inherit=True)
        return attempt.is_untouched(exercise, _what_is_defined(module, ast.parse(source), exercise.name))
    except (*UNREADABLE, TypeError, LookupError):  # no Python, or no bare definition
        return False


def _what_is_defined(module, tree, name):
    """What the last definition of the name gives, without running it; LookupError where there is none."""
    for node in reversed(tree.body):
        if isinstance(node, _FUNCTION) and node.name == name:
            codes = [c for c in module.co_consts if isinstance(c, CodeType) and c.co_name == name]
            return FunctionType(codes[-1], {})
        if isinstance(node, ast.ClassDef) and node.name == name:
            return type(name, (), {member.name: len for member in node.body if isinstance(member, _FUNCTION)})
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in names_bound(node):
            return None if node.value is None else ast.literal_eval(node.value)
    raise LookupError(name)


def _definitions(node):
    """Names that a top-level statement binds, and whether to a plain value, which cannot be called."""
    if isinstance(node, _FUNCTION | ast.ClassDef):
        yield node.name, False
    elif isinstance(node, ast.If | ast.Try | ast.With):
        for inner in ast.iter_child_nodes(node):
            yield from _definitions(inner) if isinstance(inner, ast.stmt) else ()
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        for name in names_bound(node):
            yield name, isinstance(node.value, _WITHOUT_NAMES)


@functools.cache
def _by_unique_name() -> dict[str, Exercise]:
    every = catalogue.all_exercises()
    counted = Counter(exercise.name for exercise in every)
    released = {name for lesson in catalogue.lessons() for name in _released(lesson)}
    return {e.name: e for e in every if counted[e.name] == 1 and e.name not in released}


@functools.cache
def _released(lesson: str | None) -> frozenset[str]:
    """Names that the lesson's own cells define."""
    trees = (parsed(python_of(cell)[0]) for cell in (release_cells(lesson) if lesson else ()))
    return frozenset(name for tree in trees if tree for node in tree.body for name in names_bound(node))


def _rejoined(cells):
    """A cell that was cut in the middle of a function, put together again."""
    whole: list[Cell] = []
    for cell in cells:
        both = _with_the_end(whole[-1], cell) if whole else None
        if both:
            whole[-1] = both
        else:
            whole.append(_dedented(cell))
    return whole


def _with_the_end(first, cell):
    """Both cells as one, if the second only makes sense as the end of the first; else None."""
    if cell.tree is not None or not _begins_indented(cell.source) or first.pieces == MAX_PIECES:
        return None
    if len({first.marked, cell.marked} - {None}) > 1:
        return None
    note = f"Cell {cell.number} was read as the end of cell {first.number}."
    notes = (*first.notes, *cell.notes, note)
    source = f"{first.source}\n{cell.source}"
    marked = first.marked or cell.marked
    both = replace(first, source=source, marked=marked, notes=notes, pieces=first.pieces + 1)
    return both if both.tree is not None else None


def _begins_indented(source):
    return source.lstrip("\n")[:1] in (" ", "\t")


def _dedented(cell):
    """As IPython runs it: a cell may be indented as a whole."""
    if cell.tree is None and _begins_indented(cell.source):
        moved = replace(cell, source=textwrap.dedent(cell.source))
        return moved if moved.tree is not None else cell
    return cell


def _cells_for(exercise, book):
    """Those that count, and notes on why; no cell if nothing in the notebook is about the exercise."""
    marked = [c for c in book.cells if c.marked == exercise.id and not _is_for_another(c, exercise)]
    named = [c for c in book.cells if c.defines(exercise) and c.marked != exercise.id]
    named = [cell for cell in named if _counts_by_name(exercise, cell, book)]
    attempted = [cell for cell in marked if not is_untouched(exercise, cell.source)]
    elsewhere = [cell for cell in named if not is_untouched(exercise, cell.source)]
    if attempted and (not elsewhere or any(cell.defines(exercise) for cell in attempted)):
        return attempted, [_ignored(exercise, cell) for cell in elsewhere[:3]]
    if elsewhere:
        every = sorted([*attempted, *elsewhere], key=lambda cell: cell.number)
        return every, [_by_name(exercise, elsewhere)]
    return [*marked, *named][-1:], []


def _is_for_another(cell, exercise):
    """An answer pasted into the cell of another exercise."""
    return not cell.defines(exercise) and any(
        cell.defines(other) for other in catalogue.exercises_of(exercise.lesson) if other is not exercise
    )


def _counts_by_name(exercise, cell, book):
    """Whether a cell that is not marked, yet defines the name, is meant for the exercise."""
    if exercise.lesson == book.lesson:
        return True
    if _by_unique_name().get(exercise.name) is not exercise:
        return False
    if exercise.lesson in book.marked_lessons:
        return exercise.name not in _released(book.lesson)
    return exercise.is_function and _same_call(exercise, cell)


def _same_call(exercise, cell):
    """Whether the cell defines a function with the parameters that the exercise names."""
    wanted = list(exercise.parameters.parameters)
    nodes = cell.tree.body if cell.tree else ()
    return any(isinstance(n, _FUNCTION) and n.name == exercise.name and _names(n) == wanted for n in nodes)


def _names(function):
    parameters = function.args
    return [p.arg for p in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)]


def _ignored(exercise, cell):
    told = f"`{exercise.name}` is defined in cell {cell.number} too"
    return f"{told}. That is not its answer cell, so it does not count."


def _by_name(exercise, elsewhere):
    numbers = ", ".join(str(cell.number) for cell in elsewhere[:5])
    return f"Found by its name, `{exercise.name}`, in cell {numbers}, which is not marked as its answer cell."


def _answer(exercise, mine, notes, book):
    units, dropped = _without_broken(exercise, _without_doubles(mine))
    source = "\n\n".join(unit.source for unit in units)
    if len(units) > 1:
        numbers = ", ".join(str(unit.number) for unit in units)
        notes = [*notes, f"Cells {numbers} were joined, in this order; the last definition counts."]
    helpers, taken = book.helpers(source, exercise.lesson, mine)
    notes = [*notes, *dropped, *taken, *(note for unit in units for note in unit.notes)]
    return Answer(exercise.id, source, book.imports(mine), helpers, tuple(dict.fromkeys(notes)))


def _without_doubles(cells):
    """Of equal copies the last."""
    kept = {cell.source.strip(): cell for cell in cells}
    return sorted(kept.values(), key=lambda cell: cell.number)


def _without_broken(exercise, units):
    """Where some copies are no Python and the others are an answer: the others. so did Jupyter."""
    if parsed("\n\n".join(unit.source for unit in units)) is not None:
        return units, []
    whole = [unit for unit in units if unit.tree is not None]
    if not any(unit.defines(exercise) for unit in whole):
        return units, []
    numbers = ", ".join(str(unit.number) for unit in units if unit.tree is None)
    return whole, [f"Cell {numbers} was left out: Python cannot read it (a syntax error)."]


class _Book:
    """A notebook's cells, its lesson, and what an answer may need of cells that are not its own."""

    def __init__(self, cells, lesson):
        self.cells, self.lesson = cells, lesson
        self.marked_lessons = {cell.marked[:2] for cell in cells if cell.marked}
        self._nodes = [(cell, node) for cell in cells if cell.tree for node in cell.tree.body]

    def imports(self, mine) -> str:
        """The import statements outside the cells `mine`."""
        texts = dict.fromkeys(text for cell, text in self._imports if cell not in mine)
        return "\n".join(sorted(texts, key=lambda text: not text.startswith("from __future__")))

    def helpers(self, source, lesson, mine):
        """The learner's own definitions that the source needs, as text, and a note on them."""
        own = [(cell, node) for cell, node in self._definitions if cell not in mine]
        by_name = {name: node for _, node in own for name in names_bound(node)}
        try:
            found = _needed(source, {n: by_name[n] for n in by_name.keys() - _released(lesson)})
        except UNREADABLE:
            return "", []
        names = ", ".join(f"`{name}`" for node in found for name in names_bound(node))
        note = f"Taken along from another cell, because your answer uses it: {names}."
        return "\n\n".join(ast.unparse(node) for node in found), [note] * bool(found)

    @functools.cached_property
    def _imports(self):
        kinds = ast.Import | ast.ImportFrom
        return [(cell, ast.unparse(node)) for cell, node in self._nodes if isinstance(node, kinds)]

    @functools.cached_property
    def _definitions(self):
        return [(cell, node) for cell, node in self._nodes if _is_definition(node) and not _is_stub(node)]


def _needed(source, by_name):
    """Nodes of `by_name` that the source uses, and those that these use, in the order of the notebook."""
    found = {}
    bound = {name for node in ast.parse(source).body for name in names_bound(node)}
    names = list((names_used(source) - bound) & by_name.keys())
    while names and len(found) < MAX_HELPERS:
        node = by_name[names.pop()]
        if id(node) not in found:
            found[id(node)] = node
            names += names_used(ast.unparse(node)) & by_name.keys()
    return [node for node in dict.fromkeys(by_name.values()) if id(node) in found]


def _is_stub(node):
    bound = names_bound(node)
    named = [exercise for exercise in catalogue.all_exercises() if exercise.name in bound]
    return any(is_untouched(exercise, ast.unparse(node)) for exercise in named)


def _is_definition(node):
    """A function, a class or a constant: no import, and nothing that computes when it is run."""
    if isinstance(node, _FUNCTION | ast.ClassDef):
        return True
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None or not names_bound(node):
        return False
    return isinstance(node.value, ast.Lambda) or not any(
        isinstance(n, ast.Call) for n in ast.walk(node.value)
    )
