"""A new exercise: its skeleton, written into the three files of its lesson, all or nothing.

What is written loads at once, and `tests/exercises` refuses it until it is real: `proving.still_to_do` says
what is left. `docs/adding_an_exercise.md` goes through one exercise from start to finish.
"""

import ast
import json
import keyword
import os
import re
import stat
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_utils.errors import ExerciseError
from course_utils.exercises.model import Exercise

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 78  # characters of a title, a length or a signature: each stands in one line
CLOSING = re.compile(r"^# %% \[markdown\].*\n# ## What must be true now *$", re.MULTILINE)


def new(
    exercise_id: str,
    *,
    title: str = "",
    signature: str = "",
    points: int = 2,
    length: str = "",
    root: Path = ROOT,
) -> list[Path]:
    """The files that now hold the new exercise: the lesson's exercises, its solutions, its source.

    `signature` without brackets, such as "my_split", makes an exercise whose answer is a value.
    Raises ExerciseError, and changes nothing, where the id is malformed or taken, the lesson is not there, a
    name would be defined twice, or a file has no place for it.
    """
    draft = _draft(exercise_id, title, signature, points, length)
    source = _lesson_source(draft.lesson, root)
    files = [
        root / "course_utils" / part / f"lesson_{draft.lesson}.py" for part in ("exercises", "solutions")
    ]
    edits = [
        _edit(files[0], _with_exercise, draft),
        _edit(files[1], _with_reference, draft),
        _edit(source, _with_cells, draft),
    ]
    _write(list(reversed(edits)))  # the exercise last: what has its id is whole
    return [edit.path for edit in edits]


def _draft(exercise_id, title, signature, points, length) -> Exercise:
    """What the author has said of it so far; the model refuses what can be no exercise."""
    if not re.fullmatch(r"\d\d\.[a-z][a-z0-9_]*", exercise_id):
        raise ExerciseError(
            f"{exercise_id!r} is no id of an exercise.",
            expected='the lesson\'s two digits, a dot, and a name in small letters, as in "04.compute_loss".',
            cure=_guess(exercise_id),
        )
    signature = signature or f"{exercise_id[3:]}(x)"
    _check_name(signature.partition("(")[0].strip())
    draft = Exercise(
        id=exercise_id,
        title=title or "TODO: what the learner gets done",
        points=points,
        length=length or "TODO: about … lines",
        signature=signature,
        hints=("TODO: a question that points the way", "TODO: nearly there, but not the answer itself"),
        observe=_nothing,
        expected=_nothing,
        mistakes=(),
    )
    _check_words(draft)
    return draft


def _nothing(*_):
    """In place of what is not written yet."""


def _guess(wrong):
    digits, name = (
        re.match(r"\d{0,2}", wrong)[0],
        re.sub(r"[^a-z0-9]+", "_", wrong.lower()).strip("_0123456789"),
    )
    return f'Did you mean "{digits.zfill(2)}.{name}"?' if digits and name else ""


def _check_name(name):
    if keyword.iskeyword(name):
        raise ExerciseError(
            f"{name!r} is a word of Python, so no answer can be called that.",
            cause="Without --signature, an answer is called as its id says.",
            cure=f'Say another name: --signature "{name}_(x)".',
        )


def _check_words(draft):
    for what, text in (("title", draft.title), ("length", draft.length), ("signature", draft.signature)):
        if "\n" in text or len(text) > LONGEST:
            raise ExerciseError(
                f"The {what} does not fit into its line: {text[:40]!r}…",
                expected=f"one line of at most {LONGEST} characters.",
            )


