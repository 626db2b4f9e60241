"""The instructor's desk: read what was handed in, look at each answer in a sandbox, judge outside, report."""
