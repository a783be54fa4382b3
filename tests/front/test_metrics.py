"""Pages of metrics merged into one."""

from prometheus_client.parser import text_string_to_metric_families

from surefoot.front.metrics import merge
from surefoot.server.metrics import Metrics


def page(model: str) -> str:
    metrics = Metrics(model)
    metrics.ttft.observe(0.5)
    metrics.refuse(429)
    return metrics.text().decode()


def samples(text: str) -> list[object]:
    return sorted(map(str, (sample for family in text_string_to_metric_families(text) for sample in family.samples)))


def test_merged_page_has_every_sample_and_each_family_once() -> None:
    pages = [page("a"), page("b")]
    merged = merge(pages).decode()
    assert samples(merged) == sorted([*samples(pages[0]), *samples(pages[1])])
    heads = [line for line in merged.splitlines() if line.startswith("#")]
    assert len(heads) == len(set(heads))


def test_one_page_stays_as_it_is() -> None:
    own = page("a")
    assert samples(merge([own]).decode()) == samples(own)
