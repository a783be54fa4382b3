"""`surefoot bench speculate`: the same prompts with speculation and without."""
