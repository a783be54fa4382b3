"""OpenTelemetry traces of requests. Off unless the environment turns them on; the SDK is an optional dependency."""
