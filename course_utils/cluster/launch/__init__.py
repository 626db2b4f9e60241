"""The parts of `course launch`; `course_utils.cluster.launcher` puts them together."""
