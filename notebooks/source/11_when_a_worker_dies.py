# %% [markdown]
# # 11 · A worker dies. What now?
#
# A machine that breaks once in three years is a good machine. A job on a thousand of them loses one *every day*. Sooner or later the power goes, the memory is full, or the scheduler wants a node back, and your training is in the middle of a step.
#
# **After this lesson** you know what the survivors notice, you can run a job that ends in the *same weights* whoever dies, you can tell a hang from a crash, and you know how often to save.
#
# *40 minutes · builds on lessons 09 (two workers, one model) and 10 (checkpoints)*

# %%
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import course_utils as cu

cu.cluster.warm_up(wait=False)  # the workers-to-be import TensorFlow meanwhile
import keras
import numpy as np
import tensorflow as tf

# %% tags=["parameters"]
profile = "laptop"

# %% [markdown]
# ## The job
#
# It is the job of lesson 10: 20 steps, a checkpoint after every fifth, and it *always* begins by looking for one.
#
# New is one line, `faults.step`. Where nothing is planned, it only says how far this worker is. But a cluster can be given a **fault**, such as `"kill worker:1@step:8"`: then worker 1 kills itself when it has done 8 steps. It is a real `SIGKILL`. Nothing can catch it, nothing is tidied up, as when the power goes.

# %%
cu.plots.style()
faults = cu.cluster.faults
data = cu.datasets.fashion_mnist()
examples = data.train_images[:640], data.train_labels[:640]
BATCH, STEPS, SAVE_EVERY = 64, 20, 5
scratch = tempfile.TemporaryDirectory()
place = Path(scratch.name)  # on several machines: storage that all of them share


