'''What an exercise is, and how a lesson writes one down.

An exercise has two halves, so that a verdict never runs beside a learner's code:

- `observe(answer, case)` runs the answer on one case and returns *plain data*: numbers, strings, booleans,
  None, lists, dicts with string keys, small NumPy arrays (see `plain.py`). Tensors become arrays by
  themselves.
- Judging happens outside, on the data alone. What was seen equals `expected(case)`: passed. It equals, on
  **every** case, what a known wrong answer gives: failed, and that mistake is named and explained. Else:
  failed, with "yours" beside "expected".

One file a lesson: `exercises/lesson_NN.py` with a list `EXERCISES`, and `solutions/lesson_NN.py` with the
reference, under the name that the signature gives. A release leaves `solutions/` out, so `expected` must
not use it: compute the right result another way (what one device gives; plain NumPy; by hand).

`course new-exercise 99.share_of` writes the skeleton, and `docs/adding_an_exercise.md` goes through one from
start to finish. A complete example, `exercises/lesson_99.py`:

    """The exercises of lesson 99: halves."""

    import numpy as np

    from course_utils.exercises import returned
    from course_utils.exercises.model import Exercise, Mistake, lazy

    tf = lazy("tensorflow")  # loaded when first used: reading the exercises must not import TensorFlow


    def cases(random):
        """A list of dicts of plain data. `random` is a NumPy Generator: the learner's seed is fixed, the
        grader's is another one. "about" says in words what the case is and is shown on the card."""
        return [
            {"about": f"{n} numbers", "numbers": random.integers(1, 9, n).astype("float32"), "parts": parts}
            for n, parts in ((4, 2), (9, 3))
        ]


    def observe(answer, case):
        """The keys become the lines of the table "yours beside expected": write them for the learner."""
        total = answer(tf.constant(case["numbers"]), case["parts"])
        # returned.number says in plain words what is wrong with None, a text, a list, …
        return {"sum of a share": returned.number(total, "share_of")}


    def expected(case):
        return {"sum of a share": float(np.sum(case["numbers"]) / case["parts"])}


    def forgets_the_parts(numbers, parts):
        return tf.reduce_sum(numbers)


    def takes_the_mean(numbers, parts):
        return tf.reduce_mean(numbers)


    EXERCISES = [
        Exercise(
            id="99.share_of",
            title="A fair share",
            points=1,
            length="about 1 line",
            signature="share_of(numbers, parts)",  # no brackets, e.g. "my_split": the answer is a value
            hints=["What is the sum of all?", "`tf.reduce_sum(numbers)`, and then?"],  # at least 2, graded
            cases=cases,
            observe=observe,
            expected=expected,
            mistakes=[
                Mistake(
                    "not divided",
                    forgets_the_parts,
                    # text, or a function of (case, seen, expected) that returns text: use the figures
                    went_wrong=lambda case, seen, expected: (
                        f"A share is {seen['sum of a share']:g}, {case['parts']} times too much."
                    ),
                    try_this="Divide once, by the number of parts.",
                ),
                Mistake(
                    "mean of the numbers",
                    takes_the_mean,
                    went_wrong="You divided by how many numbers there are, not by the number of parts.",
                    try_this="Do it by hand for four numbers in two parts.",
                ),
            ],
            # at least one, computed another way than the reference
            also_right=[lambda numbers, parts: sum(numbers) / parts],
        )
    ]

and `solutions/lesson_99.py` (imports and helper functions that the reference uses travel with it):

    import tensorflow as tf


    def share_of(numbers, parts):
        return tf.reduce_sum(numbers) / parts

Good to know

- A **mistake** is code, run through the same `observe`; it is never found by its text. Where one
  misconception has many faces (any hard-coded number), give `recognises(cases, seen, expected) -> bool`
  (three lists, one entry a case) instead of running the code; `answer` and `variants` are then the proofs
  that it works. The first mistake in the list that fits is named, so put the special before the general. A
  mistake may also be recognised by raising: an answer that raises the same error with the same message on
  the same cases is taken for it.
- `tests/exercises` proves every exercise over several seeds: reference and `also_right` pass, each mistake
  (and variant) fails under its own name, the stub is "not attempted". Two mistakes that look alike on one
  case need another case that tells them apart. `course_utils.exercises.proving.problems(exercise)` lists
  what is wrong, `still_to_do(exercise)` what is not written yet.
- **Values.** A prediction: `signature="my_split"`, `observe=lambda answer, case: returned.items(answer,
  "my_split")` (or `returned.number`, `returned.text`), `cases` may be left out (one empty case), each
  mistake's `answer` is the wrong value itself, and the solution file holds `my_split = [5, 5, 6]`. In the
  notebook it is `my_split = None` until attempted. Where the card would give the answer away, say
  `shows_expected=False`: it then tells which entries are right, not what the others should be.
- **TF_CONFIG**: let `observe` take it apart, `returned.json_text(text, "make_tf_config")`, and return a
  dict of facts.
- **Replicas**: `devices.mirrored(n)` inside `observe` (the lesson's set-up cell calls `devices.simulate`).
- **A cluster**: `LocalCluster(...)` inside `observe`, `time_limit=60`; turn its exceptions into data
  (`{"ended": "hung"}`). A mistake's code is run on a failed answer only; give `recognises` if that would
  cost more than a few seconds.
- **Stubs** that are more than `...`: give the cell's source as `stub=`; an answer that still computes
  nothing but it is "not attempted". A stub of `...`, `pass`, a docstring, `None` needs nothing.
- **`slow=True`** where the proof of one seed takes more than about 2 seconds of processor time: the tests
  then prove the learner's seed only (all with COURSE_SEEDS set).
- **Numerical checks** use SGD, not Adam: Adam hides a scaled gradient.
- `time_limit` counts all cases together, in seconds. `tolerance` is relative to the largest expected
  number.
- Many results can be right (masks that must differ)? Let `observe` return what must hold (`{"masks differ":
  True}`).
'''

