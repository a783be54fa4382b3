"""`surefoot bench model`: one user's prompts and tokens through the whole engine."""