def train(folder):
    """The final weights, after going on from the newest checkpoint in `folder`."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = cu.models.mlp([32], seed=0)
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
        saved = cu.checkpoints.Checkpoints(folder, model=model, optimizer=optimizer)
    first = saved.restore()
    batches = cu.checkpoints.data_from(first, examples, BATCH)
    batches = iter(strategy.experimental_distribute_dataset(batches))
    on_a_replica = cu.training.train_step(model, optimizer, BATCH)
    step = tf.function(lambda batch: strategy.run(on_a_replica, args=batch))
    for done in range(first + 1, STEPS + 1):
        step(next(batches))
        faults.step(done)
        if done % SAVE_EVERY == 0:
            saved.save(done)
    return model.get_weights()


# %%
two = cu.LocalCluster(workers=2, output="quiet")
undisturbed = two.run(train, place / "undisturbed")[0]

# %% [markdown]
# ## Somebody pulls the plug
#
# Three workers this time. In one run worker 1 is *killed* after step 8. In another it is *stopped* (`SIGSTOP`): the process is there, its connections stand, but it does nothing any more, like a machine whose disk does not answer.
#
# `run` would end everybody at the first failure. `outcomes` lets the survivors go on, to see what *they* see.
#
# ### Predict
#
# How long does it take worker 0 and worker 2 to notice: milliseconds, seconds, or do they wait for ever?

# %% tags=["predict"]
my_guess = {"killed": None, "stopped": None}


# %%
def watch(kind):
    """How the run ends on each of three workers when worker 1 is killed, or stopped."""
    fault = f"{kind} worker:1@step:8"
    three = cu.LocalCluster(workers=3, output="quiet", timeout=40, faults=fault)
    return three.outcomes(train, place / kind)


with ThreadPoolExecutor() as side_by_side:  # both wait, most of the time
    killed, stopped = side_by_side.map(watch, ["kill", "stop"])

for outcomes in (killed, stopped):
    struck = outcomes[1].struck
    print(f"worker 1 was {outcomes[1].status} after step {outcomes[1].step}")
    for survivor in (outcomes[0], outcomes[2]):
        text = survivor.error.seen.replace("Collective ops is aborted by: ", "")
        print(f"{survivor.seconds - struck:5.1f} s later: {text[:150]}")

# %% [markdown]
# ## What the survivors see
#
# Nobody tells them "worker 1 has died". A survivor that was reading from a *killed* worker finds the connection closed, and knows at once. Whoever was not reading from it, or reads from one that is merely *stopped*, waits until too many **heartbeats** are missed: each worker tells a small service in worker 0's process that it lives.
#
# Then all of them raise, and end. So the question "how does a new worker 1 join the others" does not arise: **there are no others any more.** Even if there were: they know a cluster with the old process in it, and they are further than any checkpoint.

# %% [markdown]
# ## Start again: all of them
#
# A **supervisor** watches the processes from outside, so it need not wait for heartbeats. At the first failure it ends *everybody*, and starts *everybody* anew, on new ports. What they go on from stands in the checkpoints.
#
# Here are two faults in one job: first the chief (worker 0, who writes the checkpoints) is killed after step 8, then the other after step 13. A fault strikes once, over all attempts.
#
# ### Predict
#
# How many of the 20 steps are taken twice? And how far are the final weights from the undisturbed ones?

# %% tags=["predict"]
my_guess = {"steps taken twice": None, "weights apart": None}


# %%
def supervised(job, name, fault, workers=2, **options):
    """(weights of each worker, the supervisor) of a job that is struck by a fault."""
    cluster = cu.LocalCluster(workers=workers, output="quiet", faults=fault)
    options = {"max_restarts": 5} | options
    supervisor = cu.cluster.Supervisor(cluster, **options)
    return supervisor.run(job, place / name), supervisor


CHIEF_THEN_OTHER = "kill worker:0@step:8, kill worker:1@step:13"
by_loop, looped = supervised(train, "loop", CHIEF_THEN_OTHER)
for attempt in looped.attempts:
    print(attempt)

# %%
cu.plots.show(
    cu.plots.attempts(looped.attempts, "Three attempts, one training"),
    alt="Gantt chart of three attempts on two workers. The first ends when worker 0 is "
    "killed after step 8, the second goes on after step 5 and ends when worker 1 is "
    "killed after step 13, the third goes on after step 10 and finishes.",
)

apart = {
    f"worker {i}": cu.training.largest_difference(weights, undisturbed)
    for i, weights in enumerate(by_loop)
}
apart

# %% [markdown]
# **Zero.** Three times as many starts, and the same bits as if nothing had happened. What it cost is in the picture: steps 6 to 8, and 11 to 13 (hatched), were done twice, and everybody started three times (pale), which took longer than the steps here. Nobody had to get up at night.
#
# ## A limit
#
# Not every failure goes away. This one comes every time. Without a limit it would go on over the weekend, on machines that others wait for. Between attempts the supervisor waits a little, and twice as long each time (*back-off*): a file server that is just being restarted does not get better by being asked a hundred times a second.


# %%
def typing_error(folder):
    raise KeyError("lerning_rate")


try:
    supervised(typing_error, "broken", "", workers=1, max_restarts=2)
    gave_up = None
except cu.cluster.GaveUp as error:
    gave_up = error
print(gave_up.seen)

# %% [markdown]
# ## Exercise 11.1 · Your own supervisor
#
# `job.start(i)` starts worker `i` of `job.workers` and gives its process. `job.wait(processes)` waits until all have ended well or one has failed, and gives their exit codes: 0 is well, `None` still runs, all else is a failure. `job.kill(process)` ends one. Run the job until it has finished; restart it at most `max_restarts` times. Return how many restarts it took, or raise `RuntimeError` if that is not enough. About 8 lines.


# %% tags=["exercise"] exercise_id="11.supervise"
def supervise(job, max_restarts):
    """The number of restarts; RuntimeError when there would be too many."""
    ...


# %%
cu.check("11.supervise", supervise)

# %% [markdown]
# ## The same with `fit`
#
# `BackupAndRestore` writes weights, optimizer and epoch at the end of each epoch, here of 5 steps, and `fit` goes on from there. Each worker has a folder of its own for it (lesson 10). `faults.callback()` is `faults.step` for `fit`.


# %%
def train_with_fit(folder):
    cu.keras_multiworker.enable()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = cu.models.mlp([32], seed=0)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss)
    own = cu.checkpoints.own_folder(folder, strategy)
    callbacks = [keras.callbacks.BackupAndRestore(own), faults.callback()]
    part = examples[0][: 5 * BATCH], examples[1][: 5 * BATCH]
    how = {"shuffle": False, "verbose": 0, "callbacks": callbacks}
    model.fit(*part, batch_size=BATCH, epochs=STEPS // 5, **how)
    return model.get_weights()


undisturbed_fit = two.run(train_with_fit, place / "undisturbed fit")[0]
by_fit, fitted = supervised(train_with_fit, "fit", "kill worker:0@step:8")
for attempt in fitted.attempts:
    print(attempt)
apart_fit = {
    f"worker {i}": cu.training.largest_difference(weights, undisturbed_fit)
    for i, weights in enumerate(by_fit)
}
apart_fit

# %% [markdown]
# Zero again, although it was the chief that was killed. The data comes in a fixed order here, and no fault struck in the middle of a backup: lesson 10 says why both matter. `cu.checkpoints.Checkpoints` in the loop above needs neither; a checkpoint appears whole or not at all. (`python -m tests.benchmarks.kill_points` kills it at random moments, also while it writes.)

# %% [markdown]
# ## A hang is not a crash
#
# Now worker 1 is *stopped* after step 8. No process has ended, none has an error. A supervisor that only looks at exit codes sees a healthy job. What else could it look at, to notice within seconds?

# %%
by_hang, hung = supervised(train, "hang", "stop worker:1@step:8", hang_after=4)
for attempt in hung.attempts:
    print(attempt)
apart_hang = cu.training.largest_difference(by_hang[1], undisturbed)
print(f"weights {apart_hang:g} apart")

# %% [markdown]
# It looks at **progress**: `faults.step` leaves the number of the last step where the supervisor can read it. Nobody has done a step for too long: that is a hang.
#
# In synchronous training one stuck worker stops all. So *that* nothing moves says nothing about *who* is stuck: everybody looks alike. The supervisor asks each worker where in the code it stands. Worker 0 "waits in `step(next(batches))`" for the other; worker 1 is the one that does not answer.
#
# And how long is too long? Longer than the slowest step and the slowest save. Too short, and you end healthy jobs.

# %% [markdown]
# ## Exercise 11.2 · Hang or crash?
#
# Each of `workers` is a dictionary: `"exit_code"` is `None` while the process runs; `"last_step"` is the second in which it did its last step. Return `"finished"` (all ended with 0), `"crashed"` (one ended with something else), `"hung"` (none did, but nobody who runs has done a step for more than `patience` seconds before `now`), or `"running"`. About 7 lines.


# %% tags=["exercise"] exercise_id="11.diagnose"
def diagnose(workers, now, patience):
    """One of the four words."""
    ...


# %%
cu.check("11.diagnose", diagnose)

# %% [markdown]
# ## Asked to go
#
# A scheduler that wants a node back does not pull the plug at once. It sends `SIGTERM`, and only after a while the `SIGKILL`: time enough to save. Python programs end on `SIGTERM`.
#
# ### Predict
#
# Worker 1 gets a `SIGTERM` after step 8. What happens to the job from above?

# %% tags=["predict"]
my_guess = None

# %%
fault = "terminate worker:1@step:8"
asked = cu.LocalCluster(workers=2, output="quiet", faults=fault)
ignored = asked.outcomes(train, place / "ignored")
for outcome in ignored:
    print(outcome)

# %% [markdown]
# ## Nothing happens
#
# `MultiWorkerMirroredStrategy` starts a **preemption notifier**, which catches the signal so that somebody may act on it. Here nobody does: the worker trains on to its last step, as if nothing had been said. A scheduler would send the `SIGKILL` meanwhile, and nothing would have been saved for the occasion.
#
# `PreemptionCheckpointHandler` acts. It runs your steps; when *any* worker was asked to go, all of them agree on one step, save after it, and exit.


# %%
def train_until_asked(folder):
    """The same job; it saves when it is asked to go, and only then."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = cu.models.mlp([32], seed=0)
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
        optimizer.build(model.trainable_variables)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    handler = tf.distribute.experimental.PreemptionCheckpointHandler(
        strategy.cluster_resolver, checkpoint, str(folder)
    )
    first = handler.total_run_calls  # restored already, if there was something
    batches = cu.checkpoints.data_from(first, examples, BATCH)
    batches = iter(strategy.experimental_distribute_dataset(batches))
    on_a_replica = cu.training.train_step(model, optimizer, BATCH)
    step = tf.function(lambda batch: strategy.run(on_a_replica, args=batch))
    for done in range(first + 1, STEPS + 1):
        handler.run(step, next(batches))
        faults.step(done)
    return model.get_weights()


