"""Benchmarks: our operations beside the machine's limits and beside peers, in one interleaved run.

Nothing below imports this package. See docs/design/benchmarks.md for what is counted and why.
"""
