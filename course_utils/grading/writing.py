"""All that a batch leaves in its output folder: each file written whole, nothing left of an earlier one."""

import json
from collections.abc import Callable
from pathlib import Path

from course_utils.grading import gradebook, gradescope, junit
from course_utils.grading.examination import Faults
from course_utils.grading.model import Batch, BatchInfo
from course_utils.grading.options import Options
from course_utils.grading.store import Store


def write_all(
    batch: Batch, info: BatchInfo, store: Store, out: Path, options: Options, faults: Faults
) -> None:
    """Write gradebooks, results, pages and JUnit; a page that cannot be made is noted as a fault."""
    texts = {**_tables(batch, options, info), **_results(batch), **_pages(batch, info, faults)}
    if faults.told:
        texts["faults.txt"] = faults.text()
    before = set(store.remembered().get("written", []))
    store.remember(written=sorted(before | texts.keys()))  # also if this one is killed now
    for name, text in texts.items():
        store.write_text(out / name, text)
    for name in before - texts.keys():
        (out / name).unlink(missing_ok=True)
    store.remember(written=sorted(texts))
    if options.junit:
        options.junit.parent.mkdir(parents=True, exist_ok=True)
        options.junit.write_text(junit.junit(batch), encoding="utf-8", errors="backslashreplace")


def _tables(batch, options, info):
    return {
        "gradebook.csv": gradebook.gradebook(batch),
        "canvas.csv": gradebook.canvas(batch, options.assignment or info.title),
        "moodle.csv": gradebook.moodle(batch),
    }


def _results(batch):
    return {
        f"results/{graded.key}.json": json.dumps(gradescope.results(graded), indent=2) + "\n"
        for graded in batch.graded
    }


def _pages(batch, info, faults):
    from course_utils.grading import pages

    texts = {
        f"feedback/{graded.key}.html": _page(
            faults, graded.key, lambda graded=graded: pages.student(graded, info)
        )
        for graded in batch.graded
    }
    texts["index.html"] = _page(faults, "index.html", lambda: pages.class_page(batch, info))
    return {name: text for name, text in texts.items() if text is not None}


def _page(faults: Faults, place: str, make: Callable[[], str]) -> str | None:
    try:
        return make()
    except Exception as error:
        faults.add(f"The page of {place}", error)
        return None
