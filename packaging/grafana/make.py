"""Writes dashboard.json beside it: a Grafana dashboard over surefoot's metrics.

python packaging/grafana/make.py
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "dashboard.json"
SELECTED = '{model_name=~"$model"}'
WINDOW = "$__rate_interval"
WIDTH, HEIGHT, COLUMNS = 8, 7, 3


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str  # Grafana's name of it
    queries: Mapping[str, str]  # PromQL by legend


def rate(counter: str, by: str = "") -> str:
    return f"sum{by}(rate({counter}{SELECTED}[{WINDOW}]))"


def quantiles(histogram: str) -> dict[str, str]:
    buckets = rate(f"{histogram}_bucket", " by (le) ")
    return {f"p{share}": f"histogram_quantile(0.{share}, {buckets})" for share in (50, 95, 99)}


def mean(histogram: str) -> str:
    return f"{rate(f'{histogram}_sum')} / {rate(f'{histogram}_count')}"


PANELS = (
    Panel(
        "Requests", "short",
        {
            "running": f"sum(vllm:num_requests_running{SELECTED})",
            "waiting": f"sum(vllm:num_requests_waiting{SELECTED})",
        },
    ),
    Panel(
        "Tokens a second", "short",
        {"generated": rate("vllm:generation_tokens_total"), "prompt": rate("vllm:prompt_tokens_total")},
    ),
    Panel("Tokens a second by user", "short", {"{{user}}": rate("surefoot:user_tokens_total", " by (user) ")}),
    Panel("Time to first token", "s", quantiles("vllm:time_to_first_token_seconds")),
    Panel("Time between two tokens", "s", quantiles("vllm:inter_token_latency_seconds")),
    Panel(
        "Where a request's time goes (mean)", "s",
        {
            "queue": mean("vllm:request_queue_time_seconds"),
            "prefill": mean("vllm:request_prefill_time_seconds"),
            "decode": mean("vllm:request_decode_time_seconds"),
        },
    ),
    Panel("Time of a step", "s", quantiles("surefoot:step_seconds")),
    Panel("Tokens in a step (mean)", "short", {"tokens": mean("vllm:iteration_tokens_total")}),
    Panel(
        "Share of prompt tokens found in the cache", "percentunit",
        {"hits": f"{rate('vllm:prefix_cache_hits_total')} / {rate('vllm:prefix_cache_queries_total')}"},
    ),
    Panel(
        "Memory for keys and values", "percentunit",
        {
            "in use": f"max(vllm:kv_cache_usage_perc{SELECTED})",
            "cached prefixes": f"max(surefoot:kv_cache_cached_perc{SELECTED})",
        },
    ),
    Panel(
        "Memory", "bytes",
        {
            "used": f"sum(surefoot:memory_bytes{SELECTED})",
            "limit": f"max(surefoot:memory_limit_bytes{SELECTED})",
        },
    ),
    Panel(
        "Share of the memory bandwidth that reading weights takes", "percentunit",
        {
            "{{model_name}}": f"rate(surefoot:engine_steps_total{SELECTED}[{WINDOW}]) * surefoot:weight_bytes{SELECTED}"
            f" / surefoot:memory_bandwidth_bytes_per_second{SELECTED}",
        },
    ),
    Panel(
        "Cache on disk", "bytes",
        {
            "kept": f"sum(surefoot:cache_disk_bytes{SELECTED})",
            "budget": f"sum(surefoot:cache_disk_max_bytes{SELECTED})",
        },
    ),
    Panel(
        "Read from and written to the cache on disk", "Bps",
        {
            "read": rate("surefoot:cache_disk_read_bytes_total"),
            "written": rate("surefoot:cache_disk_written_bytes_total"),
        },
    ),
    Panel(
        "Drafts: guessed and accepted tokens a second", "short",
        {
            "guessed": rate("vllm:spec_decode_num_draft_tokens_total"),
            "accepted": rate("vllm:spec_decode_num_accepted_tokens_total"),
        },
    ),
    Panel(
        "Refused requests and preemptions a second", "short",
        {
            "refused {{status}}": rate("surefoot:refused_requests_total", " by (status) "),
            "preempted": rate("vllm:num_preemptions_total"),
        },
    ),
    Panel(
        "Trouble: failed steps, failed checksums, time held back by the CPU quota", "short",
        {
            "failed steps": rate("surefoot:engine_failures_total"),
            "failed checksums": rate("surefoot:cache_disk_checksum_failures_total"),
            "throttled seconds a second": rate("surefoot:cpu_throttled_seconds_total"),
        },
    ),
)  # fmt: skip


def dashboard() -> dict[str, Any]:
    return {
        "title": "surefoot",
        "uid": "surefoot",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), _models()]},
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _models() -> dict[str, Any]:
    return {
        "name": "model", "label": "Model", "type": "query", "multi": True, "includeAll": True, "allValue": ".*",
        "datasource": {"type": "prometheus", "uid": "${source}"}, "refresh": 2,
        "query": "label_values(vllm:num_requests_running, model_name)",
    }  # fmt: skip


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, COLUMNS)
    targets = [
        {"refId": chr(ord("A") + place), "expr": expr, "legendFormat": legend}
        for place, (legend, expr) in enumerate(panel.queries.items())
    ]
    return {
        "id": number + 1,
        "title": panel.title,
        "type": "timeseries",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "gridPos": {"x": WIDTH * column, "y": HEIGHT * row, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def text() -> str:
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