# %%
by_asking, preempted = supervised(train_until_asked, "asked", fault)
apart_asked = cu.training.largest_difference(by_asking[0], undisturbed)
print(*preempted.attempts, f"weights {apart_asked:g} apart", sep="\n")
cu.plots.show(
    cu.plots.attempts(preempted.attempts, "Asked to go after step 8"),
    alt="Gantt chart of two attempts. Both workers leave the first one together, a "
    "step or two after worker 1 was asked to, and the second goes on with the next "
    "step. No step is hatched: none was lost.",
)

# %% [markdown]
# No step was lost, since it saved *because* it had to go. Exit code 42 means "I left on purpose, start me again". It does not help against a `SIGKILL`, so a real job does both: it saves now and then, and when it is asked.

# %% [markdown]
# ## How often to save?
#
# A save costs time, and so do the steps since the last one when somebody dies. The model: a save takes `WRITE` seconds, a restart `RESTART`, and a machine fails every `YEARS` years. A job of 4,000 saves is played through, with failures at random moments.
#
# John W. Young found the best interval in 1974, to first order: $\sqrt{2 \cdot \text{write} \cdot \text{time between failures}}$ ("A first order approximation to the optimum checkpoint interval", *Communications of the ACM* 17(9)). John Daly gave the expected loss in 2006 ("A higher order estimate of the optimum checkpoint interval for restart dumps", *Future Generation Computer Systems* 22(3)).

