"""What a request used, in the words of OpenAI's clients."""

from collections.abc import Sequence
from typing import Any

from surefoot.api.outputs import RequestOutput
from surefoot.engine import Usage


def _predicted(usages: Sequence[Usage]) -> dict[str, int]:
    """Tokens that were guessed ahead, under OpenAI's names."""
    drafted, accepted = sum(usage.num_drafted for usage in usages), sum(usage.num_accepted for usage in usages)
    return {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": drafted - accepted}


def usage_of(outputs: Sequence[RequestOutput]) -> dict[str, Any]:
    """timings_ms: of the slowest, so that they add up to what the client waited."""
    prompt = sum(output.usage.num_prompt for output in outputs)
    generated = sum(output.usage.num_generated for output in outputs)
    slowest = max((output.timings for output in outputs), key=lambda timings: timings.total)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": sum(output.usage.num_cached for output in outputs)},
        "completion_tokens_details": _predicted([output.usage for output in outputs]),
        "timings_ms": {
            "queue": round(slowest.queued * 1000, 3),
            "prefill": round((slowest.to_first_token - slowest.queued) * 1000, 3),
            "decode": round((slowest.total - slowest.to_first_token) * 1000, 3),
        },
    }
