"""`python -m surefoot`, where the command is not on the path."""

from surefoot.cli.main import app

if __name__ == "__main__":
    app(prog_name="surefoot")
