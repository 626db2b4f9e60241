"""Benchmarks: they print ratios of two things measured in one run, and assert nothing about seconds."""
