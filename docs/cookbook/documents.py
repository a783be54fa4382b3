"""Questions over a folder of private documents: embeddings, reranking and answers by surefoot, vectors in SQLite.

pip install apsw openai sqlite-vec
python docs/cookbook/documents.py index notes/          # embeds every text, and reads it ahead
python docs/cookbook/documents.py ask "Who may sign an order?"
"""

import argparse
import os
import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import httpx
import sqlite_vec
from openai import OpenAI

SERVERS = {  # what each model's server is called, and the model's name there; one server may have several
    "chat": (os.environ.get("CHAT_URL", "http://127.0.0.1:8000/v1"), os.environ.get("CHAT_MODEL", "chat")),
    "embed": (os.environ.get("EMBED_URL", "http://127.0.0.1:8001/v1"), os.environ.get("EMBED_MODEL", "embed")),
    "rerank": (os.environ.get("RERANK_URL", "http://127.0.0.1:8002/v1"), os.environ.get("RERANK_MODEL", "rerank")),
}
KEY = os.environ.get("SUREFOOT_KEY", "none")
INSTRUCTION = "Instruct: Given a question, find passages that answer it\nQuery: "  # what Qwen3-Embedding wants
PASSAGE_CHARACTERS = 1200
NUM_FOUND, NUM_BEST = 20, 3


def client(kind: str) -> tuple[OpenAI, str]:
    url, model = SERVERS[kind]
    return OpenAI(base_url=url, api_key=KEY), model


def embed(texts: list[str]) -> list[bytes]:
    openai, model = client("embed")
    vectors = openai.embeddings.create(model=model, input=texts, encoding_format="float").data
    return [sqlite_vec.serialize_float32(vector.embedding) for vector in vectors]


def open_index(path: Path) -> apsw.Connection:
    index = apsw.Connection(str(path))
    index.enable_load_extension(True)
    index.load_extension(sqlite_vec.loadable_path())
    return index


def passages(text: str) -> Iterator[str]:
    """Paragraphs, joined up to a length that an embedding describes well."""
    passage = ""
    for paragraph in re.split(r"\n\s*\n", text):
        if passage and len(passage) + len(paragraph) > PASSAGE_CHARACTERS:
            yield passage
            passage = ""
        passage = f"{passage}\n\n{paragraph}".strip()
    if passage:
        yield passage


def question_about(document: str, question: str) -> list[dict[str, str]]:
    """The document comes first and the question last: what begins alike is computed once."""
    return [{"role": "user", "content": f"{document}\n\nAnswer from the text above, in a few sentences.\n\n{question}"}]


def read_ahead(document: str) -> None:
    """One token is enough: keys and values of the document are in the server's cache then, on disk too."""
    openai, model = client("chat")
    openai.chat.completions.create(model=model, messages=question_about(document, ""), max_tokens=1)


def make_index(folder: Path, path: Path) -> None:
    path.unlink(missing_ok=True)
    index = open_index(path)
    index.execute("create table passages (id integer primary key, file text, text text)")
    for file in sorted(folder.glob("**/*.txt")) + sorted(folder.glob("**/*.md")):
        document = file.read_text()
        texts = list(passages(document))
        if not texts:
            continue
        for text, vector in zip(texts, embed(texts), strict=True):
            size = len(vector) // 4
            index.execute(f"create virtual table if not exists vectors using vec0(embedding float[{size}])")
            index.execute("insert into passages (file, text) values (?, ?)", (str(file), text))
            index.execute("insert into vectors (rowid, embedding) values (?, ?)", (index.last_insert_rowid(), vector))
        read_ahead(document)
        print(f"{file}: {len(texts)} passages")


def find(index: apsw.Connection, question: str) -> list[tuple[str, str]]:
    """The best passages with their files: the nearest by vector, then in the reranker's order."""
    nearest = "select rowid from vectors where embedding match ? and k = ?"
    query = f"select file, text from passages where id in ({nearest})"
    found = list(index.execute(query, (embed([INSTRUCTION + question])[0], NUM_FOUND)))
    url, model = SERVERS["rerank"]
    body = {"model": model, "query": question, "documents": [text for _, text in found], "top_n": NUM_BEST}
    reply = httpx.post(f"{url}/rerank", json=body, headers={"Authorization": f"Bearer {KEY}"}, timeout=600)
    return [found[result["index"]] for result in reply.raise_for_status().json()["results"]]


def answer(question: str, path: Path, max_tokens: int) -> None:
    best = find(open_index(path), question)
    openai, model = client("chat")
    messages = question_about(Path(best[0][0]).read_text(), question)
    stream = openai.chat.completions.create(
        model=model, messages=messages, max_tokens=max_tokens, temperature=0, stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    for chunk in stream:
        print(chunk.choices[0].delta.content or "" if chunk.choices else "", end="", flush=True)
    cached = chunk.usage.prompt_tokens_details.cached_tokens
    print(f"\n\nfrom {best[0][0]}; {cached} of {chunk.usage.prompt_tokens} prompt tokens were computed before")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, default=Path("index.db"))
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("index").add_argument("folder", type=Path)
    asking = commands.add_parser("ask")
    asking.add_argument("question")
    asking.add_argument("--max-tokens", type=int, default=300)
    given = parser.parse_args()
    if given.command == "index":
        make_index(given.folder, given.index)
    else:
        answer(given.question, given.index, given.max_tokens)


if __name__ == "__main__":
    main()
