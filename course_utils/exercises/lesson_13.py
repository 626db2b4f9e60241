"""The exercises of lesson 13: send less and lose nothing, share out by speed, rates that differ."""

import contextlib
import random
from unittest import mock

import numpy as np

from course_utils.exercises import returned
from course_utils.exercises.model import Exercise, Mistake

# Workers that meet, without threads -------------------------------------------------------------------


class _Waiting(BaseException):
    """A worker has come to a meeting that not all others have reached yet."""


def together(workers, luck=0):
    """What each function in `workers` returns, each called with a `meet(value)` that gives all values.

    A worker runs until it comes to a meeting whose values are not all known. When all wait at the same one,
    it is known, and all start again, with the same `luck` in what they draw. None where some wait for one
    that has left.
    """
    known = []
    while len(known) < 20:
        waiting, results = [], []
        for number, worker in enumerate(workers):
            with contextlib.suppress(_Waiting), _the_same_luck([luck, number]):
                results.append(worker(_meeting(known, waiting, number)))
        if not waiting:
            return results
        if results:
            return None
        known.append(waiting)
    return None


def _meeting(known, waiting, worker):
    """The `meet` of one worker: gives what is known, else notes the value and waits."""
    turn = iter(range(20))

    def meet(value):
        place = next(turn, 20)
        if place < len(known):
            if not _equal(known[place][worker], value):
                raise returned.Unusable(
                    "Your answer does something else when it is called again with the same arguments, so it "
                    "cannot be checked. If it draws at random, make the generator inside it."
                )
            return known[place]
        waiting.append(value)
        raise _Waiting

    return meet


@contextlib.contextmanager
def _the_same_luck(seed):
    """Inside, what is drawn at random comes out the same each time that the worker starts again."""
    make, state, states = np.random.default_rng, np.random.get_state(), random.getstate()
    np.random.seed(seed)
    random.seed(str(seed))

    def default_rng(given=None):
        return make(np.random.randint(2**31) if given is None else given)

    try:
        with mock.patch.object(np.random, "default_rng", default_rng):
            yield
    finally:
        np.random.set_state(state)
        random.setstate(states)


def _equal(one, other):
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(np.array_equal, one, other))
    return np.array_equal(one, other)


# 13.compress ------------------------------------------------------------------------------------------

BYTES = "bytes of a message"
SAME = "the sum on all workers"
TWICE = "a place that two workers send"
ARRIVED = "sent and kept, of all gradients"
KEPT = "what is kept"
WITHIN, WHOLE, ROUNDED = "within the budget", "a whole float32 gradient", "all numbers rounded, still float32"
LATER = "is sent sooner or later"
SWAPPED = "the sum is in the second place"
DEADLOCK = {SAME: "none: some workers wait for ever"}
STEPS = 60


def compress_cases(random):
    return [
        {
            "about": f"{workers} workers, {size} numbers, {STEPS} steps",
            "workers": workers,
            "size": size,
            "seed": int(random.integers(1_000_000)),
            "budget": size * 4 // 10,
        }
        for workers, size in ((2, 160), (3, 240))
    ]


