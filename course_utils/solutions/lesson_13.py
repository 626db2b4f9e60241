"""Reference answers of lesson 13."""

import numpy as np


def compress(gradient, left, budget, meet):
    wanted = gradient + left
    count = budget // 8  # a value and its place, 4 bytes each
    places = np.argsort(np.abs(wanted))[-count:].astype(np.int32)
    total = np.zeros_like(wanted)
    for values, where in meet((wanted[places], places)):
        total[where] += values
    kept = wanted.copy()
    kept[places] = 0
    return total, kept


def plan_shares(speeds, global_batch):
    exact = np.array(speeds) / sum(speeds) * global_batch
    shares = np.floor(exact).astype(int)
    short = global_batch - shares.sum()
    shares[np.argsort(shares - exact)[:short]] += 1
    return shares.tolist(), (shares / global_batch).tolist()


def update_with_rates(weight, gradient, rate, all_reduce):
    return weight - all_reduce("SUM", rate * gradient)