def _lesson_source(lesson, root) -> Path:
    folder = root / "notebooks" / "source"
    found = sorted(folder.glob(f"{lesson}_*.py"))
    if not folder.is_dir() or not (root / "course_utils" / "solutions").is_dir():
        raise ExerciseError(
            "This copy of the course holds no lesson sources, or no solutions, to add to.",
            cause="Releases leave them out.",
            cure="Add exercises in the course's repository; a release is made from it.",
        )
    if len(found) > 1:
        raise ExerciseError(
            f"Lesson {lesson} has {len(found)} sources: {', '.join(path.name for path in found)}.",
            cure="Give one of them another number.",
        )
    if not found:
        known = sorted(path.name[:2] for path in folder.glob("[0-9][0-9]_*.py"))
        raise ExerciseError(
            f"There is no lesson {lesson}.",
            expected=f"one of {', '.join(known)}.",
            cure=f"Write notebooks/source/{lesson}_name.py first: CONTRIBUTING.md, Adding a lesson.",
        )
    return found[0]


# What each file becomes


@dataclass(frozen=True)
class _Edit:
    """A file, the bytes that it holds (None: it is not there), and those that it shall hold."""

    path: Path
    before: bytes | None
    after: bytes


def _edit(path: Path, change: Callable[[str, Exercise, Path], str], draft: Exercise) -> _Edit:
    """The file as `change` makes it; the ends of its lines stay what they are."""
    path = path.resolve()  # a link stays one
    before = path.read_bytes() if path.exists() else None
    text = (before or b"").decode("utf-8")
    windows = text.count("\r\n") == text.count("\n") > 0
    after = change(text.replace("\r\n", "\n") if windows else text, draft, path)
    return _Edit(path, before, (after.replace("\n", "\r\n") if windows else after).encode("utf-8"))


def _with_exercise(text, draft, path) -> str:
    """The lesson's exercises with the new one before the list of all, and in that list."""
    text = text or _NEW_FILE.format(lesson=draft.lesson)
    tree = _tree(text, path)
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "id" and _is_text(node.value, draft.id):
            raise ExerciseError(
                f"There is an exercise {draft.id!r} already: {path.name}, line {node.value.lineno}.",
                cure="Give the new one another name, or edit that one.",
            )
    constant = draft.id[3:].upper()
    constant += "_EXERCISE" if constant in _defined(tree) else ""
    section = _section(draft, constant)
    _refuse_twice(section, text, path)
    places = [node for node in tree.body if _is_list_of_exercises(node)]
    if len(places) != 1:
        raise _no_place(path, "one list of names, such as `EXERCISES = [COMPUTE_LOSS, L2_LOSS]`.")
    lines = text.splitlines(keepends=True)
    names = [*(element.id for element in places[0].value.elts), constant]
    before = [node for node in tree.body if node.lineno < places[0].lineno]
    gap = (
        "\n\n\n"
        if isinstance(before[-1], ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom)
        else "\n\n"
    )
    head, tail = "".join(lines[: places[0].lineno - 1]), "".join(lines[places[0].end_lineno :])
    return f"{head.rstrip()}{gap}{section}\n{_list(names)}\n{tail}"


def _with_reference(text, draft, path) -> str:
    text = text or f'"""Reference answers of lesson {draft.lesson}."""\n'
    block = _reference(draft)
    if block in text:  # left by a run that was killed between two files
        return text
    _refuse_twice(block, text, path)
    return f"{text.rstrip()}\n\n\n{block}"


def _with_cells(text, draft, path) -> str:
    """The lesson with question, answer cell and check before what must be true now."""
    places = list(CLOSING.finditer(text))
    if len(places) != 1:
        raise _no_place(path, "one text cell that begins with `## What must be true now`.")
    numbers = re.findall(rf"^# #+ Exercise {draft.lesson}\.(\d+)", text, re.MULTILINE)
    last = max(map(int, numbers), default=0)
    if _cells(draft, last) in text:  # left by a run that was killed between two files
        return text
    if f'exercise_id="{draft.id}"' in text:
        raise ExerciseError(
            f"{path.name} has an answer cell for {draft.id!r} already.",
            cure="Delete it, with its question and its check, or give the new exercise another name.",
        )
    _refuse_twice(_answer(draft), text, path)
    at = places[0].start()
    return f"{text[:at]}{_cells(draft, last + 1)}{text[at:]}"


