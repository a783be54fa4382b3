"""The prompt cache on disk: what a restart saves, and what writing costs."""
