"""Which teams may use which provider account: said by administrators, kept to wherever it is asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from console import teams
from console.models import Person, Role
from console.people import By, NotAnAdministrator
from console.queries.choices import choices_of
from console.queries.effects import read_frame
from console.queries.environment import read_environment
from console.queries.providers import list_providers
from reconciliation import rehearsal, restoring, tightening
from reconciliation.accounts import sync_accounts
from reconciliation.providers import registry
from reconciliation.rehearsal import About
from reconciliation.states import CaseState
from runs import account_access
from runs.account_access import AccessMoved, AccessUnchanged, AccountNotFound
from runs.journal.sending import begin_send
from runs.models import AccountTeam, AuditLeaf
from runs.refusals import Invalid
from tests import cases, factories
from tests.filing import file_history

pytestmark = pytest.mark.django_db

REASON = "The refunds team owns this account from now on."
OURS, THEIRS = factories.TEAM, "other"
ACCOUNT = cases.PAYMENTS


@pytest.fixture
def world() -> None:
    factories.make_team(OURS)
    factories.make_team(THEIRS)
    sync_accounts()


def person(*roles: Role, team: str = OURS) -> Person:
    made: Person = Person.objects.create_user(f"{'-'.join(roles)}-{team}", roles=[str(one) for one in roles])
    made.teams.add(factories.make_team(team))
    return Person.objects.get(pk=made.pk)


def browser(someone: Person) -> Client:
    client = Client()
    client.force_login(someone)
    return client


def give(*named: str, account: str = ACCOUNT, **fields: Any) -> tuple[str, ...]:
    chosen: dict[str, Any] = {
        "account": account,
        "teams": named,
        "seen": account_access.seen_of(account_access.named_teams(account)),
        "actor": factories.PERSON,
        "reason": REASON,
    }
    return account_access.name_teams(**{**chosen, **fields})


# --- Saying it ----------------------------------------------------------------------------------------------


def test_an_account_is_every_teams_until_teams_are_named_for_it(world: None) -> None:
    assert account_access.closed_to([THEIRS]) == frozenset()
    assert give(OURS) == (OURS,)
    assert account_access.closed_to([THEIRS]) == {ACCOUNT}
    assert account_access.closed_to([]) == {ACCOUNT}
    assert account_access.closed_to([OURS, THEIRS]) == frozenset()
    assert give() == ()
    assert account_access.closed_to([]) == frozenset()
    bodies = [
        json.loads(bytes(leaf.body))["event"]
        for leaf in AuditLeaf.objects.filter(action="account.teams_named").order_by("pk")
    ]
    assert [(one.get("before"), one.get("after")) for one in bodies] == [
        ({"teams": []}, {"teams": [OURS]}),
        ({"teams": [OURS]}, {"teams": []}),
    ]
    assert {(one["subject"], one["reason"], one["actor"]["id"]) for one in bodies} == {
        (ACCOUNT, REASON, factories.PERSON.id)
    }


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"actor": factories.TOKEN_ACTOR}, Invalid),
        ({"reason": "Because."}, Invalid),
        ({"reason": "x" * 4_001}, Invalid),
        ({"teams": [OURS, "nowhere"]}, Invalid),
        ({"account": "made-up"}, AccountNotFound),
        ({"seen": account_access.seen_of([THEIRS])}, AccessMoved),
        ({"teams": []}, AccessUnchanged),
    ],
)
def test_what_cannot_be_said_is_refused_by_its_name_and_changes_nothing(
    world: None, fields: dict[str, Any], refusal: type[Exception]
) -> None:
    with pytest.raises(refusal):
        give(OURS, **fields)
    assert not AccountTeam.objects.exists()
    assert not AuditLeaf.objects.filter(action="account.teams_named").exists()


def test_whoever_stopped_administering_names_no_teams_any_more(world: None) -> None:
    ada = person(Role.ADMINISTRATOR)
    by = By.person(ada)
    Person.objects.filter(pk=ada.pk).update(roles=["viewer"])
    with pytest.raises(NotAnAdministrator):
        teams.name_account_teams(
            by=by, account=ACCOUNT, teams=[OURS], seen=account_access.seen_of([]), reason=REASON
        )
    assert not AccountTeam.objects.exists()


def test_an_administrator_of_any_team_says_it_on_its_page_and_on_the_providers_own(world: None) -> None:
    desk = browser(person(Role.ADMINISTRATOR, team=THEIRS))
    assert ACCOUNT in desk.get("/account-access/").content.decode()
    path = f"/account-access/{ACCOUNT}/"
    seen = desk.get(path).context["page"].forms[0].seen
    typed = {"seen": seen, "there_for": "named", "teams": [OURS], "reason": REASON}
    for wrong, where in (({"there_for": ""}, "there_for"), ({"teams": []}, "teams")):
        answer = desk.post(path, {**typed, **wrong})
        assert answer.status_code == 422
        (form,) = answer.context["page"].forms
        assert {entry.name for entry in form.entries if entry.error} == {where}
        assert REASON in answer.content.decode()
    # The same form stands on the provider's own page, and leads to the same address.
    assert f'action="{path}"' in desk.get(f"/providers/{ACCOUNT}/").content.decode()
    assert desk.post(path, typed).status_code == 302
    assert desk.post(path, typed).status_code == 409, "what the form was shown with is over"
    assert account_access.named_teams(ACCOUNT) == (OURS,)
    # It isn't this administrator's to look at any more, and theirs to administer as before.
    assert desk.get(f"/providers/{ACCOUNT}/").status_code == 404
    assert OURS in desk.get(path).content.decode()
    assert desk.get("/account-access/made-up/").status_code == 404


def test_an_operator_is_shown_no_form_and_only_their_own_teams_of_an_account(world: None) -> None:
    give(OURS, THEIRS)
    text = browser(person(Role.OPERATOR)).get(f"/providers/{ACCOUNT}/").content.decode()
    assert "account-access" not in text
    assert THEIRS not in text.partition("<main")[2].partition("Open to")[2][:300]


@pytest.mark.parametrize("path", ["/account-access/", f"/account-access/{ACCOUNT}/", "/providers/"])
def test_what_says_whose_an_account_is_takes_few_statements(
    world: None, path: str, django_assert_max_num_queries: Any
) -> None:
    give(OURS)
    desk = browser(person(Role.ADMINISTRATOR))
    desk.get(path)
    with django_assert_max_num_queries(12):
        assert desk.get(path).status_code == 200


# --- Keeping to it ------------------------------------------------------------------------------------------


def test_an_account_of_others_is_in_no_list_and_no_choice(world: None) -> None:
    give(OURS)
    for mine, expected in ((OURS, True), (THEIRS, False)):
        assert (ACCOUNT in {one.slug for one in list_providers(teams=[mine]).accounts}) is expected
        assert (ACCOUNT in choices_of(teams=[mine], state=CaseState.NEEDS_DECISION).providers) is expected
        assert (ACCOUNT in read_frame([mine]).providers) is expected
        listed = {one.account.pk for one in read_environment(teams=[mine]).accounts}
        assert (ACCOUNT in listed) is expected
        assert cases.SUPPLIER in listed
    answer = browser(person(Role.AUDITOR, team=THEIRS)).get("/providers/")
    assert ACCOUNT not in answer.content.decode()


def test_a_fault_in_the_file_of_an_account_of_others_is_not_told(
    world: None, settings: Any, tmp_path: Path
) -> None:
    shipped = next(registry.SHIPPED.rglob("sandbox-payments.toml")).read_text()
    file = tmp_path / "payroll-bank.toml"
    file.write_text(shipped.replace('slug = "sandbox-payments"', 'slug = "payroll-bank"'))
    settings.RECOURSE_PROVIDERS_DIR = [str(tmp_path)]
    registry.reload()
    try:
        sync_accounts()
        give(OURS, account="payroll-bank")
        file.write_text(file.read_text() + "nonsense = 1\n")
        assert any("payroll-bank" in one for one in list_providers(teams=[OURS]).problems)
        assert list_providers(teams=[THEIRS]).problems == ()
    finally:
        settings.RECOURSE_PROVIDERS_DIR = []
        registry.reload()


def test_what_is_done_at_an_account_of_others_is_refused_in_the_domain_itself(world: None) -> None:
    give(OURS)
    with pytest.raises(AccountNotFound):
        rehearsal.rehearse(
            account=ACCOUNT, about=About(key="k", payload="{}"), teams=[THEIRS], actor=factories.PERSON
        )
    with pytest.raises(AccountNotFound):
        tightening.tighten(
            account=ACCOUNT, wanted={}, reason=REASON, seen_number=0, actor=factories.PERSON, teams=[THEIRS]
        )
    for account in (ACCOUNT, "made-up"):
        with pytest.raises(AccountNotFound):
            restoring.open_account(account=account, actor=factories.PERSON, reason=REASON, teams=[THEIRS])


@pytest.mark.django_db(transaction=True)
def test_what_a_team_has_begun_at_an_account_stays_its_own_when_it_is_closed_to_it(world: None) -> None:
    """It is seen, looked up and decided as before; an operation that was saved may still be sent."""
    opened = cases.needs_decision()
    ready = factories.make_claimed(factories.effect(provider=ACCOUNT))
    give(THEIRS)
    operator = browser(person(Role.OPERATOR))
    assert operator.get(f"/cases/{opened.case_id}/").status_code == 200
    assert operator.post(f"/cases/{opened.case_id}/lookup/").status_code == 302
    file_history()
    assert ACCOUNT in choices_of(teams=[OURS], state=CaseState.NEEDS_DECISION).providers
    go = begin_send(team=OURS, operation_id=ready.operation.pk, token=ready.token, attempt_id="a1")
    assert go.number == 1


# --- A lookup on trial --------------------------------------------------------------------------------------


def test_a_raw_answer_is_withheld_where_other_teams_use_the_account_too(world: None) -> None:
    opened = cases.open_case()
    ours = cases.found(opened)
    (own,) = ours.receipts
    foreign = replace(own, reference="rf_theirs", matched_by=None)
    exchange = replace(cases.exchange_of({"id": "rf_theirs"}), response_headers=(("x-of", "rf_theirs"),))
    kept = rehearsal.only_what_was_asked(replace(ours, receipts=(own, foreign), exchange=exchange))
    assert kept.receipts == (own,)
    assert "rf_theirs" not in repr(kept)
    assert account_access.is_shared(ACCOUNT, teams=[OURS])
    give(OURS)
    assert not account_access.is_shared(ACCOUNT, teams=[OURS])
    assert account_access.is_shared(ACCOUNT, teams=[THEIRS])
