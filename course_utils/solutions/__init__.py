"""The references: one file a lesson, each answer under the name that it has in the notebook.

A release for learners leaves the files out. `course_utils.exercises.reference_source` reads them.
"""
