"""`surefoot` whose servers always fetch blocks: a busy machine must not decide what a test sees."""

from surefoot.cache import peer_blocks
from surefoot.cli.main import app

peer_blocks.LinkSpeed.seconds = lambda link, num_bytes: 0.0  # type: ignore[method-assign]
peer_blocks.LEAST_PATIENCE_S = 300.0
peer_blocks.PAUSE_S = 0.0

if __name__ == "__main__":
    app(prog_name="surefoot")
