"""Smaller models: quantised, pruned, distilled, with the loss stated. docs/design/compress.md says how it is built.

The quantisers are plain numpy; what runs a model imports torch (the extra `compress`), and only when it is used.
"""
