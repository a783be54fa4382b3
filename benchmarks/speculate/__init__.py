"""`python -m benchmarks speculate`: the same prompts with speculation and without."""
