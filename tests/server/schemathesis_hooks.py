"""What schemathesis must know to get answers besides refusals."""

from typing import Any

import schemathesis


@schemathesis.hook
def map_body(_: Any, body: Any) -> Any:
    """Most bodies name the model that is there."""
    if isinstance(body, dict) and isinstance(body.get("model"), str) and len(body["model"]) % 8 != 7:
        body["model"] = "small"
    return body
