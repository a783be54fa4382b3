"""Text to token ids and back, and conversations to text. Knows nothing of weights, requests or HTTP."""

from surefoot.text.errors import ChatTemplateError, TokenizerError
from surefoot.text.gguf import tokenizer_from_gguf
from surefoot.text.tokenizer import StreamDecoder, Tokenizer

__all__ = ["ChatTemplateError", "StreamDecoder", "Tokenizer", "TokenizerError", "tokenizer_from_gguf"]
