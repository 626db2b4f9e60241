"""The exercises of lesson 07: write TF_CONFIG, know who leads, and read the traces of a wrong one."""

import ast
import difflib
import json
import os
import re
from unittest import mock

from course_utils.cluster import check_tf_configs
from course_utils.errors import ConfigError
from course_utils.exercises import returned
from course_utils.exercises.incidents import MISTAKES
from course_utils.exercises.model import Exercise, Mistake

# --- make_tf_config

KIND = "what comes back"
TASKS = "the processes say they are"
ADDRESSES = "the addresses that each lists"
ORDER = "in the same order everywhere"
CHECKED = "a check of all notes together finds"
OWN = "TF_CONFIG of the notebook's own process"


def config_cases(random):
    names = random.permutation(["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen"]).tolist()
    ports = random.integers(2000, 9000, len(names)).tolist()
    address = [f"{name}:{port}" for name, port in zip(names, ports, strict=True)]
    return [
        {"about": "two workers", "hosts": {"worker": address[:2]}},
        {"about": "three workers", "hosts": {"worker": address[2:5]}},
        {"about": "a chief and two workers", "hosts": {"chief": address[5:6], "worker": address[6:8]}},
        {
            "about": "a chief, two workers, one parameter server",
            "hosts": {"chief": address[:1], "worker": address[1:3], "ps": address[3:4]},
        },
    ]


def tasks_of(hosts):
    return [(kind, index) for kind, addresses in hosts.items() for index in range(len(addresses))]


def observe_config(answer, case):
    before = os.environ.pop("TF_CONFIG", None)
    try:
        returns = [answer(json.loads(json.dumps(case["hosts"])), *task) for task in tasks_of(case["hosts"])]
        touched = "TF_CONFIG" in os.environ
    finally:
        os.environ.pop("TF_CONFIG", None)
        if before is not None:
            os.environ["TF_CONFIG"] = before
    return facts([read(value) for value in returns], touched) | {CHECKED: mistake_found_in(returns)}


def read(value):
    """Kind of a returned value, and the dict that it stands for (empty where there is none)."""
    if isinstance(value, dict):
        return "a dict", value
    if not isinstance(value, str):
        return returned.describe(value), {}
    for kind, parse in (("JSON text", json.loads), ("str(dict), not JSON", ast.literal_eval)):
        try:
            parsed = parse(value)
        except (ValueError, SyntaxError):
            continue
        if isinstance(parsed, dict):
            return kind, parsed
    return "text that is not JSON", {}


def mistake_found_in(notes):
    """What the course itself says of these notes before it starts processes with them."""
    if not all(isinstance(note, str) for note in notes):
        return "that not all are text"
    try:
        check_tf_configs(notes)
    except ConfigError as error:
        return error.seen
    return "no mistake"


def facts(read_values, touched):
    """What the processes of a cluster would make of their configurations."""
    configs = [config for _, config in read_values]
    listed = [config.get("cluster") for config in configs]
    return {
        KIND: " and ".join(dict.fromkeys(kind for kind, _ in read_values)),
        TASKS: [task_text(config.get("task")) for config in configs],
        ADDRESSES: [cluster_text(cluster) for cluster in listed],
        ORDER: all(cluster == listed[0] for cluster in listed),
        OWN: "changed" if touched else "untouched",
    }


def task_text(task):
    if not isinstance(task, dict):
        return "no task"
    return f"{task.get('type', 'no type')} {task.get('index', 'without index')!r}"


def cluster_text(cluster):
    """The addresses in one line, the types in a fixed order, so that only real differences show."""
    if not isinstance(cluster, dict):
        return "no cluster" if cluster is None else repr(cluster)
    return " | ".join(f"{kind}: {hosts_text(hosts)}" for kind, hosts in sorted(cluster.items()))


def hosts_text(hosts):
    """A list of addresses without brackets; whatever else it is, as Python writes it."""
    if isinstance(hosts, list) and all(isinstance(h, str) and not set(h) & set(", |'") for h in hosts):
        return ", ".join(hosts)
    return repr(hosts)


def expected_config(case):
    tasks = tasks_of(case["hosts"])
    return {
        KIND: "JSON text",
        TASKS: [f"{kind} {index}" for kind, index in tasks],
        ADDRESSES: [cluster_text(case["hosts"])] * len(tasks),
        ORDER: True,
        OWN: "untouched",
        CHECKED: "no mistake",
    }


