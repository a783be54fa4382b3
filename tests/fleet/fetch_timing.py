"""Times first tokens of prompts that are computed, and of prompts that are fetched from another server.

python -m tests.fleet.fetch_timing MODEL.gguf --tokens 1000 --rounds 5

Two servers on this machine, so that the network is the loopback. They decide by themselves whether to fetch.
"""

import argparse
import random
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import httpx

from surefoot.fleet.frames import ANSWER_PATH, KEY_HEADER, PrefixHint
from tests.fleet.running import KEY, forwarded, key_file
from tests.server.process import Server
from tests.waiting import wait_for

FETCHED, WRITES = "surefoot:fleet_fetched_tokens_total", "surefoot:cache_disk_writes_total"


def seconds_to_answer(server: Server, prompt: list[int], holder: Server | None = None) -> float:
    """Of one token: to the first, within a millisecond or two."""
    request = forwarded("/v1/completions", {"model": "small", "prompt": prompt, "max_tokens": 1, "temperature": 0})
    hint = None if holder is None else PrefixHint(holder.root, len(prompt))
    began = time.monotonic()
    data = replace(request, hint=hint).encode()
    httpx.post(server.root + ANSWER_PATH, content=data, headers={KEY_HEADER: KEY}, timeout=900).raise_for_status()
    return time.monotonic() - began


def measure(servers: list[Server], num_tokens: int, num_rounds: int) -> None:
    rng, computed, fetched, num_fetched = random.Random(1), [], [], []
    for number in range(num_rounds + 1):
        prompt = [rng.randrange(3, 500) for _ in range(num_tokens)]
        before = [server.metric(name) for server, name in zip(servers, (WRITES, FETCHED), strict=True)]
        seconds = seconds_to_answer(servers[0], prompt)
        wait_for(lambda wanted=before[0] + num_tokens // 16: servers[0].metric(WRITES) >= wanted)  # type: ignore[misc]
        moved = seconds_to_answer(servers[1], prompt, servers[0])
        if number:  # the first round warms both up
            computed.append(seconds)
            fetched.append(moved)
            num_fetched.append(servers[1].metric(FETCHED) - before[1])
        print(f"computed {seconds:.3f} s, offered {moved:.3f} s, {servers[1].metric(FETCHED) - before[1]:.0f} fetched")
    first, second = statistics.median(computed), statistics.median(fetched)
    print(f"medians: {first:.3f} s computed, {second:.3f} s offered ({second / first:.3f}), fetched {num_fetched}")
    print(f"failures: {servers[1].metric('surefoot:fleet_fetch_failures_total'):.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = ("--fleet-key", str(key_file(folder)), "--max-running", "4", "--kv-memory", "1G")
        servers = [Server(words.model, *options, "--cache-dir", str(folder / cache)) for cache in "ab"]
        try:
            measure(servers, words.tokens, words.rounds)
        finally:
            for server in servers:
                server.stop()


if __name__ == "__main__":
    main()
