"""The tiers of the KV cache below memory: blocks that go to the disk, and come from there or from another server."""

from surefoot.cache.disk_tier import DiskTier
from surefoot.cache.peer_blocks import BlockQuestion, PeerBlocks, PeerBusy, PeerOffer

__all__ = ["BlockQuestion", "DiskTier", "PeerBlocks", "PeerBusy", "PeerOffer"]
