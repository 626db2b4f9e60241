"""A class of 100 that never was: submissions of every kind, graded by the real `course grade`, and checked.

`make grade-demo` makes them (`planning`, `files`), says what has to come out for each (`answers`), grades
them, and holds the gradebook against it (`comparing`). The same seed makes the same class.
"""
