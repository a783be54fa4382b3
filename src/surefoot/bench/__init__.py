"""Benchmarks, a folder for each subject: operations, one user's model, the engine, the server, speculation.

Each subject has `run` (what is measured), `figures` (the numbers that it is measured for) and `report` (tables). What
they share is in `harness`; other engines are in `peers`. See docs/design/benchmarks.md for what is counted and why.
"""
