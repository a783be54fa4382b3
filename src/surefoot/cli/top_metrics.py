"""Reads a running server's /metrics for `surefoot top`."""

import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from surefoot.server.overview.figures import Samples, samples_of

TIMEOUT_S = 5.0
MOST_BYTES = 8 << 20
ADVICE = {401: "give a key with --key", 403: "give an admin key with --key (surefoot keys add --admin makes one)"}
WRONG_KEY = "the key is none of the server's"


def fetch(address: str, key: str | None) -> Samples:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=TIMEOUT_S) as reply:
            text = reply.read(MOST_BYTES).decode(errors="replace")
            return samples_of(text_string_to_metric_families(text))
    except urllib.error.HTTPError as error:
        advice = WRONG_KEY if error.code == 401 and key else ADVICE.get(error.code, error.reason)
        raise OSError(f"{address} answers {error.code}: {advice}") from None
    except (urllib.error.URLError, ValueError) as error:
        raise OSError(f"{address} cannot be read: {getattr(error, 'reason', error)}") from None
