"""What being late costs: a policy in words, such as "10% per day, at most 50%", and the points it takes.

Clauses, divided by commas, in any order:

    10% per day           of the points earned, for each day begun (also: per hour, per week)
    10% of possible per day     of the points that could be earned
    1 point per day       for each day begun
    at most 50%           of the points earned, or: of possible; also: at most 3 points
    1 day free            that much is not counted (also: 30 minutes free)
    0 after 3 days        nothing is left of work that is later than this, "free" time included
"""

import math
import re
from dataclasses import dataclass

from course_utils.errors import GradingError

DAYS = {"minute": 1 / 1440, "hour": 1 / 24, "day": 1.0, "week": 7.0}
EXAMPLES = '"10% per day, at most 50%", "1 point per day" or "0 after 3 days"'
_NUMBER = r"(\d+(?:\.\d+)?)"
_TIME = r"(minute|hour|day|week)s?"
_AMOUNT = _NUMBER + r"\s*(%|points?)(?:\s+(?:of|off)(?:\s+the)?\s+(earned|possible)(?:\s+points?)?)?"
_CLAUSES = {
    "rate": re.compile(rf"{_AMOUNT}\s*(?:per|an?|each|/)\s*{_TIME}"),
    "most": re.compile(rf"(?:at most|up to|max(?:imum)?\.?)\s+{_AMOUNT}"),
    "free": re.compile(rf"{_NUMBER}\s*{_TIME}\s+free"),
    "end": re.compile(rf"(?:0|nothing|no points)(?:\s*%|\s+points?)?\s+after\s+{_NUMBER}\s*{_TIME}"),
}


@dataclass(frozen=True)
class Amount:
    """So many points, or so much of the points earned or possible."""

    value: float
    of: str  # "points", "earned", "possible"

    def points(self, earned: float, possible: float) -> float:
        """It as points."""
        return self.value * {"points": 1.0, "earned": earned / 100, "possible": possible / 100}[self.of]


@dataclass(frozen=True)
class Policy:
    """What being late costs; times are in days. Without a rate and an end it costs nothing."""

    rate: Amount | None = None
    unit: float = 1.0
    most: Amount | None = None
    free: float = 0.0
    end: float = math.inf

    def penalty(self, earned: float, possible: float, days_late: float) -> float:
        """Points to take off, to the hundredth, never more than were earned."""
        if days_late > self.end:
            return earned
        # Rounded first: a day and a rounding error is one day begun.
        begun = math.ceil(round((days_late - self.free) / self.unit, 6))
        if begun <= 0 or self.rate is None:
            return 0.0
        points = begun * self.rate.points(earned, possible)
        if self.most:
            points = min(points, self.most.points(earned, possible))
        return min(earned, round(points + 1e-9, 2))


def parse(text: str) -> Policy:
    """The policy that `text` states; raises GradingError naming the clause that cannot be read."""
    policy: dict = {}
    for clause in filter(None, (part.strip() for part in text.split(","))):
        for name, value in _read(clause).items():
            if name in policy:
                raise _refused(f"The late policy says twice what {_SAID[name]}: {clause!r} is the second.")
            policy[name] = value
    if not {"rate", "end"} & policy.keys():
        raise _refused(f"The late policy {text!r} does not say what being late costs.")
    if "most" in policy and "rate" not in policy:
        raise _refused(f'The late policy {text!r} says "at most", but not how much a day costs.')
    return Policy(**policy)


_SAID = {
    "rate": "a day costs",
    "unit": "a day costs",
    "most": "the most is",
    "free": "is free",
    "end": "the end is",
}


def _refused(seen):
    return GradingError(seen, expected=f"Something like {EXAMPLES}.")


def _read(clause):
    for name, pattern in _CLAUSES.items():
        found = pattern.fullmatch(clause.lower())
        if found:
            return _values(name, found.groups(), clause)
    cause = "Separate clauses by commas; write decimals with a point."
    raise GradingError(
        f"The late policy cannot be read at {clause!r}.", expected=f"Something like {EXAMPLES}.", cause=cause
    )


def _values(name, words, clause):
    if name == "rate":
        return {"rate": _amount(*words[:3], clause), "unit": DAYS[words[3]]}
    if name == "most":
        return {"most": _amount(*words, clause)}
    return {name: float(words[0]) * DAYS[words[1]]}


def _amount(number, kind, of, clause):
    if kind == "%" and float(number) > 100:
        raise _refused(f"The late policy takes more than there is: {clause!r} is over 100 %.")
    if kind != "%" and of:
        raise _refused(f"The late policy cannot be read at {clause!r}: points are of nothing.")
    return Amount(float(number), of or "earned" if kind == "%" else "points")
