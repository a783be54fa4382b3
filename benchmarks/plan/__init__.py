"""`python -m benchmarks plan`: what `surefoot plan` predicts, beside what is measured."""
