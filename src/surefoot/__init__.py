"""surefoot: LLM inference and serving for machines without a GPU."""

__version__ = "0.1.0"
