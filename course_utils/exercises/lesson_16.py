"""The exercises of lesson 16: TF_CONFIG on Slurm, the efficiency in a log, workers for a deadline."""

import json
import math

import numpy as np

from course_utils.exercises import returned
from course_utils.exercises.model import Exercise, Mistake
from course_utils.exercises.returned import Unusable

# --- 16.tf_config_on_slurm ---------------------------------------------------------------------------------

SAME, ADDRESSES, PLACES = (
    "every task has the same address book",
    "the address book",
    "who each task says it is",
)


def slurm_cases(random):
    """Names that sort as they count and names that do not; one task a node and several."""
    first = int(random.integers(8, 10))
    rack = int(random.integers(1, 90))
    return [
        slurm_case([f"r{rack}n{number:02}" for number in range(1, 4)], 1, random),
        slurm_case([f"n{number}" for number in range(first, first + 3)], 1, random),
        slurm_case([f"gpu{number}" for number in range(1, 3)], 2, random),
    ]


def slurm_case(hosts, per_node, random):
    tasks = f", {per_node} tasks on each" if per_node > 1 else ""
    return {
        "about": f"nodes {', '.join(hosts)}{tasks}",
        "hosts": hosts,
        "tasks a node": per_node,
        "first port": int(random.integers(200, 290)) * 100,
    }