# %%
WRITE, RESTART, MACHINES, YEARS = 30.0, 120.0, 1000, 3
BETWEEN_FAILURES = YEARS * 365 * 24 * 3600 / MACHINES  # seconds, for the whole job


def share_lost(interval, random, saves=4000):
    """Share of a simulated job's time that was no progress."""
    now, done, restart = 0.0, 0, 0.0
    next_failure = random.exponential(BETWEEN_FAILURES)
    while done < saves:
        end = now + restart + interval + WRITE
        if end <= next_failure:
            now, done, restart = end, done + 1, 0.0
        else:  # back to the last save
            now, restart = next_failure, RESTART
            next_failure = now + random.exponential(BETWEEN_FAILURES)
    return 1 - saves * interval / now


def daly(interval):
    """The expected share, where failures do not depend on each other (Daly, 2006)."""
    restarts = np.exp(RESTART / BETWEEN_FAILURES)
    one_save = np.exp((interval + WRITE) / BETWEEN_FAILURES) - 1
    return 1 - interval / (BETWEEN_FAILURES * restarts * one_save)


# %%
random = np.random.default_rng(11)
intervals = np.geomspace(100, 40_000, 12)
simulated = {seconds: share_lost(seconds, random) for seconds in intervals}
young = np.sqrt(2 * WRITE * BETWEEN_FAILURES)
lost = {f"{k:g} × Young's": float(daly(k * young)) for k in (0.1, 0.5, 1, 2, 10)}
print(f"a failure every {BETWEEN_FAILURES / 3600:.0f} h, Young: {young / 60:.0f} min")
for interval, share in lost.items():
    print(f"{interval:12} {share:6.1%} of the time is lost")
