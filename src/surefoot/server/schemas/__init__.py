"""What clients may send and what they get: pydantic models, each field bounded, nothing unknown let through."""
