"""Errors of tokenizers and chat templates. Their messages say what to do."""


class TokenizerError(ValueError):
    """A tokenizer's file or metadata cannot be used."""


class ChatTemplateError(ValueError):
    """A chat template is unusable or refused the conversation."""