cu.plots.show(
    cu.plots.time_lost(daly, simulated, {"Young, 1974": young}, "How often to save?"),
    alt="Share of time lost against the time between two checkpoints, on a log axis: "
    "a flat valley with its bottom at Young's interval, rising steeply on both sides. "
    "The simulated jobs lie on the expected curve.",
)

# %% [markdown]
# The valley is flat: twice or half the best interval costs little, ten times is dear. Mind the square root: four times as many machines want to save *twice* as often, not four times.

# %% [markdown]
# ## Exercise 11.3 · The checkpoint interval
#
# Return the seconds of work between two checkpoints, by Young's formula. You get how many seconds one takes to write, after how many **hours** on average **one** machine fails, and how many machines there are. About 2 lines.


# %% tags=["exercise"] exercise_id="11.checkpoint_interval"
def checkpoint_interval(write_seconds, machine_hours, machines):
    """Seconds."""
    ...


# %%
cu.check("11.checkpoint_interval", checkpoint_interval)

# %% [markdown]
# ## What must be true now

# %%
assert [outcome.status for outcome in killed] == ["raised", "killed", "raised"]
assert [outcome.status for outcome in stopped] == ["raised", "stopped", "raised"]
assert all("heartbeat" in stopped[i].error.seen for i in (0, 2))

for job, expected in ((looped, ["worker 0", "worker 1"]), (fitted, ["worker 0"])):
    struck = [attempt.ending.culprit for attempt in job.attempts[:-1]]
    assert struck == expected
for differences in (apart, apart_fit):
    assert len(differences) == 2 and max(differences.values()) == 0
taken = [
    attempt.ending.outcomes[i]
    for i, attempt in zip((0, 1, 0), looped.attempts, strict=True)
]
assert [(o.first_step, o.step) for o in taken] == [(1, 8), (6, 13), (11, 20)]
assert len(gave_up.attempts) == 3 and "KeyError" in gave_up.seen

(hang,) = [a.ending for a in hung.attempts if "SIGSTOP" in a.ending.reason]
assert (hang.how, hang.culprit) == ("hung", "worker 1") and apart_hang == 0

assert all(outcome.status == "returned" for outcome in ignored)
before, after = preempted.attempts
assert before.ending.how == "preempted" and "sys.exit(42)" in before.ending.reason
for left, went_on in zip(before.ending.outcomes, after.ending.outcomes, strict=True):
    gap = went_on.first_step - left.step
    assert gap in (1, 2)  # one may leave before it has reported its last step
assert apart_asked < 1e-6

assert 20 < BETWEEN_FAILURES / 3600 < 30  # about one a day
best = min(simulated, key=simulated.get)
assert young / 2 < best < young * 2
assert lost["1 × Young's"] == min(lost.values()) and lost["2 × Young's"] < 0.05
assert min(lost["0.1 × Young's"], lost["10 × Young's"]) > 3 * lost["1 × Young's"]
assert all(abs(share - daly(s)) < 0.02 for s, share in simulated.items())

# %% [markdown]
# > **Take away.** When one worker dies, all of them go, and all of them start again: from a checkpoint, on fresh ports, a limited number of times. Look at exit codes *and* at progress, since a hang has no exit code. Then prove it, by equality with a run that nobody disturbed.
#
# Next: [12 · What changes at ImageNet size?](12_resnet_on_imagenet.ipynb)
