"""Pages for people: one for each student, one for the class. Each is a single file that loads nothing.

What stands in a submission is never more than text here: Jinja2 escapes every value, `text.visible` shows
what would act unseen, and a policy in the page's head lets a browser load and run nothing else.
"""

import base64
import functools
import hashlib
import itertools
from typing import Any

import jinja2
from markupsafe import Markup

from course_utils.exercises.cards import html, words
from course_utils.exercises.cards.style import accents
from course_utils.grading.model import Batch, BatchInfo, Graded
from course_utils.grading.pages import analysis, text

_ORDER = {text.kind(outcome): place for place, outcome in enumerate(text.KINDS)}
_UNNAMED = {
    "failed": "wrong in a way that is not known",
    "raised": "stopped by an error",
    "timed out": "did not come to its end",
}


def student(graded: Graded, info: BatchInfo) -> str:
    """A student's page: total, and each exercise with its outcome, the mistake, what to try, the answer."""
    groups = itertools.groupby(graded.results, key=lambda result: result.exercise_id[:2])
    lessons = [(number, list(results)) for number, results in groups]
    return _page("student.html", graded=graded, info=info, lessons=lessons)


def class_page(batch: Batch, info: BatchInfo) -> str:
    """The class's page: totals, exercises, mistakes, what to look at by hand, and a table of all students.

    Links lead to `feedback/KEY.html` beside it.
    """
    seen = analysis.counted_in(batch.graded)
    items = analysis.items(seen)
    return _page(
        "class.html",
        batch=batch,
        info=info,
        seen=seen,
        students=sorted(batch.graded, key=analysis.by_name),
        full=sum(one.earned >= one.possible for one in seen),
        kinds_seen={kind for item in items for kind in item.outcomes},
        by_exercise=functools.partial(_by_exercise, batch.exercises),
        remarks=analysis.remarks,
        twice=_shared_names(batch),
        columns=analysis.columns(seen),
        fractions=any(one.earned % 1 for one in seen),
        middle=analysis.middle(seen),
        items=items,
        looks=analysis.to_look_at(sorted(batch.graded, key=analysis.by_name)),
        enough=analysis.ENOUGH,
        script=_script(),
        script_hash=_hash(_script()),
    )


def _by_exercise(exercises, one: Graded) -> list:
    """The student's result of each exercise, None where there is none."""
    results = {result.exercise_id: result for result in one.results}
    return [results.get(exercise_id) for exercise_id in exercises]


def _page(template, **values):
    return _environment().get_template(template).render(values)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("course_utils.grading.pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_seen,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "rich": lambda value: Markup(html.rich(text.visible(value))),
        "python": lambda value: Markup(html.highlighted(text.visible(text.clipped(value)))),
        "clipped": text.clipped,
        "number": text.number,
        "counted": text.counted,
        "duration": text.duration,
        "lateness": text.lateness,
        "size": text.size,
        "anchor": text.anchor,
        "glyph": text.glyph,
        "label": text.label,
        "kind": text.kind,
    }
    environment.globals |= {"accents": accents(), "most_lines": words.MOST_LINES}
    environment.globals |= {"kinds": text.KINDS, "order": _ORDER, "unnamed": _UNNAMED}
    return environment


def _seen(value: Any) -> Any:
    """What Jinja2 puts into the page for a value, before it escapes it: no text goes past this."""
    return text.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@functools.cache
def _script() -> Markup:
    """The class page's own script, which sorts its table."""
    source, _, _ = _environment().loader.get_source(_environment(), "sort.js")
    return Markup(source)


def _hash(script: str) -> str:
    """What a page's policy calls the one script that may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _shared_names(batch: Batch) -> set[str]:
    """The names that more than one student has."""
    names = sorted(one.student for one in batch.graded)
    return {name for name, same in itertools.groupby(names) if len(list(same)) > 1}
