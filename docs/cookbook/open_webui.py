"""Starts Open WebUI over your own server: its pages, users and documents; your models.

pip install open-webui          # Python 3.11 or 3.12, in an environment of its own
python docs/cookbook/open_webui.py --embed embed        # then http://127.0.0.1:8080
"""

import argparse
import os

KEY = os.environ.get("SUREFOOT_KEY", "none")


def environment(url: str, embed: str | None) -> dict[str, str]:
    """What Open WebUI reads at its first start; afterwards its own settings count."""
    chosen = {
        "OPENAI_API_BASE_URL": url,
        "OPENAI_API_KEY": KEY,
        "ENABLE_OLLAMA_API": "False",
        "OFFLINE_MODE": "True",  # nothing is fetched from a hub
        "HF_HUB_OFFLINE": "1",
        "ANONYMIZED_TELEMETRY": "False",
        "DO_NOT_TRACK": "True",
        "SCARF_NO_ANALYTICS": "True",
        # Each question would otherwise ask the model for a search query, a title, tags and further questions.
        "ENABLE_RETRIEVAL_QUERY_GENERATION": "False",
        "ENABLE_TITLE_GENERATION": "False",
        "ENABLE_TAGS_GENERATION": "False",
        "ENABLE_FOLLOW_UP_GENERATION": "False",
        "ENABLE_AUTOCOMPLETE_GENERATION": "False",
    }
    if embed is None:
        return {**chosen, "BYPASS_EMBEDDING_AND_RETRIEVAL": "True"}  # uploaded files go into the question whole
    return {
        **chosen,
        "RAG_EMBEDDING_ENGINE": "openai",
        "RAG_OPENAI_API_BASE_URL": url,
        "RAG_OPENAI_API_KEY": KEY,
        "RAG_EMBEDDING_MODEL": embed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1", help="of the server")
    parser.add_argument("--embed", help="the embedding model's name there")
    parser.add_argument("--program", default="open-webui")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", default="8080")
    given = parser.parse_args()
    words = [given.program, "serve", "--host", given.host, "--port", given.port]
    os.execvpe(given.program, words, {**os.environ, **environment(given.url, given.embed)})


if __name__ == "__main__":
    main()
