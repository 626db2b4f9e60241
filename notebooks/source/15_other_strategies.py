# %% [markdown]
# # 15 · When is synchronous data parallelism the wrong tool?
#
# In every lesson so far, all replicas met in every step. That made many devices train the model of one. It also made all of them as slow as the slowest, and as mortal as the first to die. There are strategies that do not meet. What do they win, and what do they pay?
#
# **After this lesson** you can choose among TensorFlow's strategies and say why, write the loop of a coordinator, and measure how stale a gradient is.
#
# *35 minutes · builds on lessons 03 (what an all-reduce costs), 07 (TF_CONFIG), 09 (two workers) and 11 (a worker dies)*

# %%
import os
import tempfile
from pathlib import Path

import course_utils as cu

cu.cluster.warm_up(wait=False)  # the workers-to-be import TensorFlow meanwhile
import keras
import tensorflow as tf

# %% tags=["parameters"]
profile = "laptop"

# %% [markdown]
# ## One job
#
# 20 batches of 64 images, a small network, plain SGD. What counts is what the strategies make of the *same* job. First those that meet in every step; the function knows none of them by name.

# %%
devices = cu.devices.simulate(2)
data = cu.datasets.fashion_mnist()
images, labels = data.train_images[:1280], data.train_labels[:1280]


def build(strategy):
    with strategy.scope():
        model, optimizer = cu.models.mlp([32], seed=0), keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
    return model, optimizer


# %%
BATCH, STEPS = 64, 20


def train(strategy, pause=0.0):
    """losses, weights, who holds and computes, seconds a step (but the first)"""
    model, optimizer = build(strategy)
    train_step = cu.training.train_step(model, optimizer, BATCH)
    batches = cu.training.batches(strategy, (images, labels), BATCH)

    def on_a_replica(images, labels):
        return train_step(*cu.training.later([images, labels], pause))

    @tf.function
    def step(batch):
        shares = strategy.run(on_a_replica, args=batch)
        return strategy.reduce("SUM", shares, axis=None)

    losses, moments = [], []
    for _ in range(STEPS):
        losses.append(float(step(next(batches))))
        moments.append(float(tf.timestamp()))
    places = cu.devices.places(strategy, model.trainable_variables[0])
    seconds = (moments[-1] - moments[0]) / (STEPS - 1)
    return losses, model.get_weights(), places, seconds


# %% [markdown]
# `later` makes a worker slow on purpose; with 0 seconds it does nothing yet.
#
# - **OneDeviceStrategy**: one device, and code that is ready for more.
# - **MirroredStrategy**: all devices of one process, a copy of each variable on each (lesson 01).
# - **CentralStorageStrategy** (experimental): all devices of one process, but the variables exist once, on the host. For what does not fit into every device.
# - **MultiWorkerMirroredStrategy**: a copy in each process, on any number of machines (lesson 09).

# %%
tf.get_logger().setLevel("ERROR")  # it tells how it is built
central = tf.distribute.experimental.CentralStorageStrategy(devices, "CPU:0")
runs = {
    "one device": train(tf.distribute.OneDeviceStrategy(devices[0])),
    "mirrored": train(cu.devices.mirrored(2)),
    "central storage": train(central),
}


def on_worker(train, *arguments):
    return train(tf.distribute.MultiWorkerMirroredStrategy(), *arguments)


link = cu.cluster.Link()  # as fast as this machine, and counts the bytes
mirrored = cu.LocalCluster(workers=2, output="quiet", link=link)
both = mirrored.run(on_worker, train)
runs["multi-worker mirrored"] = both[0]
sent_by_mirrored = dict(link.carried)
distance = cu.training.largest_difference
from_one_device = {
    name: distance(weights, runs["one device"][1])
    for name, (_, weights, *_) in runs.items()
}
from_one_device

# %% [markdown]
# All four end with the same weights, up to the rounding of a float32. They differ in *where* things are, and in nothing that the weights can tell.
#
# ## TPUs: the same idea, another machine
#
# `TPUStrategy` is synchronous too: a replica a core, variables mirrored, gradients all-reduced by the TPU's own network. What it needs:
#
# - a TPU: `TPUClusterResolver` finds it, `tf.tpu.experimental.initialize_tpu_system` starts it, **before anything else**;
# - shapes that are known when the step is compiled: `drop_remainder=True`;
# - data from where a remote TPU can read: a bucket, not your disk;
# - the step in a `tf.function`, best many steps in one call.
#
# Source: [Use TPUs](https://www.tensorflow.org/guide/tpu). This course has none to run on, so this is all that it says about them.

