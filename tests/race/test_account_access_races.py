"""An account is closed to a team while the team's agent saves a turn that names it: one comes first."""

from __future__ import annotations

from typing import Any

import pytest

from runs import account_access
from runs.account_access import AccessMoved, AccountNotFound
from runs.journal.turns import TurnSaved, save_turn
from runs.models import AccountTeam, Operation, Run
from tests.concurrency import Connect, Holder, at_once, start
from tests.factories import PERSON, TEAM, claim, effect, make_account, make_run, make_team

pytestmark = pytest.mark.django_db(transaction=True)

ACCOUNT = "sandbox-supplier"


def begin() -> tuple[Run, str]:
    make_account(ACCOUNT)
    make_team("other")
    run = make_run()
    return run, claim(run)


def save(run: Run, token: str) -> TurnSaved:
    return save_turn(
        team=TEAM, run_id=run.pk, token=token, index=1, decision={}, parallel=False, calls=(effect(),)
    )


def give(*teams: str, seen: tuple[str, ...] = ()) -> tuple[str, ...]:
    return account_access.name_teams(
        account=ACCOUNT,
        teams=teams,
        seen=account_access.seen_of(seen),
        actor=PERSON,
        reason="The other team owns this account now.",
    )


def test_a_turn_that_waited_for_the_closing_of_its_account_is_the_loser(connect: Connect) -> None:
    run, token = begin()
    closing = Holder(connect(), connect())
    closing.execute("BEGIN", [])
    closing.execute("SELECT 1 FROM runs_provideraccount WHERE slug = %s FOR UPDATE", [ACCOUNT])
    saving = start(lambda: save(run, token))
    closing.wait_for_waiters(1)
    closing.execute(
        "INSERT INTO runs_accountteam (account_id, team_id, made_by) VALUES (%s, 'other', 'person:1')",
        [ACCOUNT],
    )
    closing.release()
    assert isinstance(saving.result().refusal, AccountNotFound)
    assert not Operation.objects.exists()


def test_a_closing_that_waited_for_a_turn_leaves_the_turn_as_it_was_saved(connect: Connect) -> None:
    run, token = begin()
    saving = Holder(connect(), connect())
    saving.execute("BEGIN", [])
    # As a turn holds it, and each operation by its reference.
    saving.execute("SELECT 1 FROM runs_provideraccount WHERE slug = %s FOR KEY SHARE", [ACCOUNT])
    closing = start(lambda: give("other"))
    saving.wait_for_waiters(1)
    # Another turn isn't held up by the one that saves.
    assert not save(run, token).replayed
    saving.release()
    assert closing.result().answer == ("other",)
    assert Operation.objects.count() == 1


def test_of_two_who_name_teams_at_once_the_loser_is_told_what_the_winner_named() -> None:
    begin()
    acts: list[Any] = [lambda: give("other"), lambda: give(TEAM)]
    outcomes = at_once(acts)
    (won,) = [one.value for one in outcomes if one.value is not None]
    (lost,) = [one.refusal for one in outcomes if one.refusal is not None]
    assert isinstance(lost, AccessMoved)
    assert lost.details["teams"] == list(won)
    assert tuple(AccountTeam.objects.values_list("team_id", flat=True)) == won
