"""`surefoot bench engine`: many requests at once through the engine, without a server."""
