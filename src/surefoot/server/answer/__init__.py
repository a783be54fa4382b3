"""Answers on their way from the engine to the client: prompts, constraints, parsing, streams, and each API's form."""
