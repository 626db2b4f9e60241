"""The exercises of lesson 03: write the ring, choose SUM or MEAN, say what a worker sends."""

import itertools

import numpy as np

from course_utils.communication import Network
from course_utils.exercises import returned
from course_utils.exercises.model import Exercise, Mistake

MESSAGES, BYTES, SPARE = "messages sent", "bytes sent", "bytes too many"
NEIGHBOURS, HEARD = "ranks sent to", "ranks whose numbers arrived (own included)"


def ring_cases(random):
    """Small integers, so that sums are exact; the last case does not divide evenly."""
    sizes = [(n, n * int(random.integers(2, 4))) for n in (3, 4, 2)]
    sizes.append((3, 7))
    return [
        {
            "about": f"{n} ranks with {length} float32 numbers each",
            "arrays": random.integers(1, 9, (n, length)).astype("float32"),
        }
        for n, length in sizes
    ]


def observe_ring(answer, case):
    n, length = case["arrays"].shape
    network, reached = Network(n), [{rank} for rank in range(n)]
    sums = _run_ring(answer, case["arrays"], _counting(network))
    # Once more with numbers that tell who is in a sum: bit r is set when rank r is.
    marked = np.repeat(1 << np.arange(n), length).reshape(n, length).astype("float32")
    _run_ring(answer, marked, _listening(Network(n), reached))
    traffic = network.traffic()
    return {
        **_by_rank(sums),
        MESSAGES: traffic.messages,
        **_bytes_seen(traffic.bytes_sent, n, case["arrays"][0].nbytes),
        NEIGHBOURS: np.count_nonzero(traffic.messages_between, axis=1).tolist(),
        HEARD: [len(ranks) for ranks in reached],
    }


