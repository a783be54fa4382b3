"""What users pay for the tokens of their samples."""

from surefoot.scheduler.sample import Sample, State


class Charges:
    """output_cost: of a generated token, in prompt tokens. num_served: all that was ever paid for."""

    def __init__(self, output_cost: float) -> None:
        self._output_cost = output_cost
        self.num_served = 0.0

    def prompt(self, sample: Sample, num_tokens: int) -> None:
        """What was cached, and what is computed anew after giving way, costs the user nothing."""
        if (cost := num_tokens - sample.num_charged) > 0:
            self._charge(sample, num_tokens, cost)

    def output(self, sample: Sample) -> None:
        """When a block fills, or it leaves: not for each token, since there are so many."""
        if sample.state is State.DECODING:
            num_tokens = len(sample.tokens)
            self._charge(sample, num_tokens, self._output_cost * (num_tokens - sample.num_charged))

    def _charge(self, sample: Sample, num_tokens: int, cost: float) -> None:
        sample.num_charged = num_tokens
        sample.user.counter += cost * sample.user.share
        self.num_served += cost
