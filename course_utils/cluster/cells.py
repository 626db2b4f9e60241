"""Code of notebook cells: its source lines for the workers, and its number for the reader."""

import linecache
import os
import re
import sys


def sources() -> dict[str, list[str]]:
    """The lines of each cell by file name: no such file exists, but tracebacks and AutoGraph need them."""
    cached = list(linecache.cache.items())
    return {name: entry[2] for name, entry in cached if len(entry) == 4 and not os.path.exists(name)}


# Of cells that IPython did not compile itself: those of %%workers.
_labels: dict[str, str] = {}


def give_label(file: str, text: str) -> None:
    """None; from now on `label(file)` is the text."""
    _labels[file] = text


def label(file: str) -> str | None:
    """ "Cell In[3]" for the file name that IPython gave a cell; None for other files, or outside IPython."""
    if file in _labels:
        return _labels[file]
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython

    compiler = getattr(get_ipython(), "compile", None)
    words = compiler.format_code_name(file) if compiler else None
    return " ".join(words) if words else None


def readable(trace: str) -> str:
    """A traceback in which cells go by their number, and installed packages by their own path."""
    return _FILE.sub(lambda found: label(found[1]) or f'File "{_inside_packages(found[1])}"', trace)


_FILE = re.compile(r'File "([^"]+)"')


def _inside_packages(file: str) -> str:
    return file.rpartition(f"{os.sep}site-packages{os.sep}")[2]
