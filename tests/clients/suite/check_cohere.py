"""The cohere package, against a reranker."""

import cohere
import pytest
from common import ROOT

QUERY, DOCUMENTS = "What is the capital of France?", ["Paris is the capital of France.", "Toasters toast.", "Berlin."]
ASK = {"model": "small", "query": QUERY, "documents": DOCUMENTS}


def test_both_versions() -> None:
    new = cohere.ClientV2(api_key="none", base_url=ROOT).rerank(**ASK, max_tokens_per_doc=100)
    old = cohere.Client(api_key="none", base_url=ROOT).rerank(**ASK, return_documents=True)
    assert [(one.index, one.relevance_score) for one in new.results] == [
        (one.index, one.relevance_score) for one in old.results
    ]
    assert sorted(one.index for one in new.results) == [0, 1, 2]
    assert [one.document.text for one in old.results] == [DOCUMENTS[one.index] for one in old.results]
    assert new.meta.billed_units.search_units == 1


def test_the_first_ones() -> None:
    client = cohere.ClientV2(api_key="none", base_url=ROOT)
    every, two = client.rerank(**ASK), client.rerank(**ASK, top_n=2)
    assert [one.index for one in two.results] == [one.index for one in every.results][:2]


def test_errors_say_what_to_do() -> None:
    with pytest.raises(cohere.NotFoundError, match="small"):
        cohere.ClientV2(api_key="none", base_url=ROOT).rerank(model="other", query="a", documents=["b"])
