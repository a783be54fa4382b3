import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surefoot.ops import Backend, OpError, Sampling, SamplingRows, sample, top_logprobs
from tests.oracle import sampling as oracle

quick = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
seeds = st.integers(0, 2**32 - 1)


def draw_logits(rng: np.random.Generator, rows: int, vocab: int) -> np.ndarray:
    """Rows of many kinds: flat, peaked, full of ties, masked with -infinity, with NaN, without any finite logit."""
    x = (rng.standard_normal((rows, vocab)) * rng.choice([0.01, 1, 5, 100], (rows, 1))).astype(np.float32)
    for row in x:
        kind = rng.integers(6)
        if kind == 0:
            row[:] = np.round(row)  # ties, among them 0 with -0
        elif kind == 1:
            row[rng.random(vocab) < 0.7] = -np.inf
        elif kind == 2:
            row[:] = row[0]
        elif kind == 3:
            row[rng.random(vocab) < 0.1] = np.nan
    if rng.random() < 0.1:
        x[0] = rng.choice([-np.inf, np.inf])
    return x


def draw_parameters(rng: np.random.Generator, rows: int, vocab: int) -> SamplingRows:
    return SamplingRows(
        rng.choice([0, 1e-6, 0.05, 0.7, 1, 3, 1e5], rows).astype(np.float32),
        rng.choice([0, 0, 1, 2, 5, 40, vocab, vocab + 7, int(rng.integers(1, vocab + 1))], rows),
        rng.choice([1, 1, 0.9, 0.5, 0.999, 0.01, 0], rows).astype(np.float32),
        rng.choice([0, 0, 0.05, 0.5, 1, 1e-6], rows).astype(np.float32),
        rng.integers(0, 2**64 - 1, rows, np.uint64, endpoint=True),
        rng.integers(0, 2 ** int(rng.choice([4, 40])), rows),
    )


@quick
@given(rows=st.integers(1, 6), vocab=st.one_of(st.integers(1, 200), st.integers(1, 6000)), seed=seeds)
def test_sample_equals_oracle(backends: list[Backend], rows: int, vocab: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits, parameters = draw_logits(rng, rows, vocab), draw_parameters(rng, rows, vocab)
    want = oracle.sample(logits, parameters)
    for backend in backends:
        got = sample(backend, logits, parameters)
        assert np.array_equal(got.tokens, want.tokens)
        assert np.array_equal(got.logprobs.view(np.int32), want.logprobs.view(np.int32))


@quick
@given(rows=st.integers(1, 4), vocab=st.integers(1, 3000), seed=seeds, wanted=st.integers(1, 100))
def test_top_logprobs_equals_oracle(backends: list[Backend], rows: int, vocab: int, seed: int, wanted: int) -> None:
    logits = draw_logits(np.random.default_rng(seed), rows, vocab)
    want = oracle.top_logprobs(logits, min(wanted, vocab))
    for backend in backends:
        got = top_logprobs(backend, logits, min(wanted, vocab))
        assert np.array_equal(got.ids, want.ids)
        assert np.array_equal(got.logprobs.view(np.int32), want.logprobs.view(np.int32))


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter: tuple[int, ...], key: tuple[int, int], words: tuple[int, ...]) -> None:
    """The test vectors published by the generator's authors."""
    assert tuple(oracle.philox(np.array(counter, np.uint64), key)) == words


def test_noise_of_every_id(backends: list[Backend]) -> None:
    """Rows with two possible ids: each row's token tells which of the two has more noise."""
    rng = np.random.default_rng(11)
    rows, vocab = 800, 333
    pairs = np.array([rng.choice(vocab, 2, replace=False) for _ in range(rows)])
    logits = np.full((rows, vocab), -np.inf, np.float32)
    np.put_along_axis(logits, pairs, 0, axis=1)
    keys = rng.integers(0, 2**64 - 1, rows, np.uint64), rng.integers(0, 2**40, rows)
    got = sample(backends[1], logits, SamplingRows.of(rows, temperature=1, seeds=keys[0], positions=keys[1]))
    for pair, token, seed, position in zip(pairs, got.tokens, *keys, strict=True):
        assert token == pair[np.argmax(oracle.noise(int(seed), int(position), pair))]


def test_noise_is_bounded_by_the_gap() -> None:
    """Kernels skip blocks by the bound e^noise <= 1.01 / (1 - u); rounding must stay well within its margin."""
    words = np.concatenate([np.arange(5000), np.arange(2**23 - 5000, 2**23), np.arange(0, 2**23, 997)])
    u = (words.astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-23)
    noise = -oracle.log(-oracle.log(u)).astype(np.float64)
    assert (noise + np.log(1 - u.astype(np.float64))).max() < 1e-4


