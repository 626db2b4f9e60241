"""`%%workers 2`: the cell runs as a script on every worker of a cluster, outputs side by side.

    %load_ext course_utils

    %%workers 2 --devices 2 --timeout 60 --push epochs --get losses
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    ...

`--push a,b` gives the workers these variables of the notebook, `--get a,b` brings back those of all as lists.
The value of the last line is shown, as a cell's is.
"""

import argparse
import ast
import contextlib
import itertools
import linecache
import os
import pickle
import re
import shlex
import sys
import types

from course_utils.cluster import cells, probes, travel
from course_utils.cluster.errors import WorkerError, plain
from course_utils.cluster.words import a_type, shortened
from course_utils.cluster.worker import IN_WORKER
from course_utils.errors import ClusterError

_cells = itertools.count(1)
_USAGE = (
    "%%workers [2] [--devices 1] [--timeout 120] [--chief] [--output columns|lines|quiet] "
    "[--get NAME,…] [--push NAME,…]"
)


def register(ipython) -> None:
    """Make `%%workers` known to this IPython, and start to import TensorFlow for the workers."""
    from course_utils.cluster.pool import warm_up

    def magic(line: str, cell: str) -> None:
        workers(line, cell, ipython.user_ns, ipython.execution_count)

    magic.__doc__ = __doc__  # what `%%workers?` shows
    ipython.register_magic_function(magic, magic_kind="cell", magic_name="workers")
    warm_up(wait=False)


def workers(line: str, cell: str, namespace: dict, number: int | None = None) -> None:
    """Run the cell on each worker; names asked for with --get land in `namespace` as lists in task order.

    `number` is that of the cell, by which tracebacks call it.
    """
    from course_utils.cluster.local import LocalCluster

    options = _parse(line)
    source = "\n" + cell  # line numbers as the reader counts them: the first line is the magic's own
    file = f"<workers cell {next(_cells)}>"
    _refuse_what_is_no_script(source, file)
    pushed = _packed(options.push, namespace)
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    if number is not None:
        cells.give_label(file, f"Cell In[{number}]")
    cluster = LocalCluster(
        options.workers, options.devices, options.timeout, chief=options.chief, output=options.output
    )
    try:
        results = cluster.run(run_script, source, file, pushed, options.get)
    except WorkerError as error:
        raise _with_cure_for_names(error, namespace) from None
    for name in options.get:
        namespace[name] = [
            travel.unpack_result(result[name], task)
            for result, task in zip(results, cluster.tasks, strict=True)
        ]


def _packed(names: list[str], namespace: dict) -> dict[str, bytes]:
    values = {name: _variable(name, namespace) for name in names}
    try:
        return {name: travel.pack_variable(name, value) for name, value in values.items()}
    except ClusterError as error:
        raise plain(error) from None


def run_script(source: str, file: str, pushed: dict[str, bytes], wanted: list[str]) -> dict[str, bytes]:
    """In a worker: run the source as the main module; returns the variables that are wanted, packed."""
    namespace = sys.modules["__main__"].__dict__
    namespace.update({name: _unpacked(name, data) for name, data in pushed.items()})
    body, last = _compile(source, file)
    exec(body, namespace)
    if last is not None:
        value = eval(last, namespace)
        if value is not None:
            print(repr(value))
    missing = [name for name in wanted if name not in namespace]
    if missing:
        raise ClusterError(f"--get asks for {', '.join(missing)}, which the cell has not set.")
    task = os.environ[IN_WORKER]
    return {name: travel.pack_result(namespace[name], f"--get {name}: {task} has") for name in wanted}


def _unpacked(name: str, data: bytes):
    """The variable, if it is one with which a cluster can still be joined."""
    value = pickle.loads(data)
    if probes.devices_in_use():
        raise ClusterError(
            f"--push {name}: {a_type(value)} is or has a tensor, a variable or a model, so TensorFlow was in "
            "use in the worker before the cell could make its strategy.",
            cause="a worker joins its cluster before anything else.",
            cure=f"Push NumPy arrays, such as {name}.numpy(), and make models in the cell.",
        )
    return value


def _compile(source: str, file: str):
    """The code of the cell, and that of its last line where that is an expression to be shown."""
    tree = ast.parse(source, file)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";"):
        last = compile(ast.Expression(tree.body.pop().value), file, "eval")
    return compile(tree, file, "exec"), last


def _refuse_what_is_no_script(source: str, file: str) -> None:
    try:
        _compile(source, file)
    except SyntaxError as error:
        number, lines = error.lineno or 1, source.splitlines()
        text = lines[number - 1] if number <= len(lines) else ""
        where = f"line {number} of the cell, `{shortened(text.strip(), 100)}`"
        if _IPYTHON_ONLY.search(text.strip()):
            said = f"{where}, is for IPython, and the workers run the cell as plain Python"
        elif re.match("'(await|async)", error.msg) and not text.startswith((" ", "\t")):
            said = f"{where}, awaits outside a function, and a script cannot; use asyncio.run(…)"
        else:
            said = f"SyntaxError in {where}: {error.msg}"
        raise _usage(f"%%workers: {said}.") from None


# `!ls`, `%time f()`, `files = !ls`, `x = %time f()`, `?f`, `f?`
_IPYTHON_ONLY = re.compile(r"^[!%?]|^[\w., ]+=\s*[!%]|\?$")


def _with_cure_for_names(error: WorkerError, namespace: dict) -> WorkerError:
    """The error; with what to do, where the cell uses a name that only the notebook has."""
    found = re.search(r"NameError: name '(\w+)' is not defined", error.seen)
    if not found or found[1] not in namespace:
        return error
    name, value = found[1], namespace[found[1]]
    is_module = isinstance(value, types.ModuleType)
    better = WorkerError(
        error.seen,
        cause="the cell is a script of its own; the notebook's imports and variables are not in it.",
        cure=f"Write the import of {name} in the cell." if is_module else f"Write %%workers … --push {name}.",
    )
    better.task, better.original, better.remote_traceback = error.task, error.original, error.remote_traceback
    return better


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise _usage(f"%%workers: {message}. Usage: {_USAGE}")


def _parse(line: str) -> argparse.Namespace:
    parser = _Parser(prog="%%workers", add_help=False)
    parser.add_argument("workers", type=_at_least_one, nargs="?", default=2)
    parser.add_argument("--devices", type=_at_least_one, default=1)
    parser.add_argument("--timeout", type=_seconds, default=120)
    parser.add_argument("--chief", action="store_true")
    parser.add_argument("--output", choices=("columns", "lines", "quiet"), default="columns")
    parser.add_argument("--get", type=_names, action="extend", default=[], metavar="NAME,…")
    parser.add_argument("--push", type=_names, action="extend", default=[], metavar="NAME,…")
    try:
        return parser.parse_args(shlex.split(line))
    except ValueError as error:
        raise _usage(f"%%workers: {error}.") from None


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or len(text) > 9 or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if (seconds := float(text)) > 0:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds greater than 0")


def _names(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    for name in names:
        if not name.isidentifier():
            raise argparse.ArgumentTypeError(f"{name!r} is not a variable's name")
    return names


def _variable(name: str, namespace: dict):
    if name not in namespace:
        raise _usage(f"%%workers: --push {name}: the notebook has no variable of that name.")
    return namespace[name]


def _usage(message: str) -> Exception:
    from IPython.core.error import UsageError

    return UsageError(message)
