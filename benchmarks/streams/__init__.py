"""`python -m benchmarks streams`: what the server and HTTP cost beside the bare engine."""
