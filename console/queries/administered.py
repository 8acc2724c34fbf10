"""Entries of the audit log that belong to no team: what people administered, for those who may read it all.

Accounts, provider accounts and the environment are administered for every team, so their entries are in no
team's history. Few are ever written: they are read from the log itself, by the index of what people did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db.models import Q, QuerySet

from reconciliation.retrospect import event_in
from runs import account_access
from runs.actors import ActorKind
from runs.models import AuditLeaf

# About a provider account, which the entry names as its subject.
OF_ACCOUNTS: Final = ("provider.declared", "provider.tightened", "account.teams_named", "sending.opened")
ACTIONS: Final = (
    *OF_ACCOUNTS,
    "sending.frozen",
    "sending.freeze_answered",
    "sending.freeze_ended",
    "person.made",
    "person.invited",
    "person.password_chosen",
    "person.access_changed",
    "person.principal_changed",
    "person.linked",
    "person.factors_removed",
    "person.sessions_ended",
    "person.closed",
    "person.opened",
    "token.made",
    "token.revoked",
)
# How many of them one page looks through: some thousand acts of administration are many years.
LOOKED_THROUGH_MAX: Final = 5_000


@dataclass(frozen=True, kw_only=True)
class Administered:
    """What somebody reads of these entries: all, but those about accounts that are closed to them."""

    closed: frozenset[str] = frozenset()

    def shows(self, leaf: AuditLeaf, *, account: str = "") -> bool:
        """Whether the entry is there for them; with `account`, whether it also is about that one."""
        if leaf.action not in OF_ACCOUNTS:
            return not account
        subject = str(event_in(bytes(leaf.body)).get("subject", ""))
        return subject not in self.closed and account in ("", subject)

    def find(self, number: int) -> AuditLeaf | None:
        """The entry of this number, None unless it is one of these and there for them."""
        leaf = _entries(ACTIONS).filter(pk=number).first()
        return leaf if leaf is not None and self.shows(leaf) else None

    def keys(
        self, *, actions: Sequence[str], actor: str, account: str, narrowed: Q, newer: bool, rows: int
    ) -> list[tuple[datetime, int]]:
        """The time and number of those that are asked for, next to a place, which is in `narrowed`."""
        found: list[tuple[datetime, int]] = []
        for leaf in self._looked_through(actions, actor, narrowed, newer):
            if self.shows(leaf, account=account):
                found.append((leaf.at, leaf.pk))
                if len(found) == rows:
                    break
        return found

    def _looked_through(
        self, actions: Sequence[str], actor: str, narrowed: Q, newer: bool
    ) -> Iterator[AuditLeaf]:
        order = ("at", "id") if newer else ("-at", "-id")
        entries = _entries(actions).filter(narrowed)
        if actor:
            entries = entries.filter(actor=actor)
        yield from entries.order_by(*order)[:LOOKED_THROUGH_MAX]


def read_by(*, teams: Sequence[str], everything: bool) -> Administered:
    """For somebody in these teams; `everything`: also what is about other teams' accounts."""
    return Administered(closed=frozenset() if everything else account_access.closed_to(teams))


def _entries(actions: Sequence[str]) -> QuerySet[AuditLeaf]:
    return AuditLeaf.objects.filter(team_slug="", actor_kind=ActorKind.PERSON, action__in=list(actions))
