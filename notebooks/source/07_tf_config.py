# %% [markdown]
# # 07 · How do processes find each other?
#
# Three processes, perhaps on three machines, are to train one model. When they start, none of them knows that the others exist. All that each gets is a note in its environment, `TF_CONFIG`. If the note is right, they meet within a second. If one character is wrong, most of them wait, silently, for as long as you let them.
#
# **After this lesson** you can write that note, tell which of several processes leads, and recognise a wrong note by the traces that it leaves.
#
# *30 minutes · builds on lesson 00 (worker, replica)*

# %%
import json
import os
import time

import course_utils as cu

cu.cluster.warm_up(wait=False)  # the workers-to-be import TensorFlow meanwhile
import tensorflow as tf
from course_utils.exercises import incidents

# %% tags=["parameters"]
profile = "laptop"

# %% [markdown]
# ## An address book and a name tag
#
# `ClusterConfig` takes the addresses and writes the note for each process. (These addresses are set aside for documentation; no machine has them.)

# %% tags=["stable"]
machines = ["192.0.2.11:2222", "192.0.2.12:2222", "192.0.2.13:2222"]
config = cu.ClusterConfig(worker=machines)
for index in range(3):
    print(config.tf_config("worker", index))

# %% [markdown]
# Two halves. **`cluster`** is the address book: who takes part, by type. It must be the *same text* on every process. **`task`** is the name tag: which entry am I? It must be *different* on every process. The note is **JSON**, because an environment variable can only hold text.
#
# The process that finds itself at `worker`, index 1, opens the second port of the list and calls the others under theirs.

# %% [markdown]
# ## Chief, worker, parameter server, evaluator
#
# The address book may list four types of task.

# %% tags=["stable"]
everybody = cu.ClusterConfig(
    chief=machines[:1],
    worker=machines[1:],
    ps=["192.0.2.14:2222"],
    evaluator=["192.0.2.15:2222"],
)
print(everybody.explain())

# %% [markdown]
# - A **worker** trains. For data parallelism, workers are all you need.
# - The **chief** is a worker that does more: it saves and reports. Where nobody is called chief, worker 0 does it. So a chief is *not* listed among the workers a second time.
# - A **parameter server** (`ps`) holds variables for others and trains nothing (lesson 15).
# - An **evaluator** watches the checkpoints and takes no part in the training.

# %% [markdown]
# ## Three processes meet
#
# Each runs this function, like a script. Worker 2 is late on purpose: it reads the training images *before* it makes its strategy.


# %%
def train():
    """The sum of (worker number + 1); the moments before and after the strategy."""
    me = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    if me == 2:
        cu.datasets.fashion_mnist()
    before = time.monotonic()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    after = time.monotonic()
    step = tf.function(lambda: tf.constant(me + 1))
    total = int(strategy.reduce("SUM", strategy.run(step), axis=None))
    print(f"worker {me}: {strategy.num_replicas_in_sync} replicas, sum {total}")
    return total, before, after


# %% [markdown]
# ### Predict
#
# Workers 0 and 1 are ready long before worker 2. What do they do meanwhile: begin to train without it, raise an error, or wait? And in which line?

# %% tags=["predict"]
my_guess = None

# %%
cluster = cu.LocalCluster(workers=3, output="quiet", env=incidents.TALKATIVE)
results = cluster.run(train)
cu.plots.show(
    cu.plots.timeline(cluster.timeline, title="Three workers, from start to exit"),
    alt="Workers 0 and 1 are up early, yet are connected only when worker 2 has come.",
)

# %% [markdown]
# Look at the bars that lead to *connected*. They begin early for workers 0 and 1 and late for worker 2, and none of them ends before worker 2's server is up. **Making the strategy is a meeting.** Nobody leaves that line before everybody has come.
#
# This is also how `LocalCluster` can be quick without a guess. It holds a free port for each worker until that worker has opened it, and every stage in the picture is a *signal*: a port that answers, a message from the worker. None is a pause that somebody hoped would be long enough.

