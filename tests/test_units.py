"""Quantities with a unit are read in one place, alike for links, the cost model and the command line."""

import math

import pytest

from course_utils import costmodel, units
from course_utils.cluster.links import Link
from course_utils.errors import ConfigError

SPEEDS = {
    "8bit": 8,
    "25Gbit": 25e9,
    "25gbit": 25e9,
    "25 Gbit": 25e9,
    " 25  Gbit ": 25e9,
    "25Gbit/s": 25e9,
    "25Gbitps": 25e9,
    "0.5Mbit": 5e5,
    "100kbit/s": 1e5,
}
TIMES = {"20us": 2e-5, "5ms": 5e-3, "0.1 s": 0.1, "2min": 120, "3H": 10800, "0ms": 0, "1.5h": 5400}
NO_SPEEDS = [
    "",
    "25",
    "Gbit",
    "0Mbit",
    "-1Gbit",
    "25GB",
    "25Gbit/h",
    "25Gbit/s/s",
    "1e9bit",
    "25,5Gbit",
    "9" * 400 + "bit",
]
NO_TIMES = ["", "5", "ms", "-5ms", "5 days", "5s/s", "nans", "1e3s"]


@pytest.mark.parametrize("text", SPEEDS)
def test_a_speed_is_the_same_to_a_link_and_to_the_cost_model(text):
    assert units.bits_per_second(text) == SPEEDS[text]
    assert Link(bandwidth=text).bytes_per_second * 8 == SPEEDS[text]
    assert costmodel.Network.of(text).bandwidth * 8 == SPEEDS[text]


@pytest.mark.parametrize("text", TIMES)
def test_a_time_is_the_same_to_a_link_and_to_the_cost_model(text):
    assert math.isclose(units.seconds(text), TIMES[text])
    assert Link(delay=text).delay_seconds == costmodel.seconds(text) == units.seconds(text)


@pytest.mark.parametrize("text", [*NO_SPEEDS, None, 25, 25e9, b"25Gbit", ["25Gbit"]])
def test_what_is_no_speed_is_refused_by_all_in_one_sentence(text):
    with pytest.raises(ConfigError, match="is no bandwidth") as told:
        units.bits_per_second(text)
    assert "25Gbit" in told.value.expected
    with pytest.raises(ConfigError, match="is no bandwidth"):
        costmodel.Network.of(text)
    if text is not None:  # a link without a bandwidth is not throttled
        with pytest.raises(ConfigError, match=r"^Link\(bandwidth=.*is no bandwidth"):
            Link(bandwidth=text)


@pytest.mark.parametrize("text", [*NO_TIMES, None, 5, 0.1, b"5ms"])
def test_what_is_no_time_is_refused_by_all_in_one_sentence(text):
    with pytest.raises(ConfigError, match="is no time"):
        costmodel.seconds(text)
    with pytest.raises(ConfigError, match=r"^Link\(delay=.*is no time"):
        Link(delay=text)
