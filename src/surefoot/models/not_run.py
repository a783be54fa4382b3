"""Families whose files are recognised and not run, by Hugging Face's model type: their name, and what is missing."""

NOT_RUN = {
    "deepseek_v4": ("DeepSeek V4", "compressed keys and values, streams that layers mix, experts by a table of tokens"),
    "glm5_next": ("GLM 5.3 Flash", "attention to pools of tokens that an indexer chooses, streams that layers mix"),
    "kimi_k3": ("Kimi K3", "attention over what earlier layers added, experts of a narrower vector, its activation"),
    "minimax_m3_vl": ("MiniMax M3", "attention to blocks of tokens that an indexer chooses"),
    "qwen4_exp": (
        "Qwen 3.8 Flash-Next",
        "embeddings of n-grams, attention to blocks of tokens that an indexer chooses, gated streams",
    ),
}


def why_not(name: str) -> str:
    """Why a family of NOT_RUN is refused."""
    title, missing = NOT_RUN[name]
    return f"{title} ({name}) is not supported yet: what is missing are {missing}"
