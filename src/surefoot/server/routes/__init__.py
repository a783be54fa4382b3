"""The routes, one file an API. A route reads a body, starts an answer and writes it; routes do not import routes."""
