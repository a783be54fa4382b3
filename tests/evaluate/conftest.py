"""The fixture that fetches real models."""

from tests.weights.conftest import model_file

__all__ = ["model_file"]
