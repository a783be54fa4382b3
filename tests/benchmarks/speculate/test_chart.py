from benchmarks.speculate.chart import tokens_per_pass


def test_theory() -> None:
    assert tokens_per_pass(0, 5) == 1
    assert tokens_per_pass(1, 5) == 6
    assert abs(tokens_per_pass(0.5, 2) - 1.75) < 1e-12