def gradients_of(case):
    """By step and worker: a direction and noise, and half of the numbers are smaller than the others."""
    random, size = np.random.default_rng(case["seed"]), case["size"]
    direction = random.choice([-1, 1], size) * random.permutation([0.5, 1.0] * (size // 2))
    noise = random.uniform(-0.2, 0.2, (STEPS, case["workers"], size)) * direction
    return (direction + noise).astype("float32")


def observe_compress(answer, case):
    gradients, budget = gradients_of(case), case["budget"]
    left, totals, sent, equal = np.zeros_like(gradients[0]), 0.0, [], True
    for step in gradients:
        results = _one_exchange(answer, step, left, budget, sent)
        if results is None:
            return DEADLOCK
        sums, left = (np.array(part, dtype="float32") for part in zip(*results, strict=True))
        equal = equal and bool((sums == sums[0]).all())
        totals = totals + sums[0].astype(float)
    everything = gradients.sum(axis=(0, 1), dtype=float)
    arrived = totals + left.sum(axis=0, dtype=float)
    return {
        BYTES: _bytes_in_words(sent, gradients, budget),
        SAME: "the same" if equal else "different",
        TWICE: _twice_in_words(answer, gradients.shape[2], budget),
        ARRIVED: float(arrived @ everything / (everything @ everything)),
        KEPT: _kept_in_words(left, totals, everything, sums[0]),
    }


def _one_exchange(answer, gradients, left, budget, sent):
    """What each worker returns in one step; the messages are added to `sent`. None for a dead-lock."""

    def worker(gradient, kept):
        def call(meet):
            def noted(message):
                parts = _message(message)
                sent.append(parts)
                return meet(parts if isinstance(message, list | tuple) else parts[0])

            return _pair(answer(gradient.copy(), kept.copy(), budget, noted), gradient.shape)

        return call

    return together([worker(*mine) for mine in zip(gradients, left, strict=True)], luck=len(sent))


def _message(message):
    """The arrays of one message, copied: who changes them later changes nothing on its way."""
    parts = message if isinstance(message, list | tuple) else [message]
    return tuple(np.array(returned.array(part, "a message")) for part in parts)


def _pair(result, shape):
    pair = (
        returned.items(result, "compress", 2, like="(sum, left)")
        if not isinstance(result, np.ndarray)
        else None
    )
    if pair is None:
        raise returned.Unusable("compress should give two arrays, (sum, left), but gave one.")
    names = ("the sum", "what is kept")
    return [returned.array(part, name, shape=shape) for part, name in zip(pair, names, strict=True)]


def _bytes_in_words(sent, gradients, budget):
    if not sent:
        return "nothing was sent"
    most = max(sum(part.nbytes for part in message) for message in sent)
    if most <= budget:
        return WITHIN
    whole = gradients.shape[2] * 4
    if most == whole and all(_fits_16_bits(message) for message in sent):
        return ROUNDED
    kinds = " and ".join(sorted({part.dtype.name for message in sent for part in message}))
    return WHOLE if most == whole else f"{most / budget:.3g} times the budget, as {kinds}"


def _fits_16_bits(message):
    """Whether these float32 numbers have passed through float16 or bfloat16 before."""
    (numbers, *others) = message
    if others or numbers.dtype != np.float32:
        return False
    half = np.array_equal(numbers, numbers.astype(np.float16).astype(np.float32))
    brain = not np.any(numbers.view(np.uint32) & 0xFFFF)
    return half or brain


def _twice_in_words(answer, size, budget):
    """One more step, in which both workers have one large number, at the same place."""
    both = np.full((2, size), 1e-3, "float32")
    both[:, 3] = 8.0, 12.0
    results = _one_exchange(answer, both, np.zeros_like(both), budget, [])
    if results is None:
        return "the workers wait for ever"
    total, kept = (float(part[3]) for part in results[0])
    if abs(kept - 20) < 0.3 and abs(total) < 0.3:
        return SWAPPED
    if abs(total + sum(float(left[3]) for _, left in results) - 20) < 0.3:  # what is not sent is kept
        return "added up"
    known = (("added up", 20), ("counted once", 8), ("counted once", 12), ("not there", 0), ("averaged", 10))
    for words, value in known:
        if abs(total - value) < 0.3:
            return words
    return "something else"


def _kept_in_words(left, totals, everything, last):
    """What became of the numbers that were not sent at once.

    Not to have been sent yet is no fault, as long as a number is not much larger than those that were sent
    `last`: with fewer numbers in a message it takes more steps until each has had its turn.
    """
    usual = np.median(np.abs(last[last != 0])) if last.any() else 0
    never = (totals == 0) & (np.abs(left).max(axis=0) > 2 * usual)
    if not left.any():
        return "nothing"
    if never.mean() < 0.03:  # who draws the places may not have come to each of them yet
        return LATER
    if not totals.any():
        return "is never sent"
    if np.all(everything[never] < 0):
        return "negative numbers are never sent"
    small = np.abs(everything[never]).max() < np.abs(everything[~never]).min()
    return "small numbers are never sent" if small else "some of it is never sent"


def expected_compress(case):
    return {BYTES: WITHIN, SAME: "the same", TWICE: "added up", ARRIVED: 1.0, KEPT: LATER}


def _top(numbers, budget, per_number=8):
    return np.argsort(np.abs(numbers), kind="stable")[-(budget // per_number) :].astype(np.int32)


def _top_k(
    gradient,
    left,
    budget,
    meet,
    *,
    wanted=lambda gradient, left: gradient + left,
    choose=lambda wanted, gradient, budget: _top(wanted, budget),
    keep=lambda wanted, gradient, places: _without(wanted, places),
    put=lambda total, places, values: np.add.at(total, places, values),
    change=lambda values: values,
):
    """The right answer, that can be bent in each of its parts."""
    mine = wanted(gradient, left)
    places = choose(mine, gradient, budget)
    total = np.zeros_like(mine)
    messages = meet((change(mine[places]), places))
    for values, where in messages:
        put(total, where, values)
    return total, keep(mine, gradient, places)


def _without(numbers, places):
    kept = numbers.copy()
    kept[places] = 0
    return kept


def _bent(**how):
    return lambda gradient, left, budget, meet: _top_k(gradient, left, budget, meet, **how)


def _replace(total, places, values):
    total[places] = values


def all_at_once_without_add_at(gradient, left, budget, meet):
    """`total[places] += values` over everything that came: of equal places NumPy keeps the last."""
    wanted = gradient + left
    places = _top(wanted, budget)
    everyone = meet((wanted[places], places))
    values = np.concatenate([values for values, _ in everyone])
    where = np.concatenate([where for _, where in everyone])
    total = np.zeros_like(wanted)
    total[where] += values
    return total, _without(wanted, places)


def mixed_precision(gradient, left, budget, meet):
    half = gradient.astype(np.float16)
    return sum(meet(half.astype(np.float32))), np.zeros_like(gradient)


def mixed_precision_kept(gradient, left, budget, meet):
    wanted = gradient + left
    half = wanted.astype(np.float16).astype(np.float32)
    return sum(meet(half)), wanted - half


def in_bfloat16_but_not_on_the_wire(gradient, left, budget, meet):
    short = (gradient.view(np.uint32) & 0xFFFF0000).view(np.float32)
    return sum(meet(short)), np.zeros_like(gradient)


def half_the_bytes(gradient, left, budget, meet):
    return sum(part.astype(np.float32) for part in meet(gradient.astype(np.float16))), np.zeros_like(gradient)


def half_the_bytes_kept(gradient, left, budget, meet):
    wanted = gradient + left
    half = wanted.astype(np.float16)
    return sum(part.astype(np.float32) for part in meet(half)), wanted - half.astype(np.float32)


def nothing_compressed(gradient, left, budget, meet):
    return sum(meet(gradient + left)), np.zeros_like(gradient)


def zeros_instead(gradient, left, budget, meet):
    """Top-k, but the small numbers are sent as zeros."""
    wanted = gradient + left
    sent = wanted - _without(wanted, _top(wanted, budget))
    return sum(meet(sent)), wanted - sent


def takes_its_own(gradient, left, budget, meet):
    wanted = gradient + left
    places = _top(wanted, budget)
    meet((wanted[places], places))
    return wanted - _without(wanted, places), _without(wanted, places)


def swapped(gradient, left, budget, meet):
    return _top_k(gradient, left, budget, meet)[::-1]


def with_long_places(gradient, left, budget, meet):
    """Places as NumPy gives them, int64, and so fewer of them: right too."""
    wanted = gradient + left
    places = np.argsort(np.abs(wanted))[-(budget // 12) :]
    total = np.zeros_like(wanted)
    for values, where in meet((wanted[places], places)):
        total[where] += values
    return total, _without(wanted, places)


def one_at_a_time(gradient, left, budget, meet):
    return _top_k(gradient, left, 8, meet)


def drawn_at_random(gradient, left, budget, meet, make=lambda: np.random.default_rng()):
    """Random-k with what is left kept: another right answer (Stich et al., arXiv:1809.07599)."""
    count, size = budget // 8, len(gradient)

    def choose(wanted, gradient, budget):
        return make().choice(size, count, replace=False).astype(np.int32)

    return _top_k(gradient, left, budget, meet, choose=choose)


def the_same_places_every_time(gradient, left, budget, meet):
    return drawn_at_random(gradient, left, budget, meet, make=lambda: np.random.default_rng(0))


def averages(gradient, left, budget, meet):
    count = []
    total, kept = _top_k(gradient, left, budget, lambda message: count.append(meet(message)) or count[0])
    return total / len(count[0]), kept


def eight_bits(gradient, left, budget, meet):
    """Three bytes a number, one for its value and two for its place: another right answer."""
    wanted = gradient + left
    places = _top(wanted, budget - 4, per_number=3)
    scale = np.float32(max(np.abs(wanted[places]).max(), 1e-30) / 127)
    levels = np.round(wanted[places] / scale).astype(np.int8)
    total, kept = np.zeros_like(wanted), wanted.copy()
    for part, where, step in meet((levels, places.astype(np.uint16), np.array([scale]))):
        np.add.at(total, where, part * step[0])
    kept[places] -= levels * scale
    return total, kept


def by_partition(gradient, left, budget, meet):
    """Top-k with the places as float32 in one array: another right answer."""
    left += gradient
    count = budget // 8
    where = np.argpartition(-np.abs(left), count)[:count]
    total = np.zeros(len(left), np.float32)
    for message in meet(np.concatenate([left[where], where.astype(np.float32)])):
        total += np.bincount(message[count:].astype(int), message[:count], len(left)).astype(np.float32)
    left[where] = 0
    return total, left


def _bytes_are(words):
    return lambda cases, seen, expected: all(one.get(BYTES) == words for one in seen)


COMPRESS = Exercise(
    id="13.compress",
    title="Compress, and lose nothing",
    points=3,
    length="about 10 lines",
    signature="compress(gradient, left, budget, meet)",
    slow=True,
    hints=[
        "First add what you have kept: `wanted = gradient + left`. From it, take the numbers of largest "
        "*absolute* value. A number costs 8 bytes: 4 for its value (float32), 4 for its place (int32).",
        "`np.argsort(np.abs(wanted))[-count:]` gives the places, with `count = budget // 8`. Send values and "
        "places in one message: `meet((values, places))`.",
        "For each `(values, places)` of what `meet` returned, do `total[places] += values`. Keep `wanted`, "
        "with zeros where you have sent.",
    ],
    cases=compress_cases,
    observe=observe_compress,
    expected=expected_compress,
    tolerance=1e-3,
    mistakes=[
        Mistake(
            "mixed precision taken for compression",
            mixed_precision,
            variants=[mixed_precision_kept, in_bfloat16_but_not_on_the_wire],
            recognises=_bytes_are(ROUNDED),
            went_wrong="The numbers went through 16 bits, and then travelled as float32: every byte of it. "
            "That is what mixed precision does. It makes numbers coarser and computing faster; on the wire "
            "there is not one byte less.",
            try_this="Look at `message.nbytes` before you send it.",
        ),
        Mistake(
            "64 bits a number",
            _bent(choose=lambda wanted, gradient, budget: _top(wanted, budget).astype(np.int64)),
            variants=[
                _bent(change=lambda values: values.astype(np.float64)),
                _bent(
                    change=lambda values: values.astype(np.float64),
                    choose=lambda wanted, gradient, budget: _top(wanted, budget).astype(np.int64),
                ),
            ],
            recognises=lambda cases, seen, expected: all("64" in one.get(BYTES, "") for one in seen),
            went_wrong=lambda case, seen, expected: (
                f"A message takes {seen[BYTES]}. NumPy makes places int64, and new arrays float64: 8 bytes "
                "where 4 are enough."
            ),
            try_this="`places.astype(np.int32)`, and values in float32 like the gradient's.",
        ),
        Mistake(
            "16 bits a number are not few enough",
            half_the_bytes,
            variants=[half_the_bytes_kept],
            recognises=_bytes_are("5 times the budget, as float16"),
            went_wrong="Sixteen bits halve the bytes, and the budget is a tenth. Fewer bits a number cannot "
            "get there; fewer *numbers* can.",
            try_this="Send only the largest, each with its place.",
        ),
        Mistake(
            "zeros are sent too",
            zeros_instead,
            variants=[nothing_compressed],
            recognises=_bytes_are(WHOLE),
            went_wrong="The message is as long as the whole gradient. A zero costs 4 bytes like any other "
            "float32, so setting numbers to zero saves nothing.",
            try_this="Send two short arrays: the values, and where they belong.",
        ),
        Mistake(
            "values without room for their places",
            _bent(choose=lambda wanted, gradient, budget: _top(wanted, budget, per_number=4)),
            recognises=_bytes_are("2 times the budget, as float32 and int32"),
            went_wrong="The values alone fill the budget, and their places come on top: twice the bytes.",
            try_this="A value and its place are 8 bytes: `budget // 8` numbers.",
        ),
        Mistake(
            "no error feedback",
            _bent(
                wanted=lambda gradient, left: gradient,
                keep=lambda wanted, gradient, places: np.zeros_like(wanted),
            ),
            variants=[_bent(keep=lambda wanted, gradient, places: np.zeros_like(wanted))],
            recognises=lambda cases, seen, expected: all(
                one.get(KEPT) == "nothing" and one[ARRIVED] < 0.95 and one[BYTES] == WITHIN for one in seen
            ),
            went_wrong=lambda case, seen, expected: (
                f"Only {seen[ARRIVED]:.0%} of the gradients ever arrived. What you did not send is gone: "
                "nothing is kept for the next step, and weights with small gradients never move."
            ),
            try_this="Return, as what is kept, `gradient + left` without what was sent.",
        ),
        Mistake(
            "kept, but never used",
            _bent(
                wanted=lambda gradient, left: gradient,
                keep=lambda wanted, gradient, places: _without(wanted, places),
            ),
            went_wrong=lambda case, seen, expected: (
                "You return what you did not send, but the next step does not add it: only "
                f"{seen[ARRIVED]:.0%} of the gradients arrived, or are kept."
            ),
            try_this="Begin with `wanted = gradient + left`, and go on with `wanted` only.",
        ),
        Mistake(
            "what was left before is forgotten",
            _bent(keep=lambda wanted, gradient, places: _without(gradient, places)),
            went_wrong=lambda case, seen, expected: (
                "You keep what is left of this step's gradient, but not what is left of the steps before: "
                f"{seen[ARRIVED]:.0%} of the gradients arrived, or are kept."
            ),
            try_this="Keep `gradient + left`, not `gradient`, without what was sent.",
        ),
        Mistake(
            "what was sent is kept too",
            _bent(keep=lambda wanted, gradient, places: wanted),
            went_wrong=lambda case, seen, expected: (
                f"Sent and kept come to {seen[ARRIVED]:.3g} times the gradients: what you have sent is kept "
                "as well, and is sent again and again."
            ),
            try_this="Set what you keep to 0 at the places that were sent.",
        ),
        Mistake(
            "the largest, not the largest in size",
            _bent(
                choose=lambda wanted, gradient, budget: np.argsort(wanted, kind="stable")[
                    -(budget // 8) :
                ].astype(np.int32)
            ),
            went_wrong="Large negative numbers are never sent: -5 is a small number, but a large gradient. "
            "So they pile up in what is kept.",
            try_this="Choose by `np.abs(wanted)`, and send `wanted` with its sign.",
        ),
        Mistake(
            "chosen before the rest was added",
            _bent(choose=lambda wanted, gradient, budget: _top(gradient, budget)),
            went_wrong="You choose the places by this step's gradient alone. A number that is small in every "
            "step is never chosen, however much of it has piled up.",
            try_this="Choose by `gradient + left`.",
        ),
        Mistake(
            "the same places every time",
            _bent(
                choose=lambda wanted, gradient, budget: np.argsort(np.abs(wanted), kind="stable")[
                    : budget // 8
                ].astype(np.int32)
            ),
            variants=[
                the_same_places_every_time,
                _bent(choose=lambda wanted, gradient, budget: np.arange(budget // 8, dtype=np.int32)),
            ],
            recognises=lambda cases, seen, expected: all(
                one.get(KEPT) == "some of it is never sent"
                and (one[BYTES], one[SAME]) == (WITHIN, "the same")
                and abs(one[ARRIVED] - 1) < 1e-3
                for one in seen
            ),
            went_wrong="Nothing is lost, but some places are never sent, however much piles up there: you "
            "send the same ones again and again. (Who sends the *smallest* numbers does so too: what has "
            "just been sent is small again.)",
            try_this="Send the numbers of largest absolute value; `np.argsort` sorts upwards, so these are "
            "the last.",
        ),
        Mistake(
            "the sign is lost",
            _bent(change=np.abs),
            went_wrong="Sizes are sent without their signs, so all weights move the same way.",
            try_this="`np.abs` is for choosing; send `wanted[places]`.",
        ),
        Mistake(
            "a place that came twice is counted once",
            all_at_once_without_add_at,
            variants=[_bent(put=_replace)],
            recognises=lambda cases, seen, expected: (
                all(one.get(TWICE) == "counted once" for one in seen)
                and all(one[SAME] == "the same" and one[BYTES] == WITHIN for one in seen)
            ),
            went_wrong="Two workers may send a number for the same place, and both must be added. In NumPy, "
            "`total[places] += values` takes only one of them where a place comes twice in `places`.",
            try_this="Add one worker's message after the other, or use `np.add.at(total, places, values)`.",
        ),
        Mistake(
            "the two results change places",
            swapped,
            recognises=lambda cases, seen, expected: all(one.get(TWICE) == SWAPPED for one in seen),
            went_wrong="The first result should be the sum, the second what this worker keeps. You return "
            "them the other way round.",
            try_this="`return total, kept`",
        ),
        Mistake(
            "each takes only its own",
            takes_its_own,
            recognises=lambda cases, seen, expected: (
                all(one.get(SAME) == "different" for one in seen)
                and all(one[BYTES] == WITHIN for one in seen)
            ),
            went_wrong="Each worker has another sum: what the others have sent is not in it.",
            try_this="Use what `meet` returns: one message from each worker, your own among them.",
        ),
        Mistake(
            "mean for sum",
            averages,
            went_wrong=lambda case, seen, expected: (
                "You divide by the number of workers. The gradients here are parts of a whole, divided by "
                "the global batch already: they are to be added up."
            ),
            try_this="Leave out the division.",
        ),
    ],
    also_right=[eight_bits, by_partition, with_long_places, one_at_a_time, drawn_at_random],
)


# 13.plan_shares ---------------------------------------------------------------------------------------

TAKEN = "examples taken in all"
SHARED = "the examples are shared out"
BY_SPEED = "by speed"
REST_TO_ONE = "by speed, but one worker gets all that is left over"
WEIGHT = "weight of each worker's examples (right: 1 each)"


def share_cases(random):
    """The first divides evenly; the others do not."""
    cases = []
    for speeds, batch in (([300, 100], 64), ([500, 300, 240], 64), ([90, 170, 410, 130], 100)):
        speeds = (np.array(speeds) * int(random.integers(1, 5))).tolist()
        about = f"speeds {speeds}, a batch of {batch}"
        cases.append({"about": about, "speeds": speeds, "batch": batch})
    return cases


def observe_shares(answer, case):
    pair = returned.items(
        answer(list(case["speeds"]), case["batch"]), "plan_shares", 2, like="(shares, factors)"
    )
    n = len(case["speeds"])
    shares, factors = (
        np.array(returned.items(part, name, n), dtype=float)
        for part, name in zip(pair, ("the shares", "the factors"), strict=True)
    )
    if np.any(shares != np.floor(shares)) or np.any(shares < 0):
        raise returned.Unusable(f"Shares must be whole numbers of examples, but yours are {shares.tolist()}.")
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.where(shares > 0, factors / shares * case["batch"], 1.0)
    return {
        TAKEN: int(shares.sum()),
        SHARED: _shared_in_words(shares, np.array(case["speeds"]), case["batch"]),
        WEIGHT: [round(float(w), 6) for w in weights],
    }


def _shared_in_words(shares, speeds, batch):
    """How the shares go with the speeds; rounding may move them by less than one example."""
    if np.all(np.abs(shares - batch * speeds / speeds.sum()) < 1):
        return BY_SPEED
    if np.ptp(shares) <= 1:
        return "equally"
    if np.count_nonzero(shares != batch * np.array(speeds) // speeds.sum()) == 1:
        return REST_TO_ONE
    if np.count_nonzero(shares) == 1:
        return "to one worker only"
    upside_down = np.all(np.diff(shares[np.argsort(speeds)]) <= 0)
    return "the slower, the more" if upside_down else "not by speed"


def expected_shares(case):
    return {TAKEN: case["batch"], SHARED: BY_SPEED, WEIGHT: [1.0] * len(case["speeds"])}


def _fair(speeds, batch):
    exact = np.array(speeds) / sum(speeds) * batch
    shares = np.floor(exact).astype(int)
    shares[np.argsort(shares - exact, kind="stable")[: batch - shares.sum()]] += 1
    return shares


def averaged_without_weights(speeds, global_batch):
    return _fair(speeds, global_batch).tolist(), [1 / len(speeds)] * len(speeds)


def summed_means(speeds, global_batch):
    return _fair(speeds, global_batch).tolist(), [1.0] * len(speeds)


def divided_by_the_batch_only(speeds, global_batch):
    return _fair(speeds, global_batch).tolist(), [1 / global_batch] * len(speeds)


def weighed_by_speed(speeds, global_batch):
    return _fair(speeds, global_batch).tolist(), (np.array(speeds) / sum(speeds)).tolist()


def shares_not_divided(speeds, global_batch):
    shares = _fair(speeds, global_batch).tolist()
    return shares, shares


def inverse_factors(speeds, global_batch):
    shares = _fair(speeds, global_batch)
    return shares.tolist(), (global_batch / shares / len(speeds)).tolist()


def equal_shares(speeds, global_batch):
    shares = [len(part) for part in np.array_split(range(global_batch), len(speeds))]
    return shares, [share / global_batch for share in shares]


def slow_get_more(speeds, global_batch):
    shares = _fair(1 / np.array(speeds), global_batch)
    return shares.tolist(), (shares / global_batch).tolist()


def all_to_the_fastest(speeds, global_batch):
    shares = [global_batch * (i == int(np.argmax(speeds))) for i in range(len(speeds))]
    return shares, [share / global_batch for share in shares]


def rounded_down(speeds, global_batch):
    shares = [int(speed / sum(speeds) * global_batch) for speed in speeds]
    return shares, [share / global_batch for share in shares]


def rounded_down_over_their_sum(speeds, global_batch):
    shares = [int(speed / sum(speeds) * global_batch) for speed in speeds]
    return shares, [share / sum(shares) for share in shares]


def rest_to(place):
    def plan_shares(speeds, global_batch):
        shares, _ = rounded_down(speeds, global_batch)
        shares[place] += global_batch - sum(shares)
        return shares, [share / global_batch for share in shares]

    return plan_shares


def rounded_up(speeds, global_batch):
    shares = [int(np.ceil(speed / sum(speeds) * global_batch)) for speed in speeds]
    return shares, [share / global_batch for share in shares]


def rounded_up_over_their_sum(speeds, global_batch):
    shares, _ = rounded_up(speeds, global_batch)
    return shares, [share / sum(shares) for share in shares]


def rest_to_the_fastest(speeds, global_batch):
    """Rounded down, the rest one by one to who would be done first: another right answer."""
    shares = [int(speed * global_batch // sum(speeds)) for speed in speeds]
    while sum(shares) < global_batch:
        first = min(range(len(speeds)), key=lambda i: (shares[i] + 1) / speeds[i])
        shares[first] += 1
    return shares, [share / global_batch for share in shares]


def by_edges(speeds, global_batch):
    """Where the shares end, rounded, and the differences: another right answer."""
    ends = np.round(np.cumsum([0, *speeds]) / sum(speeds) * global_batch).astype(int)
    return np.diff(ends), np.diff(ends) / global_batch


PLAN_SHARES = Exercise(
    id="13.plan_shares",
    title="Shares for unequal workers",
    points=2,
    length="about 5 lines",
    signature="plan_shares(speeds, global_batch)",
    hints=[
        "A worker's share of the examples is its share of the speed: speed / sum(speeds) · global_batch. "
        "Round down, and give away what is left over, one each.",
        "A mean over `share` examples is to become their part of a sum over all, divided by `global_batch`. "
        "By what do you multiply a mean to get the sum again?",
    ],
    cases=share_cases,
    observe=observe_shares,
    expected=expected_shares,
    mistakes=[
        Mistake(
            "unequal shares averaged without weights",
            averaged_without_weights,
            went_wrong=lambda case, seen, expected: (
                "The shares are right, but all means count the same. An example of a small share then counts "
                f"more than one of a large share: {max(seen[WEIGHT]):.2f} times and {min(seen[WEIGHT]):.2f} "
                "times what it should."
            ),
            try_this="Let each mean count as much as there are examples in it.",
        ),
        Mistake(
            "weighed by speed, not by share",
            weighed_by_speed,
            went_wrong="The factors are the workers' parts of the *speed*. Shares are rounded to whole "
            "examples, so that is nearly right, and not quite.",
            try_this="Take the factors from the shares that you return.",
        ),
        Mistake(
            "means summed as they are",
            summed_means,
            went_wrong=lambda case, seen, expected: (
                f"A sum of {len(case['speeds'])} means is about {len(case['speeds'])} times too large."
            ),
            try_this="The factors of all workers together must be 1.",
        ),
        Mistake(
            "shares for factors",
            shares_not_divided,
            went_wrong="A mean times its share is a sum. The whole batch's gradient is a mean: it is still "
            "to be divided by the global batch.",
            try_this="`share / global_batch`",
        ),
        Mistake(
            "divided twice",
            divided_by_the_batch_only,
            went_wrong="Each worker's result is a mean already. Divided by the global batch once more, "
            "almost nothing is left.",
            try_this="What must a mean over 3 of 4 examples be multiplied by? And that over the last one?",
        ),
        Mistake(
            "small shares count more",
            inverse_factors,
            went_wrong="The factors are the wrong way up: the smaller a share, the more its mean counts.",
            try_this="`share / global_batch`",
        ),
        Mistake(
            "equal shares",
            equal_shares,
            went_wrong=lambda case, seen, expected: (
                "The gradient is right, but everybody gets the same number of examples, so that all wait for "
                f"the slowest, which does {min(case['speeds'])} a second."
            ),
            try_this="Share out in proportion to `speeds`.",
        ),
        Mistake(
            "the slow ones get more",
            slow_get_more,
            went_wrong="The shares are the wrong way round: the slower a worker, the more it has to do.",
            try_this="In proportion to the speed, not to the time.",
        ),
        Mistake(
            "everything to the fastest",
            all_to_the_fastest,
            went_wrong="One worker does everything. The others are done at once, and wait.",
            try_this="Two workers, of which one is half as fast: how many of 30 examples does each take?",
        ),
        Mistake(
            "examples lost by rounding",
            rounded_down,
            variants=[rounded_down_over_their_sum],
            recognises=lambda cases, seen, expected: (
                all(one[TAKEN] <= case["batch"] for one, case in zip(seen, cases, strict=True))
                and any(
                    case["batch"] - 4 < one[TAKEN] < case["batch"]
                    for one, case in zip(seen, cases, strict=True)
                )
                and all(one[SHARED] == BY_SPEED for one in seen)
            ),
            went_wrong=lambda case, seen, expected: (
                f"{seen[TAKEN]} of {case['batch']} examples are taken. Rounding down leaves some over, and "
                "nobody is trained on them."
            ),
            try_this="Give the examples that are left over to some of the workers, one each.",
        ),
        Mistake(
            "all that is left over goes to one worker",
            rest_to(-1),
            variants=[rest_to(0)],
            recognises=lambda cases, seen, expected: (
                any(one[SHARED] == REST_TO_ONE for one in seen)
                and all(one[SHARED] in (REST_TO_ONE, BY_SPEED) for one in seen)
            ),
            went_wrong="The shares are rounded down, and one worker takes all that is left over: with many "
            "workers that is many examples more than its part, and all wait for it.",
            try_this="Give the examples that are left over to several workers, one each.",
        ),
        Mistake(
            "more examples than there are",
            rounded_up,
            variants=[rounded_up_over_their_sum],
            recognises=lambda cases, seen, expected: any(
                one[TAKEN] > case["batch"] for one, case in zip(seen, cases, strict=True)
            ),
            went_wrong=lambda case, seen, expected: (
                f"{seen[TAKEN]} examples are taken, and the batch has {case['batch']}."
            ),
            try_this="Round down first, and then share out what is left over.",
        ),
    ],
    also_right=[rest_to_the_fastest, by_edges],
)


# 13.update_with_rates ---------------------------------------------------------------------------------

WEIGHTS = "weight on each worker after 3 steps"
MODELS = "the workers are"


def rate_cases(random):
    cases = []
    for rates in ([0.1, 0.3], [0.05, 0.2, 0.5], [0.2, 0.2, 0.1]):
        curvature = random.integers(1, 5, len(rates)).astype(float) / len(rates) / 2
        about = f"rates {rates}"
        cases.append(
            {"about": about, "rates": rates, "curvature": curvature, "start": float(random.integers(2, 6))}
        )
    return cases


def observe_rates(answer, case):
    n = len(case["rates"])
    weights = [case["start"]] * n
    for _ in range(3):
        mine = zip(weights, case["curvature"], case["rates"], strict=True)
        weights = together([_one_update(answer, w, c * w, rate) for w, c, rate in mine])
        if weights is None:
            return {WEIGHTS: "none: some workers wait for ever", MODELS: "stuck"}
    one = np.ptp(weights) <= 1e-9 * max(1, np.abs(weights).max())
    return {WEIGHTS: weights, MODELS: "one model" if one else "different models"}


def _one_update(answer, weight, gradient, rate):
    def call(meet):
        def all_reduce(how, value):
            if not isinstance(how, str) or how.upper() not in ("SUM", "MEAN"):
                raise returned.Unusable(f'all_reduce takes "SUM" or "MEAN", and a value; got {how!r}.')
            values = meet(returned.number(value, "what all_reduce gets"))
            return np.float64(sum(values) / (len(values) if how.upper() == "MEAN" else 1))

        new = answer(np.float64(weight), np.float64(gradient), rate, all_reduce)
        return returned.number(new, "update_with_rates")

    return call


def expected_rates(case):
    weight = case["start"]
    for _ in range(3):
        weight *= 1 - float(np.dot(case["rates"], case["curvature"]))
    return {WEIGHTS: [weight] * len(case["rates"]), MODELS: "one model"}


def own_rate_on_the_sum(weight, gradient, rate, all_reduce):
    return weight - rate * all_reduce("SUM", gradient)


def own_rate_on_the_mean(weight, gradient, rate, all_reduce):
    return weight - rate * all_reduce("MEAN", gradient)


def alone(weight, gradient, rate, all_reduce):
    return weight - rate * gradient


def mean_rate(weight, gradient, rate, all_reduce):
    return weight - all_reduce("MEAN", rate) * all_reduce("SUM", gradient)


def sum_of_rates(weight, gradient, rate, all_reduce):
    return weight - all_reduce("SUM", rate) * all_reduce("SUM", gradient)


def mean_of_updates(weight, gradient, rate, all_reduce):
    return weight - all_reduce("MEAN", rate * gradient)


def mean_of_models(weight, gradient, rate, all_reduce):
    return all_reduce("MEAN", weight - rate * gradient)


def uphill(weight, gradient, rate, all_reduce):
    return weight + all_reduce("SUM", rate * gradient)


def no_rate(weight, gradient, rate, all_reduce):
    return weight - all_reduce("SUM", gradient)


def only_the_step(weight, gradient, rate, all_reduce):
    return all_reduce("SUM", rate * gradient)


def sum_of_models(weight, gradient, rate, all_reduce):
    return all_reduce("SUM", weight - rate * gradient)


def scaled_mean(weight, gradient, rate, all_reduce):
    return weight - all_reduce("SUM", 1.0) * all_reduce("MEAN", rate * gradient)


def via_models(weight, gradient, rate, all_reduce):
    new = weight - rate * gradient
    return weight + all_reduce("SUM", new - weight)


UPDATE_WITH_RATES = Exercise(
    id="13.update_with_rates",
    title="A rate for each worker's examples",
    points=2,
    length="about 1 line",
    signature="update_with_rates(weight, gradient, rate, all_reduce)",
    hints=[
        "The workers stay one model if all subtract the same. What comes out of an all-reduce is the same "
        "everywhere; your own `rate` is not. What must go into the all-reduce?",
        "Each worker's rate is to count for *its* gradient: multiply the two before anything is added up.",
    ],
    cases=rate_cases,
    observe=observe_rates,
    expected=expected_rates,
    mistakes=[
        Mistake(
            "own rate on the common gradient",
            own_rate_on_the_sum,
            variants=[own_rate_on_the_mean],
            went_wrong=lambda case, seen, expected: (
                "All take the same gradient times a rate of their own, and so different steps. After three "
                f"steps the weights are {', '.join(f'{w:.3g}' for w in seen[WEIGHTS])}: no longer one model."
            ),
            try_this="Whatever differs between the workers must go in *before* the all-reduce.",
        ),
        Mistake(
            "no all-reduce",
            alone,
            went_wrong="Each worker goes its own way: nothing was exchanged, so these are two trainings.",
            try_this="Use `all_reduce`.",
        ),
        Mistake(
            "one mean rate for all",
            mean_rate,
            went_wrong="The workers are one model, but all examples count at the same mean rate, not each "
            "worker's at its own.",
            try_this="Multiply `rate` and `gradient` on each worker, before anything is added up.",
        ),
        Mistake(
            "all rates for all gradients",
            sum_of_rates,
            went_wrong="The sum of all rates times the sum of all gradients: each gradient counts with "
            "everybody's rate. The steps are far too large.",
            try_this="One all-reduce, of a product.",
        ),
        Mistake(
            "mean of the updates, or of the new weights",
            mean_of_updates,
            variants=[mean_of_models],
            went_wrong=lambda case, seen, expected: (
                f"One model, but its steps are {len(case['rates'])} times too small: the gradients are parts "
                "of a whole and are to be added up. A mean divides them by the workers, and the mean of the "
                "new weights does so as well."
            ),
            try_this='`all_reduce("SUM", …)` of what each is to subtract; the weight stays outside.',
        ),
        Mistake(
            "uphill",
            uphill,
            went_wrong="The weight moves along the gradient, and the loss grows.",
            try_this="Subtract.",
        ),
        Mistake(
            "the rate is missing",
            no_rate,
            went_wrong="The gradients are summed, but nobody's rate is in it.",
            try_this="Multiply by `rate` before the sum.",
        ),
        Mistake(
            "the step without the weight",
            only_the_step,
            went_wrong="What you return is how far the weight is to move, not where it then is.",
            try_this="Subtract it from `weight`.",
        ),
        Mistake(
            "weights summed too",
            sum_of_models,
            went_wrong=lambda case, seen, expected: (
                f"All {len(case['rates'])} copies of the weight are added up, so it multiplies in every step."
            ),
            try_this="Only what comes of the gradients belongs into the sum.",
        ),
    ],
    also_right=[scaled_mean, via_models],
)

EXERCISES = [COMPRESS, PLAN_SHARES, UPDATE_WITH_RATES]
