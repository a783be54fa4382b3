"""What can go wrong with text, said such that the reader knows what to do."""


class TokenizerError(ValueError):
    """A tokenizer's file or metadata cannot be used."""


class ChatTemplateError(ValueError):
    """A chat template is unusable or refused the conversation."""