def expected_ring(case):
    n, length = case["arrays"].shape
    whole = case["arrays"].sum(axis=0)
    cost = {BYTES: [2 * (n - 1) * length * 4 // n] * n} if length % n == 0 else {SPARE: 0}
    messages = [2 * (n - 1)] * n
    return {
        **_by_rank([whole] * n),
        MESSAGES: messages,
        **cost,
        NEIGHBOURS: [1] * n,
        HEARD: [n] * n,
    }


def _by_rank(sums):
    """One line of the card for each rank."""
    return {f"rank {rank} holds": [_short(x) for x in mine.tolist()] for rank, mine in enumerate(sums)}


def _short(number):
    return int(number) if float(number).is_integer() else number


def _sums(seen):
    return [value for key, value in seen.items() if key.endswith(" holds")]


def _sums_right(seen, expected):
    return np.array_equal(_sums(seen), _sums(expected))


def _run_ring(answer, arrays, send):
    result = returned.items(answer([array.copy() for array in arrays], send), "ring_all_reduce", len(arrays))
    return [returned.array(array, "each rank", shape=arrays[0].shape) for array in result]


def _counting(network):
    def send(source, target, numbers):
        network.send(source, target, numbers)
        return network.receive(target, source)

    return send


def _listening(network, reached):
    deliver = _counting(network)

    def send(source, target, numbers):
        for number in np.ravel(numbers):
            bits = int(number) if np.isfinite(number) else 0
            reached[target] |= {rank for rank in range(len(reached)) if bits >> rank & 1}
        return deliver(source, target, numbers)

    return send


def _bytes_seen(sent, n, size):
    """Exact where the chunks are equal; else only what is too much, since chunks may be cut or padded."""
    numbers = size // 4
    if numbers % n == 0:
        return {BYTES: sent}
    return {SPARE: max(0, max(sent) - 2 * (n - 1) * -(-numbers // n) * 4)}


def _ring(arrays, send, first=0, second=0, take=lambda old, new: new, scale=1.0):
    """A ring that can be bent: rounds more or fewer in each half, another way to take what comes in."""
    n = len(arrays)
    chunks = [np.array_split(array, n) for array in arrays]
    for turn in range(n - 1 + first):
        for rank in range(n):
            right, c = (rank + 1) % n, (rank - turn) % n
            chunks[right][c] = chunks[right][c] + send(rank, right, chunks[rank][c])
    for turn in range(n - 1 + second):
        for rank in range(n):
            right, c = (rank + 1) % n, (rank + 1 - turn) % n
            chunks[right][c] = take(chunks[right][c], send(rank, right, chunks[rank][c]))
    return [np.concatenate(mine) * np.float32(scale) for mine in chunks]


def ring_of_means(arrays, send):
    return _ring(arrays, send, scale=1 / len(arrays))


def through_rank_0_as_mean(arrays, send):
    return [total / len(arrays) for total in through_rank_0(arrays, send)]


def to_rank_0(arrays, send):
    return [arrays[0] + sum(send(r, 0, arrays[r]) for r in range(1, len(arrays))), *arrays[1:]]


def along_the_ring_to_rank_0(arrays, send):
    arrays = list(arrays)
    for rank in range(len(arrays) - 1, 0, -1):
        arrays[rank - 1] = arrays[rank - 1] + send(rank, rank - 1, arrays[rank])
    return arrays


def whole_array_each_round(arrays, send):
    n, totals, passing = len(arrays), list(arrays), list(arrays)
    for _ in range(n - 1):
        passing = [send((rank - 1) % n, rank, passing[(rank - 1) % n]) for rank in range(n)]
        totals = [total + array for total, array in zip(totals, passing, strict=True)]
    return totals


def whole_array_twice_round(arrays, send):
    n, totals = len(arrays), whole_array_each_round(arrays, send)
    for _ in range(n - 1):
        totals = [send((rank - 1) % n, rank, totals[(rank - 1) % n]) for rank in range(n)]
    return totals


def through_rank_0(arrays, send):
    total = arrays[0] + sum(send(rank, 0, arrays[rank]) for rank in range(1, len(arrays)))
    return [total, *(send(0, rank, total) for rank in range(1, len(arrays)))]


def first_half_only(arrays, send):
    return _ring(arrays, send, second=1 - len(arrays))


def adds_in_both_halves(arrays, send):
    return _ring(arrays, send, take=lambda old, new: old + new)


def wrong_chunk_second(arrays, send):
    """The second half begins with chunk r, as the first did; complete is chunk r+1."""
    n = len(arrays)
    chunks = [np.array_split(array, n) for array in arrays]
    for turn in range(2 * n - 2):
        for rank in range(n):
            right, c = (rank + 1) % n, (rank - turn % (n - 1)) % n
            arrived = send(rank, right, chunks[rank][c])
            chunks[right][c] = arrived if turn >= n - 1 else chunks[right][c] + arrived
    return [np.concatenate(mine) for mine in chunks]


def same_chunk_always(arrays, send):
    n = len(arrays)
    chunks = [np.array_split(array, n) for array in arrays]
    for turn in range(2 * n - 2):
        for rank in range(n):
            right, c = (rank + 1) % n, (rank + turn // (n - 1)) % n
            arrived = send(rank, right, chunks[rank][c])
            chunks[right][c] = arrived if turn >= n - 1 else chunks[right][c] + arrived
    return [np.concatenate(mine) for mine in chunks]


def as_float64(arrays, send):
    return _ring([array.astype(np.float64) for array in arrays], send)


def needs_equal_chunks(arrays, send):
    for array in arrays:
        np.split(array, len(arrays))
    return _ring(arrays, send)


def forgets_the_remainder(arrays, send):
    n = len(arrays)
    even = len(arrays[0]) // n * n
    done = _ring([array[:even] for array in arrays], send)
    return [np.concatenate([mine, array[even:]]) for mine, array in zip(done, arrays, strict=True)]


def sends_nothing(arrays, send):
    return [np.sum(arrays, axis=0)] * len(arrays)


def sends_for_show(arrays, send):
    n = len(arrays)
    for rank in range(n):
        for _ in range(2 * (n - 1)):
            send(rank, (rank + 1) % n, np.array_split(arrays[rank], n)[0])
    return sends_nothing(arrays, send)


def everyone_to_everyone(arrays, send):
    n = len(arrays)
    chunks = [np.array_split(array, n) for array in arrays]
    for owner in range(n):
        others = [rank for rank in range(n) if rank != owner]
        chunks[owner][owner] = chunks[owner][owner] + sum(send(r, owner, chunks[r][owner]) for r in others)
        for rank in others:
            chunks[rank][owner] = send(owner, rank, chunks[owner][owner])
    return [np.concatenate(mine) for mine in chunks]


def ring_leftwards(arrays, send):
    """The ring the other way round, with padding: another right answer."""
    n, length = len(arrays), len(arrays[0])
    chunks = [np.pad(array, (0, -length % n)).reshape(n, -1) for array in arrays]
    for turn in range(2 * (n - 1)):
        for rank in range(n):
            left, c = (rank - 1) % n, (rank + turn) % n
            arrived = send(rank, left, chunks[rank][c])
            chunks[left][c] = chunks[left][c] + arrived if turn < n - 1 else arrived
    return [mine.ravel()[:length] for mine in chunks]


def ring_from_a_flat_buffer(arrays, send):
    """In place, on slices, all sends of a round before any is taken in: another right answer."""
    n = len(arrays)
    edges = np.linspace(0, len(arrays[0]), n + 1).round().astype(int)
    part = [slice(a, b) for a, b in itertools.pairwise(edges)]
    for turn in range(2 * n - 2):
        moves = [(rank, (rank + 1) % n, part[(rank - turn) % n]) for rank in range(n)]
        arrived = [send(rank, right, arrays[rank][where]) for rank, right, where in moves]
        for (_, right, where), new in zip(moves, arrived, strict=True):
            arrays[right][where] = new if turn >= n - 1 else arrays[right][where] + new
    return arrays


def _too_much(seen, expected):
    if BYTES in seen:
        return f"a rank sends {seen[BYTES][0]} bytes where {expected[BYTES][0]} are enough"
    return f"the busiest rank sends {seen[SPARE]} bytes too many"


def _sent_for_show(cases, seen, expected):
    return (
        all(map(_sums_right, seen, expected))
        and all(sum(one[MESSAGES]) for one in seen)
        and any(one[HEARD] != right[HEARD] for one, right in zip(seen, expected, strict=True))
    )


def _means_for_sums(cases, seen, expected):
    return all(
        np.allclose(np.multiply(_sums(mine), len(case["arrays"])), _sums(right))
        for case, mine, right in zip(cases, seen, expected, strict=True)
    )


def _only_rank_0(cases, seen, expected):
    right = [
        np.equal(_sums(mine), _sums(whole)).all(axis=1) for mine, whole in zip(seen, expected, strict=True)
    ]
    return all(ranks[0] and not any(ranks[1:]) for ranks in right)


def _through_rank_0(cases, seen, expected):
    return all(map(_sums_right, seen, expected)) and all(
        one[MESSAGES] == [len(one[MESSAGES]) - 1] + [1] * (len(one[MESSAGES]) - 1) for one in seen
    )


RING = Exercise(
    id="03.ring_all_reduce",
    title="Write the ring",
    points=3,
    length="about 10 lines",
    signature="ring_all_reduce(arrays, send)",
    hints=[
        "Cut every array into n chunks: `np.array_split(array, n)`. There are two halves of n-1 rounds "
        "each. In the first, what arrives is *added*; in the second it is complete already and *replaces*.",
        "Look at the picture of the rounds. In round 1 rank r sends chunk r to its right neighbour `(r + "
        "1) % n`. In each later round it passes on the chunk that has just arrived: `(r - turn) % n`.",
        "After the first half rank r has the whole sum of chunk `(r + 1) % n`. So in the second half it "
        "sends `(r + 1 - turn) % n`. At the end: `np.concatenate(chunks[r])`.",
    ],
    cases=ring_cases,
    observe=observe_ring,
    expected=expected_ring,
    mistakes=[
        Mistake(
            "nothing was sent",
            sends_nothing,
            went_wrong="The sums are right, but no rank sent anything. You added up arrays that are all in "
            "one process here; on real workers rank 0 cannot see what rank 1 holds.",
            try_this="Whatever one rank knows of another must have come out of `send`.",
        ),
        Mistake(
            "sent for show",
            sends_for_show,
            went_wrong=lambda case, seen, expected: (
                f"Messages were sent, but what arrived was not enough to make these sums of. Of "
                f"{len(case['arrays'])} ranks, the numbers of {min(seen[HEARD])} reached one of them (its "
                "own included): the rest was read straight from `arrays`."
            ),
            try_this="Use what `send` returns, and nothing else of another rank.",
            recognises=_sent_for_show,
        ),
        Mistake(
            "mean for sum",
            ring_of_means,
            variants=[through_rank_0_as_mean],
            went_wrong=lambda case, seen, expected: (
                f"Each number is {len(case['arrays'])} times too small: you took the mean over "
                f"{len(case['arrays'])} ranks. This all-reduce is a SUM."
            ),
            try_this="Leave out the division.",
            recognises=_means_for_sums,
        ),
        Mistake(
            "right on rank 0 only",
            to_rank_0,
            variants=[along_the_ring_to_rank_0],
            went_wrong="Rank 0 has the sum, the others have not. That is a *reduce*. In an all-reduce "
            "every rank leaves with the sum, since every rank must update its own copy of the weights.",
            try_this="Print what each rank returns. What must still travel, and to whom?",
            recognises=_only_rank_0,
        ),
        Mistake(
            "through rank 0",
            through_rank_0,
            went_wrong=lambda case, seen, expected: (
                f"All sums are right, but rank 0 sent to {seen[NEIGHBOURS][0]} others, whole arrays each "
                "time. This is gather and broadcast: with 100 workers, rank 0 would send 99 arrays."
            ),
            try_this="Let each rank send to its right neighbour only, one chunk at a time.",
            recognises=_through_rank_0,
        ),
        Mistake(
            "whole array each round",
            whole_array_each_round,
            variants=[whole_array_twice_round],
            went_wrong=lambda case, seen, expected: (
                "All sums are right, and only neighbours talk. But each message is a whole array: "
                f"{_too_much(seen, expected)}. The point of the ring is to send one chunk, 1/n of the "
                "array, a round."
            ),
            try_this="Cut the arrays into n chunks first. Which chunk may leave in round 1?",
        ),
        Mistake(
            "only the first half",
            first_half_only,
            went_wrong="Each rank has one complete chunk, and parts of sums elsewhere. This is a "
            "*reduce-scatter*, the first half of the ring.",
            try_this="n-1 more rounds: pass the complete chunks round, and replace instead of adding.",
        ),
        Mistake(
            "adds in both halves",
            adds_in_both_halves,
            went_wrong="Some numbers are too large: they were counted twice. In the second half a complete "
            "sum arrives; you added it to what was there.",
            try_this="In the second half, let what arrives *replace* the chunk.",
        ),
        Mistake(
            "second half begins with the wrong chunk",
            wrong_chunk_second,
            went_wrong="The first half is right. But the second begins with chunk r of rank r, which is "
            "not complete there: what rank r has finished is chunk r+1, the last that arrived.",
            try_this="Which cells have all colours after round n-1 in the picture? Those leave first.",
        ),
        Mistake(
            "the same chunk every round",
            same_chunk_always,
            went_wrong="Each rank sends the same chunk in every round. On a ring it passes on what has "
            "just arrived, which is another chunk each round.",
            try_this="Let the chunk's number depend on the round: one less each time, modulo n.",
        ),
        Mistake(
            "float64 on the wire",
            as_float64,
            went_wrong=lambda case, seen, expected: (
                f"Sums and messages are right, but {_too_much(seen, expected)}: the arrays are float32, "
                "and yours travel as float64."
            ),
            try_this="`np.zeros(n)` and Python floats make float64. Keep `arrays[r].dtype`.",
        ),
        Mistake(
            "one round too few or too many",
            lambda arrays, send: _ring(arrays, send, first=-1, second=-1),
            variants=[
                lambda arrays, send: _ring(arrays, send, first=-1),
                lambda arrays, send: _ring(arrays, send, second=-1),
                lambda arrays, send: _ring(arrays, send, first=1, second=1),
                lambda arrays, send: _ring(arrays, send, first=1),
                lambda arrays, send: _ring(arrays, send, second=1),
            ],
            went_wrong=lambda case, seen, expected: (
                f"Each rank sends {seen[MESSAGES][0]} messages; on {len(case['arrays'])} ranks it takes "
                f"{expected[MESSAGES][0]}: n-1 rounds until a chunk has been everywhere, n-1 to bring it "
                "home."
            ),
            try_this="Look at your `range(…)`: both halves have n-1 rounds.",
        ),
        Mistake(
            "remainder forgotten",
            forgets_the_remainder,
            went_wrong=lambda case, seen, expected: (
                f"{case['arrays'].shape[1]} numbers do not divide by {len(case['arrays'])}: the last "
                f"{case['arrays'].shape[1] % len(case['arrays'])} took no part in the sum."
            ),
            try_this="`np.array_split` cuts anything, into chunks that differ by one at most.",
        ),
        Mistake(
            "only equal chunks",
            needs_equal_chunks,
            went_wrong=lambda case, seen, expected: (
                f"{case['arrays'].shape[1]} numbers do not divide by {len(case['arrays'])}, and `np.split` "
                "and `reshape` refuse what does not divide. Real gradients come in any length."
            ),
            try_this="`np.array_split` cuts anything, into chunks that differ by one at most.",
        ),
        Mistake(
            "everyone to everyone",
            everyone_to_everyone,
            went_wrong=lambda case, seen, expected: (
                f"Sums, messages and bytes are right, but each rank sends to {seen[NEIGHBOURS][0]} others. "
                "On a ring it sends to one. (Yours is the *direct* all-reduce; it needs a link between "
                "every two.)"
            ),
            try_this="Let every message go to the right neighbour, `(rank + 1) % n`.",
        ),
    ],
    also_right=[ring_leftwards, ring_from_a_flat_buffer],
    tolerance=1e-6,
)


ACCURACY, TOGETHER = "accuracy on each replica", "all come to every all-reduce"


def accuracy_cases(random):
    """Shares of very different size; in the last case one replica has none."""
    cases = []
    for shares in ([16, 16, 16, 2], [5, 40, 11], [8, 8, 4, 0]):
        correct = [
            int(random.integers(0, share // 2 + 1)) if i % 2 else share for i, share in enumerate(shares)
        ]
        cases.append({"about": f"replicas that saw {shares} examples", "seen": shares, "correct": correct})
    return cases


def observe_accuracy(answer, case):
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracies = _in_step(answer, case["correct"], case["seen"])
    if accuracies is None:
        return {ACCURACY: "none: the others wait for ever", TOGETHER: False}
    return {ACCURACY: [returned.number(value, "accuracy") for value in accuracies], TOGETHER: True}


def expected_accuracy(case):
    return {ACCURACY: [sum(case["correct"]) / sum(case["seen"])] * len(case["seen"]), TOGETHER: True}


class _Waiting(BaseException):
    """A replica has come to an all-reduce that not all others have reached yet."""


def _in_step(answer, correct, seen):
    """What `answer` returns on each replica; None if some wait for one that has left.

    No threads: a replica runs until it meets an all-reduce whose result is not known yet. When all wait
    at the same one, its result is computed, and all start again.
    """
    known = []
    while len(known) < 20:
        waiting, results = [], []
        for mine in zip(correct, seen, strict=True):
            try:
                results.append(answer(*map(np.float64, mine), _all_reduce(known, waiting)))
            except _Waiting:
                continue
        if not waiting:
            return results
        operations = {operation for operation, _ in waiting}
        if results or len(operations) > 1:
            return None
        known.append(np.sum([value for _, value in waiting], axis=0) / _divisor(operations.pop(), len(seen)))
    raise returned.Unusable("accuracy called all_reduce more than 20 times; twice is enough.")


def _divisor(operation, replicas):
    return replicas if operation == "MEAN" else 1


def _all_reduce(known, waiting):
    calls = iter(list(known))

    def all_reduce(operation, value):
        operation = getattr(operation, "value", operation)  # tf.distribute.ReduceOp is welcome too
        if not isinstance(operation, str) or operation.upper() not in ("SUM", "MEAN"):
            raise ValueError(f'all_reduce takes "SUM" or "MEAN" first, then the value; got {operation!r}')
        for result in calls:
            return result
        waiting.append((operation.upper(), np.asarray(value, dtype=float)))
        raise _Waiting

    return all_reduce


def _leaves_early(correct, seen, all_reduce):
    return 0.0 if seen == 0 else all_reduce("SUM", correct) / all_reduce("SUM", seen)


def _both_at_once(correct, seen, all_reduce):
    correct, seen = all_reduce("SUM", np.array([correct, seen]))
    return correct / seen


def _times(case, seen):
    return f"{max(seen[ACCURACY]):.3g}" if isinstance(seen[ACCURACY], list) else "nothing"


SUM_OR_MEAN = Exercise(
    id="03.sum_or_mean",
    title="SUM or MEAN?",
    points=1,
    length="about 1 line",
    signature="accuracy(correct, seen, all_reduce)",
    hints=[
        "Think of all examples in one place. The accuracy is one number of right answers over one number of "
        "examples. Which two totals do you need?",
        'Both totals are counts, and counts add up: `all_reduce("SUM", correct)` is the first. Divide last.',
    ],
    cases=accuracy_cases,
    observe=observe_accuracy,
    expected=expected_accuracy,
    mistakes=[
        Mistake(
            "mean of the replicas' accuracies",
            lambda correct, seen, all_reduce: all_reduce("MEAN", correct / seen),
            variants=[
                lambda correct, seen, all_reduce: all_reduce("MEAN", correct / max(seen, 1)),
            ],
            went_wrong=lambda case, seen, expected: (
                f"You took the mean of {len(case['seen'])} accuracies as if all shares were equally large, "
                f"but they are {case['seen']}. A replica with 2 examples counts as much as one with 16."
            ),
            try_this="First add up, then divide: reduce the two counts, not the ratio.",
        ),
        Mistake(
            "sum of the replicas' accuracies",
            lambda correct, seen, all_reduce: all_reduce("SUM", correct / seen),
            variants=[
                lambda correct, seen, all_reduce: all_reduce("SUM", correct / max(seen, 1)),
            ],
            went_wrong=lambda case, seen, expected: (
                f"An accuracy of {_times(case, seen)}: the replicas' accuracies were added up, "
                "and ratios do not add up."
            ),
            try_this="Counts add up. Reduce `correct` and `seen`, then divide.",
        ),
        Mistake(
            "my own share only",
            lambda correct, seen, all_reduce: correct / seen,
            variants=[lambda correct, seen, all_reduce: correct / max(seen, 1)],
            went_wrong="Each replica reports the accuracy of its own share: they differ from each other.",
            try_this="Nothing was reduced. Which two numbers must the replicas add up?",
        ),
        Mistake(
            "total over my own count",
            lambda correct, seen, all_reduce: all_reduce("SUM", correct) / seen,
            went_wrong="Right answers of *all* replicas are divided by the examples of *one*.",
            try_this="Reduce both, with the same operation.",
        ),
        Mistake(
            "mean over my own count",
            lambda correct, seen, all_reduce: all_reduce("MEAN", correct) / seen,
            went_wrong="The mean number of right answers is divided by *this* replica's examples. That is "
            "right only while all shares are equally large, and here they are not.",
            try_this="Reduce `seen` as well.",
        ),
        Mistake(
            "SUM over MEAN",
            lambda correct, seen, all_reduce: all_reduce("SUM", correct) / all_reduce("MEAN", seen),
            went_wrong=lambda case, seen, expected: (
                f"It is {len(case['seen'])} times too large: a SUM over all replicas, divided by a MEAN "
                "over them."
            ),
            try_this="The same operation above and below the line.",
        ),
        Mistake(
            "MEAN over SUM",
            lambda correct, seen, all_reduce: all_reduce("MEAN", correct) / all_reduce("SUM", seen),
            went_wrong=lambda case, seen, expected: (
                f"It is {len(case['seen'])} times too small: a MEAN over all replicas, divided by a SUM "
                "over them."
            ),
            try_this="The same operation above and below the line.",
        ),
        Mistake(
            "upside down",
            lambda correct, seen, all_reduce: all_reduce("SUM", seen) / all_reduce("SUM", correct),
            variants=[
                lambda correct, seen, all_reduce: all_reduce("MEAN", seen) / all_reduce("MEAN", correct),
                lambda correct, seen, all_reduce: all_reduce("SUM", seen / max(correct, 1)),
                lambda correct, seen, all_reduce: all_reduce("MEAN", seen / max(correct, 1)),
                lambda correct, seen, all_reduce: seen / max(correct, 1),
                lambda correct, seen, all_reduce: seen / correct,
            ],
            went_wrong=lambda case, seen, expected: (
                f"An accuracy of {_times(case, seen)}? It can be 1 at most. You divided the examples by the "
                "right answers: the fraction is upside down."
            ),
            try_this="Accuracy = right answers / examples. Turn the fraction round.",
        ),
        Mistake(
            "integer division",
            lambda correct, seen, all_reduce: all_reduce("SUM", correct) // all_reduce("SUM", seen),
            variants=[
                lambda correct, seen, all_reduce: all_reduce("MEAN", correct) // all_reduce("MEAN", seen),
                lambda correct, seen, all_reduce: all_reduce("MEAN", correct // max(seen, 1)),
                lambda correct, seen, all_reduce: all_reduce("SUM", correct // max(seen, 1)),
                lambda correct, seen, all_reduce: correct // max(seen, 1),
                lambda correct, seen, all_reduce: int(all_reduce("SUM", correct) / all_reduce("SUM", seen)),
            ],
            went_wrong="An accuracy lies between 0 and 1, and `//` (or `int`) drops what is after the "
            "decimal point: only whole numbers are left.",
            try_this="Divide with `/`: add up both counts first, divide last.",
        ),
        Mistake(
            "one leaves, the others wait",
            _leaves_early,
            went_wrong="A replica without examples returned before the all-reduce. The others wait in it "
            "for ever: a dead-lock. A collective must be entered by all.",
            try_this="Let a replica without examples bring its 0 like everyone else. After the sum, no "
            "divisor is 0.",
        ),
    ],
    also_right=[
        lambda correct, seen, all_reduce: all_reduce("MEAN", correct) / all_reduce("MEAN", seen),
        _both_at_once,
    ],
)


def bytes_cases(random):
    sizes = [(n, 840 * int(random.integers(1_000, 100_000))) for n in (4, 2, 8, 1)]  # 840 divides by 1 … 8
    return [
        {"about": f"{n} workers, an array of {size:,} bytes", "workers": n, "size": size} for n, size in sizes
    ]


SENT = "bytes that each worker sends"


def observe_bytes(answer, case):
    sent = returned.number(answer(case["workers"], case["size"]), "bytes_per_worker")
    return {SENT: round(sent) if np.isfinite(sent) else sent}  # whole bytes, written like the expected ones


def expected_bytes(case):
    """Counted, not computed: a chunk is sent once in each of the 2(n-1) rounds."""
    chunk = case["size"] // case["workers"]
    return {SENT: sum(chunk for _ in range(2 * (case["workers"] - 1)))}


BYTES_PER_WORKER = Exercise(
    id="03.bytes_per_worker",
    title="What does one worker send?",
    points=1,
    length="about 1 line",
    signature="bytes_per_worker(workers, array_bytes)",
    hints=[
        "How many rounds has the ring, and how large is what a worker sends in one of them?",
        "n-1 rounds to add, n-1 rounds to pass on, and each time 1/n of the array.",
    ],
    cases=bytes_cases,
    observe=observe_bytes,
    expected=expected_bytes,
    mistakes=[
        Mistake(
            "all workers together",
            lambda workers, array_bytes: 2 * (workers - 1) * array_bytes,
            went_wrong="This is what *all* workers send together, or what one would send if each message "
            "were a whole array. A message of the ring is one chunk.",
            try_this="Divide by the number of workers: they all send equally much.",
        ),
        Mistake(
            "one half of the ring",
            lambda workers, array_bytes: (workers - 1) * array_bytes / workers,
            went_wrong="This is half of it: after n-1 rounds each worker has one complete chunk, and the "
            "other chunks must still come home.",
            try_this="Count the rounds in the picture once more.",
        ),
        Mistake(
            "whole array each round",
            lambda workers, array_bytes: (workers - 1) * array_bytes,
            went_wrong="This is what a worker sends when it gives its whole array to each of the others, "
            "or passes whole arrays round.",
            try_this="In the ring a message is 1/n of the array.",
        ),
        Mistake(
            "n rounds instead of n-1",
            lambda workers, array_bytes: 2 * array_bytes,
            went_wrong="Two arrays is where it goes with very many workers. With n workers each half has n-1 "
            "rounds, not n: a worker need not send to itself. One worker alone sends nothing at all.",
            try_this="Try 1 and 2 workers by hand.",
        ),
        Mistake(
            "one message",
            lambda workers, array_bytes: array_bytes / workers,
            went_wrong="This is one chunk: what a worker sends in one round.",
            try_this="Multiply by the rounds: how many are there in both halves together?",
        ),
        Mistake(
            "one round each half",
            lambda workers, array_bytes: 2 * array_bytes / workers,
            went_wrong="This is two chunks: one round of each half. There are n-1 rounds in each.",
            try_this="Multiply by the rounds.",
        ),
        Mistake(
            "upside down",
            lambda workers, array_bytes: 2 * workers * array_bytes / (workers - 1),
            variants=[
                lambda workers, array_bytes: workers / (workers - 1) * array_bytes,
                lambda workers, array_bytes: 2 * workers * array_bytes / max(workers - 1, 1),
                lambda workers, array_bytes: 2 * workers * array_bytes / (workers - 1) if workers > 1 else 0,
                lambda workers, array_bytes: workers * array_bytes / (workers - 1) if workers > 1 else 0,
            ],
            went_wrong="The fraction is upside down: n / (n-1) of the array grows above 1, and with one "
            "worker it divides by 0. A chunk is 1/n of the array, and there are n-1 rounds in each half.",
            try_this="(n-1) above the line, n below.",
        ),
        Mistake(
            "divided by the rounds",
            lambda workers, array_bytes: array_bytes / (2 * (workers - 1)),
            variants=[
                lambda workers, array_bytes: 2 * array_bytes / (workers - 1),
                lambda workers, array_bytes: array_bytes / (workers - 1),
            ],
            went_wrong="You divided by the number of rounds, which is 0 with one worker. Each round sends "
            "something more, so rounds multiply; it is the number of *chunks* that divides.",
            try_this="Rounds × size of a chunk. How large is a chunk?",
        ),
        Mistake(
            "integer division came first",
            lambda workers, array_bytes: 2 * (workers - 1) // workers * array_bytes,
            variants=[
                lambda workers, array_bytes: (workers - 1) // workers * 2 * array_bytes,
            ],
            went_wrong=lambda case, seen, expected: (
                f"You get {seen[SENT] / case['size']:g} × the array where it should be "
                f"{expected[SENT] / case['size']:g} ×: `//` drops what is after the decimal point, and what "
                "is left is a whole number of arrays."
            ),
            try_this="Use `/`, or divide last: `… * array_bytes // workers`.",
        ),
        Mistake(
            "one array",
            lambda workers, array_bytes: array_bytes,
            went_wrong="One array each: true with 2 workers, too little with more.",
            try_this="Count the chunks that rank 0 sends in the picture, with 4 ranks.",
        ),
        Mistake(
            "messages instead of bytes",
            lambda workers, array_bytes: 2 * (workers - 1),
            went_wrong="This is the number of messages. Each of them carries a chunk.",
            try_this="Multiply by the size of a chunk.",
        ),
    ],
    also_right=[
        lambda workers, array_bytes: 2 * (array_bytes - array_bytes / workers),
        lambda workers, array_bytes: sum(array_bytes / workers for _ in range(2 * workers - 2)),
    ],
)

EXERCISES = [RING, SUM_OR_MEAN, BYTES_PER_WORKER]
