"""The cost model: closed forms, and a simulation that agrees with them."""

import itertools

import numpy as np
import pytest

from course_utils import costmodel
from course_utils.costmodel import Failures, Job, Network
from course_utils.errors import ConfigError

NETWORK = Network(latency=1e-5, bandwidth=1e9)
JOB = Job(per_example=1e-3, fixed=0.02, gradient_bytes=1e8, spread=0.1)


def test_a_message_costs_its_latency_and_its_bytes():
    assert Network.of("8Gbit", "10us").message(2e9) == pytest.approx(2 + 1e-5)


def test_a_ring_moves_2_n_minus_1_over_n_of_the_array_and_a_tree_all_of_it_in_each_round():
    assert costmodel.ring(4, 1e9, NETWORK) == pytest.approx(6 * 1e-5 + 1.5)
    assert costmodel.tree(4, 1e9, NETWORK) == pytest.approx(4 * 1e-5 + 4)
    assert costmodel.ring(1, 1e9, NETWORK) == costmodel.tree(1, 1e9, NETWORK) == 0


def test_a_tree_wins_on_small_arrays_and_a_ring_on_large_ones():
    for size, quicker in ((100, costmodel.tree), (1e9, costmodel.ring)):
        assert quicker is min((costmodel.ring, costmodel.tree), key=lambda way: way(1024, size, NETWORK))


def test_a_hierarchy_sends_between_machines_what_a_ring_of_machines_would():
    fast = Network(1e-7, 1e12)
    both = costmodel.hierarchical(64, 1e9, NETWORK, group=8, inner=fast)
    assert both == pytest.approx(costmodel.ring(8, 1e9, NETWORK) + costmodel.ring(8, 1e9, fast))
    with pytest.raises(ConfigError, match="groups of 3"):
        costmodel.hierarchical(64, 1e9, NETWORK, group=3, inner=fast)


@pytest.mark.parametrize(("workers", "spread"), [*itertools.product([1, 2, 30, 1000], [0.0, 0.05, 0.5])])
def test_the_longest_of_many_times_is_as_long_as_drawn_ones(workers, spread):
    sigma = np.sqrt(np.log1p(spread**2))
    drawn = np.random.default_rng(1).lognormal(-(sigma**2) / 2, sigma, size=(4000, workers)).max(axis=1)
    error = 5 * drawn.std() / np.sqrt(len(drawn)) + 1e-9
    assert costmodel.slowest_of(workers, spread) == pytest.approx(drawn.mean(), abs=error)


@pytest.mark.parametrize("workers", [1, 4, 256, 10_000])
def test_the_simulation_agrees_with_the_closed_form_of_a_step(workers):
    run = costmodel.simulate(JOB, workers, 32, NETWORK, steps=1000)
    step = costmodel.step(JOB, workers, 32, NETWORK)
    assert run.seconds / 1000 == pytest.approx(step.seconds, rel=0.01)
    assert run.communication / 1000 == pytest.approx(step.communication)
    assert run.work + run.wait + run.communication == pytest.approx(run.seconds)


@pytest.mark.parametrize("workers", [10, 300, 3000])
def test_the_simulation_agrees_with_dalys_closed_form_of_failures(workers):
    failures = Failures(between=30 * 86400, checkpoint=20, restart=120)
    job = Job(per_example=1.0, fixed=0.0, gradient_bytes=0.0)
    steps, free = 2_000_000, Network(1e-15, 1e15)
    runs = [
        costmodel.simulate(job, workers, 1, free, steps=steps, failures=failures, seed=seed)
        for seed in range(4)
    ]
    mean = np.mean([run.seconds for run in runs]) / steps
    # whole steps of 1 s make intervals a little longer than Daly's, by less than one part in a hundred
    assert mean - 1 == pytest.approx(failures.overhead(workers, failures.daly(workers)) - 1, rel=0.1)
    assert all(run.seconds == pytest.approx(run.work + run.checkpoints + run.lost, rel=1e-6) for run in runs)


def test_dalys_interval_is_the_best_one_and_youngs_nearly():
    failures = Failures(between=30 * 86400, checkpoint=20, restart=120)
    candidates = np.geomspace(20, 20_000, 2000)
    best = min(candidates, key=lambda interval: failures.overhead(1000, interval))
    assert failures.daly(1000) == pytest.approx(best, rel=0.01)
    assert failures.young(1000) == pytest.approx(best, rel=0.1)


