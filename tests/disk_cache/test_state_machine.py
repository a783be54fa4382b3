"""Any order of operations: the store agrees with a dictionary, but for what it may evict."""

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from surefoot.disk_cache import BlockStore
from tests.disk_cache.blocks import HASHER, name_of, payload_of, segments

BUDGET = 40_000
USERS = ("ann", "bob", None)
NUMBERS, OWNERS = st.integers(0, 60), st.sampled_from(USERS)


class StoreMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="surefoot-store-"))
        self.store = BlockStore(self.folder, BUDGET)
        self.model: dict[bytes, bytes] = {}
        self.owners: dict[bytes, str | None] = {}

    @rule(number=NUMBERS, user=OWNERS)
    def write(self, number: int, user: str | None) -> None:
        name, payload = name_of(number, user), payload_of(number, 100 + 50 * number)
        assert self.store.write(name, payload)
        assert self.store.contains(name.digest), "what was written last is never what goes"
        self.model[name.digest], self.owners[name.digest] = payload, user

    @rule(number=NUMBERS, user=OWNERS)
    def read(self, number: int, user: str | None) -> None:
        digest = name_of(number, user).digest
        payload = self.store.read(digest)
        assert payload is None or payload == self.model[digest]
        if payload is None:
            self.model.pop(digest, None)

    @rule(user=st.sampled_from(USERS))
    def forget(self, user: str | None) -> None:
        self.store.forget(HASHER.namespace(user))
        for digest in [digest for digest, owner in self.owners.items() if owner == user]:
            self.model.pop(digest, None)
            assert not self.store.contains(digest)

    @rule(lost=st.booleans())
    def reopen(self, lost: bool) -> None:
        self.store.close()
        if lost:
            (self.folder / "index.sqlite").unlink()
        held = {digest for digest in self.model if self.store_had(digest)}
        self.store = BlockStore(self.folder, BUDGET)
        assert all(self.store.read(digest) == self.model[digest] for digest in held)

    def store_had(self, digest: bytes) -> bool:
        return any(digest in segment.read_bytes() for segment in segments(self.folder))

    @rule(share=st.floats(0, 1))
    def prune(self, share: float) -> None:
        self.store.prune(int(share * BUDGET))
        assert self.store.total_bytes <= share * BUDGET

    @invariant()
    def budget_holds(self) -> None:
        if hasattr(self, "store"):
            sizes = [segment.stat().st_size for segment in segments(self.folder)]
            assert sum(sizes) == self.store.total_bytes <= BUDGET + self.store.segment_bytes

    def teardown(self) -> None:
        if hasattr(self, "store"):
            assert self.store.counters.num_damaged == 0
            self.store.close()
            shutil.rmtree(self.folder)


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=15, stateful_step_count=40, deadline=None)
