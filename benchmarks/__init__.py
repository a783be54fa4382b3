"""Measurements for those who work on surefoot: `python -m benchmarks NAME` from a checkout. Not part of the package.

`surefoot bench` is what a user decides with. The figures here are about one part each: operations, speculation, the
prompt cache on disk, the planner's predictions, cores that models share, a fleet and its simulation. Each subject has
`run` (the cases), `figures` where there are many, and `report` (tables), over the parts of `surefoot.bench.harness`.
"""
