"""Tokenizers and chat templates. This package knows nothing of weights, requests or HTTP."""

from surefoot.text.chat import ChatTemplate, TemplateLimits, chat_template_from_folder, chat_template_from_gguf
from surefoot.text.fim import NoFimTokens, OtherFile, fim_prompt
from surefoot.text.gguf import tokenizer_from_gguf
from surefoot.text.huggingface import tokenizer_from_folder, tokenizer_from_json
from surefoot.text.named_templates import TEMPLATE_NAMES, find_template
from surefoot.text.tokenizer import StreamDecoder, Tokenizer, without_marks
from surefoot.text.vocabulary import ChatTemplateError, TokenizerError

__all__ = [
    "TEMPLATE_NAMES",
    "ChatTemplate",
    "ChatTemplateError",
    "NoFimTokens",
    "OtherFile",
    "StreamDecoder",
    "TemplateLimits",
    "Tokenizer",
    "TokenizerError",
    "chat_template_from_folder",
    "chat_template_from_gguf",
    "fim_prompt",
    "find_template",
    "tokenizer_from_folder",
    "tokenizer_from_gguf",
    "tokenizer_from_json",
    "without_marks",
]
