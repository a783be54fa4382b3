"""Code that all benchmarks share: interleaved timing, figures, tables, the machine's limits and load generators."""
