"""Runs `surefoot bench agent`: agents' sessions against a real server process, beside llama.cpp's server."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console, Group

from surefoot.api.opening import open_model
from surefoot.bench.agent.replay import Turn, play_turn
from surefoot.bench.agent.session import MAX_NEW, AgentSession, Sizes, make_session
from surefoot.bench.harness.figures import MissingError, Question, Target, percentile
from surefoot.bench.harness.loaded_model import RunFacts
from surefoot.bench.harness.progress import Say
from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.server_process import free_port, own_launch, running
from surefoot.bench.harness.tables import figures, make_table, notes
from surefoot.bench.harness.timing import EngineError
from surefoot.bench.peers.serving import PeerLimits, ServingPeer, StartedPeers, start_peers
from surefoot.ops import Backend

OURS, PEER = "surefoot", "llamacpp"
MARGIN, TEMPLATE = 1.03, 900  # the last prompt's length is estimated, and without what a template adds
FASTER_TARGETS = {1: 1.3, 4: 3.0}  # by number of users
RESTART_TARGET = 0.05


@dataclass(frozen=True)
class AgentSettings:
    """How much to measure."""

    sizes: Sizes = field(default_factory=Sizes)
    users: tuple[int, ...] = (1, 4, 8)
    form: str = "messages"


QUICK = AgentSettings(Sizes(turns=3, first_tokens=1_500, last_tokens=3_000), users=(1, 2))


@dataclass(frozen=True)
class Played:
    """The sessions of some users with one engine."""

    engine: str
    users: int
    turns: tuple[Turn, ...]
    restarted: tuple[Turn, ...] = ()  # the first turns once more, after a restart of the server

    def of(self, name: str) -> list[float]:
        """A field of every turn."""
        return [getattr(turn, name) for turn in self.turns]

    def by_turn(self, name: str) -> list[float]:
        """A field of each turn, summed over the users."""
        values = self.of(name)
        return [sum(values[start : start + self.users]) for start in range(0, len(values), self.users)]

    def restart_share(self, name: str) -> float:
        """Seconds of the first turn after a restart over those of the first turn of all. name: of a field."""
        cold = self.of(name)[: self.users]
        return float(median(getattr(turn, name) for turn in self.restarted)) / median(cold)


def run_agent(
    model: str,
    settings: AgentSettings,
    variant: str | None,
    threads: int | None,
    peers: Sequence[ServingPeer],
    say: Say,
) -> BenchResults:
    opened = open_model(model)
    tokenizer, _ = opened.load_text()
    sessions = [
        make_session(user, settings.sizes, lambda text: len(tokenizer.encode(text)))
        for user in range(max(settings.users))
    ]
    started, played = StartedPeers(), list[Played]()
    with closing(Backend(variant, threads)) as backend:
        run = RunFacts()
        for users in settings.users:
            stage = _Stage(model, settings.form, sessions[:users], backend.variant, backend.threads, say)
            played += stage.play(_context(settings.sizes), peers, started)
        facts = run.facts(backend)
    described = {"path": opened.path.name, **asdict(settings), "played": [asdict(each) for each in played]}
    questions = agent_questions(played, settings.users, started.absent)
    return BenchResults(
        {}, [question.figure() for question in questions], described, started.described, started.absent, facts
    )


def _context(sizes: Sizes) -> int:
    return int(MARGIN * sizes.last_tokens) + TEMPLATE + MAX_NEW


@dataclass(frozen=True)
class _Stage:
    """One number of users, on servers of their own."""

    model: str
    form: str
    sessions: Sequence[AgentSession]
    variant: str
    threads: int
    say: Say

    def play(self, context: int, peers: Sequence[ServingPeer], started: StartedPeers) -> list[Played]:
        """Plays the sessions on every server, turn by turn. Our server is then started again with what it kept on
        disk. started: takes up facts about peers."""
        users = len(self.sessions)
        with tempfile.TemporaryDirectory() as kept:
            port = free_port()
            options = {"--max-context": context, "--variant": self.variant, "--threads": self.threads}
            words = [str(word) for option in options.items() for word in option]
            launch = own_launch(self.model, port, "--cache-dir", kept, *words)
            with ExitStack() as stack:
                self.say(f"{users} users: starting servers")
                endpoints = {OURS: stack.enter_context(running(launch, port)).endpoint()}
                limits = PeerLimits(self.threads, users, context, users * context)
                new = start_peers(stack, peers, Path(self.model), limits, self.say)
                turns = self._in_turns(endpoints | new.endpoints, new.absent)
            started.described |= new.described
            started.absent |= {name: why for name, why in new.absent.items() if name == PEER}
            with running(launch, port) as server:
                self.say(f"{users} users: the first turn after a restart")
                restarted = play_turn(server.endpoint(), self.form, self.sessions, 0)
        own = Played(OURS, users, tuple(turns.pop(OURS)), tuple(restarted))
        return [own, *(Played(name, users, tuple(each)) for name, each in turns.items())]

    def _in_turns(self, endpoints: dict[str, Any], absent: dict[str, str]) -> dict[str, list[Turn]]:
        """Each turn of all users on one server after the other. A peer that fails is left out."""
        turns: dict[str, list[Turn]] = {name: [] for name in endpoints}
        total = 1 + len(self.sessions[0].reads)
        for number in range(total):
            for name in list(turns):
                self.say(f"{len(self.sessions)} users: turn {number + 1} of {total}, {name}")
                try:
                    turns[name] += play_turn(endpoints[name], self.form, self.sessions, number)
                except EngineError as failure:
                    if name == OURS:
                        raise
                    del turns[name]
                    absent[name] = str(failure)
        return turns


# ---- the report ----

TOTALS = {
    "computed_tokens": "prompt tokens computed",
    "cached_tokens": "prompt tokens cached",
    "new_tokens": "new tokens",
}


def agent_questions(played: Sequence[Played], users: Sequence[int], absent: Mapping[str, str]) -> Iterator[Question]:
    for each in played:
        who, suffix = _who(each.engine, each.users), _suffix(each.engine, each.users)
        for percent in (50, 95):
            meaning = f"{who}: seconds a turn, {percent}th percentile"
            yield Question(f"turn_p{percent}_s{suffix}", meaning, None, partial(_percentile, each, percent / 100))
        for name, words in TOTALS.items():
            yield Question(f"{name}{suffix}", f"{who}: {words}", None, partial(_total, each, name))
        if each.engine == OURS:
            target = Target(RESTART_TARGET, at_least=False)
            meaning = f"{who}: the first turn after a restart, of a cold one"
            yield Question(f"restart_share{suffix}", meaning, target, partial(each.restart_share, "seconds"))
            meaning = f"{who}: until its answer began"
            yield Question(f"restart_first_share{suffix}", meaning, target, partial(each.restart_share, "first_s"))
    sessions = {(each.engine, each.users): each for each in played}
    for count in users:
        bound, who = FASTER_TARGETS.get(count), f"{count} user{'s' if count > 1 else ''}"
        meaning, aim = f"{who}: {PEER}'s seconds a turn over ours, median of turns", Target(bound) if bound else None
        yield Question(f"turn_vs_{PEER}_{count}", meaning, aim, partial(_versus, sessions, count, "seconds", absent))
        meaning = f"{who}: the same until the answer begins"
        yield Question(f"first_vs_{PEER}_{count}", meaning, aim, partial(_versus, sessions, count, "first_s", absent))


def _versus(
    sessions: Mapping[tuple[str, int], Played], users: int, name: str, absent: Mapping[str, str]
) -> list[float]:
    if (PEER, users) not in sessions:
        raise MissingError(absent.get(PEER, "not part of this run"))
    theirs, ours = (sessions[engine, users].by_turn(name) for engine in (PEER, OURS))
    return [their / our for their, our in zip(theirs, ours, strict=True)]


def _percentile(played: Played, share: float) -> float:
    return percentile(played.of("seconds"), share) or 0.0


def _total(played: Played, name: str) -> float:
    return sum(played.of(name))


def _who(engine: str, users: int) -> str:
    return f"{engine}, {users} user{'s' if users > 1 else ''}"


def _suffix(engine: str, users: int) -> str:
    return f"_{users}" if engine == OURS else f"_{engine}_{users}"


def show_agent(results: BenchResults, console: Console) -> None:
    measured = {figure.name: figure.value or 0.0 for figure in results.figures}
    title = f"{results.model['path']}: agents' sessions, seconds a turn and tokens of all turns"
    table = make_table(title, "server", "p50", "p95", *(words for words in TOTALS.values()))
    for each in results.model["played"]:
        engine, users = each["engine"], each["users"]
        seconds = [f"{measured[f'turn_p{percent}_s{_suffix(engine, users)}']:.2f}" for percent in (50, 95)]
        tokens = [f"{measured[name + _suffix(engine, users)]:,.0f}" for name in TOTALS]
        table.add_row(_who(engine, users), *seconds, *tokens)
    aimed = replace(results, figures=[figure for figure in results.figures if figure.target])
    console.print(Group(table, figures(aimed), *notes(results)))
