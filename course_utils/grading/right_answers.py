"""Takes the right answers out of a lesson's exercises, before the file goes to learners.

`also_right` is there for our tests alone. A check can do without it, and so can a learner. What only right
answers had use for goes with it.
"""

import ast
import re


def without(source: str) -> str:
    """The source of `exercises/lesson_NN.py` without `also_right`, and without what only that had use for."""
    taken = [keyword for keyword in _keywords(source) if keyword.arg == "also_right"]
    idle = set().union(*(_names(keyword.value) for keyword in taken))
    source = _cut(source, [_with_comma(source, *_span(source, keyword)) for keyword in taken])
    while unused := _unused(source, idle):
        idle |= set().union(*(_names(node) for node in unused))
        source = _cut(source, [_with_comments(source, *_span(source, node)) for node in unused])
    return re.sub(r"\n{4,}", "\n\n\n", source)


def _keywords(source):
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [keyword for call in calls for keyword in call.keywords]


def _unused(source, idle):
    """Functions, classes and constants of the module among the names `idle` that nothing in it mentions."""
    body = ast.parse(source).body
    defined = {node: name for node in body if (name := _name(node)) in idle}
    return [
        node
        for node, name in defined.items()
        if not any(name in _names(other) for other in body if other is not node)
    ]


def _name(node):
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return None


def _names(node):
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _span(source, node):
    """Where the text of a node begins and ends, decorators included."""
    first = min([node, *getattr(node, "decorator_list", [])], key=lambda part: part.lineno)
    begin = _offset(source, first.lineno, first.col_offset)
    if first is not node:
        begin = source.rindex("@", 0, begin)
    return begin, _offset(source, node.end_lineno, node.end_col_offset)


def _offset(source, line, column):
    """Place in the text of a line counted from 1 and a column counted in bytes of UTF-8."""
    lines = source.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())


def _with_comma(source, begin, end):
    """One comma goes along: the one behind, or else the one before."""
    before, behind = source[:begin].rstrip(), re.match(r"\s*,", source[end:])
    return (len(before), end + behind.end()) if behind else (len(before.removesuffix(",")), end)


def _with_comments(source, begin, end):
    """Comments that stand on the definition, without an empty line between, belong to it."""
    above = re.search(r"(?:^#.*\n)*\Z", source[:begin], re.MULTILINE)
    return above.start(), end


def _cut(source, spans):
    for begin, end in sorted(spans, reverse=True):
        source = source[:begin] + source[end:]
    return source
