"""What lesson 07 shows of jobs that fail: TensorFlow's own traces, each enough to tell the mistake."""

import json

import pytest

from course_utils.cluster import ClusterConfig, check_tf_configs
from course_utils.errors import ConfigError
from course_utils.exercises import incidents
from course_utils.exercises.lesson_07 import RIGHT

PORT_TAKEN = "UnknownError: Could not start gRPC server"


@pytest.fixture(scope="module")
def played():
    return {incident.letter: incident for incident in incidents.play(patience=4)}


def test_every_letter_has_a_diagnosis_and_every_diagnosis_a_name(played):
    assert sorted(played) == sorted(RIGHT)
    assert set(RIGHT.values()) < set(incidents.MISTAKES)


def test_two_mistakes_leave_the_same_error_and_only_the_notes_tell_them_apart(played):
    for letter in "AD":
        assert sum(PORT_TAKEN in log for log in played[letter].printed) == 1
    order, index = (notes(played[letter]) for letter in "AD")
    assert order[0]["cluster"]["worker"] == order[1]["cluster"]["worker"][::-1]
    assert index[0] == index[1]


def test_a_note_that_came_too_late_looks_right_and_leaves_two_trainings(played):
    check_tf_configs(played["B"].given)
    assert all("replicas in step: 1" in log and "Started server" not in log for log in played["B"].printed)


def test_the_leader_names_the_worker_that_nobody_started(played):
    assert "Example stragglers:\n/job:worker/replica:0/task:2" in played["C"].printed[0]
    assert len(notes(played["C"])[0]["cluster"]["worker"]) == 3


def test_a_note_in_python_instead_of_json_is_refused_without_its_name(played):
    assert "JSONDecodeError" in played["E"].printed[1] and "TF_CONFIG" not in played["E"].printed[1]


def test_a_chief_counted_twice_waits_for_itself(played):
    cluster = notes(played["F"])[0]["cluster"]
    missing = played["F"].printed[0].rpartition("Example stragglers:")[2]
    assert "/job:worker/replica:0/task:0" in missing and "task:1" not in missing.split("\n")[1]
    assert cluster["worker"][0] == cluster["chief"][0]


def test_the_check_of_the_course_refuses_all_that_can_be_seen_in_the_notes(played):
    for letter in "ACDEF":
        with pytest.raises(ConfigError):
            check_tf_configs(played[letter].given)


def test_jobs_side_by_side_do_not_meet_although_their_notes_name_the_same_ports():
    right = ClusterConfig(worker=["127.0.0.1:2222", "127.0.0.1:3333"]).tf_configs()
    states = incidents.without_check({"one": right, "two": right}, patience=60)
    assert states == {"one": ["trains", "trains"], "two": ["trains", "trains"]}


def test_a_process_alone_and_one_that_raises_are_told_apart():
    right = ClusterConfig(worker=["127.0.0.1:2222", "127.0.0.1:3333"]).tf_configs()
    states = incidents.without_check({"alone": [None], "late": [right[0], "{'not': 'JSON'}"]}, patience=60)
    assert states["alone"] == ["trains alone"]
    assert states["late"][0] == "waits" and states["late"][1].startswith("raises JSONDecodeError: ")


def test_an_incident_shows_itself_with_its_text_escaped():
    incident = incidents.Incident("A", ['{"cluster"}'], ["a <b> & c"], "ended")
    assert "a &lt;b&gt; &amp; c" in incident._repr_html_()
    assert "a <b> & c" in repr(incident)


def test_a_tidy_log_keeps_what_was_said_and_drops_the_stamps():
    log = (
        "E0000 00:00:1796048349.393575 28242 cuda_platform.cc:52] failed call to cuInit: 303\n"
        "I0000 00:00:1796048349.505585 28820 coordination_service.cc:502] Waiting for 1/2 tasks to connect.\n"
        "/job:worker/replica:0/task:1\n"
    )
    assert incidents.tidy(log) == "Waiting for 1/2 tasks to connect.\n/job:worker/replica:0/task:1"


def notes(incident):
    return [json.loads(text) for text in incident.given]