def _no_place(path, expected):
    return ExerciseError(
        f"{path.name} has no place for another exercise.",
        expected=expected,
        cure="Bring the file into the shape of the other lessons'; nothing was changed.",
    )


def _tree(text, path):
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise ExerciseError(
            f"{path.name} is no Python: {error.msg}, line {error.lineno}.", cure="Mend that line first."
        ) from None


def _is_text(node, text):
    return isinstance(node, ast.Constant) and node.value == text


def _is_list_of_exercises(node):
    return (
        isinstance(node, ast.Assign)
        and [ast.unparse(target) for target in node.targets] == ["EXERCISES"]
        and isinstance(node.value, ast.List)
        and all(isinstance(element, ast.Name) for element in node.value.elts)
    )


def _refuse_twice(block, text, path):
    """Nothing that the new lines define may be defined in the file already: one would hide the other."""
    there = _defined(_tree(text, path))
    for name in _defined(ast.parse(block)):
        if name in there:
            raise ExerciseError(
                f"{path.name} defines {name} already, in line {there[name]}.",
                cause="A second one would hide it from what uses it.",
                cure='Give the exercise another name, or its answer: --signature "another_name(x)".',
            )


def _defined(tree) -> dict[str, int]:
    """The names that a module binds outside functions and classes, and the line of each."""
    scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names, open_nodes = {}, list(tree.body)
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, scopes):
            names[node.name] = node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names[node.id] = node.lineno
        elif isinstance(node, ast.alias):
            names[node.asname or node.name.partition(".")[0]] = node.lineno
        if not isinstance(node, (*scopes, ast.Lambda, ast.comprehension)):
            open_nodes += ast.iter_child_nodes(node)
    return names


# The skeleton


def _list(names):
    line = f"EXERCISES = [{', '.join(names)}]"
    return (
        line if len(line) <= 110 else "\n".join(["EXERCISES = [", *(f"    {name}," for name in names), "]"])
    )


def _section(draft, constant) -> str:
    name = draft.id[3:]
    rule = f"# --- {draft.id}: TODO, what it is about "
    parts = {
        "name": name,
        "constant": constant,
        "rule": f"{rule}{'-' * (105 - len(rule))}",
        "id": draft.id,
        "title": _quoted(draft.title),
        "points": draft.points,
        "length": _quoted(draft.length),
        "signature": _quoted(draft.signature),
        "answer": draft.name,
        "parameters": _parameters(draft),
        "arguments": _arguments(draft),
    }
    return (_FUNCTION if draft.is_function else _VALUE).format(**parts)


def _reference(draft) -> str:
    if not draft.is_function:
        return f"{draft.name} = None  # TODO: the right value\n"
    return (
        f"def {draft.signature}:\n"
        "    # TODO: the reference, in its shortest clear form; imports and helpers above travel with it\n"
        "    raise NotImplementedError\n"
    )


def _cells(draft, number) -> str:
    length = "" if draft.length.startswith("TODO") else f" {draft.length[0].upper()}{draft.length[1:]}."
    return (
        "# %% [markdown]\n"
        f"# ## Exercise {draft.lesson}.{number} · {draft.title}\n"
        "#\n"
        f"# TODO: what is given, and what to return; at most 120 words.{length}\n"
        f"{_BLANK if draft.is_function else ''}\n"
        f'# %% tags=["exercise"] exercise_id="{draft.id}"\n'
        f"{_answer(draft)}"
        f"{_BLANK if draft.is_function else ''}\n"
        "# %%\n"
        f"{draft.call}\n\n"
    )


_BLANK = "\n"  # the second blank line around a function


def _answer(draft) -> str:
    if not draft.is_function:
        return f"{draft.name} = None\n"
    return f'def {draft.signature}:\n    """TODO: what comes back."""\n    ...\n'


def _quoted(text):
    """As `ruff format` writes it: in double quotes, where that takes no backslash."""
    return repr(text) if '"' in text else json.dumps(text, ensure_ascii=False)


