"""How many threads each model's engine uses: cores go to the models that have requests, in proportion to these."""

from collections.abc import Mapping


def share_cores(num_cores: int, num_busy: Mapping[str, int]) -> dict[str, int]:
    """Threads for each model, by its number of requests. A model without requests keeps one, which it does not use.

    Cores are handed out one by one, each to the model with the most requests for each thread that it has: the largest
    remainders win, and no busy model goes without. With more busy models than cores, each has one and they take turns.
    """
    threads = dict.fromkeys(num_busy, 1)
    busy = [name for name in num_busy if num_busy[name] > 0]
    if not busy:
        return dict.fromkeys(num_busy, num_cores)
    for _ in range(num_cores - len(busy)):
        neediest = max(busy, key=lambda name: num_busy[name] / threads[name])
        threads[neediest] += 1
    return threads
