"""What an instructor should look at in an answer's code: what no honest answer needs. Never a verdict.

An answer shares a process with what observes it, so code that goes about it with care could change what is
seen. It needs certain means for that, and these are named here: the call stack, changes to other code, text
that is run, and names that are put together so that nobody finds them by reading.
"""

import ast
import re
from collections.abc import Iterator

from course_utils.exercises.needs import UNREADABLE


def look(source: str) -> tuple[str, ...]:
    """What an instructor should look at in Python text, a sentence each."""
    try:
        tree = ast.parse(source)
    except UNREADABLE:  # nor can Python run it
        return ()
    try:
        imported = _Imported(tree)
        found = [sentence for node in ast.walk(tree) for sentence in _odd(node, imported)]
    except RecursionError:
        return ("Line 1 or one below nests deeper than a program can look at.",)
    return tuple(dict.fromkeys(found))


_MODULES = {
    **dict.fromkeys(("ctypes", "_ctypes", "cffi"), "reaches into Python's own memory"),
    **dict.fromkeys(("gc", "weakref", "tracemalloc"), "asks for the objects in memory"),
    **dict.fromkeys(
        ("inspect", "traceback", "bdb", "pdb", "profile", "cProfile", "trace"), "looks at the call stack"
    ),
    **dict.fromkeys(("signal", "_signal", "faulthandler"), "interrupts other code and sees its frames"),
    **dict.fromkeys(("subprocess", "_posixsubprocess"), "starts other programs"),
    "posix": "starts other processes",
    **dict.fromkeys(("socket", "_socket"), "opens connections"),
    **dict.fromkeys(
        ("importlib", "imp", "_imp", "runpy", "pkgutil", "zipimport"), "imports modules by roundabout ways"
    ),
    **dict.fromkeys(("code", "codeop", "marshal"), "runs text as code"),
    **dict.fromkeys(("base64", "binascii", "codecs", "pickle", "cloudpickle", "dill"), "hides what is in it"),
    **dict.fromkeys(("unittest", "mock"), "replaces parts of other code"),
    "builtins": "changes or calls what Python itself is made of",
    "atexit": "runs code after all other",
}
_OURS = ("course_utils.exercises", "course_utils.solutions", "course_utils.grading")
_VERBS = (".check", ".hint", ".progress", ".solution")
_STACK = "_getframe _current_frames _current_exceptions f_back f_locals f_globals f_builtins f_code tb_frame"
_STACK += " tb_next gi_frame cr_frame ag_frame walk_stack walk_tb currentframe get_stack"
_FUNCTIONS = "__globals__ __closure__ __code__ __defaults__ __kwdefaults__ cell_contents __builtins__"
_ROUNDABOUT = "__getattribute__ __setattr__ __delattr__ __loader__ __spec__"
_NAMES = {
    **dict.fromkeys(_STACK.split(), "looks at the call stack"),
    **dict.fromkeys(("setprofile", "settrace", "addaudithook"), "watches other code run"),
    **dict.fromkeys(_FUNCTIONS.split(), "reaches into other functions"),
    **dict.fromkeys(_ROUNDABOUT.split(), "reaches into objects by roundabout ways"),
    **dict.fromkeys(("__subclasses__", "get_objects", "get_referrers"), "asks for what is in memory"),
    "__import__": "imports modules by roundabout ways",
}
_CALLS = {
    **dict.fromkeys(("exec", "eval", "compile"), "runs text as code"),
    **dict.fromkeys(("__import__", "__loader__", "__spec__"), "imports modules by roundabout ways"),
    "__builtins__": "reaches into what Python itself is made of",
}
_OF_OS = {
    **dict.fromkeys(
        ("write", "pwrite", "writev", "sendfile", "dup", "dup2", "fdopen"), "writes to open files by number"
    ),
    **dict.fromkeys(("fork", "forkpty", "popen", "system", "posix_spawn"), "starts other processes"),
    **dict.fromkeys(("kill", "killpg", "abort", "_exit"), "ends processes"),
}
_LIBRARIES = ("cu", "course_utils", "np", "numpy", "tf", "tensorflow", "keras")
_SETTINGS = ("environ", "rcParams")  # whose entries are there to be changed