def test_company_does_not_show(backends: list[Backend]) -> None:
    rng = np.random.default_rng(3)
    logits, parameters = draw_logits(rng, 40, 1000), draw_parameters(rng, 40, 1000)
    together = sample(backends[2], logits, parameters)
    for r in range(40):
        alone = SamplingRows(*(getattr(parameters, name)[r : r + 1] for name in parameters.__dataclass_fields__))
        got = sample(backends[0], logits[r : r + 1], alone)
        assert got.tokens[0] == together.tokens[r]
        assert got.logprobs[0].tobytes() == together.logprobs[r].tobytes()


def test_arrays_that_stay(backends: list[Backend]) -> None:
    """Steps of different sizes, logits and strides draw the same tokens as `sample`."""
    rng, sampling = np.random.default_rng(4), Sampling(backends[1], 6)
    for rows, vocab in ((6, 700), (1, 700), (3, 65), (6, 700)):
        logits, parameters = draw_logits(rng, rows, vocab + 5)[:, :vocab], draw_parameters(rng, rows, vocab)
        for name in parameters.__dataclass_fields__:
            getattr(sampling.rows, name)[:rows] = getattr(parameters, name)
        assert sampling.draw(logits) == sample(backends[1], logits, parameters).tokens.tolist()
    with pytest.raises(ValueError, match="room for 6 rows"):
        sampling.draw(np.zeros((7, 8), np.float32))


def test_large_vocabulary(backends: list[Backend]) -> None:
    """With a real vocabulary, kernels skip blocks and filters select; one row of each kind."""
    vocab = 151_936
    x = np.random.default_rng(4).standard_normal(vocab).astype(np.float32)
    logits = np.stack([x, x, 4 * x, 4 * x, 4 * x, np.zeros_like(x)])
    parameters = SamplingRows.of(
        6, [1, 2, 1, 1, 1, 1], [0, 5000, 50, 0, 0, 0], [0.9, 1, 0.9, 0.8, 1, 0.5], [0, 0, 0, 0, 0.1, 0], 9, range(6)
    )
    want = oracle.sample(logits, parameters)
    got = sample(backends[1], logits, parameters)
    assert got.tokens.tolist() == want.tokens.tolist()
    assert got.logprobs.tobytes() == want.logprobs.tobytes()


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ({}, 6),
        ({"top_k": 3}, 3),
        ({"top_p": 0.55}, 2),
        ({"min_p": 0.29}, 4),
        ({"top_k": 4, "top_p": 0.75, "min_p": 0.9}, 1),
        ({"temperature": 2.0}, 6),
        ({"temperature": 0.5, "top_p": 0.92}, 3),
    ],
)
def test_distribution(variant: str, backends: list[Backend], filters: dict[str, float], kept: int) -> None:
    """Chi-square test of 20,000 draws against the softmax of the kept ids, at a significance level of 1e-4."""
    probabilities = np.array([0.03, 0.4, 0.05, 0.2, 0.12, 0.2])  # kept in the order 1, 3, 5, 4, 2, 0
    draws = 20_000
    logits = np.tile(np.log(probabilities).astype(np.float32), (draws, 1))
    options = {"temperature": 1.0} | filters
    rows = SamplingRows.of(draws, seeds=12345, positions=range(draws), **options)  # type: ignore[arg-type]
    counts = np.bincount(sample(backends[0], logits, rows).tokens, minlength=6)
    expected = probabilities ** (1 / options["temperature"])
    chosen = np.argsort(-probabilities, kind="stable")[:kept]
    assert counts[chosen].sum() == draws
    expected = draws * expected[chosen] / expected[chosen].sum()
    statistic = float(((counts[chosen] - expected) ** 2 / expected).sum())
    limits = {1: 0.0, 2: 15.14, 3: 18.42, 4: 21.11, 6: 25.74}  # chi-square quantiles 0.9999 for kept - 1 degrees
    assert statistic <= limits[kept] + 1e-9


def test_seeds_and_positions_are_independent_streams(backends: list[Backend]) -> None:
    draws = 4000
    logits = np.zeros((draws, 50), np.float32)
    streams = [
        sample(backends[0], logits, SamplingRows.of(draws, 1.0, seeds=seed, positions=positions)).tokens
        for seed, positions in ((1, range(draws)), (2, range(draws)), (2**32 + 1, range(draws)), (range(draws), 7))
    ]
    for i, stream in enumerate(streams):
        for other in streams[:i]:
            assert 40 < np.count_nonzero(stream == other) < 130  # 80 by chance, five standard deviations either side


@pytest.mark.parametrize("temperature", [-1.0, np.nan, np.inf])
def test_refuses_temperature(backends: list[Backend], temperature: float) -> None:
    with pytest.raises(OpError, match="sample"):
        sample(backends[0], np.zeros((1, 8), np.float32), SamplingRows.of(1, temperature))
