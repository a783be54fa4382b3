"""`surefoot bench ops`: each operation at the shapes of real models."""
