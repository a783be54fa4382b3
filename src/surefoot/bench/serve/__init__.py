"""`surefoot bench serve`: a server process under load."""
