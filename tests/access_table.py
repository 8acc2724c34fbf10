"""Who may open which address and make which call: the table that `test_access_matrix` holds Recourse to.

A new page is one line in `PAGES`, under the name that it has in the URL configuration; a new call one line in
`CALLS`, under its operation id; a new kind of id in an address one line in `test_access_matrix.ids_of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from console.models import Role, Scope

EVERYBODY: Final = frozenset(Role)
OPERATORS: Final = frozenset({Role.OPERATOR})
# Those who work on cases.
WORKERS: Final = frozenset({Role.OPERATOR, Role.APPROVER})
APPROVERS: Final = frozenset({Role.APPROVER})
AUDITORS: Final = frozenset({Role.AUDITOR})
# Those who may take history out of the console.
HISTORIANS: Final = frozenset({Role.AUDITOR, Role.ADMINISTRATOR})
ADMINISTRATORS: Final = frozenset({Role.ADMINISTRATOR})
NOBODY: Final = frozenset[Role]()


@dataclass(frozen=True)
class Rule:
    """What an address answers to whom; None where it doesn't take the method."""

    # Roles that are shown it. Of others a GET is refused.
    sees: frozenset[Role] | None
    # Roles that may send its form. Of others a POST is refused.
    sends: frozenset[Role] | None
    # A GET of an address for a form alone leads to the page above it.
    leads_above: bool = False
    query: str = ""
    # What the form has to hold before it is asked who sends it; `{case_id}` and its like are filled in.
    data: Mapping[str, str] = field(default_factory=dict)
    # How a refusal for want of a role looks.
    refused: int = 403
    # It is there for whoever made it, and for nobody else.
    private: bool = False
    # For whoever is signed in, with a role or without: it is about their own account.
    roleless: bool = False


def reads(by: frozenset[Role] = EVERYBODY, *, query: str = "") -> Rule:
    """A page that is only read."""
    return Rule(sees=by, sends=None, query=query)


def acts(by: frozenset[Role], *, data: Mapping[str, str] | None = None, refused: int = 403) -> Rule:
    """An address for a form whose page is the one above."""
    return Rule(sees=EVERYBODY, sends=by, leads_above=True, data=data or {}, refused=refused)


def mine(*, sends: bool = False) -> Rule:
    """A page, or the address of a form, about something of one person's; the test's operator made it."""
    return Rule(
        sees=EVERYBODY if sends else OPERATORS,
        sends=OPERATORS if sends else None,
        leads_above=sends,
        private=True,
    )


def account(*, sees: bool = True, sends: bool = True) -> Rule:
    """A page, or the address of a form, about the account of whoever is signed in."""
    return Rule(sees=EVERYBODY if sees else None, sends=EVERYBODY if sends else None, roleless=True)


def form(by: frozenset[Role], *, sees: frozenset[Role] = EVERYBODY) -> Rule:
    """A page with its own form, which others see closed and with the reason."""
    return Rule(sees=sees, sends=by)


# For everybody, signed in or not: there is nothing of a team behind these.
PUBLIC: Final[Mapping[str, str]] = MappingProxyType(
    {
        "login": "the way in",
        "account_login": "the way in, under allauth's name",
        "invitation": "whoever has the link that an administrator gave them chooses a password",
        "mfa_authenticate": "the way in: only whose password has just been right gets to it",
        "second_step_left": "the way in, left",
        "mfa_login_webauthn": "the way in with a passkey",
        "sign_in_elsewhere": "the way in by an identity provider",
        "socialaccount_login_cancelled": "the way in, left at the identity provider",
        "openid_connect_callback": "the identity provider's answer, which allauth checks",
        "account_inactive": "says that a login is closed",
        "logout": "the way out",
        "reauthenticate": "shows again who is at the session, and is the way in without one",
        "preferences": "how pages look in this browser",
        "theme": "how pages look in this browser",
        "live": "says whether there is a session, and nothing else",
        "problem_list": "what the words of refusals mean",
        "problem": "what the words of refusals mean",
        "webhook": "the provider's signature counts here, not a person",
        "openapi": "what the calls are is no secret",
        "healthz": "says that the process answers, and nothing else",
        "readyz": "says a word for each part of the deployment, and nothing of a team",
        "metrics": "the deployment's own token opens it, and without that it isn't there",
    }
)

