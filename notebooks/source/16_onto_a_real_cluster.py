# %% [markdown]
# # 16 · What would it take, and cost, on real machines?
#
# Your script trains on the workers of this laptop. Now somebody offers you 8 machines, or 800. What has to change in the script? And would it be worth the money?
#
# **After this lesson** you can start one script under `course launch`, Slurm and Kubernetes, predict its step time from a measurement, and say how many workers a deadline takes, and what they cost.
#
# *40 minutes · builds on lessons 07 (TF_CONFIG), 03 (what an all-reduce costs) and 11 (failures)*

# %%
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import course_utils as cu

cu.cluster.warm_up(wait=False)  # the workers-to-be import TensorFlow meanwhile
import numpy as np

# %% tags=["parameters"]
profile = "laptop"

# %% [markdown]
# ## One script, three ways to start it
#
# `examples/train.py` is a whole training job: data, checkpoints, resume, an answer to SIGTERM. It does not know how many workers there are; that stands in `TF_CONFIG`. Here it runs on two, as from a terminal:

# %%
cu.plots.style()
SCRIPT = Path(cu.__file__).parents[1] / "examples" / "train.py"
place = tempfile.TemporaryDirectory()


def course(*arguments):
    """What the command `course` prints."""
    command = [sys.executable, "-m", "course_utils.cli", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


options = "--steps=40", f"--checkpoints={place.name}"
print(course("launch", "--workers", "2", str(SCRIPT), "--", *options))

# %% [markdown]
# On real machines somebody else starts the processes: a **scheduler**. It knows which machines are free, and it does not know TensorFlow. So there is one thing to do: turn what the scheduler tells each process into a `TF_CONFIG`.
#
# ## Slurm
#
# Slurm runs most scientific clusters. You hand in a shell script whose comments say what you need; `srun` in it starts one process for each task. `course deploy` writes that script:

# %%
batch = course(
    *("deploy", "slurm", "--workers", "4", "--per-node", "2", "--gpus", "1"),
    *("--time", "2h", "train.py", "--", "--steps=400", "--checkpoints=/shared/run1"),
)
print(*batch.splitlines()[1:], sep="\n")  # all but the line that names the shell

# %% [markdown]
# Three lines are worth a look. `--signal=TERM@120`: every worker is told two minutes before the end, and writes a checkpoint (lesson 11). `--requeue` and the loop: the job goes on after a preemption or a failure. And `TF_CONFIG=$(…)`, made on each task from what `srun` tells it (so the nodes need this package, which the script imports anyway). Here is that, for the four tasks of such a job:


# %%
def variables(rank, nodes="n[9-10]"):
    """What srun tells the task with this rank: two tasks on each of two nodes."""
    return {
        "SLURM_JOB_ID": "4711",
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
        "SLURM_PROCID": str(rank),
        "SLURM_NODEID": str(rank // 2),
        "SLURM_LOCALID": str(rank % 2),
    }


configs = [cu.cluster.slurm.tf_config(variables(rank)) for rank in range(4)]
cu.cluster.check_tf_configs(configs)  # would they find each other? (lesson 07)
for config in map(json.loads, configs):
    print(config["task"], *config["cluster"]["worker"])

# %% [markdown]
# ### Predict
#
# TensorFlow has a `SlurmClusterResolver` that does the same. It *sorts* the names of the nodes, as texts. Slurm started task 0 on `n9`. Which address does task 0 get from a sorted list?

# %% tags=["predict"]
my_guess = None

# %% tags=["stable"]
hosts = cu.cluster.slurm.expand_hosts("n[9-10]")
print("Slurm's order:", hosts, " sorted:", sorted(hosts))
for nodes in ("n[9-10]", "n[09-10]"):
    right = cu.cluster.slurm.agrees_with_tensorflow(variables(0, nodes))
    print(f"{nodes}: TensorFlow's resolver is {'right' if right else 'wrong'}")

# %% [markdown]
# The address of `n10`, on which it does not run; its own address is given to another. On names with leading zeros it is right. `course deploy` uses it where it is, and the course's own list elsewhere; the course's tests hold the two against each other, and run the script under a real Slurm.
#
# ## Kubernetes
#
# A Kubernetes cluster takes *manifests*: descriptions of what should be. An **indexed Job** starts numbered pods, a **headless Service** names them; that is all. (`--with jobset` writes a JobSet, on which Kubeflow Trainer v2 stands: it restarts *all* workers when one fails, which is what lesson 11 asked for. `--with tfjob` is for clusters that still have Kubeflow's first operator, which is legacy.)

# %%
manifest = course(
    *("deploy", "kubernetes", "--workers", "3", "--image", "me/train:1"),
    *("train.py", "--", "--steps=400", "--checkpoints=/shared/run1"),
)
shown = ("kind:", "completion", "parallelism", "subdomain", "clusterIP", "INDEX")
print(
    *[line for line in manifest.splitlines() if any(s in line for s in shown)], sep="\n"
)

# %% [markdown]
# `$(TASK_INDEX)` is filled in by Kubernetes; no program of ours runs in between. So this is what the pods get:

# %%
import yaml

service, job = yaml.safe_load_all(manifest)
environment = job["spec"]["template"]["spec"]["containers"][0]["env"]
template = environment[1]["value"]
pods = [template.replace("$(TASK_INDEX)", str(index)) for index in range(3)]
cu.cluster.check_tf_configs(pods)
print(pods[2])

# %% [markdown]
# ## The first day
#
# What goes wrong on a new cluster is rarely the model.
#
# | check | why |
# |---|---|
# | ports open between all nodes | a closed port is a silent hang (lesson 07) |
# | names resolve on *every* node, to the right network card | `localhost` in a name table does the same |
# | one storage, seen by all, fast enough | checkpoints (10), data (08) |
# | clocks agree | file times, logs, timelines (14) |
# | the data are where all can read them | a step waits for the slowest reader |
# | NCCL finds the fast network (`NCCL_DEBUG=INFO`) | it falls back to a slow one without a word |
# | kill one worker on purpose | you want to see it today (11) |

# %% [markdown]
# ## What will a step cost?
#
# A step of synchronous training takes as long as the slowest worker's **work**, and then the **all-reduce**. With a ring of $n$ workers, $S$ bytes of gradients, and messages that cost $\alpha$ seconds and $\beta$ seconds a byte:
#
# $$t(n) = \text{work} + 2(n-1)\,(\alpha + \beta\,S/n)$$
#
# Three unknowns, and none can be looked up. So measure: computing alone and beside another worker, and the all-reduce of *two* workers for two sizes, on the loopback and on a link of 100 Mbit/s.

# %%
repeats = {"laptop": 5, "full": 25}[profile]
measured = cu.calibration.calibrate(repeats)
size = cu.calibration.gradient_bytes(cu.calibration.HIDDEN)
print(
    f"gradients: {size / 1e6:.2f} MB; work: {measured.alone[1] * 1e6:.1f} µs an example"
)
for name, net in (("loopback", measured.loopback), ("100 Mbit/s", measured.slow)):
    speed = f"{net.bandwidth / 1e6:.0f} MB/s"
    print(f"{name}: {net.latency * 1e3:.1f} ms a message, and its bytes at {speed}")

# %% [markdown]
# ### Predict
#
# Nothing with 3 or 4 workers was measured yet. On this laptop, over 100 Mbit/s: how many times longer is a step of 4 workers than one of 2, when each keeps its batch?

# %% tags=["predict"]
my_guess = None

# %%
EXAMPLES = 256  # for each worker
links = {"loopback": None, "100 Mbit/s": cu.cluster.Link("100Mbit")}
steps = {}
for name, link in links.items():
    for workers in (1, 2, 3, 4)[bool(link) :]:
        real = cu.calibration.measure_steps(workers, EXAMPLES, link, repeats)
        predicted = measured.step(workers, EXAMPLES, link).seconds
        under = f"{workers} worker{'s' * (workers > 1)}\n{name}"
        steps[under] = {"measured": 1e3 * real, "predicted": 1e3 * predicted}
slow2, slow4 = (steps[f"{n} workers\n100 Mbit/s"] for n in (2, 4))
longer = {kind: slow4[kind] / slow2[kind] for kind in slow2}
print("4 workers over 2, at 100 Mbit/s:", {k: round(v, 1) for k, v in longer.items()})
cu.plots.show(
    cu.plots.grouped_bars(steps, "one step (ms)"),
    alt="Measured and predicted step times on one to four workers, on the loopback and "
    "over 100 Mbit/s, side by side: the slow link makes the step many times longer.",
)

# %% [markdown]
# Over the slow link 4 workers take longer than 2, though each keeps its batch: 2(n−1)/n arrays pass each link, 1½ instead of 1, in 6 rounds instead of 2, and all compute on the same cores.
#
# How near are the bars on your machine? If it is busy with other things, not very: the model believes what it measured. The course's benchmark asks for 20 % on a quiet one, and prints how near each is.
#
# ## The trap of the laptop
#
# Now the same workers on machines of their own. May one read their speed off the laptop's bars?

# %%
job = measured.job()
fast = cu.costmodel.Network.of("25Gbit")
counts = (1, 2, 3, 4)
here = [step["measured"] / 1e3 for step in list(steps.values())[:4]]  # the loopback
throughput = {
    "on this machine, measured": [
        n / step for n, step in zip(counts, here, strict=True)
    ],
    "a machine each, predicted": [
        n / cu.costmodel.step(job, n, EXAMPLES, fast).seconds for n in counts
    ],
}
speed_up = {name: np.array(rates) / rates[0] for name, rates in throughput.items()}
cu.plots.show(
    cu.plots.against_workers(counts, speed_up, "speed-up", ideal=counts),
    alt="Speed-up against workers. On this machine it stays far below the ideal line, "
    "as the workers share its cores; on machines of their own it rises with every "
    "worker, somewhat below that line.",
)

# %% [markdown]
# **No.** The workers here share the same cores, for computing *and* for adding up: what grows is the crowd, not the machine. (The other line supposes 25 Gbit/s between machines; what it lacks to the ideal is the all-reduce.) Take from the laptop what one worker needs *alone*, and what it sends. Never its curve.
#
# ## To a thousand workers
#
# Let us take a job that others have measured: ResNet-50 on ImageNet, 102 MB of gradients, batches of 32 on one P100, about 7 ms an image. Each worker keeps its batch, so the global batch grows: **weak scaling**. What limits it?

# %%
resnet = cu.costmodel.published()[0].job
many = [2**power for power in range(11)]
NETWORKS = ("1Gbit", "10Gbit", "100Gbit")


def efficiencies(job, network):
    net = cu.costmodel.Network.of(network)
    return [cu.costmodel.weak_efficiency(job, n, 32, net) for n in many]


weak = {f"{net[:-4]} Gbit/s": efficiencies(resnet, net) for net in NETWORKS}
uneven = resnet.varying(0.1)  # from step to step
weak["100 Gbit/s, uneven workers"] = efficiencies(uneven, "100Gbit")
cu.plots.show(
    cu.plots.against_workers(many, weak, "efficiency", log=True),
    alt="Efficiency against workers, up to 1024. It falls with the first few workers, "
    "stays nearly level, and falls again where latency counts. A faster network "
    "lifts it; uneven workers lower it step by step.",
)

# %% [markdown]
# The fall comes with the *first few* workers: $2(n-1)/n$ arrays pass each network card (lesson 03), 1 with two workers, 1.75 with eight, and never more than 2. At a thousand the $2(n-1)\,\alpha$ of the ring begins to show; there one takes a tree or a hierarchy.
#
# The last line is another enemy. Workers vary from step to step, here by 10 %, and everyone waits for the slowest. The more workers, the slower the slowest.
#
# ## Does it agree with anything?
#
# A model is worth what it predicts. First a simulation that knows no formula: every worker's time is drawn for every step. Then what others have published.

# %%
ways = {}
for n in (16, 256, 4096):
    simulated = cu.costmodel.simulate(uneven, n, 32, fast, steps=400).seconds / 400
    formula = cu.costmodel.step(uneven, n, 32, fast).seconds
    ways[f"{n} workers"] = {"formula": 1e3 * formula, "simulation": 1e3 * simulated}
cu.plots.show(
    cu.plots.grouped_bars(ways, "one step (ms)"),
    alt="Step times by formula and by simulation for 16, 256 and 4096 workers: equal.",
)

# %%
published = cu.costmodel.published()
reported = {run.name: (run.efficiency, *run.predicted()) for run in published}
cu.plots.show(
    cu.plots.ranges(reported, "efficiency"),
    alt="For three published runs the reported efficiency as a point, within the range "
    "that the model gives between no overlap of the all-reduce and full overlap.",
)
[run.source for run in published]

# %% [markdown]
# The points are reported, the bars are ours: from "nothing of the all-reduce hides behind the backward pass" to "all that can". Every point lies in its bar. That is the right size, not a proof; for more one would have to measure on those machines.
#
# ## A deadline, and a bill
#
# 90 epochs of ImageNet. Workers are rented by the hour, so the bill is workers × hours. The global batch may not grow for ever (lesson 06), so here it stays at 8,192 and is shared out: **strong scaling**.

# %%
UPDATES = 90 * 1_281_167 // 8192
net = cu.costmodel.Network.of("25Gbit")
rented = [8, 16, 32, 64, 128, 256, 512, 1024]
hours = [
    UPDATES * cu.costmodel.step(uneven, n, 8192 / n, net).seconds / 3600 for n in rented
]
bill = [n * time for n, time in zip(rented, hours, strict=True)]
panels = {"time (hours)": hours, "bill (worker-hours)": bill}
cu.plots.show(
    cu.plots.two_against_workers(rented, panels),
    alt="Left, the hours fall with the workers, ever more slowly. Right, the bill "
    "rises: slowly at first, and ever more steeply from some hundred workers on.",
)

# %% [markdown]
# Twice the workers are never half the time: the all-reduce does not shrink with them. As long as the bill hardly rises, you buy time nearly at cost; where it turns upwards, you pay for waiting. Where the line is drawn is not a question of TensorFlow.
#
# And the machines will fail. With a thousand workers that fail once in three months each, the job fails about every two hours. How much of the day is lost, if a checkpoint takes 30 s and a restart 3 minutes?

# %%
failures = cu.costmodel.Failures(between=90 * 86400, checkpoint=30, restart=180)
lost = {}
for n in (10, 100, 1000, 3000):
    best = failures.daly(n)
    hourly, daly = failures.overhead(n, 3600) - 1, failures.overhead(n, best) - 1
    name = f"{n} workers\nbest: every {best / 60:.0f} min"
    lost[name] = {"every hour": 100 * hourly, "Daly's interval": 100 * daly}
cu.plots.show(
    cu.plots.grouped_bars(lost, "more time (%)", form="{:.1f}"),
    alt="Time lost to failures. With 10 and 100 workers a checkpoint an hour costs "
    "little more than Daly's interval; with 3000 the job takes more than twice as "
    "long, with Daly's interval a quarter longer.",
)

# %% [markdown]
# ## Exercise 16.1 · TF_CONFIG from Slurm's variables
#
# Write the text for one task. `variables` holds `SLURM_PROCID`, `SLURM_NODEID`, `SLURM_LOCALID` and `SLURM_NTASKS_PER_NODE`, all as texts; `hosts` are the nodes in Slurm's order. The tasks of a node use `first_port`, `first_port + 1`, … All are workers. About 4 lines.


# %% tags=["exercise"] exercise_id="16.tf_config_on_slurm"
def tf_config_on_slurm(variables, hosts, first_port):
    """The TF_CONFIG of the task that has these variables, as JSON text."""
    ...


# %%
cu.check("16.tf_config_on_slurm", tf_config_on_slurm)

# %% [markdown]
# ## Exercise 16.2 · Efficiency from a log
#
# Two runs of one job: on one worker, and on `workers` of them. Each is a dictionary with its `"global batch"` and the `"seconds"` of its steps, from the very first one on. Return the efficiency, from 0 to 1. Some runs are weak scaling, some strong, some neither. About 4 lines.


# %% tags=["exercise"] exercise_id="16.efficiency"
def efficiency(one, many, workers):
    """Examples a second on many, over those of as many workers that cost nothing."""
    ...


# %%
cu.check("16.efficiency", efficiency)

# %% [markdown]
# ## Exercise 16.3 · Workers for a deadline
#
# On a laptop you measured the work of one step, in seconds, with 1, 2 and 4 workers at once: `measured[1]`, `measured[2]`, `measured[4]`. On the cluster each worker gets a machine of its own, as quick as the laptop, keeps its `batch`, and each step has an all-reduce of `all_reduce(workers)` seconds. Return the smallest number of workers, up to 512, that sees all `examples` once within `deadline` seconds; `None` if there is none. About 5 lines.


# %% tags=["exercise"] exercise_id="16.workers_for"
def workers_for(measured, all_reduce, examples, batch, deadline):
    """The smallest number of workers that is in time, or None."""
    ...


# %%
cu.check("16.workers_for", workers_for)

# %% [markdown]
# ## What must be true now

# %%
# Every task finds its own address, and the first one is where Slurm started it.
addresses = json.loads(configs[0])["cluster"]["worker"]
assert [address.split(":")[0] for address in addresses] == ["n9", "n9", "n10", "n10"]
assert len(set(addresses)) == 4

# An efficiency is at most 1, and uneven workers lower it.
assert all(0 < value <= 1 for values in weak.values() for value in values)
assert weak["100 Gbit/s, uneven workers"][-1] < weak["100 Gbit/s"][-1]

# Formula and simulation agree; published runs lie where the model says.
for way in ways.values():
    np.testing.assert_allclose(way["formula"], way["simulation"], rtol=0.02)
assert all(low <= seen <= high for seen, low, high in reported.values())

# The figures in the text: gradients, an image, failures of a thousand workers.
assert (
    round(resnet.gradient_bytes / 1e6) == 102 and round(1e3 * resnet.per_example) == 7
)
assert round(failures.of_job(1000) / 3600) == 2

# Twice the workers are never half the time, so the bill only grows.
assert (np.diff(bill) > 0).all() and (np.diff(hours) < 0).all()

# Daly's interval is never worse than a checkpoint an hour.
assert all(way["Daly's interval"] <= way["every hour"] for way in lost.values())

# %% [markdown]
# > **Take away.** The script stays; only who sets `TF_CONFIG` changes. Measure what one worker needs alone and what it sends, and compute the rest before you rent it.
#
# You are through: wherever this course said *worker*, a real process ran, and you know how to prove it. [Back to the start](00_is_this_machine_ready.ipynb), or on to machines of your own.