# %% [markdown]
# ## The same, as the workers tell it
#
# TensorFlow reports the meeting, if it is allowed to speak (`TF_CPP_MIN_LOG_LEVEL=0`; many a script sets 2 or 3 and hears nothing). Time stamps and file names are left out here.

# %%
incidents.SideBySide(cluster.tasks, [incidents.tidy(log) for log in cluster.logs])

# %% [markdown]
# Learn three lines by heart; they are all that you will have on a real cluster.
#
# - `Started server with target` … this process has opened its own port.
# - `Waiting for 1/3 tasks to connect`, then `Example stragglers` … who has not come. Only the first task (the leader) says so: read *its* log first.
# - `Barrier(WaitForAllTasks …) has passed` … everybody has come.

# %% [markdown]
# ## Broken on purpose
#
# Now take the three notes of that run, which were right, and break them, each time in one place.

# %%
good = list(cluster.configs)


def change(edit, only=(0, 1, 2)):
    """The three good notes, with `edit` applied to those of the processes in `only`."""
    notes = [json.loads(text) for text in good]
    for index in only:
        edit(notes[index])
    return [json.dumps(note) for note in notes]


broken = {
    "same index twice": change(lambda note: note["task"].update(index=1), only=[2]),
    "another order": change(lambda note: note["cluster"]["worker"].reverse(), only=[1]),
    "str(dict)": [*good[:2], str(json.loads(good[2]))],
    "not set on one": [good[0], None, good[2]],
    "one never started": good[:2],
    "counted from 1": change(
        lambda note: note["task"].update(index=note["task"]["index"] + 1)
    ),
    "chief twice": change(
        lambda note: note["cluster"].update(chief=note["cluster"]["worker"][:1])
    ),
    "one list shorter": change(lambda note: note["cluster"]["worker"].pop(), only=[0]),
}

# %% [markdown]
# ### Predict
#
# Eight wrong clusters of three processes, started without any check. In how many of them does at least one process raise an error, and in how many do all just stand there?

# %% tags=["predict"]
my_guess = None

# %%
outcomes = incidents.without_check(broken, patience=2)
cu.plots.show(
    cu.plots.what_each_does(outcomes, title="Until the first error, or for 2 seconds"),
    alt="A row for each of eight wrong clusters, a bar for each process: most wait in "
    "silence, a few raise an error, and some train alone.",
)
said = [state for states in outcomes.values() for state in states if "raises" in state]
jobs = sum(not {*said}.isdisjoint(states) for states in outcomes.values())
print(f"Errors in {jobs} of {len(outcomes)} jobs:", *said, sep="\n")

# %% [markdown]
# ## Silence is the usual answer
#
# A process that waits has no error to report: for all that it knows, the missing one is only late. So a wrong note shows in three ways:
#
# - **all wait**, although every process is there;
# - **one raises** an error (about a port, about a character, about a task), and the others wait for it;
# - **one trains alone**, content, with a cluster of one.
#
# None of the errors contains the word `TF_CONFIG`. **When a job says nothing, suspect its notes first.**

# %% [markdown]
# ## The same eight, checked first
#
# `LocalCluster` looks at all notes before it starts a process. One more is added: a cluster that spans machines and calls one of them `localhost` (here by its number, 127.0.0.1).


# %%
def answer(run, *args):
    """What refuses to run it, in one sentence, and after how many seconds."""
    began = time.perf_counter()
    try:
        run(*args)
    except cu.errors.ConfigError as error:
        return error.seen, time.perf_counter() - began
    return "nothing refused it", time.perf_counter() - began


broken["localhost on two machines"] = [
    text.replace("127.0.0.1", "machine-a", 1) for text in good
]
answers = {
    name: answer(cluster.run_with, notes, train) for name, notes in broken.items()
}
for name, (sentence, seconds) in answers.items():
    print(f"{name} ({1000 * seconds:.1f} ms)\n    {sentence}\n")

