"""Any order of operations keeps the books, and never lets a request read what another text has written."""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from surefoot.kv import Holding, KvGroup, KvLayout, KvManager, StateLayout
from tests.kv.memory import Memory, keys_of, longest_match

LAYOUTS = [
    KvLayout(2, (KvGroup(12),)),
    KvLayout(4, (KvGroup(9),)),
    KvLayout(2, (KvGroup(12), KvGroup(8, window=3))),
    KvLayout(2, (KvGroup(8, window=5), KvGroup(14))),
    KvLayout(2, (KvGroup(9, window=4),)),
    KvLayout(3, (KvGroup(9, window=1), KvGroup(9, window=7))),
    KvLayout(2, (KvGroup(12),), StateLayout(13, 10, 4)),
    KvLayout(2, (KvGroup(40),), StateLayout(18, 10, 4, tail_tokens=2)),
    KvLayout(2, (KvGroup(12), KvGroup(8, window=3)), StateLayout(14, 10, 2)),
    KvLayout(3, (KvGroup(9, window=1), KvGroup(9, window=7)), StateLayout(12, 10, 6)),
]


class KvMachine(RuleBasedStateMachine):
    @initialize(layout=st.sampled_from(LAYOUTS), caching=st.sampled_from([True, True, True, False]))
    def start(self, layout: KvLayout, caching: bool) -> None:
        self.kv = KvManager(layout, caching)
        self.memory = Memory(layout)
        self.texts: dict[Holding, list[int]] = {}

    def pick(self, data: st.DataObject) -> Holding:
        return data.draw(st.sampled_from(list(self.texts)))

    @precondition(lambda self: len(self.texts) < 5)
    @rule(
        # Few tokens and namespaces, so that texts often agree.
        tokens=st.lists(st.integers(0, 1), min_size=1, max_size=14),
        namespace=st.sampled_from(["", "a", "b"]),
        public=st.integers(0, 14),
    )
    def open(self, tokens: list[int], namespace: str, public: int) -> None:
        self.texts[self.kv.open(namespace, min(public, len(tokens)))] = tokens

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def adopt(self, data: st.DataObject) -> None:
        holding = self.pick(data)
        size, tokens = self.kv.layout.block_size, self.texts[holding]
        keys = keys_of(tokens, size)[: (len(tokens) - 1) // size]
        before, tree = holding.num_computed, [(node, list(node.blocks)) for node in self.kv.tree]
        at_boundary = before == holding.num_shared * size == holding.num_blocks * size
        expected = longest_match(self.kv, holding, keys) if self.kv.caching and at_boundary else 0
        assert len(self.kv.match(holding, keys)) == expected
        assert tree == [(node, list(node.blocks)) for node in self.kv.tree], "a match modifies nothing"
        assert self.kv.adopt(holding, keys) == expected * size
        assert holding.num_computed == before + expected * size

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), num_tokens=st.integers(1, 7), num_rejected=st.integers(0, 3), new=st.integers(0, 1))
    def compute(self, data: st.DataObject, num_tokens: int, num_rejected: int, new: int) -> None:
        """A chunk, of which the last tokens may be drafts that are not accepted."""
        holding = self.pick(data)
        tokens, start = self.texts[holding], holding.num_computed
        end = min(start + num_tokens, len(tokens))
        drafts = [7] * num_rejected if end == len(tokens) else []
        before = (holding.tables, [pool.num_available for pool in self.kv.pools])
        copies = self.kv.extend(holding, end + len(drafts))
        if copies is None:
            assert before == (holding.tables, [pool.num_available for pool in self.kv.pools])
            assert any(
                pool.num_available < self.num_needed(holding, number, end + len(drafts))
                for number, pool in enumerate(self.kv.pools)
            ), "refused though there was room"
            return
        self.memory.copy(copies)
        self.memory.write(holding.tables, tokens + drafts, start, end + len(drafts))
        self.save_states(data, holding, tokens + drafts, range(end + len(drafts), end - 1, -1))
        if end == len(tokens):
            tokens.append(new)
        self.kv.commit(holding, end, keys_of(tokens, self.kv.layout.block_size))

    def save_states(self, data: st.DataObject, holding: Holding, tokens: list[int], needed: range) -> None:
        """A step may be planned, run and thrown away before it is planned again."""
        if (states := self.kv.states) is None:
            return
        start = holding.num_computed
        if not states.has_room(len(needed) - 1):
            needed = needed[-1:]
        for _ in range(1 + data.draw(st.booleans())):
            wanted = data.draw(st.lists(st.integers(start + 1, needed[0]), max_size=3))
            self.memory.write_states(states.plan(holding.states, start, needed, wanted), tokens, start)

    def num_needed(self, holding: Holding, number: int, end: int) -> int:
        """Blocks to write up to `end`: those behind the last one held (rejected drafts may have left it more than it
        needs), and a copy of the one to be written to first if another holding has it too."""
        size, table = self.kv.layout.block_size, holding.tables[number]
        first = table[holding.num_computed // size : holding.num_computed // size + 1]
        others = [other.tables[number] for other in self.texts if other is not holding]
        return max(0, -(-end // size) - len(table)) + any(set(first) & set(table) for table in others)

    @precondition(lambda self: 0 < len(self.texts) < 5)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        holding = self.pick(data)
        available = [pool.num_available for pool in self.kv.pools]
        other = self.kv.fork(holding)
        assert available == [pool.num_available for pool in self.kv.pools], "a fork takes no block"
        # They differ from the next token on.
        tokens, computed = self.texts[holding], holding.num_computed
        self.texts[other] = tokens[:computed] + [1 - token for token in tokens[computed:]]

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), for_good=st.booleans())
    def give_back(self, data: st.DataObject, for_good: bool) -> None:
        holding = self.pick(data)
        if for_good:
            self.kv.close(holding)
            del self.texts[holding]
        else:
            self.kv.release(holding)

    @invariant()
    def books_are_right(self) -> None:
        if hasattr(self, "kv"):
            self.kv.audit()
            for holding, tokens in self.texts.items():
                self.memory.check(holding.tables, tokens, holding.num_computed)
                if self.kv.states is not None and holding.num_computed:
                    assert self.memory.states[holding.states.current] == tuple(tokens[: holding.num_computed])
            self.memory.check_states(self.kv)

    def teardown(self) -> None:
        if hasattr(self, "kv"):
            for holding in list(self.texts):
                self.kv.close(holding)
            self.kv.audit()
            pools = [*self.kv.pools, *([] if self.kv.states is None else [self.kv.states.pool])]
            assert all(pool.num_available == pool.num_blocks for pool in pools)


KvMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=50)
TestKv = KvMachine.TestCase
