"""`python -m benchmarks threads`: does a server with one core choose the best number of threads?"""