def test_a_job_that_cannot_end_has_no_finite_overhead():
    assert Failures(1, 30, 3).overhead(1000, 1e6) == np.inf


def test_the_same_seed_is_the_same_run_and_another_is_not():
    runs = [costmodel.simulate(JOB, 16, 32, NETWORK, steps=50, seed=seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_efficiency_is_1_alone_and_never_above_and_strong_scaling_ends_first():
    assert (
        costmodel.weak_efficiency(JOB, 1, 32, NETWORK)
        == costmodel.strong_efficiency(JOB, 1, 32, NETWORK)
        == 1
    )
    for workers in (2, 8, 64, 512):
        weak = costmodel.weak_efficiency(JOB, workers, 32, NETWORK)
        strong = costmodel.strong_efficiency(JOB, workers, 32 * 8, NETWORK)
        assert strong < 1 and weak < 1
    assert strong < weak


def test_workers_that_share_cores_do_not_compute_more():
    alone = costmodel.step(JOB, 2, 32, NETWORK, cores=2)
    shared = costmodel.step(JOB, 8, 32, NETWORK, cores=2)
    assert shared.work == pytest.approx(4 * alone.work)


def test_communication_hides_behind_work_only_as_far_as_there_is_work():
    hidden = costmodel.step(Job(1e-3, 0, 1e8, overlap=1.0), 4, 10, NETWORK)
    open_ = costmodel.step(Job(1e-3, 0, 1e8), 4, 10, NETWORK)
    assert open_.communication - hidden.communication == pytest.approx(hidden.work)


def test_input_counts_only_where_it_is_slower_than_computing():
    assert Job(1e-3, 0, 0, input_per_example=5e-4).work(100) == pytest.approx(0.1)
    assert Job(1e-3, 0, 0, input_per_example=5e-3).work(100) == pytest.approx(0.5)


@pytest.mark.parametrize("run", costmodel.published(), ids=lambda run: run.name)
def test_published_efficiencies_lie_between_nothing_hidden_and_all_of_it(run):
    least, most = run.predicted()
    assert least - 0.05 <= run.efficiency <= most + 0.05
    assert 0 < least <= most <= 1


def test_ten_thousand_workers_are_simulated_worker_by_worker():
    run = costmodel.simulate(JOB, 10_000, 32, NETWORK, steps=1000)
    assert run.wait / run.work == pytest.approx(costmodel.slowest_of(10_000, JOB.spread) - 1, rel=0.02)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Network.of("fast"), "no bandwidth"),
        (lambda: Network.of("1Gbit", "soon"), "no time"),
        (lambda: Network(0, 1e9), "latency=0"),
        (lambda: Job(-1, 0, 0), "per_example=-1"),
        (lambda: Job(1, 0, 0, overlap=2), "overlap=2"),
        (lambda: Job(1, 0, float("nan")), "gradient_bytes=nan"),
        (lambda: Failures(0, 1, 1), "between=0"),
        (lambda: costmodel.step(JOB, 0, 1, NETWORK), "workers=0"),
        (lambda: costmodel.step(JOB, 2, 1, NETWORK, all_reduce="star"), "no all-reduce 'star'"),
        (lambda: costmodel.step(JOB, 2, 1, NETWORK, cores=0), "cores=0"),
        (lambda: costmodel.step(JOB, 2, -5, NETWORK), "batch=-5"),
        (lambda: costmodel.ring(-3, 1e6, NETWORK), "workers=-3"),
        (lambda: costmodel.tree(4, -1e6, NETWORK), "size=-1000000.0"),
        (lambda: costmodel.hierarchical(4, 1e6, NETWORK, group=0, inner=NETWORK), "group=0"),
        (lambda: Failures(1, 30, 3).daly(0), "workers=0"),
        (
            lambda: costmodel.simulate(JOB, 2, 1, NETWORK, steps=1, failures=Failures(1e6, 1, 1), interval=0),
            "interval=0",
        ),
        (
            lambda: costmodel.simulate(
                JOB, 10**6, 32, NETWORK, steps=10, failures=Failures(1000, 10, 10), interval=1e6
            ),
            "never ends",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_words(make, words):
    with pytest.raises(ConfigError, match=words):
        make()
