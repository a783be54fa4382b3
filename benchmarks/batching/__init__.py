"""`python -m benchmarks batching`: what batching and the prefix cache gain, and what each part of a step costs."""