def config(hosts, kind, index):
    return {"cluster": hosts, "task": {"type": kind, "index": index}}


def set_in_the_kernel(hosts, kind, index):
    os.environ["TF_CONFIG"] = json.dumps(config(hosts, kind, index))


def set_and_returned(hosts, kind, index):
    os.environ["TF_CONFIG"] = json.dumps(config(hosts, kind, index))
    return os.environ["TF_CONFIG"]


def own_address_first(hosts, kind, index):
    mine = hosts[kind][index]
    return json.dumps(
        config({**hosts, kind: sorted(hosts[kind], key=lambda host: host != mine)}, kind, index)
    )


def own_address_first_as_index_0(hosts, kind, index):
    return own_address_first(hosts, kind, index).replace(f'"index": {index}', '"index": 0')


def localhost_for_me(hosts, kind, index):
    port = hosts[kind][index].rpartition(":")[2]
    mine = [f"localhost:{port}" if i == index else host for i, host in enumerate(hosts[kind])]
    return json.dumps(config({**hosts, kind: mine}, kind, index))


def localhost_for_all(name):
    def answer(hosts, kind, index):
        here = {k: [f"{name}:{host.rpartition(':')[2]}" for host in v] for k, v in hosts.items()}
        return json.dumps(config(here, kind, index))

    return answer


def chief_among_the_workers(hosts, kind, index):
    return json.dumps(config({**hosts, "worker": hosts.get("chief", []) + hosts["worker"]}, kind, index))


def chief_and_worker_0(hosts, kind, index):
    return json.dumps(config({"chief": hosts["worker"][:1], **hosts}, kind, index))


def only_my_own(hosts, kind, index):
    return json.dumps(config({kind: [hosts[kind][index]]}, kind, index))


def only_my_kind(hosts, kind, index):
    return json.dumps(config({kind: hosts[kind]}, kind, index))


def hosts_in(text):
    """Every address in what `cluster_text` wrote."""
    return [host for part in text.split(" | ") for host in part.partition(": ")[2].split(", ")]


def says_json(seen):
    return all(one[KIND] == "JSON text" for one in seen)


def is_set_in_the_kernel(cases, seen, expected):
    return all(one[OWN] == "changed" for one in seen)


def is_str_of_dict(cases, seen, expected):
    return all("str(dict), not JSON" in one[KIND] for one in seen)


def is_a_dict(cases, seen, expected):
    return all("a dict" in one[KIND].split(" and ") for one in seen)


def names_this_machine(cases, seen, expected):
    addresses = [hosts_in(text) for one in seen for text in one[ADDRESSES]]
    return all(any(host.startswith(("localhost:", "127.")) for host in hosts) for hosts in addresses)


def lists_a_host_twice(cases, seen, expected):
    listed = [hosts_in(one[ADDRESSES][0]) for one in seen]
    return any(len(hosts) > len(set(hosts)) for hosts in listed)


def orders_differ(cases, seen, expected):
    """Everywhere the same addresses, yet not in the same places."""
    same = all(
        sorted(hosts_in(text)) == sorted(hosts_in(right))
        for one, e in zip(seen, expected, strict=True)
        for text, right in zip(one[ADDRESSES], e[ADDRESSES], strict=True)
    )
    return same and says_json(seen) and not any(one[ORDER] for one in seen)


def has_no_lists(cases, seen, expected):
    """The right addresses in the right order, but not as a list with one text for each."""
    pairs = [
        pair
        for s, e in zip(seen, expected, strict=True)
        for pair in zip(s[ADDRESSES], e[ADDRESSES], strict=True)
    ]
    same = all(ADDRESS.findall(text) == ADDRESS.findall(right) for text, right in pairs)
    return same and says_json(seen) and any("'" in text for text, _ in pairs)


def renames_the_types(cases, seen, expected):
    """The right lists, everywhere under other names."""
    pairs = [[lists_in(one[ADDRESSES][0]) for one in both] for both in zip(seen, expected, strict=True)]
    return says_json(seen) and all(
        mine != right and sorted(mine.values()) == sorted(right.values()) for mine, right in pairs
    )


