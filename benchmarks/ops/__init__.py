"""`python -m benchmarks ops`: each operation at the shapes of real models."""