class _Imported:
    """The names of a program that stand for other people's code.

    `names` are all that are imported, and further names for them or their parts; `modules` those which stand
    for a whole module and for nothing else.
    """

    def __init__(self, tree: ast.AST):
        nodes = list(ast.walk(tree))
        plain = {name for node in nodes if isinstance(node, ast.Import) for name in _bound(node)}
        taken = {name for node in nodes if isinstance(node, ast.ImportFrom) for name in _bound(node)}
        self.names = {*_LIBRARIES, *plain, *taken}
        self.modules = {*_LIBRARIES, *plain} - set(_otherwise_bound(nodes))
        again = [pair for node in nodes for pair in _named_again(node)]
        for _ in range(len(again)):
            more = {name for name, value in again if _root(value) in self.names} - self.names
            if not more:
                break
            self.names |= more


def _bound(node) -> Iterator[str]:
    return (alias.asname or alias.name.partition(".")[0] for alias in node.names)


def _otherwise_bound(nodes) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _named_again(node) -> Iterator[tuple[str, ast.AST]]:
    """Names given to what a chain of attributes stands for: `n = np`, `for m in (np, json)`."""
    pairs = []
    if isinstance(node, ast.Assign):
        pairs = [(target, node.value) for target in node.targets]
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value:
        pairs = [(node.target, node.value)]
    elif isinstance(node, ast.For | ast.comprehension) and isinstance(node.iter, ast.Tuple | ast.List):
        pairs = [(node.target, value) for value in node.iter.elts]
    for target, value in pairs:
        several = isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List)
        both = zip(target.elts, value.elts, strict=False) if several else [(target, value)]
        yield from (
            (to.id, what)
            for to, what in both
            if isinstance(to, ast.Name) and isinstance(what, ast.Name | ast.Attribute)
        )


def _odd(node: ast.AST, imported: _Imported) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from _odd_import(node)
    elif isinstance(node, ast.Name):
        yield from _odd_name(node)
    elif isinstance(node, ast.Call):
        yield from _odd_call(node, imported)
    elif isinstance(node, ast.MatchClass):
        yield from (_line(node, f"{_NAMES[n]} ({n})") for n in node.kwd_attrs if n in _NAMES)
    if isinstance(node, ast.Attribute):
        yield from _odd_attribute(node, imported)
    if isinstance(node, ast.Attribute | ast.Subscript):
        yield from _changed(node, imported)
    yield from _odd_text(node)
    yield from _handed_on(node, imported)


def _odd_import(node):
    start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    for module in (f"{start}{alias.name}" for alias in node.names):
        root, name = module.partition(".")[0], module.rpartition(".")[2]
        if module.startswith(_OURS) and not module.endswith(_VERBS):
            yield _line(node, f"imports {module}, which holds how answers are judged")
        elif root == "multiprocessing" and ((start and name != "cpu_count") or node.names[0].asname):
            yield _line(node, "imports multiprocessing, which starts other processes")
        elif root in _MODULES:
            yield _line(node, f"imports {root}, which {_MODULES[root]}")
        elif start and name in _NAMES:
            yield _line(node, f"{_NAMES[name]} ({module})")
        elif start == "os." and name in _OF_OS:
            yield _line(node, f"{_OF_OS[name]} ({module})")
        elif module == "sys.modules":
            yield _line(node, "looks at the modules that are loaded (sys.modules)")


def _odd_name(node):
    if isinstance(node.ctx, ast.Load) and node.id in _CALLS:
        yield _line(node, f"{_CALLS[node.id]} ({node.id})")


def _odd_attribute(node, imported):
    root = _root(node)
    if node.attr in _NAMES:
        yield _line(node, f"{_NAMES[node.attr]} ({node.attr})")
    if node.attr == "modules" and root == "sys":
        yield _line(node, "looks at the modules that are loaded (sys.modules)")
    if node.attr in {"exercises", "solutions", "grading"} and root in {"cu", "course_utils"}:
        yield _line(node, f"reaches into course_utils.{node.attr}, which holds how answers are judged")
    if node.attr == "__dict__" and root in imported.names:
        yield _line(node, f"reaches into {_short(node)}")
    if root == "multiprocessing" and node.attr != "cpu_count":
        yield _line(node, f"starts other processes ({_short(node)})")
    if node.attr in _OF_OS and root == "os":
        yield _line(node, f"{_OF_OS[node.attr]} (os.{node.attr})")


