"""langchain-openai."""

from common import URL, Person, Weather
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

ACCESS = {"base_url": URL, "api_key": "none", "model": "small", "max_retries": 0, "timeout": 120}


def test_chat_whole_and_streamed() -> None:
    chat = ChatOpenAI(**ACCESS, temperature=0, max_tokens=16)
    whole = chat.invoke("Name three colours.")
    assert whole.usage_metadata["output_tokens"] <= 16
    assert "".join(piece.content for piece in chat.stream("Name three colours.")) == whole.content


def test_tools() -> None:
    chat = ChatOpenAI(**ACCESS, temperature=0, max_tokens=80).bind_tools([Weather], tool_choice="required")
    call = chat.invoke("What is the weather in Paris?").tool_calls[0]
    Weather.model_validate(call["args"])


def test_streamed_tools() -> None:
    chat = ChatOpenAI(**ACCESS, temperature=0, max_tokens=80).bind_tools([Weather], tool_choice="required")
    first, *rest = chat.stream("What is the weather in Paris?")
    for piece in rest:
        first += piece
    Weather.model_validate(first.tool_calls[0]["args"])


def test_structured() -> None:
    chat = ChatOpenAI(**ACCESS, temperature=0, max_tokens=80)
    for method in ("json_schema", "function_calling"):
        assert isinstance(chat.with_structured_output(Person, method=method).invoke("A person."), Person)


def test_embeddings_and_text() -> None:
    embeddings = OpenAIEmbeddings(**ACCESS, check_embedding_ctx_length=False)
    assert len(embeddings.embed_documents(["a", "b"])) == 2
    assert OpenAI(**ACCESS, max_tokens=4).invoke("One, two,")
