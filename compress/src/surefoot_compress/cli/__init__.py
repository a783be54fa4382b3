"""The commands `surefoot compress` and `surefoot distill`: compress/pyproject.toml names them to surefoot."""