def _parameters(draft):
    """The parameters as a lambda can state them: without types."""
    if not draft.is_function:
        return ""
    node = ast.parse(f"def {draft.signature}: ...").body[0].args
    for parameter in ast.walk(node):
        if isinstance(parameter, ast.arg):
            parameter.annotation = None
    return f" {ast.unparse(node)}" if ast.unparse(node) else ""


def _arguments(draft):
    """A call with one entry of the case for each parameter."""
    if not draft.is_function:
        return ""
    kinds = [
        p for p in draft.parameters.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    return ", ".join(
        f'{p.name}=case["{p.name}"]' if p.kind is p.KEYWORD_ONLY else f'case["{p.name}"]' for p in kinds
    )


_NEW_FILE = '''\
"""The exercises of lesson {lesson}."""

from course_utils.exercises import returned
from course_utils.exercises.model import Exercise, Mistake

EXERCISES = []
'''

_FUNCTION = '''\
{rule}


def cases_of_{name}(random):
    """TODO: two to four cases that tell the mistakes apart; "about" stands on the card."""
    return []


def observe_{name}(answer, case):
    """TODO: plain data; the keys are the lines of "yours beside expected", written for the learner."""
    value = answer({arguments})
    return {{"result": returned.number(value, "{answer}")}}


def expected_{name}(case):
    """TODO: the right result, computed another way than the reference does."""
    return {{"result": ...}}


{constant} = Exercise(
    id="{id}",
    title={title},
    points={points},
    length={length},
    signature={signature},
    hints=[
        "TODO: a question that points the way",
        "TODO: nearly there, but not the answer itself",
    ],
    cases=cases_of_{name},
    observe=observe_{name},
    expected=expected_{name},
    mistakes=[
        Mistake(
            "TODO: the misconception in a few words",
            lambda{parameters}: ...,
            went_wrong="TODO: what you did, and why that is not what was asked",
            try_this="TODO: what to do next, without the answer",
        ),
    ],
    also_right=[],  # TODO: at least one more right answer, computed another way than the reference
)
'''

_VALUE = '''\
{rule}


def observe_{name}(answer, case):
    """TODO: plain data; the keys are the lines of "yours beside expected", written for the learner."""
    return {{"result": returned.number(answer, "{answer}")}}


def expected_{name}(case):
    """TODO: the right result, computed."""
    return {{"result": ...}}


{constant} = Exercise(
    id="{id}",
    title={title},
    points={points},
    length={length},
    signature={signature},
    hints=[
        "TODO: a question that points the way",
        "TODO: nearly there, but not the answer itself",
    ],
    observe=observe_{name},
    expected=expected_{name},
    mistakes=[
        Mistake(
            "TODO: the misconception in a few words",
            ...,  # the wrong value itself
            went_wrong="TODO: what you did, and why that is not what was asked",
            try_this="TODO: what to do next, without the answer",
        ),
    ],
)
'''


# All or nothing


def _write(edits: Sequence[_Edit]) -> None:
    """Bring every file to its new bytes; where one cannot be, all are as they were before."""
    edits = [edit for edit in edits if edit.before != edit.after]
    staged, begun = [], []
    try:
        for edit in edits:
            staged.append(_staged(edit.path, edit.after))
        for edit, new in zip(edits, staged, strict=True):
            if _bytes(edit.path) != edit.before:
                raise ExerciseError(
                    f"{edit.path.name} was changed by somebody else meanwhile.", cure="Run this again."
                )
            begun.append(edit)
            os.replace(new, edit.path)
    except BaseException:
        for edit in begun:
            _put_back(edit)
        raise
    finally:
        for new in staged:
            new.unlink(missing_ok=True)


def _staged(path, content) -> Path:
    """A file beside `path` with this content, flushed to the disk, and with the rights of `path`."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".new")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644)
    except BaseException:
        os.unlink(name)
        raise
    return Path(name)


def _bytes(path):
    return path.read_bytes() if path.exists() else None


def _put_back(edit):
    if edit.before is None:
        edit.path.unlink(missing_ok=True)
    elif _bytes(edit.path) != edit.before:
        os.replace(_staged(edit.path, edit.before), edit.path)