def variables_of(case, rank):
    """What srun sets for the task with this rank, as far as it matters here. All are texts."""
    per_node, nodes = case["tasks a node"], len(case["hosts"])
    return {
        "SLURM_JOB_ID": "4711",
        "SLURM_NNODES": str(nodes),
        "SLURM_NTASKS": str(nodes * per_node),
        "SLURM_NTASKS_PER_NODE": str(per_node),
        "SLURM_PROCID": str(rank),
        "SLURM_NODEID": str(rank // per_node),
        "SLURM_LOCALID": str(rank % per_node),
    }


def observe_slurm(answer, case):
    ranks = range(len(case["hosts"]) * case["tasks a node"])
    configs = [one_config(answer, case, rank) for rank in ranks]
    books = [config.get("cluster") for config in configs]
    return {
        SAME: all(book == books[0] for book in books),
        ADDRESSES: books[0],
        PLACES: [config.get("task") for config in configs],
    }


def one_config(answer, case, rank):
    text = answer(variables_of(case, rank), list(case["hosts"]), case["first port"])
    config = returned.json_text(text, "tf_config_on_slurm")
    if not isinstance(config, dict):
        raise Unusable("tf_config_on_slurm should return the text of one JSON object, {…}.")
    return config


def expected_slurm(case):
    addresses = []
    for host in case["hosts"]:
        addresses += [f"{host}:{case['first port'] + local}" for local in range(case["tasks a node"])]
    places = [{"type": "worker", "index": rank} for rank in range(len(addresses))]
    return {SAME: True, ADDRESSES: {"worker": addresses}, PLACES: places}


def slurm_answer(
    index=lambda variables: int(variables["SLURM_PROCID"]),
    hosts=lambda hosts: hosts,
    port=lambda first, local: first + local,
    tasks=lambda variables: int(variables["SLURM_NTASKS_PER_NODE"]),
    dump=json.dumps,
    kind="worker",
    nodes_first=False,
):
    """An answer with one part of it done otherwise."""

    def answer(variables, names, first_port):
        locals_ = range(tasks(variables))
        pairs = [(host, local) for host in hosts(names) for local in locals_]
        if nodes_first:
            pairs = [(host, local) for local in locals_ for host in hosts(names)]
        addresses = [f"{host}:{port(first_port, local)}" for host, local in pairs]
        return dump({"cluster": {kind: addresses}, "task": {"type": kind, "index": index(variables)}})

    return answer


def ports_of_the_job(variables, hosts, first_port):
    each = int(variables["SLURM_NTASKS_PER_NODE"])
    workers = [f"{hosts[rank // each]}:{first_port + rank}" for rank in range(len(hosts) * each)]
    return json.dumps(
        {"cluster": {"worker": workers}, "task": {"type": "worker", "index": int(variables["SLURM_PROCID"])}}
    )


def with_chief(variables, hosts, first_port):
    config = json.loads(slurm_answer()(variables, hosts, first_port))
    chief, *workers = config["cluster"]["worker"]
    index = config["task"]["index"]
    place = {"type": "worker", "index": index - 1} if index else {"type": "chief", "index": 0}
    return json.dumps({"cluster": {"chief": [chief], "worker": workers}, "task": place})


def by_position(variables, hosts, first_port):
    count = int(variables["SLURM_NTASKS"])
    each = count // len(hosts)
    workers = [f"{hosts[rank // each]}:{first_port + rank % each}" for rank in range(count)]
    place = int(variables["SLURM_NODEID"]) * each + int(variables["SLURM_LOCALID"])
    return json.dumps({"task": {"index": place, "type": "worker"}, "cluster": {"worker": workers}})


TF_CONFIG_ON_SLURM = Exercise(
    id="16.tf_config_on_slurm",
    title="TF_CONFIG from Slurm's variables",
    points=3,
    length="about 4 lines",
    signature="tf_config_on_slurm(variables, hosts, first_port)",
    hints=[
        "The address book is the same on every task: all hosts, and on each as many ports as it has tasks.",
        "`SLURM_PROCID` counts the tasks of the whole job, `SLURM_LOCALID` those of one node, "
        "`SLURM_NODEID` the nodes. Which of them is the index?",
        "Slurm fills the first node first: for each host, for each local task, `host:first_port + local`. "
        "All of Slurm's variables are texts.",
    ],
    cases=slurm_cases,
    observe=observe_slurm,
    expected=expected_slurm,
    mistakes=[
        Mistake(
            "hosts sorted by letters",
            slurm_answer(hosts=sorted),
            went_wrong=lambda case, seen, expected: (
                f"Your list begins with {seen[ADDRESSES]['worker'][0]}, and task 0 runs on "
                f"{expected[ADDRESSES]['worker'][0]}. Sorted as texts, n10 comes before n9: tasks get the "
                "address of another node. TensorFlow's own SlurmClusterResolver does the same."
            ),
            try_this="Keep Slurm's order. It is the order in which the tasks are counted.",
        ),
        Mistake(
            "the node's number for the task's",
            slurm_answer(index=lambda variables: int(variables["SLURM_NODEID"])),
            went_wrong="Two tasks on one node have the same SLURM_NODEID, and so the same index. Both would "
            "want one port, and the others would wait for ever.",
            try_this="Take the variable that counts the tasks of the whole job.",
        ),
        Mistake(
            "the local number for the task's",
            slurm_answer(index=lambda variables: int(variables["SLURM_LOCALID"])),
            went_wrong="SLURM_LOCALID begins with 0 on every node: each node would have a worker 0.",
            try_this="Take the variable that counts the tasks of the whole job.",
        ),
        Mistake(
            "one port for all tasks of a node",
            slurm_answer(port=lambda first, local: first),
            went_wrong="Two tasks of one node have the same address. Only one of them can have that port.",
            try_this="Add the task's number on its node to the first port.",
        ),
        Mistake(
            "one task on each node",
            slurm_answer(tasks=lambda variables: 1),
            went_wrong=lambda case, seen, expected: (
                f"Your address book has {len(seen[ADDRESSES]['worker'])} workers, the job has "
                f"{len(expected[ADDRESSES]['worker'])}."
            ),
            try_this="SLURM_NTASKS_PER_NODE says how many tasks a node has.",
        ),
        Mistake(
            "a port for each task of the job",
            ports_of_the_job,
            went_wrong="Every task of the job has a port number of its own. It would run, but firewalls are "
            "opened for a few ports a node, and this exercise asks for ports counted on each node.",
            try_this="Count the ports on each node: first_port, first_port + 1, …",
        ),
        Mistake(
            "nodes dealt out in turn",
            slurm_answer(nodes_first=True),
            went_wrong="You deal the tasks out node by node in turn. Slurm fills one node and then the next "
            "(its block distribution), so the second task is on the first node.",
            try_this="For each host, all of its tasks.",
        ),
        Mistake(
            "the index as a text",
            slurm_answer(index=lambda variables: variables["SLURM_PROCID"]),
            went_wrong='Your index is a text, such as "1". Slurm\'s variables are texts, and TF_CONFIG wants '
            "a number there.",
            try_this="`int(…)` around it.",
        ),
        Mistake(
            "worker 0 called chief",
            with_chief,
            went_wrong="You made the first task a chief. That is allowed, but the exercise asks for workers "
            "alone: worker 0 then has the chief's duties.",
            try_this='Use only the type "worker".',
        ),
        Mistake(
            "str(dict) instead of JSON",
            slurm_answer(dump=str),
            went_wrong="That is how Python writes a dictionary, with single quotes. JSON has double ones.",
            try_this="`json.dumps(…)`.",
        ),
    ],
    also_right=[by_position],
)


# --- 16.efficiency -----------------------------------------------------------------------------------------

EFFICIENCY = "efficiency"


def log_cases(random):
    """A weak run, a strong run, and one in between; the first step of each is slow."""
    cases = []
    for about, workers, growth in (
        ("each worker keeps its batch", 8, 8),
        ("the global batch stays", 4, 1),
        ("the global batch doubles on 4 workers", 4, 2),
    ):
        batch, one = int(random.integers(2, 9)) * 32, float(random.uniform(0.1, 0.4))
        share = growth / workers
        many = one * share * float(random.uniform(1.15, 1.6))
        cases.append(
            {
                "about": f"{workers} workers, {about}",
                "workers": workers,
                "one": {
                    "global batch": batch,
                    "seconds": [one * 9, *(one * part for part in VARYING["one"])],
                },
                "many": {
                    "global batch": batch * growth,
                    "seconds": [many * 20 + 2, *(many * part for part in VARYING["many"])],
                },
            }
        )
    return cases


# Around 1, which is their mean and their median; no single step is the same part of it in both runs.
VARYING = {
    "one": (1.0, 1.1, 0.95, 1.12, 1.0, 1.05, 0.9, 0.88),
    "many": (0.94, 1.0, 1.06, 1.0, 1.03, 0.97, 0.9, 1.1),
}


def observe_efficiency(answer, case):
    one, many = ({**case[name], "seconds": list(case[name]["seconds"])} for name in ("one", "many"))
    return {EFFICIENCY: returned.number(answer(one, many, case["workers"]), "efficiency")}


def expected_efficiency(case):
    rates = {name: case[name]["global batch"] / steady(case[name]) for name in ("one", "many")}
    return {EFFICIENCY: rates["many"] / rates["one"] / case["workers"]}


def steady(run):
    return sum(run["seconds"][1:]) / (len(run["seconds"]) - 1)


def by_throughput(one, many, workers):
    faster = (many["global batch"] / steady(many)) / (one["global batch"] / steady(one))
    return faster / workers


def by_median(one, many, workers):
    ideal = float(np.median(one["seconds"][1:])) / one["global batch"] / workers
    return ideal / (float(np.median(many["seconds"][1:])) / many["global batch"])


def by_one_step(choose):
    """The efficiency from a single step of each run."""

    def answer(one, many, workers):
        rates = [run["global batch"] / choose(run["seconds"]) for run in (many, one)]
        return rates[0] / rates[1] / workers

    return answer


READ_EFFICIENCY = Exercise(
    id="16.efficiency",
    title="Efficiency from a log",
    points=2,
    length="about 4 lines",
    signature="efficiency(one, many, workers)",
    hints=[
        "Efficiency: examples a second, compared with as many workers that cost each other nothing.",
        "Throughput is the global batch over the seconds of a step, in weak and in strong scaling.",
        'Look at `one["seconds"]`: which step should not count?',
    ],
    cases=log_cases,
    observe=observe_efficiency,
    expected=expected_efficiency,
    mistakes=[
        Mistake(
            "speed-up taken for efficiency",
            lambda one, many, workers: by_throughput(one, many, workers) * workers,
            went_wrong=lambda case, seen, expected: (
                f"{seen[EFFICIENCY]:.2f} is the speed-up: so many times the examples a second. An efficiency "
                "is at most 1, the part of it that you paid for and got."
            ),
            try_this="Divide by the number of workers.",
        ),
        Mistake(
            "strong and weak confused: only seconds compared",
            lambda one, many, workers: steady(one) / steady(many),
            went_wrong=lambda case, seen, expected: (
                "You compare the seconds of a step. That is right only where every worker keeps its batch; "
                f"for “{case['about']}” it gives {seen[EFFICIENCY]:.2f}, not {expected[EFFICIENCY]:.2f}."
                if case["one"]["global batch"] * case["workers"] != case["many"]["global batch"]
                else "You compare the seconds of a step. In another case the global batch does not grow with "
                "the workers, and a speed-up above the number of workers comes out."
            ),
            try_this="Compare examples a second: the global batch divided by the seconds of a step.",
        ),
        Mistake(
            "strong and weak confused: larger batches not counted",
            lambda one, many, workers: steady(one) / steady(many) / workers,
            went_wrong="You divide the seconds of a step by each other and by the workers. That is right "
            "only where the global batch stays; where it grows, the larger steps do more work.",
            try_this="Compare examples a second: the global batch divided by the seconds of a step.",
        ),
        Mistake(
            "the tracing step counted",
            lambda one, many, workers: (
                many["global batch"]
                * len(many["seconds"])
                / sum(many["seconds"])
                / (one["global batch"] * len(one["seconds"]) / sum(one["seconds"]))
                / workers
            ),
            went_wrong="The first step is in your mean. TensorFlow traces the function in it, which takes "
            "many times as long as a step and happens once.",
            try_this='Leave the first entry of `"seconds"` out, in both runs.',
            variants=[
                lambda one, many, workers: (
                    many["global batch"]
                    / many["seconds"][0]
                    / (one["global batch"] / one["seconds"][0])
                    / workers
                )
            ],
            recognises=lambda cases, seen, expected: any(
                all(
                    abs(got[EFFICIENCY] - guess(case)) < 1e-6 * guess(case)
                    for case, got in zip(cases, seen, strict=True)
                )
                for guess in (_with_mean_of_all, _with_first_step)
            ),
        ),
        Mistake(
            "a speed-up above n: upside down",
            lambda one, many, workers: 1 / by_throughput(one, many, workers),
            went_wrong="Yours is above 1: so many times what ideal workers need. Turn the fraction round.",
            try_this="What you got over what you would get at best.",
        ),
        Mistake(
            "a single step taken for the run",
            by_one_step(lambda seconds: seconds[-1]),
            went_wrong="You read off one step. Steps vary, so one of them is no measurement.",
            try_this="Take the mean, or the median, of all steps but the first.",
            variants=[by_one_step(min), by_one_step(lambda seconds: seconds[1])],
            recognises=lambda cases, seen, expected: any(
                all(
                    abs(got[EFFICIENCY] - by_one_step(choose)(case["one"], case["many"], case["workers"]))
                    < 1e-6
                    for case, got in zip(cases, seen, strict=True)
                )
                for choose in (min, lambda seconds: seconds[-1], lambda seconds: seconds[1])
            ),
        ),
        Mistake(
            "the two runs swapped",
            lambda one, many, workers: by_throughput(many, one, workers),
            went_wrong="You compare the single worker with the many, the wrong way round.",
            try_this="Many over one.",
        ),
        Mistake(
            "the speed-up upside down",
            lambda one, many, workers: 1 / (by_throughput(one, many, workers) * workers),
            went_wrong="You divide the rate of one worker by that of many, and leave the workers out.",
            try_this="Many over one, and then divide by the number of workers.",
        ),
        Mistake(
            "divided by the workers twice",
            lambda one, many, workers: by_throughput(one, many, workers) / workers,
            went_wrong="You divide by the number of workers twice.",
            try_this="Speed-up over workers: once.",
        ),
        Mistake(
            "in per cent",
            lambda one, many, workers: 100 * by_throughput(one, many, workers),
            went_wrong="That is the efficiency in per cent; the exercise asks for a number up to 1.",
            try_this="Leave the factor 100 out.",
        ),
    ],
    also_right=[by_throughput, by_median],
    tolerance=0.01,
)


def _with_mean_of_all(case):
    rates = [
        case[run]["global batch"] * len(case[run]["seconds"]) / sum(case[run]["seconds"])
        for run in ("many", "one")
    ]
    return rates[0] / rates[1] / case["workers"]


def _with_first_step(case):
    rates = [case[run]["global batch"] / case[run]["seconds"][0] for run in ("many", "one")]
    return rates[0] / rates[1] / case["workers"]


# --- 16.workers_for ----------------------------------------------------------------------------------------

WORKERS = "workers"
MOST = 512
NONE = "none is enough"


def deadline_cases(random):
    """Where communication doubles the answer, where latency makes it impossible, and every edge once."""
    many = int(random.integers(3000, 4000)) * 10  # batches in the data
    return [
        deadline_case(random, "a slow network", 1.25e8, 2e-5, many, 24),
        deadline_case(random, "a fast network", 3e9, 2e-5, many, 40),
        deadline_case(random, "a network with a long way", 1.25e9, 4e-4, many, None),
        deadline_case(random, "a lot of time", 6e9, 2e-5, many, 2, slack=1.19),
        deadline_case(random, "few data", 6e9, 2e-5, 10, 4),
        deadline_case(random, "more time than one worker needs", 6e9, 2e-5, 50, 1, slack=1.1),
        deadline_case(random, "no time to lose", 6e12, 1e-9, 5 * MOST, MOST),
    ]


def deadline_case(random, about, bandwidth, latency, batches, target, slack=1.0):
    """A case whose deadline `target` workers meet, exactly so unless there is slack; None: nobody does."""
    alone = quantised(float(random.uniform(0.15, 0.3)))
    case = {
        "about": about,
        "measured": {"1": alone, "2": quantised(1.1 * alone), "4": quantised(2.3 * alone)},
        "network": [latency, bandwidth],
        "bytes": float(random.integers(20, 60)) * 1e6,
        "examples": batches * 32,
        "batch": 32,
    }
    times = {workers: epoch_time(case, workers) for workers in range(1, MOST + 1)}
    case["deadline"] = slack * times[target] if target else 0.9 * min(times.values())
    return case


def quantised(seconds):
    """Rounded to a power of 2, so that sums and products are exact and "just in time" is decided alike."""
    return round(seconds * 2**20) / 2**20


def epoch_time(case, workers):
    """Seconds for all examples once, on machines of their own."""
    return steps_of(case, workers) * (case["measured"]["1"] + ring_of(case)(workers))


def steps_of(case, workers):
    return math.ceil(case["examples"] / (workers * case["batch"]))


def ring_of(case):
    latency, bandwidth = case["network"]
    return lambda workers: quantised(2 * (workers - 1) * (latency + case["bytes"] / workers / bandwidth))


def observe_deadline(answer, case):
    measured = {int(workers): time for workers, time in case["measured"].items()}
    got = answer(measured, ring_of(case), case["examples"], case["batch"], case["deadline"])
    return {WORKERS: NONE if got is None else returned.number(got, "workers_for")}


def expected_deadline(case):
    enough = [n for n in range(1, MOST + 1) if epoch_time(case, n) <= case["deadline"]]
    return {WORKERS: min(enough, default=NONE)}


def search(step=None, steps=None, none=None, first=1, most=MOST):
    """An answer with one part of it done otherwise."""
    step = step or (lambda measured, ring, workers: measured[1] + ring(workers))
    steps = steps or (lambda examples, workers, batch: math.ceil(examples / (workers * batch)))

    def answer(measured, all_reduce, examples, batch, deadline):
        for workers in range(first, most + 1):
            if steps(examples, workers, batch) * step(measured, all_reduce, workers) <= deadline:
                return workers
        return none

    return answer


def all_at_once(measured, all_reduce, examples, batch, deadline):
    times = {n: -(-examples // (n * batch)) * (measured[1] + all_reduce(n)) for n in range(1, 513)}
    return min((n for n, time in times.items() if time <= deadline), default=None)


def says(text):
    return lambda case, seen, expected: (
        text + f" You say {_words(seen[WORKERS])}, right is {_words(expected[WORKERS])} ({case['about']})."
    )


def _words(workers):
    return workers if isinstance(workers, str) else f"{workers:g}"


def always_none(measured, all_reduce, examples, batch, deadline):
    found = [n for n in range(1, 513) if measured[1] + all_reduce(n) <= deadline]
    min(found, default=None)  # a `return` is missing


def strictly_before(measured, all_reduce, examples, batch, deadline):
    for workers in range(1, 513):
        if math.ceil(examples / (workers * batch)) * (measured[1] + all_reduce(workers)) < deadline:
            return workers
    return None


WORKERS_FOR = Exercise(
    id="16.workers_for",
    title="Workers for a deadline",
    points=3,
    length="about 5 lines",
    signature="workers_for(measured, all_reduce, examples, batch, deadline)",
    hints=[
        "For a number of workers: how many steps has the epoch, and how long is one step?",
        "On the cluster every worker has a machine of its own. Which measurement was made like that?",
        "Try 1, 2, 3 … 512 workers. The first that is in time is the answer. There may be none: more workers "
        "also talk more.",
    ],
    cases=deadline_cases,
    observe=observe_deadline,
    expected=expected_deadline,
    mistakes=[
        Mistake(
            "None for every deadline",
            always_none,
            went_wrong="You say for each deadline that no number of workers is enough. If you did not mean "
            "that, a `return` is missing: a function without one gives None.",
            try_this="Return the first number of workers that is in time.",
        ),
        Mistake(
            "a last step left out",
            search(steps=lambda examples, workers, batch: examples // (workers * batch)),
            went_wrong=says("You round the number of steps down, so some examples are never seen."),
            try_this="Round up: the last step may be a small one, but it is a step.",
            variants=[search(steps=lambda examples, workers, batch: round(examples / (workers * batch)))],
            recognises=lambda cases, seen, expected: any(
                all(one[WORKERS] == guess(case) for case, one in zip(cases, seen, strict=True))
                for guess in (_rounded_by(math.floor), _rounded_by(round))
            ),
        ),
        Mistake(
            "just in time is not in time",
            strictly_before,
            went_wrong=says("A job that ends exactly at its deadline is *within* it."),
            try_this="`<=` instead of `<`.",
        ),
        Mistake(
            "one worker never tried",
            search(first=2),
            went_wrong=says("You begin with two workers. One may be enough."),
            try_this="Begin with 1.",
        ),
        Mistake(
            "512 never tried",
            search(most=MOST - 1),
            went_wrong=says("You stop before 512. `range(1, 512)` ends with 511."),
            try_this="`range(1, 513)`.",
        ),
        Mistake(
            "communication left out",
            search(step=lambda measured, ring, workers: measured[1]),
            went_wrong=says("Your workers never talk: a step costs as much on 100 as on one."),
            try_this="Add `all_reduce(workers)` to the step.",
            variants=[
                lambda m, ring, examples, batch, deadline: math.ceil(examples / batch * m[1] / deadline)
            ],
            recognises=lambda cases, seen, expected: all(
                one[WORKERS]
                in (
                    silent(case),
                    math.ceil(case["examples"] / case["batch"] * case["measured"]["1"] / case["deadline"]),
                )
                for case, one in zip(cases, seen, strict=True)
            ),
        ),
        Mistake(
            "extrapolated from shared cores",
            search(step=lambda measured, ring, workers: measured[4] + ring(workers)),
            went_wrong=says(
                "You take the step that was measured with four workers on one laptop, where they shared its "
                "cores. On the cluster nobody takes cores away."
            ),
            try_this="Take the time of one worker alone: a machine of its own.",
            variants=[
                search(step=lambda measured, ring, workers: measured[2] + ring(workers)),
                search(
                    step=lambda measured, ring, workers: (
                        measured[1] + (measured[4] - measured[1]) / 3 * (workers - 1) + ring(workers)
                    )
                ),
                search(
                    step=lambda measured, ring, workers: (
                        measured[min(workers, 4) // 2 * 2 or 1] + ring(workers)
                    )
                ),
            ],
            recognises=lambda cases, seen, expected: any(
                all(one[WORKERS] == guess(case) for case, one in zip(cases, seen, strict=True))
                for guess in (_on_shared_cores(4), _on_shared_cores(2), _on_a_line, _by_table)
            ),
        ),
        Mistake(
            "strong and weak confused",
            search(step=lambda measured, ring, workers: measured[1] / workers + ring(workers)),
            went_wrong=says(
                "You divide the work of a step by the workers *and* let an epoch have fewer steps. Each "
                "worker keeps its batch here, so its step stays as long as it was; there are fewer steps."
            ),
            try_this="Divide the number of steps, not the step: every worker keeps `batch` examples.",
        ),
        Mistake(
            "an epoch as long as on one worker",
            search(steps=lambda examples, workers, batch: math.ceil(examples / batch)),
            went_wrong=says("Your epoch has the same number of steps on any number of workers."),
            try_this="One step takes `workers * batch` examples.",
        ),
        Mistake(
            "the global batch stays",
            search(
                step=lambda measured, ring, workers: measured[1] / workers + ring(workers),
                steps=lambda examples, workers, batch: math.ceil(examples / batch),
            ),
            went_wrong=says("That is strong scaling: one worker's batch, shared out."),
            try_this="Every worker keeps `batch` examples; one step takes `workers * batch`.",
        ),
        Mistake(
            "the all-reduce of one worker",
            search(step=lambda measured, ring, workers: measured[1] + ring(2)),
            went_wrong=says("Your all-reduce costs the same for any number of workers."),
            try_this="`all_reduce(workers)`, with the number that you try.",
        ),
        Mistake(
            "no way out for a deadline that cannot be met",
            search(none=MOST),
            went_wrong=says(
                "One deadline cannot be met by any of up to 512 workers: more workers also talk more."
            ),
            try_this="Return None where none is in time.",
            variants=[search(none=0), search(none=-1), search(none=MOST + 1)],
            recognises=lambda cases, seen, expected: all(
                one == right or right[WORKERS] == NONE for one, right in zip(seen, expected, strict=True)
            ),
        ),
    ],
    also_right=[all_at_once, search()],
)


def _first_in_time(case, step):
    for workers in range(1, MOST + 1):
        if steps_of(case, workers) * step(workers) <= case["deadline"]:
            return workers
    return NONE


def silent(case):
    """The answer when workers never talk."""
    return _first_in_time(case, lambda workers: case["measured"]["1"])


def _rounded_by(rounding):
    def guess(case):
        for workers in range(1, MOST + 1):
            steps = rounding(case["examples"] / (workers * case["batch"]))
            if steps * (case["measured"]["1"] + ring_of(case)(workers)) <= case["deadline"]:
                return workers
        return NONE

    return guess


def _on_shared_cores(count):
    return lambda case: _first_in_time(case, lambda n: case["measured"][str(count)] + ring_of(case)(n))


def _on_a_line(case):
    alone, four = case["measured"]["1"], case["measured"]["4"]
    return _first_in_time(case, lambda n: alone + (four - alone) / 3 * (n - 1) + ring_of(case)(n))


def _by_table(case):
    return _first_in_time(case, lambda n: case["measured"][str(min(n, 4) // 2 * 2 or 1)] + ring_of(case)(n))


EXERCISES = [TF_CONFIG_ON_SLURM, READ_EFFICIENCY, WORKERS_FOR]