PAGES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "queue": reads(),
        "queue_news": reads(query="since=2026-01-01T00:00:00%2B00:00"),
        # There is no page of its own to say it on.
        "queue_next": acts(WORKERS, refused=302),
        "view_save": acts(EVERYBODY),
        # Of whoever shared it, the test's operator; of others by administrators.
        "view_remove": acts(OPERATORS | ADMINISTRATORS),
        "bulk_list": reads(),
        "bulk_freeze": acts(WORKERS, data={"deed": "claim", "case": "{case_id}"}),
        "bulk": mine(),
        "bulk_start": mine(sends=True),
        "bulk_narrow": mine(sends=True),
        "bulk_stop": mine(sends=True),
        "bulk_progress": mine(),
        "bulk_csv": mine(),
        "case": reads(),
        "case_desk": reads(),
        "case_snooze": acts(WORKERS),
        "case_wake": acts(WORKERS),
        "case_note": acts(WORKERS),
        "case_claim": acts(WORKERS),
        # One's own claim, which outlives the role that it was made in.
        "case_release": acts(EVERYBODY),
        "case_leaving": acts(EVERYBODY),
        "case_takeover": acts(WORKERS),
        "case_decide": acts(OPERATORS),
        "case_lookup": acts(WORKERS),
        "case_withdraw": acts(OPERATORS),
        "case_attach": acts(WORKERS),
        "case_attachment": reads(),
        "case_body": reads(),
        "case_body_file": reads(),
        "case_body_reveal": acts(WORKERS),
        "case_live": reads(),
        "case_news": reads(query="version=1"),
        "case_report": reads(HISTORIANS),
        "run_list": reads(),
        "run": reads(),
        "run_revoke": acts(OPERATORS),
        "run_ask": acts(WORKERS),
        "approval_list": reads(),
        "approval_news": reads(query="seen=0"),
        "approval": reads(),
        "approval_answer": acts(APPROVERS),
        "approval_own": acts(WORKERS),
        "effects": reads(),
        "export_list": Rule(sees=HISTORIANS, sends=HISTORIANS, data={"form": "csv"}),
        # The test's auditor asked for it.
        "export": Rule(sees=AUDITORS, sends=None, private=True),
        "export_file": Rule(sees=AUDITORS, sends=None, private=True),
        "export_manifest": Rule(sees=AUDITORS, sends=None, private=True),
        "effect_entry": reads(),
        "effect": reads(),
        "effect_known": reads(),
        "provider_list": reads(),
        "provider_new": form(ADMINISTRATORS),
        "provider": reads(),
        "provider_test": acts(OPERATORS),
        "provider_tighten": acts(ADMINISTRATORS),
        "environment": reads(),
        "environment_answer": acts(ADMINISTRATORS),
        "environment_open": acts(ADMINISTRATORS),
        "notification_list": reads(),
        "notification_settings": reads(),
        # What somebody is told themselves is for them to say; the test's people have no address for it.
        "notification_own": acts(EVERYBODY),
        "notification_channel_add": acts(ADMINISTRATORS),
        "notification_channel": acts(ADMINISTRATORS, data={"state": "off"}),
        "notification_retry": acts(ADMINISTRATORS),
        "search": reads(query="q=ORD"),
        "person_list": reads(ADMINISTRATORS),
        "person_new": form(ADMINISTRATORS, sees=ADMINISTRATORS),
        "person": reads(ADMINISTRATORS),
        "person_act": acts(ADMINISTRATORS),
        "team_list": reads(ADMINISTRATORS),
        "team_new": acts(ADMINISTRATORS),
        "account_access_list": reads(ADMINISTRATORS),
        "account_access": form(ADMINISTRATORS, sees=ADMINISTRATORS),
        "token_list": reads(ADMINISTRATORS),
        "token_new": acts(ADMINISTRATORS),
        "token_revoke": acts(ADMINISTRATORS),
        "flow_list": reads(ADMINISTRATORS),
        "flow": form(ADMINISTRATORS, sees=ADMINISTRATORS),
        "account": account(sends=False),
        "mfa_index": account(sends=False),
        "account_change_password": account(),
        "mfa_activate_totp": account(),
        "mfa_deactivate_totp": account(),
        "mfa_view_recovery_codes": account(sends=False),
        "mfa_generate_recovery_codes": account(),
        "mfa_add_webauthn": account(),
        "mfa_remove_webauthn": account(),
        "account_reauthenticate": account(),
        "mfa_reauthenticate": account(),
        "mfa_reauthenticate_webauthn": account(),
        "session_list": account(sends=False),
        "session_end": account(sees=False),
        "session_end_others": account(sees=False),
    }
)