def lists_in(text):
    """By type, what stands behind it in what `cluster_text` wrote."""
    return {kind: hosts for kind, _, hosts in (part.partition(": ") for part in text.split(" | "))}


ADDRESS = re.compile(r"[\w.]+:\d+")


def one_task_twice(cases, seen, expected):
    return all(len(set(one[TASKS])) < len(one[TASKS]) for one in seen) and says_json(seen)


def indices_are_text(cases, seen, expected):
    return all("'" in task for one in seen for task in one[TASKS])


MAKE_TF_CONFIG = Exercise(
    id="07.make_tf_config",
    title="The note for one process",
    points=2,
    length="about 1 line",
    signature="make_tf_config(hosts, type, index)",
    hints=[
        "Two halves: who is in the cluster (the same for all), and which of them this process is.",
        'The dict is `{"cluster": hosts, "task": {"type": type, "index": index}}`. An environment variable '
        "holds text.",
        "`json.dumps` turns a dict into JSON text. Return it; do not set anything here.",
    ],
    cases=config_cases,
    observe=observe_config,
    expected=expected_config,
    mistakes=[
        Mistake(
            "the kernel itself given TF_CONFIG",
            set_in_the_kernel,
            went_wrong="After the call, TF_CONFIG is set in *this* process, the notebook's kernel. Now the "
            "kernel believes that it is a worker: a strategy made here would wait for partners that nobody "
            "starts. Each call also overwrote the one before. (The check has removed it again.)",
            try_this="Only return the text. Whoever starts the process puts it into that process's "
            "environment.",
            variants=[set_and_returned],
            recognises=is_set_in_the_kernel,
        ),
        Mistake(
            "str(dict)",
            lambda hosts, kind, index: str(config(hosts, kind, index)),
            went_wrong="You made text of the dict with `str` or an f-string: that is Python, with single "
            "quotes. TensorFlow reads TF_CONFIG as JSON, which knows only double ones. The process would "
            "die with a JSONDecodeError that does not mention TF_CONFIG, and the others would wait for it.",
            try_this="`json.dumps(...)` writes JSON.",
            variants=[lambda hosts, kind, index: f"{config(hosts, kind, index)}"],
            recognises=is_str_of_dict,
        ),
        Mistake(
            "a dict, not text",
            config,
            went_wrong="The content may be right, but it is a dict. An environment variable holds text: "
            '`os.environ["TF_CONFIG"] = {…}` raises a TypeError.',
            try_this="Make it text with `json.dumps`.",
            recognises=is_a_dict,
        ),
        Mistake(
            "localhost on two machines",
            localhost_for_me,
            went_wrong=lambda case, seen, expected: (
                f"Process 0 lists `{seen[ADDRESSES][0]}`. There, `localhost` (127.0.0.1) is a name that "
                "every machine has for *itself*: on another machine it leads to that machine, where nobody "
                "listens. It works on your laptop and hangs on the cluster."
            ),
            try_this="Keep the addresses as they are given in `hosts`, your own too.",
            variants=[localhost_for_all("localhost"), localhost_for_all("127.0.0.1")],
            recognises=names_this_machine,
        ),
        Mistake(
            "chief counted twice",
            chief_among_the_workers,
            went_wrong=lambda case, seen, expected: (
                f"`{seen[ADDRESSES][0]}`: one address stands in two places. The chief is a worker with more "
                'duties; "worker" lists only the *others*. TensorFlow would count one process too many and '
                "wait for it."
            ),
            try_this='Pass `hosts` on unchanged as the "cluster" part.',
            variants=[chief_and_worker_0],
            recognises=lists_a_host_twice,
        ),
        Mistake(
            "another order on each worker",
            own_address_first,
            went_wrong="Each process lists the right addresses, but in an order of its own. The index is a "
            "place in that list: with another order, worker 1 of one process is not worker 1 of the next, "
            "and two of them may try to listen on one port.",
            try_this="The list is the same text everywhere; the index says which entry is mine.",
            variants=[own_address_first_as_index_0],
            recognises=orders_differ,
        ),
        Mistake(
            "each knows only itself",
            only_my_own,
            went_wrong=lambda case, seen, expected: (
                f"Process 0 lists only `{seen[ADDRESSES][0]}`. It would find its cluster complete with one "
                "member and train alone, without any error."
            ),
            try_this="Everyone gets the whole list: `hosts`.",
            variants=[lambda hosts, kind, index: json.dumps(config({kind: hosts[kind][index]}, kind, index))],
        ),
        Mistake(
            "one text instead of a list",
            lambda hosts, kind, index: json.dumps(
                config({k: ",".join(addresses) for k, addresses in hosts.items()}, kind, index)
            ),
            went_wrong="The addresses are right, but not each a text of its own in a list: "
            '`["ant:2222", "bee:2222"]` are two processes, and `"ant:2222, bee:2222"` is one text, '
            "and the address of nobody.",
            try_this='Pass `hosts` on unchanged as the "cluster" part: its lists are lists already.',
            variants=[
                lambda hosts, kind, index: json.dumps(
                    config({k: [", ".join(addresses)] for k, addresses in hosts.items()}, kind, index)
                ),
                lambda hosts, kind, index: json.dumps(
                    config({k: str(addresses) for k, addresses in hosts.items()}, kind, index)
                ),
                lambda hosts, kind, index: json.dumps(
                    config({k: a if index == 0 else " ".join(a) for k, a in hosts.items()}, kind, index)
                ),
            ],
            recognises=has_no_lists,
        ),
        Mistake(
            "right for index 0 only",
            lambda hosts, kind, index: json.dumps(config(hosts, kind, index)) if index == 0 else "",
            went_wrong="The notes of the processes with index 0 are right, those of the others are not: "
            "each process reads its own.",
            try_this="The same line for every index: `json.dumps(...)` of the same kind of dict.",
            variants=[
                lambda hosts, kind, index: json.dumps(config(hosts, kind, index) if index == 0 else [hosts]),
                lambda hosts, kind, index: json.dumps(config(hosts, kind, index)) if index == 0 else None,
            ],
            recognises=lambda cases, seen, expected: all(
                one[KIND].startswith("JSON text and ") and one[OWN] == "untouched" for one in seen
            ),
        ),
        Mistake(
            "only the tasks of one type",
            only_my_kind,
            went_wrong=lambda case, seen, expected: (
                f"Process 0 knows `{seen[ADDRESSES][0]}`, and not those of another type. The chief would not "
                "know its workers, nor they the chief."
            ),
            try_this='The "cluster" part is all of `hosts`, whatever `type` this process has.',
        ),
        Mistake(
            "types renamed",
            lambda hosts, kind, index: json.dumps(
                config({k.upper(): addresses for k, addresses in hosts.items()}, kind.upper(), index)
            ),
            went_wrong=lambda case, seen, expected: (
                f"Process 0 lists `{seen[ADDRESSES][0]}`; expected is `{expected[ADDRESSES][0]}`. "
                "The types are words that TensorFlow looks for, letter by letter."
            ),
            try_this="Keep the keys of `hosts` and `type` as they are given.",
            variants=[
                lambda hosts, kind, index: json.dumps(
                    config({f"{k}s": addresses for k, addresses in hosts.items()}, kind, index)
                )
            ],
            recognises=renames_the_types,
        ),
        Mistake(
            "counted from 1",
            lambda hosts, kind, index: json.dumps(config(hosts, kind, index + 1)),
            went_wrong="Your indices begin at 1. They are places in the list of addresses and begin at 0: "
            "the last process would look behind its end, and nobody would be worker 0.",
            try_this="Use `index` as it is given.",
        ),
        Mistake(
            "index as text",
            lambda hosts, kind, index: json.dumps(config(hosts, kind, str(index))),
            went_wrong="The index came out in quotes, as text. It is a number: comparisons such as `index "
            "== 0` fail silently on text, and then nobody is the chief.",
            try_this="Pass `index` as it is.",
            recognises=indices_are_text,
        ),
        Mistake(
            "same index twice",
            lambda hosts, kind, index: json.dumps(config(hosts, kind, 0)),
            went_wrong=lambda case, seen, expected: (
                f"The processes say that they are {', '.join(seen[TASKS])}: one task is there more than "
                "once and another is missing. On one machine the second finds its port taken; everyone else "
                "waits for the one that does not exist."
            ),
            try_this="Each process gets its own `type` and `index`: use both arguments.",
            variants=[lambda hosts, kind, index: json.dumps(config(hosts, "worker", 1))],
            recognises=one_task_twice,
        ),
    ],
    also_right=[
        lambda hosts, kind, index: json.dumps(
            {"task": {"index": index, "type": kind}, "cluster": dict(hosts)}
        ),
        lambda hosts, kind, index: (
            f'{{"cluster": {json.dumps(hosts)}, "task": {{"type": "{kind}", "index": {index}}}}}'
        ),
    ],
)


