"""Benchmarks, a folder for each subject: operations, one user's model, the engine, the server, speculation.

Each subject has `run` (the cases), `figures` (the resulting numbers with their targets) and `report` (tables). Shared
code is in `harness`; other engines are in `peers`. See docs/design/benchmarks.md for what is counted and why.
"""
