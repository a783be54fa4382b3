"""Traces of requests, for OpenTelemetry. Off unless the environment asks for them; the SDK is an extra."""
