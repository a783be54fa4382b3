"""Files of requests, and their answers read."""

import json
from pathlib import Path
from typing import Any

VARYING = ("timings_ms", "prompt_tokens_details", "completion_tokens_details")  # of usage: time, cache, drafts


CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Replies by custom_id, without what may differ: what was cached, and how long it took."""
    found = [json.loads(one) for one in path.read_text().splitlines()]
    for reply in found:
        reply.pop("checksum")
        for name in VARYING:
            reply["response"]["body"].get("usage", {}).pop(name, None)
    assert len({reply["custom_id"] for reply in found}) == len(found), "a line came twice"
    return {reply["custom_id"]: reply for reply in found}
