"""`surefoot bench agent`: sessions of coding agents over HTTP."""