@dataclass(frozen=True)
class Call:
    """Which tokens may make a call: by scope, and with `decide` by the roles of the person behind it."""

    scopes: frozenset[Scope]
    by: frozenset[Role] = EVERYBODY
    # It is about something of one person's, the test's operator: to others of its team it is refused.
    own: bool = False
    # Beside what its schema requires.
    body: Mapping[str, Any] = field(default_factory=dict)


READING: Final = frozenset(Scope)
JOURNALING: Final = frozenset({Scope.JOURNAL})
DECIDING: Final = frozenset({Scope.DECIDE})

CALLS: Final[Mapping[str, Call]] = MappingProxyType(
    {
        "start_run": Call(JOURNALING),
        "list_runs": Call(READING),
        "read_run": Call(READING),
        "read_plan": Call(READING),
        "claim_run": Call(JOURNALING, body={"lease_seconds": 60}),
        "renew_lease": Call(JOURNALING),
        "release_lease": Call(JOURNALING),
        "save_turn": Call(JOURNALING),
        "save_result": Call(JOURNALING),
        "complete_run": Call(JOURNALING),
        "abandon_run": Call(DECIDING, OPERATORS),
        "revoke_lease": Call(DECIDING, OPERATORS),
        "read_operation": Call(READING),
        "send_operation": Call(JOURNALING),
        "report_receipt": Call(JOURNALING, body={"body": {"id": "x"}}),
        "report_rejection": Call(JOURNALING),
        "report_not_sent": Call(JOURNALING),
        "report_unknown": Call(JOURNALING),
        "list_cases": Call(READING),
        "read_case": Call(READING),
        "confirm_case": Call(DECIDING, OPERATORS),
        "retry_case": Call(DECIDING, OPERATORS),
        "abandon_case": Call(DECIDING, OPERATORS),
        "make_case_absent": Call(DECIDING, OPERATORS),
        "accept_case": Call(DECIDING, OPERATORS),
        "compensate_case": Call(DECIDING, OPERATORS),
        "look_up_case": Call(DECIDING, WORKERS),
        "attach_evidence": Call(DECIDING, WORKERS),
        "withdraw_retry": Call(DECIDING, OPERATORS),
        "list_approvals": Call(READING),
        "read_approval": Call(READING),
        "approve_approval": Call(DECIDING, APPROVERS),
        "refuse_approval": Call(DECIDING, APPROVERS),
        "ask_about_approval": Call(DECIDING, APPROVERS),
        "withdraw_approval": Call(DECIDING, WORKERS, own=True, body={"comment": "Not needed any more."}),
        "reply_about_approval": Call(DECIDING, WORKERS, own=True, body={"text": "The ticket is 4711."}),
    }
)
