"""The one reader of quantities with a unit: "25Gbit", "100 Mbit/s", "20us", "2h"."""

import math
import re

from course_utils.errors import ConfigError

BITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
PER_SECOND = ("/s", "ps")
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def bits_per_second(text: str, what: str = "") -> float:
    """Bits a second, from a text such as "25Gbit", "100 Mbit/s" or "1gbitps"; never 0.

    Raises ConfigError for anything else; `what` is how the error calls it, such as "Link(bandwidth='5')".
    """
    speeds = {unit + ending: size for unit, size in BITS.items() for ending in ("", *PER_SECOND)}
    number = _quantity(text, speeds)
    if not number:
        raise ConfigError(
            f"{what or repr(text)} is no bandwidth.",
            expected='bits a second as a text, such as "25Gbit" or "100Mbit" (a byte is 8 bits).',
        )
    return number


def seconds(text: str, what: str = "") -> float:
    """Seconds, from a text such as "20us", "5 ms" or "2h".

    Raises ConfigError for anything else; `what` is how the error calls it, such as "Link(delay='5')".
    """
    number = _quantity(text, SECONDS)
    if number is None:
        raise ConfigError(f"{what or repr(text)} is no time.", expected='a text such as "20us", "5ms", "2h".')
    return number


def _quantity(text, units: dict[str, float]) -> float | None:
    """The number in the smallest unit; None where the text is no number with one of the units."""
    found = isinstance(text, str) and re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z/]+)\s*", text.lower())
    number = float(found[1]) * units[found[2]] if found and found[2] in units else None
    return number if number is not None and math.isfinite(number) else None
