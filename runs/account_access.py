"""Which teams may use which provider account. The only writer of `AccountTeam`.

An account for which no team is named is open to every team; one with teams named for it isn't there for any
other, wherever it is asked for. What a team has done at an account stays the team's own when the account is
closed to it: its operations are looked up, decided and settled as before, and only a new turn may not name
it. `docs/decisions/0025-whose-accounts.md` has the why.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import ClassVar, Final

from django.db import transaction
from django.db.models import QuerySet

from runs import audit
from runs.actors import Actor, ActorKind
from runs.journal.evidence import storable_text
from runs.models import NAME_LENGTH, AccountTeam, ProviderAccount, Team
from runs.refusals import Invalid, NotFound, Refusal

# As for every change that an auditor reads.
REASON_LENGTH_MIN: Final = 10
REASON_LENGTH_MAX: Final = 4_000


class AccountNotFound(NotFound):
    """There is no provider account of this slug that the team may use."""

    word: ClassVar[str] = "account_not_found"


class AccessMoved(Refusal):
    """Somebody else changed who may use the account since the person looked; `teams` in the details."""

    word: ClassVar[str] = "access_moved"


class AccessUnchanged(Refusal):
    """Exactly these teams may use the account already."""

    word: ClassVar[str] = "access_unchanged"


def not_there(account: str, *, where: str = "") -> AccountNotFound:
    """The one answer for an account that doesn't exist and for one that is other teams'."""
    placed = {"where": where} if where else {}
    return AccountNotFound(f"There is no provider account “{account[:64]}”.", account=account[:64], **placed)


def closed_to(teams: Collection[str]) -> frozenset[str]:
    """The accounts that are there for other teams alone, for somebody who is in these. One query."""
    ours = AccountTeam.objects.filter(team__in=list(teams)).values("account")
    closed = AccountTeam.objects.exclude(account__in=ours)
    return frozenset(closed.values_list("account_id", flat=True).distinct())


def open_to(teams: Collection[str]) -> QuerySet[ProviderAccount]:
    """The journal's accounts that somebody in these teams may see, by slug."""
    ours = AccountTeam.objects.filter(team__in=list(teams)).values("account")
    closed = AccountTeam.objects.exclude(account__in=ours).values("account")
    return ProviderAccount.objects.exclude(pk__in=closed).order_by("slug")


def require_open(account: str, *, teams: Collection[str]) -> None:
    """Raise `AccountNotFound` where the account is other teams'; whether it exists is another question."""
    if account in closed_to(teams):
        raise not_there(account)


def is_shared(account: str, *, teams: Collection[str]) -> bool:
    """Whether somebody beyond these teams may use the account too: what is there may be theirs."""
    named = frozenset(AccountTeam.objects.filter(account=account).values_list("team_id", flat=True))
    return bool(named - set(teams)) if named else Team.objects.exclude(pk__in=list(teams)).exists()


def named_teams(account: str) -> tuple[str, ...]:
    """The teams that alone may use the account, by slug; () where every team may."""
    named = AccountTeam.objects.filter(account=account).order_by("team_id")
    return tuple(named.values_list("team_id", flat=True))


def seen_of(teams: Collection[str]) -> str:
    """What a form was shown with, in a word: the same for the same teams."""
    return hashlib.sha256("\n".join(sorted(teams)).encode()).hexdigest()[:16]


# --- a turn that names accounts -----------------------------------------------------------------------------

# KEY SHARE is what each operation takes by its reference anyway. It waits for whoever changes the teams of an
# account, and for nobody else who writes the row.
_HOLD: Final = """
SELECT slug, title, adapter_version, endpoint, region, credential_fingerprint, start_within_ms,
       request_within_ms, in_flight_ms, synced_at, sending
FROM runs_provideraccount WHERE slug = ANY(%s) ORDER BY slug FOR KEY SHARE
"""


def hold_usable(accounts: Collection[str], *, team: str) -> Mapping[str, ProviderAccount]:
    """Those of these accounts that the team may use, held so until the caller's transaction ends.

    Two statements, the second after the locks are granted: what a change of access committed before counts,
    and one that comes later waits.
    """
    if not accounts:
        return {}
    held = {one.pk: one for one in ProviderAccount.objects.raw(_HOLD, [sorted(accounts)])}
    named: dict[str, set[str]] = {}
    for account, one in AccountTeam.objects.filter(account__in=list(held)).values_list("account", "team"):
        named.setdefault(account, set()).add(one)
    return {slug: one for slug, one in held.items() if team in named.get(slug, {team})}


# --- changing it --------------------------------------------------------------------------------------------


def name_teams(
    *, account: str, teams: Collection[str], seen: str, actor: Actor, reason: str
) -> tuple[str, ...]:
    """Say that exactly these teams may use the account, none of them for every team; returns them.

    `seen` is `seen_of` the teams that the person was shown. One leaf with what was and is named. Owns its
    transaction. Refuses in this order, having changed nothing: `Invalid`, `AccountNotFound`, `AccessMoved`,
    `AccessUnchanged`. Whoever calls says who may do this; here it only is a person.
    """
    if actor.kind is not ActorKind.PERSON:
        raise Invalid("Only a person says who may use an account.", where="actor")
    if not REASON_LENGTH_MIN <= len(reason.strip()) <= REASON_LENGTH_MAX:
        raise Invalid(
            f"Give a reason of {REASON_LENGTH_MIN} to {REASON_LENGTH_MAX} characters.", where="reason"
        )
    wanted = tuple(sorted(set(teams)))
    with transaction.atomic():
        _refuse_unknown(wanted)
        # Turns that name the account are saved before this, or find what it says.
        if ProviderAccount.objects.select_for_update().filter(pk=account).first() is None:
            raise not_there(account)
        before = named_teams(account)
        if seen != seen_of(before):
            raise AccessMoved(
                f"Somebody else changed who may use {account} since you looked. Now it is"
                f" {', '.join(before) if before else 'every team'}.",
                teams=list(before),
            )
        if before == wanted:
            raise AccessUnchanged("Exactly these teams may use the account already.")
        AccountTeam.objects.filter(account=account).exclude(team__in=wanted).delete()
        _add(account, set(wanted) - set(before), actor)
        audit.append(
            audit.Event(
                action="account.teams_named",
                actor=actor,
                subject=account,
                before={"teams": list(before)},
                after={"teams": list(wanted)},
                reason=storable_text(reason.strip()),
            )
        )
    return wanted


def name_first(*, account: str, teams: Collection[str], actor: Actor) -> None:
    """Name the teams of an account that is made in the caller's transaction, whose leaf tells of them."""
    _refuse_unknown(teams)
    _add(account, teams, actor)


def _add(account: str, teams: Collection[str], actor: Actor) -> None:
    AccountTeam.objects.bulk_create(
        AccountTeam(account_id=account, team_id=team, made_by=actor.id[:NAME_LENGTH])
        for team in sorted(teams)
    )


def _refuse_unknown(teams: Collection[str]) -> None:
    known = set(Team.objects.filter(pk__in=list(teams)).values_list("pk", flat=True))
    if unknown := sorted(set(teams) - known):
        raise Invalid(f"There is no team “{unknown[0][:64]}”.", where="teams")