# --- is_chief

LEADS = "is the chief"


def chief_cases(random):
    workers = [int(n) for n in random.integers(2, 5, 3)]
    shapes = [
        ("only workers", {"worker": workers[0]}),
        ("a chief and workers", {"chief": 1, "worker": workers[1]}),
        ("a chief, workers, parameter servers", {"chief": 1, "worker": workers[2], "ps": 2}),
        ("workers, and parameter servers without a chief", {"worker": 2, "ps": 1}),
    ]
    clusters = [{"about": about, "hosts": addresses(shape)} for about, shape in shapes]
    return [*clusters, {"about": "one process alone, without TF_CONFIG", "hosts": None}]


def addresses(shape):
    return {kind: [f"{kind}-{i}:2222" for i in range(n)] for kind, n in shape.items()}


def observe_chief(answer, case):
    if case["hosts"] is None:
        with without_tf_config():
            return {LEADS: ["this process"] if returned.truth(answer(None), "is_chief") else []}
    tasks = tasks_of(case["hosts"])
    texts = [json.dumps(config(case["hosts"], *task)) for task in tasks]
    leads = [returned.truth(answer(text), "is_chief") for text in texts]
    return {LEADS: [f"{kind} {index}" for (kind, index), yes in zip(tasks, leads, strict=True) if yes]}