# %%
print(f"TPU cores here: {len(tf.config.list_logical_devices('TPU'))}")

# %% [markdown]
# ## A strategy that does not meet
#
# **ParameterServerStrategy** has other roles. A **parameter server** (ps) holds the variables. A **worker** pulls them, computes a gradient, pushes it, and takes the next batch, whatever the others do. The **chief** runs your program as *coordinator*: it hands out steps and trains nothing itself.
#
# So workers and parameter servers run no program of yours. They serve:


# %%
def on_task(program, *arguments):
    """What `program(coordinator, …)` returns on the chief; all others serve it."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    kind, number = resolver.task_type, resolver.task_id
    if kind in ("worker", "ps"):
        Path(folder, f"{kind} {number}").write_text(str(os.getpid()))
        cluster_spec = resolver.cluster_spec()
        tf.distribute.Server(
            cluster_spec, job_name=kind, task_index=number, protocol="grpc"
        ).join()  # for ever
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    return program(coordinator, *arguments)


place = tempfile.TemporaryDirectory()
folder = place.name  # each task notes the number of its process in there

# %% [markdown]
# ### Pull, compute, push
#
# The step reads a counter, `version`, when it pulls, and adds one when it pushes. What lies between are the updates of *others*: the **staleness** of this gradient. It was computed for weights that many updates old.


# %%
def make_step(strategy, model, optimizer, version, slow):
    """A step of one worker: (data, batch number) → loss, worker, pulled, pushed"""

    def pull_compute_push(images, labels, pause):
        pulled = version.read_value()
        with tf.control_dependencies([pulled]), tf.GradientTape() as tape:
            losses = cu.training.per_example_loss(labels, model(images, training=True))
            loss = cu.training.average_loss(losses, BATCH)
        gradients = tape.gradient(loss, model.trainable_variables)
        gradients = cu.training.later(gradients, pause)
        with tf.control_dependencies(gradients):
            optimizer.apply(gradients, model.trainable_variables)
            pushed = tf.identity(version.assign_add(1))
        return loss, pulled, pushed

    @tf.function
    def step(held, number):
        me = tf.distribute.coordinator.experimental_get_current_worker_index()
        pause = tf.where(me == 1, slow, 0.0)  # worker 1 is the slow one
        start, (images, labels) = number * BATCH, next(held)
        batch = images[start : start + BATCH], labels[start : start + BATCH]
        loss, pulled, pushed = strategy.run(pull_compute_push, args=(*batch, pause))
        return loss, me, pulled, pushed

    return step


# %% [markdown]
# ### The coordinator's loop
#
# `create_per_worker_dataset` gives each worker the data; the coordinator says which batch is next. `schedule` puts a step into a queue **and returns at once**: what it returns is a promise. A free worker takes the step. `join` waits until the queue is empty, and only then `fetch` asks for the numbers.


# %%
def coordinate(coordinator, steps, slow=0.0, half_way=lambda: None):
    """log of (loss, worker, pulled, pushed), weights, who holds, iterations"""
    strategy = coordinator.strategy
    model, optimizer = build(strategy)
    with strategy.scope():
        version = tf.Variable(0, dtype=tf.int64)
    step = make_step(strategy, model, optimizer, version, slow)
    everything = (images, labels)
    held = iter(
        coordinator.create_per_worker_dataset(
            lambda: tf.data.Dataset.from_tensors(everything).repeat()
        )
    )
    promises = []
    for number in range(steps):
        batch = tf.constant(number % STEPS)
        promises.append(coordinator.schedule(step, args=(held, batch)))
        if number == steps // 2:
            half_way()
    coordinator.join()  # the only waiting
    log = [[float(x) for x in promise.fetch()] for promise in promises]
    places = cu.devices.places(strategy, model.trainable_variables[0])
    return log, model.get_weights(), places, int(optimizer.iterations.numpy())


# %% [markdown]
# ### Predict
#
# The same 20 batches, the same first weights, the same learning rate. Will one worker with a parameter server end with the weights of one device? Will two?

# %% tags=["predict"]
my_guess = {"1 worker": None, "2 workers": None}

# %%
roles = {"chief": True, "ps": 1, "timeout": 60, "output": "quiet"}
alone = cu.LocalCluster(workers=1, **roles).run(on_task, coordinate, STEPS)[0]
ps_link = cu.cluster.Link()
two = cu.LocalCluster(workers=2, link=ps_link, **roles)
asynchronous = two.run(on_task, coordinate, STEPS)[0]
sent_by_ps = dict(ps_link.carried)
pair = cu.LocalCluster(workers=2, **roles)
again = pair.run(on_task, coordinate, STEPS)[0]

for name, other in (("1 worker", alone), ("2 workers", asynchronous)):
    apart = distance(other[1], runs["one device"][1])
    print(f"parameter server, {name}: {apart:.1e} from one device")
print(f"2 workers, run twice: {distance(asynchronous[1], again[1]):.1e} apart")

curves = {name: losses for name, (losses, *_) in runs.items() if name != "one device"}
by_ps = {"parameter server, 2 workers": asynchronous, "the same again": again}
panels = {
    "they meet in every step": curves,
    "they do not": {
        name: [loss for loss, *_ in log] for name, (log, *_) in by_ps.items()
    },
}
cu.plots.show(
    cu.plots.curves_over_reference(
        panels, runs["one device"][0], "loss on the batch", "batch"
    ),
    alt="Loss against batches. Left: all three strategies hide the line of one device. "
    "Right: two runs with a parameter server leave it, each its own way.",
)

# %% [markdown]
# One worker alone is one device: nobody changes the weights between its pull and its push. With two, the same batches make **another model, and each run its own**: which gradient meets which weights depends on who was faster, in this run, by a hair. Seeds do not help.
#
# That is no error. Stale gradients are noise, and training often bears it. But "it must be reproducible" and "it must equal one device" are gone.
#
# ## Who holds the variables?

# %%
places = {name: places for name, (_, _, places, _) in runs.items()}
places["multi-worker mirrored"] = both[0][2] | both[1][2]
stepped = {f"worker {int(worker)}, CPU:0": (False, True) for _, worker, *_ in again[0]}
places["parameter server"] = again[2] | dict(sorted(stepped.items()))
cu.plots.show(
    cu.plots.who_holds(places),
    alt="Mirrored and multi-worker mirrored: both hold and compute. Central storage: "
    "CPU:0 holds. Parameter server: two workers only compute, and the ps only holds.",
)

# %% [markdown]
# ## Is the parameter server the faster one?
#
# It never waits, so it sounds like it. But look at what travels. S is the size of all variables. For one step of one worker, S is pulled and S is pushed, and **all of it passes one machine**, the ps. In an all-reduce each worker sends 2(n−1)/n · S and receives as much (lesson 03): never more than 2 S each way, however many there are.
#
# ### Predict
#
# A round is one step of each of the n workers. How many S pass the ps in a round with 8 workers, and how many pass a worker of an all-reduce?

# %% tags=["predict"]
my_guess = {"parameter server": None, "all-reduce": None}

# %%
size = sum(array.nbytes for array in alone[1])
pulled = sent_by_ps["ps 0", "chief"]
pushed = sum(sent_by_ps[f"worker {i}", "chief"] for i in (0, 1))
a_round = {
    "parameter server": 2 * (pulled + pushed) / STEPS / size,  # 2 steps are a round
    "all-reduce": sum(sent_by_mirrored.values()) / STEPS / size,
}
print(f"S = {size / 1e3:.0f} kB. Through the busiest of 2 workers or 1 ps, in a round:")
for name, copies in a_round.items():
    print(f"  {name:17} {copies:.2f} S, measured")

counts = [1, 2, 4, 8, 16]
through = {
    "the parameter server": [2 * n for n in counts],
    "a worker of an all-reduce": [4 * (n - 1) / n for n in counts],
}
cu.plots.show(
    cu.plots.against_workers(
        counts, through, "sent and received (S a round)", title="The busiest machine"
    ),
    alt="Data through the busiest machine in a round. The parameter server: "
    "2 S for each worker, 32 S at 16. A worker of an all-reduce: below 4 S, always.",
)

# %% [markdown]
# (All tasks of such a job get the *chief's* address book, so the proxy that counts books what travels between worker and ps under "chief".)
#
# With 8 workers 16 S pass the ps, and 3.5 S each worker of an all-reduce. More parameter servers share the load out, and cost machines. **On equal, reliable machines the synchronous strategy moves less through its busiest machine, so it is the faster one where the network decides; and it is the exact one.**
#
# ## A slow worker
#
# Now the machines are not equal: worker 1 takes 0.15 s longer over each step.
#
# ### Predict
#
# 20 steps each under `MultiWorkerMirroredStrategy`; 40 steps for whoever takes them under a parameter server. How many does each worker take?

# %% tags=["predict"]
my_guess = None

# %%
PAUSE = 0.15


def slow_second(strategy):
    return train(strategy, PAUSE if strategy.cluster_resolver.task_id == 1 else 0.0)


print("They meet in every step:")
together = mirrored.run(on_worker, slow_second)
for i, (losses, _, _, seconds) in enumerate(together):
    print(f"  worker {i}: {len(losses)} steps, {seconds:.2f} s each")

slow_log, _, _, iterations = pair.run(on_task, coordinate, 2 * STEPS, PAUSE)[0]
in_order = sorted(slow_log, key=lambda entry: entry[3])
workers = [int(worker) for _, worker, _, _ in in_order]
staleness = [int(pushed - 1 - pulled) for _, _, pulled, pushed in in_order]
print("They do not:")
for i in (0, 1):
    own = [s for s, worker in zip(staleness, workers, strict=True) if worker == i]
    mean = sum(own) / len(own)
    print(f"  worker {i}: {len(own)} steps, {mean:.1f} updates stale (mean)")
print(f"  {len(slow_log)} updates; optimizer.iterations says {iterations}")

# %%
cu.plots.show(
    cu.plots.updates(workers, staleness, "Worker 1 is slow, and the job goes on"),
    alt="Staleness of 40 updates. Most are worker 0's and hardly stale. Worker 1's "
    "are several updates old: what worker 0 did meanwhile.",
)

# %% [markdown]
# The synchronous job runs at worker 1's pace. The asynchronous one goes at worker 0's, and worker 1 gives what it can: old gradients. The older, the less they fit; a learning rate that suits fresh gradients can be too high for stale ones.
#
# (Lessons 08 and 13 have cures that stay synchronous.)
#
# ## A trap: `optimizer.iterations`
#
# The last line above says how many updates Keras has counted. `version.assign_add(1)` is one operation on the ps. Keras adds to `iterations` by reading it and writing it back; when two workers do that at once, one count is lost. It may be right in this run and wrong in the next. Learning-rate schedules read it: give them a counter of your own.

# %% [markdown]
# ## A killed worker
#
# In lesson 11 one killed worker ended the job for all, and only a restart helped. Here, half way, somebody kills first a worker, then (in another run) the parameter server.


# %%
def with_a_kill(coordinator, victim):
    def kill():
        coordinator.join()  # what is half done shall not blur what we count
        number = Path(folder, victim).read_text()
        os.kill(int(number), 9)  # SIGKILL

    try:
        return coordinate(coordinator, 2 * STEPS, half_way=kill)[0]
    except tf.errors.UnavailableError as error:
        return f"the job is over: {type(error).__name__}"


ends = {}
for victim in ("worker 1", "ps 0"):
    outcomes = pair.outcomes(on_task, with_a_kill, victim)
    ends[victim] = {outcome.task: outcome for outcome in outcomes}
    value = ends[victim]["chief"].value
    told = value if isinstance(value, str) else f"{len(value)} of 40 steps done"
    print(f"{victim} is killed: {told}")

log = ends["worker 1"]["chief"].value
before, after = log[: STEPS + 1], log[STEPS + 1 :]
for when, part in (("before", before), ("after", after)):
    by = [sum(int(worker) == i for _, worker, *_ in part) for i in (0, 1)]
    print(f"{when} the kill: worker 0 did {by[0]} steps, worker 1 {by[1]}")

# %% [markdown]
# A worker holds nothing that anybody needs. The coordinator notices, hands its step to another, and goes on; a restarted worker may join again. (The step may have been pushed just before the end, and is then done **twice**: at least once, not exactly once.)
#
# The ps holds everything. If it or the chief dies, the job is over, and what is left is the last checkpoint. So the places that can fail for all have become fewer. They are not gone.
#
# ## And `Model.fit`?


# %%
def fit(coordinator):
    model, _ = build(coordinator.strategy)
    with coordinator.strategy.scope():
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH)
    try:
        model.fit(dataset, epochs=1, steps_per_epoch=STEPS, verbose=0)
    except ValueError as error:
        return str(error)


fit_refused = pair.run(on_task, fit)[0]
print(fit_refused)

# %% [markdown]
# With Keras 3 it does not train under `ParameterServerStrategy`: `fit` knows nothing of a coordinator. The guide that you may find was written for Keras 2. The loop above is the way.
#
# Source: [Parameter server training](https://www.tensorflow.org/tutorials/distribute/parameter_server_training).
#
# ## Exercise 15.1 · How stale is a gradient?
#
# `log` is what a parameter server noted, in its order: `("pull", worker)` or `("push", worker)`. A push applies the gradient for the weights of that worker's last pull. Its staleness is the number of pushes by *others* in between. Return the mean over all pushes. About 8 lines.


# %% tags=["exercise"] exercise_id="15.mean_staleness"
def mean_staleness(log):
    """The mean staleness of the pushes, in updates."""
    ...


# %%
cu.check("15.mean_staleness", mean_staleness)

# %% [markdown]
# ## Exercise 15.2 · The loop of a coordinator
#
# `step` is a `tf.function` of one batch that returns its loss. Let the workers do one step for each of the `batches`, keep all of them busy, and return the losses as numbers, in the order of the batches. It is checked on a real cluster: a chief, two workers, one parameter server. About 3 lines.


# %% tags=["exercise"] exercise_id="15.run_steps"
def run_steps(coordinator, step, batches):
    """The losses, one number a batch."""
    ...


# %%
cu.check("15.run_steps", run_steps)

# %% [markdown]
# ## Exercise 15.3 · Which one, and why?
#
# - **A** one machine, 4 equal GPUs
# - **B** 8 equal machines, to be as fast as they can
# - **C** 30 borrowed machines, some 5 times slower, that come and go
# - **D** one machine, 2 GPUs; a table that fits into the host, not into a GPU
# - **E** 8 machines; an auditor repeats the run and compares weights
#
# Reasons: **1** no machine carries more than another · **2** nobody waits, and a lost worker costs one step · **3** one process reaches all devices · **4** the variables exist once, on the host · **5** the result does not depend on who was faster
#
# A strategy and a reason each, no reason twice, such as `"A": ("TPUStrategy", 2)`. 5 lines.

# %% tags=["exercise"] exercise_id="15.my_choice"
my_choice = None

# %%
cu.check("15.my_choice", my_choice)

# %% [markdown]
# ## What must be true now

# %%
assert max(from_one_device.values()) < 1e-5  # those that meet: one training
first = runs["one device"][1]
assert distance(alone[1], first) < 1e-5  # one worker: nobody in between
assert distance(asynchronous[1], first) > 1e-4  # two: another model …
assert distance(asynchronous[1], again[1]) > 1e-4  # … in each run
assert all(p == k and q == k + 1 for k, (_, _, p, q) in enumerate(alone[0]))

assert 3.9 < a_round["parameter server"] < 4.8
assert 1.9 < a_round["all-reduce"] < 2.4
assert [task for task, (holds, _) in places["parameter server"].items() if holds] == [
    "ps 0, CPU:0"
]
assert list(places["mirrored"].values()) == [(True, True)] * 2
assert list(places["multi-worker mirrored"].values()) == [(True, True)] * 2
assert sum(holds for holds, _ in places["central storage"].values()) == 1

assert [len(losses) for losses, *_ in together] == [STEPS, STEPS]
assert min(seconds for *_, seconds in together) > 0.9 * PAUSE  # both wait for worker 1
assert len(workers) == 2 * STEPS and workers.count(0) > workers.count(1) > 0
own = [[s for s, w in zip(staleness, workers, strict=True) if w == i] for i in (0, 1)]
assert sum(own[1]) / len(own[1]) > sum(own[0]) / len(own[0])

assert ends["worker 1"]["worker 1"].status == "killed"
assert len(log) == 2 * STEPS and {int(worker) for _, worker, *_ in after} == {0}
assert "over" in ends["ps 0"]["chief"].value
assert "create_per_worker_dataset" in fit_refused

# %% [markdown]
# > **Take away.** Meet in every step when the machines are equal and you want one exact model: that is most of the time. Do without the meeting when machines are slow, borrowed or lost, and pay for it with stale gradients, runs that nobody can repeat, and a parameter server through which everything passes.
#
# Next: [16 · What would it take, and cost, on real machines?](16_onto_a_real_cluster.ipynb)
