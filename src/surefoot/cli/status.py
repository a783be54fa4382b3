"""How fast an answer came, in a line."""

from surefoot.api import LLM, RequestOutput


class Speedometer:
    """Holds answers against the memory bandwidth that was measured at its start: decoding reads all weights, and all
    keys and values before it, for every token."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self.bytes_per_second = llm.measure_bandwidth()

    def of_bandwidth(self, output: RequestOutput) -> float | None:
        """Share of the memory bandwidth that decoding used after the first token; None if there are too few tokens."""
        speed, usage = output.timings.tokens_per_second, output.usage
        if speed is None or len(output.outputs) > 1:  # samples share a step's weights
            return None
        length = usage.num_prompt + usage.num_generated // 2
        passes = usage.num_passes / usage.num_generated  # for each token; fewer than one where drafts were right
        return speed * passes * self._llm.read_bytes(length) / self.bytes_per_second

    def line(self, output: RequestOutput) -> str:
        timings, usage = output.timings, output.usage
        parts = [f"TTFT {_seconds(timings.to_first_token)}"]
        if timings.tokens_per_second is not None:
            parts.append(f"{timings.tokens_per_second:.1f} tokens/s")
        if (share := self.of_bandwidth(output)) is not None:
            parts.append(f"{share:.0%} of the bandwidth limit ({self.bytes_per_second / 1e9:.1f} GB/s)")
        if usage.num_drafted:
            share = usage.num_accepted / usage.num_drafted
            parts.append(f"{usage.num_generated / usage.num_passes:.1f} tokens a pass, {share:.0%} of drafts right")
        parts.append(f"{usage.num_prompt} + {usage.num_generated} of {self._llm.max_context} tokens")
        return " · ".join(parts)


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"
