"""Batches: files of requests that are answered when there is time, and what the server keeps of them on disk."""