def without_tf_config():
    return mock.patch.dict(os.environ, {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}, clear=True)


def expected_chief(case):
    if case["hosts"] is None:
        return {LEADS: ["this process"]}
    return {LEADS: ["chief 0" if "chief" in case["hosts"] else "worker 0"]}


def leaders(rule, alone=True):
    """An answer: a rule on (cluster, type, index), and what is said where there is no TF_CONFIG."""

    def answer(tf_config):
        if not tf_config:
            return alone
        parsed = json.loads(tf_config)
        return rule(parsed["cluster"], parsed["task"]["type"], parsed["task"]["index"])

    return answer


def right_rule(cluster, kind, index):
    return kind == "chief" or ("chief" not in cluster and (kind, index) == ("worker", 0))


def told(names):
    return " and ".join(names) if names else "nobody"


IS_CHIEF = Exercise(
    id="07.is_chief",
    title="Who is chief?",
    points=2,
    length="about 5 lines",
    signature="is_chief(tf_config)",
    hints=[
        "There are two shapes of cluster: with a task of type chief, and without one. Who leads in each?",
        'Without a chief in "cluster", worker 0 leads. With one, no worker does. And a process without '
        "TF_CONFIG has nobody above it.",
        '`if "chief" in config["cluster"]: return task["type"] == "chief"`, and otherwise?',
    ],
    cases=chief_cases,
    observe=observe_chief,
    expected=expected_chief,
    mistakes=[
        Mistake(
            "every index 0",
            leaders(lambda cluster, kind, index: index == 0),
            went_wrong=lambda case, seen, expected: (
                f"Here {told(seen[LEADS])} would all save and report. Indices begin at 0 in *each* type, so "
                "index 0 alone says little: the type belongs to it."
            ),
            try_this="Look at the type as well. Exactly one process of a cluster leads.",
        ),
        Mistake(
            "chief counted twice",
            leaders(lambda cluster, kind, index: kind == "chief" or (kind, index) == ("worker", 0)),
            went_wrong=lambda case, seen, expected: (
                f"Two would lead: {told(seen[LEADS])}. Worker 0 leads only in a cluster that has *no* "
                "chief; both would write the same checkpoint at the same time."
            ),
            try_this='Look into "cluster" first: does it list a chief?',
        ),
        Mistake(
            "always worker 0",
            leaders(lambda cluster, kind, index: (kind, index) == ("worker", 0)),
            went_wrong=lambda case, seen, expected: (
                f"This cluster has a chief, and you let {told(seen[LEADS])} lead. Where there is a chief, "
                "worker 0 is a worker like any other."
            ),
            try_this='Ask whether "cluster" lists a chief.',
        ),
        Mistake(
            "only a task called chief",
            leaders(lambda cluster, kind, index: kind == "chief"),
            went_wrong=lambda case, seen, expected: (
                f"In this cluster ({case['about']}) nobody would lead, so nobody would save. Most clusters "
                "list only workers; then worker 0 does the chief's duties. (If you have thought of that: "
                "the index is a number, "
                'and `0 == "0"` is False.)'
            ),
            try_this="Add the other case: no chief in the cluster.",
            variants=[
                leaders(
                    lambda cluster, kind, index: (
                        kind == "chief" or ("chief" not in cluster and (kind, index) == ("worker", "0"))
                    )
                )
            ],
        ),
        Mistake(
            "alone, and nobody leads",
            leaders(right_rule, alone=False),
            went_wrong="Right for every cluster. But a process without TF_CONFIG is alone: if it does not "
            "count as its own chief, the same script on a laptop trains and never saves.",
            try_this="Without TF_CONFIG the answer is True.",
        ),
        Mistake(
            "no TF_CONFIG not thought of",
            lambda tf_config: leaders(right_rule)(tf_config or json.loads(tf_config)),
            went_wrong="Right for every cluster, but it raises when there is no TF_CONFIG: `tf_config` is "
            "None then, and the same script should still run on one machine.",
            try_this="Begin with `if not tf_config:`.",
            variants=[lambda tf_config: leaders(right_rule)(tf_config or tf_config["cluster"])],
        ),
        Mistake(
            "everybody",
            leaders(lambda cluster, kind, index: True),
            went_wrong=lambda case, seen, expected: (
                f"{told(seen[LEADS])} would all lead, and all would write to the same files."
            ),
            try_this="Exactly one process of a cluster leads.",
        ),
        Mistake(
            "the last one",
            leaders(lambda cluster, kind, index: kind == "worker" and index == len(cluster["worker"]) - 1),
            went_wrong=lambda case, seen, expected: (
                f"You let {told(seen[LEADS])} lead, the last of the workers. The first one does, unless "
                "there is a chief."
            ),
            try_this="Indices begin at 0.",
        ),
    ],
    also_right=[
        leaders(
            lambda cluster, kind, index: (kind, index) == (("chief" if "chief" in cluster else "worker"), 0)
        ),
        leaders(right_rule),
    ],
)