import importlib
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from course_utils.errors import ExerciseError


class Outcome(StrEnum):
    """How a check can end. Only `PASSED` earns points."""

    PASSED = "passed"
    FAILED = "failed"
    RAISED = "raised"
    TIMED_OUT = "timed out"
    NOT_ATTEMPTED = "not attempted"


@dataclass(frozen=True, eq=False)
class Mistake:
    """A known wrong answer: its name, its code, what went wrong in words, and what to try."""

    name: str
    answer: Any
    went_wrong: str | Callable[[dict, Any, Any], str]
    try_this: str
    variants: Sequence[Any] = ()
    recognises: Callable[[list, list, list], bool] | None = None

    @property
    def answers(self) -> list:
        """All its faces: `answer` and the variants."""
        return [self.answer, *self.variants]

    def explained(self, case: dict, seen: Any, expected: Any) -> str:
        """What went wrong, in words about this case."""
        return self.went_wrong(case, seen, expected) if callable(self.went_wrong) else self.went_wrong


def one_empty_case(random) -> list[dict]:
    """The cases of an answer that depends on nothing: a prediction."""
    return [{}]


@dataclass(frozen=True, eq=False)
class Exercise:
    """One exercise; the module's docstring shows how to write one."""

    id: str
    title: str
    points: int
    length: str
    signature: str
    hints: Sequence[str]
    observe: Callable[[Any, dict], Any]
    expected: Callable[[dict], Any]
    mistakes: Sequence[Mistake]
    cases: Callable[[Any], list[dict]] = one_empty_case
    also_right: Sequence[Any] = ()
    stub: str = ""
    tolerance: float = 1e-5
    time_limit: float = 20.0
    slow: bool = False
    shows_expected: bool = True

    def __post_init__(self):
        complaints = [text for broken, text in self._rules() if broken]
        if complaints:
            raise ExerciseError(
                f"Exercise {self.id!r} is defined wrongly: {'; '.join(complaints)}.",
                cure="See the example in course_utils/exercises/model.py.",
            )

    def _rules(self):
        yield not re.fullmatch(r"\d\d\.[a-z][a-z0-9_]*", self.id), 'the id must look like "04.compute_loss"'
        yield not self.points > 0, "points must be above 0"
        yield len(self.hints) < 2, "at least 2 hints"
        yield not self.name.isidentifier(), f"the signature {self.signature!r} must begin with a name"
        yield self.is_function and self.parameters is None, f"{self.signature!r} is no signature"
        names = [mistake.name for mistake in self.mistakes]
        yield len(set(names)) < len(names), "two mistakes share a name"

    @property
    def lesson(self) -> str:
        """The lesson's two digits."""
        return self.id[:2]

    @property
    def name(self) -> str:
        """The name of the answer in the notebook and of the reference in `solutions/`."""
        return self.signature.partition("(")[0].strip()

    @property
    def is_function(self) -> bool:
        """Whether the answer is something to call; otherwise it is a value."""
        return "(" in self.signature

    @property
    def parameters(self) -> inspect.Signature | None:
        """The signature as Python sees it; None for a value."""
        if not self.is_function:
            return None
        space: dict = {}
        try:
            exec(f"def {self.signature}: ...", space)
        except SyntaxError:
            return None
        return inspect.signature(space[self.name])

    @property
    def call(self) -> str:
        """The line that checks it."""
        return f'cu.check("{self.id}", {self.name})'

    @property
    def reference(self) -> Any:
        """Our answer; raises ExerciseError in a release, which comes without solutions."""
        from course_utils.exercises.solutions import reference

        return reference(self)


class lazy:
    """A module that is imported when it is first used: `tf = lazy("tensorflow")`."""

    def __init__(self, module: str):
        self._module = module

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self._module), name)

    def load(self) -> None:
        """Import it now, so that a time limit does not count the import."""
        importlib.import_module(self._module)
