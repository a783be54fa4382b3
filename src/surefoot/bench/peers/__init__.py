"""Other engines, each in a venv of its own and in a process of its own, timed in the same rounds as we are."""
