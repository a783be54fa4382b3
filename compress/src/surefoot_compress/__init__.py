"""Makes models smaller: quantises, prunes and distils them, and states the loss. See docs/design/compress.md.

The quantisers are plain numpy. Modules that run a model use torch, imported on first use.
"""