def _odd_call(node, imported):
    called = node.func.attr if isinstance(node.func, ast.Attribute) else _root(node.func)
    first = node.args[0] if node.args else None
    if called in {"setattr", "delattr"} and first is not None and _is_others(first, imported):
        yield _line(node, f"changes a part of {_short(first)}")
    if called == "vars" and first is not None and _is_others(first, imported):
        yield _line(node, f"reaches into {_short(first)}")
    if _asks_by_worked_out_name(called, node.args, imported):
        yield _line(node, f"asks for a part by a name that it works out ({_short(node)})")
    if called == "open" and any(keyword.arg == "closefd" for keyword in node.keywords):
        yield _line(node, "writes to open files by number (closefd)")


def _asks_by_worked_out_name(called, args, imported) -> bool:
    """`getattr(keras.applications, name)` is what lessons do; any other object has its parts by heart."""
    if called == "getattr" and len(args) > 1 and _is_worked_out(args[1]):
        of_library = _root(args[0], through_calls=True) in imported.names
        return not (of_library and isinstance(args[1], ast.Name))
    return called in {"attrgetter", "methodcaller"} and any(map(_is_worked_out, args))


def _changed(node, imported):
    """Writing to a part of a module or class that is not the answer's own."""
    if isinstance(node.ctx, ast.Load):
        if isinstance(node, ast.Subscript) and _is_call(node.value, "vars") and _is_worked_out(node.slice):
            yield _line(node, f"asks for a part by a name that it works out ({_short(node)})")
        return
    is_setting = isinstance(node, ast.Subscript) and re.search(r"\w+$", _short(node.value, 400))
    if is_setting and is_setting[0] in _SETTINGS:
        return
    if _root(node) in imported.names or _is_others(node.value, imported):
        yield _line(node, f"changes {_short(node)}")


def _is_others(node, imported) -> bool:
    """Whether it is a part of what was imported, or the class of something, or what `vars` gives of these."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute) and node.attr == "__class__":
            return True
        node = node.value
    if isinstance(node, ast.Call) and node.args and _root(node.func) == "vars":
        return _is_others(node.args[0], imported)
    return _root(node) in imported.names or (_is_call(node, "type") and len(node.args) == 1)


def _handed_on(node, imported):
    """A module used as a value: put under another name, into a list, given to a function."""
    for child in ast.iter_child_nodes(node):
        if (
            isinstance(child, ast.Name)
            and isinstance(child.ctx, ast.Load)
            and child.id in imported.modules
            and not isinstance(node, ast.Attribute)
        ):
            yield _line(child, f"hands on the module {child.id}, so that it can be changed elsewhere")
    if isinstance(node, ast.Call):
        rest = [*node.args, *(keyword.value for keyword in node.keywords)]
        if any(isinstance(arg, ast.Name) and arg.id in {"setattr", "delattr"} for arg in rest):
            yield _line(node, "hands on setattr or delattr, which change parts of other code")


def _odd_text(node):
    """Text that names what is listed above, also where it is put together of parts."""
    text = _text(node)
    if text is None:
        return
    words = [word for word in re.findall(r"\w+", text) if word in _NAMES]
    yield from (_line(node, f"{_NAMES[word]} ({word}, as text)") for word in words)
    if "/proc/" in text or "/dev/fd" in text or "/dev/shm" in text:
        yield _line(node, f"names a file of the system ({text.strip()[:40]})")


def _text(node) -> str | None:
    """The text that an expression gives, where it can be told without running it."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _joined([node.left, node.right])
    if isinstance(node, ast.JoinedStr):
        return _joined([v.value if isinstance(v, ast.FormattedValue) else v for v in node.values])
    if isinstance(node, ast.Subscript) and ast.unparse(node.slice) == "::-1":
        inner = _text(node.value)
        return None if inner is None else inner[::-1]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join":
        between, parts = _text(node.func.value), node.args[0] if len(node.args) == 1 else None
        if between is not None and isinstance(parts, ast.List | ast.Tuple):
            return _joined(parts.elts, between)
    return None


def _joined(nodes, between=""):
    parts = [_text(node) for node in nodes]
    return None if None in parts else between.join(parts)


def _is_worked_out(node) -> bool:
    return not isinstance(node, ast.Constant) and _text(node) is None


def _is_call(node, name) -> bool:
    return isinstance(node, ast.Call) and bool(node.args) and _root(node.func) == name


def _root(node: ast.AST | None, through_calls: bool = False) -> str:
    """The name that `a.b.c[0]` begins with; empty for anything that begins otherwise."""
    while isinstance(node, ast.Attribute | ast.Subscript) or (through_calls and isinstance(node, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _short(node, most=60) -> str:
    return ast.unparse(node)[:most]


def _line(node, what: str) -> str:
    return f"Line {node.lineno} {what}."
