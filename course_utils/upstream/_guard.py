"""What every mend shares: it refuses versions it was not tested with, and code that it does not know.

A mend replaces private code. A version number alone does not say what that code is (a vendor may patch it),
so the source of everything replaced is compared with a digest as well. Neither check runs at import time.
"""

import hashlib
import inspect
import textwrap
from collections.abc import Callable, Mapping
from importlib import metadata

from course_utils.errors import UpstreamError

_MARK = "_mended_by"


def check_versions(mend: str, tested: Mapping[str, tuple[str, ...]]) -> None:
    """None where each package has one of its `tested` versions; raises UpstreamError where not."""
    for package, versions in tested.items():
        try:
            seen = metadata.version(package)
        except metadata.PackageNotFoundError:
            seen = "not installed"
        if seen not in versions:
            raise UpstreamError(
                f"`{mend}` changes private code of {package} and was not tested with what is here: {seen}.",
                expected=f"{package} {' or '.join(versions)}.",
                cause="another version was installed after the course's own environment was made.",
                cure=f'install the tested version, pip install "{package}=={versions[-1]}", '
                "or read whether the fault is still there and do without the mend.",
            )


def source_digest(function: Callable) -> str:
    """First 16 hexadecimal digits of the SHA-256 of a function's source, whatever its indentation."""
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def check_sources(mend: str, expected: Mapping[tuple[object, str], str]) -> None:
    """None where each `(owner, name)` has the source that the mend was written for; else UpstreamError."""
    for (owner, name), digest in expected.items():
        original = getattr(owner, name, None)
        seen = "gone" if original is None else source_digest(original)
        if seen != digest:
            raise UpstreamError(
                f"`{mend}` builds on {_full_name(owner, name)}, which is not the code that was tested: "
                f"its digest is {seen}.",
                expected=f"digest {digest}.",
                cause="the package was patched, or another mend has already replaced this function.",
                cure="reinstall TensorFlow and Keras as the lock file pins them.",
            )


def replace(mend: str, owner: object, name: str, wrap: Callable[[Callable], Callable]) -> None:
    """Put `wrap(original)` in place of `owner.name`, once; a second call changes nothing."""
    original = inspect.getattr_static(owner, name)
    if is_mended(owner, name):
        return
    mended = wrap(original)
    setattr(mended, _MARK, mend)
    mended.__wrapped__ = original
    setattr(owner, name, mended)


def restore(owner: object, name: str) -> None:
    """Put the original back; nothing happens where none was replaced."""
    if is_mended(owner, name):
        setattr(owner, name, inspect.getattr_static(owner, name).__wrapped__)


def is_mended(owner: object, name: str) -> bool:
    """Whether `owner.name` is a mend's replacement."""
    return hasattr(inspect.getattr_static(owner, name, None), _MARK)


def _full_name(owner: object, name: str) -> str:
    prefix = owner.__name__ if inspect.ismodule(owner) else f"{owner.__module__}.{owner.__qualname__}"
    return f"{prefix}.{name}"
