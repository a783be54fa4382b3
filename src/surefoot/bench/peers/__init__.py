"""Other engines, each in its own venv and process, timed in the same rounds as surefoot."""
