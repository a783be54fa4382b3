"""The benchmark of planned users, as far as it needs no quiet machine."""

import pytest

from benchmarks.plan.users import ServedUsers, UserLoop, fitting_service, speed, user_figures
from surefoot.bench.harness.http_load import Outcome
from surefoot.bench.harness.server_process import free_port, own_launch, running
from surefoot.plan.planning import MAX_USERS, ModelPlanner, ServiceLevel
from tests.plan.machines import GB, machine, model
from tests.stories import stories_gguf

SERVICE = ServiceLevel(prompt_tokens=20, answer_tokens=8)


def test_the_service_fits_one_user_and_not_all() -> None:
    planner = ModelPlanner(model(), machine(read=GB, operations=GB), SERVICE)
    service = fitting_service(planner, pause_steps=300)
    assert 1 <= ModelPlanner(model(), machine(read=GB, operations=GB), service).num_users() < MAX_USERS


def test_users_ask_again() -> None:
    port = free_port()
    with running(own_launch(stories_gguf(), port, "--threads", "1", "--speculate", "off"), port) as server:
        outcomes = UserLoop(server.endpoint(), SERVICE, 512).run(3, 8, pause_s=0.01)
    assert len(outcomes) == 8
    assert [outcome.error for outcome in outcomes] == [None] * 8


def test_speed_is_that_after_the_first_token() -> None:
    assert speed(Outcome(0.0, (1.0, 1.5, 2.0), 2.1, 3)) == pytest.approx(2.0)
    assert speed(Outcome(0.0, (), 2.1, 0)) == 0.0


def test_figures() -> None:
    enough, more = (ServedUsers(n, 40, share, 1.0, 5.0, share) for n, share in ((8, 0.96), (12, 0.5)))
    assert [figure.met for figure in user_figures(8, [enough, more])] == [None, True, True]
    assert [figure.met for figure in user_figures(8, [more, enough])] == [None, False, False]