# --- diagnosis

RIGHT = {
    "A": "another order of addresses",
    "B": "TF_CONFIG set after the strategy",
    "C": "a worker was never started",
    "D": "same index twice",
    "E": "str(config) instead of JSON",
    "F": "chief counted twice",
}


def observe_diagnosis(answer, case):
    answer = returned.mapping(answer, "diagnosis")
    missing = [letter for letter in RIGHT if not answer.get(letter)]
    if missing:
        raise returned.Unusable(f"diagnosis has no mistake for {', '.join(missing)} yet.")
    return {letter: named(letter, answer[letter]) for letter in RIGHT}


def named(letter, text):
    """One of MISTAKES, a slip of the keyboard forgiven."""
    text = returned.text(text, f"diagnosis[{letter!r}]")
    close = difflib.get_close_matches(
        text.strip().lower(), [name.lower() for name in MISTAKES], n=1, cutoff=0.8
    )
    if not close:
        raise returned.Unusable(
            f"diagnosis[{letter!r}] is {text!r}, which is none of the mistakes: {'; '.join(MISTAKES)}."
        )
    return next(name for name in MISTAKES if name.lower() == close[0])


def but(**wrong):
    """The right diagnosis, but for these."""
    return {**RIGHT, **wrong}


def says(*wrong):
    """Recognises a diagnosis by what it says of a letter: pairs of (letters, mistakes named there)."""

    def recognises(cases, seen, expected):
        return any(seen[0][letter] in mistakes for letters, mistakes in wrong for letter in letters)

    return recognises


def reads_the_config(seen, letter):
    return seen[0][letter] == RIGHT[letter]


