"""The oracle: every operation in plain numpy, written for reading. Native variants must equal it bit for bit."""
