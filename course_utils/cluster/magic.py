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
import shlex
import sys

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
        workers(line, cell, ipython.user_ns)

    magic.__doc__ = __doc__  # what `%%workers?` shows
    ipython.register_magic_function(magic, magic_kind="cell", magic_name="workers")
    warm_up(wait=False)


def workers(line: str, cell: str, namespace: dict) -> None:
    """Run the cell on each worker; names asked for with --get land in `namespace` as lists in task order."""
    from course_utils.cluster.local import LocalCluster

    options = _parse(line)
    pushed = {name: _variable(name, namespace) for name in options.push}
    source = "\n" + cell  # line numbers as the reader counts them: the first line is the magic's own
    file = f"<workers cell {next(_cells)}>"
    _compile(source, file)
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    cluster = LocalCluster(
        options.workers, options.devices, options.timeout, chief=options.chief, output=options.output
    )
    results = cluster.run(run_script, source, file, pushed, options.get)
    for name in options.get:
        namespace[name] = [result[name] for result in results]


def run_script(source: str, file: str, pushed: dict, wanted: list[str]) -> dict:
    """In a worker: run the source as the main module; returns the variables that are wanted."""
    namespace = sys.modules["__main__"].__dict__
    namespace.update(pushed)
    body, last = _compile(source, file)
    exec(body, namespace)
    if last is not None:
        value = eval(last, namespace)
        if value is not None:
            print(repr(value))
    missing = [name for name in wanted if name not in namespace]
    if missing:
        raise ClusterError(f"--get asks for {', '.join(missing)}, which the cell has not set.")
    return {name: namespace[name] for name in wanted}


def _compile(source: str, file: str):
    """The code of the cell, and that of its last line where that is an expression to be shown."""
    tree = ast.parse(source, file)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";"):
        last = compile(ast.Expression(tree.body.pop().value), file, "eval")
    return compile(tree, file, "exec"), last


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
