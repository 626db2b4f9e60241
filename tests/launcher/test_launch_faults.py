"""A small version of `python -m tests.benchmarks.launch_faults`: one job for each kind of fault."""

import random
from dataclasses import replace

import pytest

from tests.benchmarks import launch_faults

SEED = 7


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return launch_faults.undisturbed(tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.parametrize("kind", launch_faults.KINDS)
def test_a_job_that_meets_a_fault_ends_as_it_has_to_and_leaves_nothing(kind, reference, tmp_path):
    case = replace(launch_faults.random_case(random.Random(SEED), kind), pool=True)
    result = launch_faults.run(case, reference, tmp_path)
    assert not result.wrong, f"{case}: {result.wrong}\n{result.said}"