# %% [markdown]
# One sentence each, with the mistake and the process. The check can do what no single process can: it compares the notes *with each other*. `cu.cluster.check_tf_configs([...])` is the same check for your own clusters. Run it in the place where the notes are written.

# %% [markdown]
# ## Two that no list of notes can show
#
# The notes may be right, and still: a script that sets its `TF_CONFIG` *after* the strategy is made, and a notebook that sets it *in its own kernel*.


# %%
def too_late():
    note = os.environ.pop("TF_CONFIG")
    tf.distribute.MultiWorkerMirroredStrategy()
    os.environ["TF_CONFIG"] = note


answers["set after the strategy"] = answer(cluster.run, too_late)

os.environ["TF_CONFIG"] = good[0]
answers["in the kernel"] = answer(cluster.run, train)
del os.environ["TF_CONFIG"]

for name in ("set after the strategy", "in the kernel"):
    print(f"{name} ({1000 * answers[name][1]:.0f} ms)\n    {answers[name][0]}\n")

# %% [markdown]
# `TF_CONFIG` is read **once**, when the strategy is made. Without it, TensorFlow makes a cluster of one and says nothing: your workers train a model each.
#
# The kernel is no worker. It *starts* workers, each with an environment of its own. A note left in the kernel is found by whatever you run next.

# %% [markdown]
# ## Exercise 07.1 · The note for one process
#
# Write `make_tf_config`. `hosts` is a dict such as `{"chief": ["a:1"], "worker": ["b:1", "c:1"]}`; `type` and `index` say which process the note is for. Return what goes into that process's `TF_CONFIG`. About 1 line.


# %% tags=["exercise"] exercise_id="07.make_tf_config"
def make_tf_config(hosts, type, index):
    # about 1 line
    ...


# %%
cu.check("07.make_tf_config", make_tf_config)

# %% [markdown]
# ## Exercise 07.2 · Who is chief?
#
# Exactly one process of a cluster saves and reports. Write `is_chief`: given the text of a process's `TF_CONFIG` (or `None`, if it has none and is alone), does that process lead? About 5 lines.


# %% tags=["exercise"] exercise_id="07.is_chief"
def is_chief(tf_config):
    # about 5 lines
    ...


# %%
cu.check("07.is_chief", is_chief)

# %% [markdown]
# ## Exercise 07.3 · Six jobs that failed
#
# Six jobs of two processes each, run on your machine right now, unchecked. For each you see the `TF_CONFIG` of both processes, as you would find it if you looked into them afterwards, and what they printed. They ran without an error, raised one, or were stopped when nothing more happened. (Between two processes a mistake can look different from the same mistake among three.)

# %%
from IPython.display import display

for incident in incidents.play(patience=2):
    display(incident)

# %% [markdown]
# ## What was the mistake in each?
#
# Fill in one of these names for each letter. Each is used at most once; two do not occur.

# %%
print(*incidents.MISTAKES, sep="\n")

# %% tags=["exercise"] exercise_id="07.diagnosis"
diagnosis = {
    "A": None,
    "B": None,
    "C": None,
    "D": None,
    "E": None,
    "F": None,
}

# %%
cu.check("07.diagnosis", diagnosis)

# %% [markdown]
# ## What must be true now

# %%
totals, before, after = zip(*results, strict=True)
assert totals == (6, 6, 6)
assert max(before) < min(after)  # nobody leaves the meeting before the last has come
assert outcomes["one never started"] == ["waits", "waits"]  # TensorFlow alone: silence
assert not any("TF_CONFIG" in error for error in said)

sentences = {sentence for sentence, _ in answers.values()}
assert "nothing refused it" not in sentences
assert len(sentences) == len(answers) == 11  # a sentence of its own for each mistake
assert cu.cluster.check_tf_configs(good) is None
assert "TF_CONFIG" not in os.environ

# %% [markdown]
# > **Take away.** The same address book for all, a name tag of its own for each, as JSON, before the strategy is made. Check all notes together, in the place where they are written: afterwards there is only silence.
#
# Next: [08 · Which examples does each worker see?](08_sharding_and_uneven_data.ipynb)
