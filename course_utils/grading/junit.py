"""Results as JUnit XML, which continuous integration shows: a suite a student, a case an exercise."""

import re
from xml.etree import ElementTree

from course_utils.exercises.model import Outcome
from course_utils.grading.gradebook import lacks_points
from course_utils.grading.gradescope import output
from course_utils.grading.model import Batch, Graded, Result

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML 1.0


def junit(batch: Batch) -> str:
    """The XML text. Without times, so that equal results are equal files."""
    root = ElementTree.Element("testsuites", name="course grade")
    for graded in batch.graded:
        root.append(_suite(graded))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(graded: Graded):
    cases = [_case(result) for result in graded.results]
    suite = ElementTree.Element("testsuite", name=_text(graded.key), tests=str(len(cases)))
    for attribute, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(case.find(kind) is not None for case in cases)))
    properties = ElementTree.SubElement(suite, "properties")
    told = {"student": graded.student, "status": graded.status}
    for name, value in told.items():
        ElementTree.SubElement(properties, "property", name=name, value=_text(value))
    suite.extend(cases)
    return suite


def _case(result: Result):
    case = ElementTree.Element(
        "testcase", classname=f"lesson_{result.exercise_id[:2]}", name=result.exercise_id
    )
    kind = _kind(result)
    if kind:
        message = _text(result.message.partition("\n")[0] or result.outcome)
        told = ElementTree.SubElement(case, kind, message=message)
        if kind != "skipped":
            told.set("type", _text(result.mistake or result.outcome))
            told.text = _text(output(result))
    return case


def _kind(result):
    """The element that says that a case did not pass; None of one that did."""
    if lacks_points(result):
        return "error"
    if result.points >= result.possible:
        return None
    return "skipped" if result.outcome == Outcome.NOT_ATTEMPTED else "failure"


def _text(text):
    return _FORBIDDEN.sub("�", text)
