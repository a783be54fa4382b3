"""The error that compressing and distilling raise."""


class CompressError(ValueError):
    """A request that cannot be met. The message says why, and what to do instead."""