DIAGNOSIS = Exercise(
    id="07.diagnosis",
    title="Six jobs that failed",
    points=3,
    length="6 entries",
    signature="diagnosis",
    hints=[
        "Read TF_CONFIG first, before the log: are the lists equal, in the same order? Is every task there "
        "once?",
        "A and D raise the same error. Where is the difference? And in B everything looks right: then how "
        "many replicas were in step?",
        "C and F both wait for somebody. In C that is a process which nobody started; in F, is the one "
        "waited for not there already, under another name?",
    ],
    observe=observe_diagnosis,
    expected=lambda case: RIGHT,
    shows_expected=False,
    mistakes=[
        Mistake(
            "A and D exchanged",
            but(A=RIGHT["D"], D=RIGHT["A"]),
            went_wrong="A and D end with the same words, and you have them the wrong way round.",
            try_this="Compare the two TF_CONFIGs of A, then those of D: in one the lists differ, in the "
            "other the tasks are the same.",
        ),
        Mistake(
            "same log, same mistake",
            but(A="same index twice"),
            went_wrong="For A and D you name one mistake, because both logs say `Could not start gRPC "
            "server`. That only says that two processes want one port. There are several ways to get there, "
            "and the log does not tell which.",
            try_this="Compare the TF_CONFIGs: in one incident the tasks are the same, in the other the "
            "addresses stand in another order.",
            variants=[but(D="another order of addresses")],
            recognises=lambda cases, seen, expected: seen[0]["A"] == seen[0]["D"] in (RIGHT["A"], RIGHT["D"]),
        ),
        Mistake(
            "blamed on another program",
            but(A="port taken by another program", D="port taken by another program"),
            went_wrong="The port is taken, but not by a stranger: the other process of the same job listens "
            "on it, as its log says (`Started server with target …`).",
            try_this="Look which port each of the two processes wants, and why.",
            variants=[but(A="port taken by another program"), but(D="port taken by another program")],
            recognises=says(("AD", ["port taken by another program"])),
        ),
        Mistake(
            "set after the strategy",
            but(B="a worker was never started"),
            went_wrong="In B you trust TF_CONFIG because it is right. It is right *now*. Both processes ran "
            "to their end, each with 1 replica in step, and neither started a server: when the strategy was "
            "made, TF_CONFIG was not there yet. It is read once, in that moment, and setting it later "
            "changes nothing.",
            try_this="Which mistake leaves a right TF_CONFIG behind, and two trainings instead of one?",
            variants=[
                but(B="network down"),
                but(B="same index twice"),
                but(B="chief counted twice"),
            ],
            recognises=lambda cases, seen, expected: not reads_the_config(seen, "B"),
        ),
        Mistake(
            "a hang blamed on the network",
            but(C="network down"),
            went_wrong="It looks like a network that is down, because nothing happens. But each process has "
            "connected to the others that are there (`has connected`): the network works. The log even "
            "names who is missing.",
            try_this="Who is named under `Example stragglers` last? Is there such a process?",
            variants=[but(F="network down"), but(C="network down", F="network down")],
            recognises=says(("ACDEF", ["network down"])),
        ),
        Mistake(
            "chief counted twice, not seen",
            but(F="a worker was never started"),
            went_wrong="In F the chief waits for worker 0, and it seems that nobody started it. Look at its "
            "address: it is the chief's own. It *is* running, as the chief, and was counted a second time "
            "as a worker.",
            try_this="Compare the two lists in the cluster of F.",
            recognises=says(("F", ["a worker was never started"])),
        ),
        Mistake(
            "chief counted twice, seen where there is none",
            but(C="chief counted twice"),
            went_wrong="There is no chief in C at all. Three workers are listed, and two processes are "
            "running.",
            try_this="Count the addresses, then the processes.",
            recognises=says(("ABCDE", ["chief counted twice"])),
        ),
        Mistake(
            "the innocent process",
            but(E="a worker was never started"),
            went_wrong="In E process 0 is fine, and worker 1 *was* started: it raised before it could join. "
            "Read its TF_CONFIG letter by letter.",
            try_this="Which quotes does JSON know?",
            variants=[but(E="same index twice"), but(E="another order of addresses")],
            recognises=lambda cases, seen, expected: not reads_the_config(seen, "E"),
        ),
    ],
    also_right=[{letter: text.upper() for letter, text in RIGHT.items()}, dict(reversed(RIGHT.items()))],
)

EXERCISES = [MAKE_TF_CONFIG, IS_CHIEF, DIAGNOSIS]
