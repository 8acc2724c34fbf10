"""A journal of so many operations for `make bench-pages`: made through the domain, copied by the million.

A few runs of each kind are made by the journal's own functions, so that every row is as a page expects it.
Then each is copied with its turns, calls, operations, attempts, receipts, evidence, cases and log entries
under ids, keys and times of its own. Two databases differ in age alone: the same accounts, flows and tools,
as many effects a day, as many cases that wait; the older one has a hundred times as much behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import psycopg
from django.contrib.auth.hashers import make_password
from psycopg import sql

from console import access
from console.models import Person, Role
from reconciliation.accounts import sync_accounts
from reconciliation.decisions import Asked, decide
from reconciliation.gathering import judge_now
from reconciliation.models import Case
from reconciliation.states import Action, ReasonCode
from reconciliation.working import Worker, claim_case
from runs.journal.ending import complete_run
from runs.locking import database_now
from runs.models import Team
from tests import cases, factories
from tests.cases import Effect, Opened

TEAM = "ops"
OTHER_TEAM = "sales"
FLOWS: Final = ("refund-agent", "restock-agent", "order-exception-agent")
EFFECTS: Final = (
    Effect(tool="create_refund", provider="sandbox-payments", minor=124_000),
    Effect(tool="place_order", provider="sandbox-supplier", args={"sku": "FC-20"}, minor=48_600),
    Effect(tool="create_ticket", provider="sandbox-desk", args={"title": "Damaged parcel"}, minor=None),
    Effect(tool="send_email", provider="sandbox-mail", args={"subject": "Your refund"}, minor=None),
)
# How many cases wait, in every database: work piles up with what happens in a day, not with its past.
WAITING = 3_000
LOOKING_UP = 400
RETRYING = 100
# Of what is long settled, so much had a case.
RESOLVED_SHARE = 0.03
# Three operations a minute: a million in eight months.
SECONDS_PER_OPERATION = 20
# Numbers of copied rows: the copy's number times this, and the number of what was copied.
STRIDE = 100_000

_ID: Final = """
CREATE FUNCTION bench_id(prefix text, source text, n bigint) RETURNS text IMMUTABLE LANGUAGE sql AS $$
    SELECT prefix || '01KB' || upper(lpad(to_hex(n), 6, '0'))
        || substr(upper(translate(encode(decode(md5(source || n), 'hex'), 'base64'), '+/=', 'XY')), 1, 16)
$$
"""
# Each table with how its rows belong to a run, in the order of the references.
_TABLES: Final = {
    "runs_run": "source.id = %(run)s",
    "runs_lease": "source.run_id = %(run)s",
    "runs_turn": "source.run_id = %(run)s",
    "runs_call": "source.run_id = %(run)s",
    "runs_operation": "source.run_id = %(run)s",
    "runs_grant": "source.operation_id = ANY(%(operations)s)",
    "runs_attempt": "source.operation_id = ANY(%(operations)s)",
    "runs_evidence": "source.operation_id = ANY(%(operations)s)",
    "runs_receipt": "source.operation_id = ANY(%(operations)s)",
    "reconciliation_case": "source.run_id = %(run)s",
    "reconciliation_lookup": "source.operation_id = ANY(%(operations)s)",
    "reconciliation_decision": "source.operation_id = ANY(%(operations)s)",
    "runs_auditleaf": "source.run_ref = %(run)s",
}
_PREFIXES: Final = {
    "run_id": "run_",
    "run_ref": "run_",
    "operation_id": "op_",
    "operation_ref": "op_",
    "case_id": "case_",
    "evidence_id": "ev_",
    "grant_id": "grant_",
}
_NUMBERED: Final = {"call_id", "turn_id", "attempt_id"}
_OWN: Final = {
    "runs_run": {"external_id": "'ORD-' || (100000 + n) || '-' || substr(md5(source.id || n), 1, 12)"},
    "runs_lease": {"token": "bench_id('', source.token, n)"},
    "runs_operation": {
        # As `runs.keys` mints them: no two begin alike.
        "key": "'rk-' || substr(lower(translate("
        "encode(sha256((source.id || n)::bytea), 'base64'), '+/=', 'xyz')), 1, 40)",
    },
    "runs_receipt": {"reference": "'rfd_' || substr(bench_id('', source.id || 'r', n), 5)"},
    "reconciliation_case": {
        "at_risk_minor": "CASE WHEN source.at_risk_currency = '' THEN 0 ELSE mod(n * 7919, 500000) END"
    },
    "reconciliation_decision": {"idempotency_key": "bench_id('', source.id, n)"},
}
_OWN_IDS: Final = {
    "runs_run": "run_",
    "runs_operation": "op_",
    "runs_evidence": "ev_",
    "runs_receipt": "rcpt_",
    "runs_grant": "grant_",
    "reconciliation_case": "case_",
    "reconciliation_decision": "dec_",
}


@dataclass(frozen=True, kw_only=True)
class Copied:
    """A run that is copied, as often as it says; `recent`: copies lie within a day and a half."""

    run: str
    operations: list[str]
    copies: int
    recent: bool


def make_samples(operations: int) -> list[Copied]:
    """Make the runs that are copied, and the people. Through the domain, as the application."""
    sync_accounts()
    people = _people()
    settled = [_settled_run(flow) for flow in FLOWS]
    waiting = [
        cases.needs_decision(effect, team=TEAM, flow=flow, external_id=f"W-{flow}-{number}")
        for flow in FLOWS
        for number, effect in enumerate(EFFECTS)
    ]
    odd = cases.open_case(EFFECTS[0], team=TEAM, flow=FLOWS[0])
    cases.looked_up(odd, cases.mismatch(odd))
    waiting.append(odd)
    looking = [cases.open_case(effect, team=TEAM, flow=FLOWS[1]) for effect in EFFECTS]
    retrying = cases.needs_decision(EFFECTS[0], team=TEAM, flow=FLOWS[0])
    _decide(retrying, people[0], Action.RETRY, executor="agent")
    alone = cases.open_case(EFFECTS[0], team=TEAM, flow=FLOWS[0])
    cases.looked_up(alone, cases.found(alone))
    given_up = cases.needs_decision(EFFECTS[2], team=TEAM, flow=FLOWS[2])
    _decide(given_up, people[1], Action.ABANDON, then="continue")
    elsewhere = cases.needs_decision(EFFECTS[1], team=OTHER_TEAM, flow="quote-agent")
    for opened in (*waiting[:2],):
        claim_case(
            case_id=opened.case_id,
            team=None,
            worker=Worker(actor=access.person_actor(people[1]), name="Robin"),
        )
    resolved = int(operations * RESOLVED_SHARE)
    others = WAITING + LOOKING_UP + RETRYING + resolved
    clusters = max(0, operations - others) // (len(settled) * len(EFFECTS))
    return [
        *(_copied(run, operations, clusters, recent=False) for run, operations in settled),
        *(_of_case(one, WAITING // (len(waiting) + 1)) for one in (*waiting, elsewhere)),
        *(_of_case(one, LOOKING_UP // len(looking)) for one in looking),
        _of_case(retrying, RETRYING),
        _of_case(alone, resolved // 2, recent=False),
        _of_case(given_up, resolved // 2, recent=False),
    ]


def _people() -> list[Person]:
    made = []
    for name in ("Sam", "Robin", "Kim"):
        person = Person.objects.create(
            username=name.lower(), first_name=name, password=make_password(None), roles=[str(Role.OPERATOR)]
        )
        person.teams.add(factories.make_team(TEAM), factories.make_team(OTHER_TEAM))
        made.append(person)
    assert Team.objects.count() == 2
    return made


def _settled_run(flow: str) -> tuple[str, list[str]]:
    calls = [
        factories.effect(f"c{number}", tool=one.tool, provider=one.provider, args=one.args, minor=one.minor)
        for number, one in enumerate(EFFECTS)
    ]
    claimed = factories.make_claimed(*calls, team=TEAM, flow=flow, external_id=f"S-{flow}")
    for number, operation in enumerate(claimed.operations):
        factories.send(claimed, attempt_id=f"a{number}", operation=operation)
        minor = operation.amount_minor
        reference = f"ref-{operation.pk}"
        factories.reply(claimed, reference, attempt_id=f"a{number}", operation=operation, minor=minor)
    complete_run(team=TEAM, run_id=claimed.run.pk, token=claimed.token, output={"done": True})
    return claimed.run.pk, [one.pk for one in claimed.operations]


def _decide(opened: Opened, person: Person, action: Action, **words: str) -> None:
    case, operation, run = opened.case, opened.operation, opened.run
    judged = judge_now(run=run, operation=operation, case=case, now=database_now())
    asked = Asked(
        action=action,
        seen_version=case.version,
        evidence_digest=judged.evidence_digest,
        reason_code=ReasonCode.OTHER,
        reason=cases.REASON,
        idempotency_key=f"bench-{case.pk}",
        **words,
    )
    decide(case_id=case.pk, team=TEAM, actor=access.person_actor(person), actor_name=str(person), asked=asked)


def _of_case(opened: Opened, copies: int, *, recent: bool = True) -> Copied:
    case: Case = opened.case
    return _copied(case.run_id, [case.operation_id], copies, recent=recent)


def _copied(run: str, operations: list[str], copies: int, *, recent: bool) -> Copied:
    return Copied(run=run, operations=operations, copies=copies, recent=recent)


def copy_all(url: str, samples: list[Copied], operations: int) -> None:
    """Copy the runs with all that is theirs; as the server's administrator, past triggers and references."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("SET synchronous_commit = off")
        connection.execute("SET maintenance_work_mem = '256MB'")
        connection.execute(_ID)
        connection.execute("DROP INDEX search_term_parts")
        span_seconds = operations * SECONDS_PER_OPERATION
        for sample in samples:
            with connection.transaction():
                for table, belongs in _TABLES.items():
                    _copy(connection, table, belongs, sample, span_seconds, operations)
        _claim_those_settled(connection)
        _index_names(connection)
        _file_history(connection)
        connection.execute("DROP FUNCTION bench_id")
        connection.execute("VACUUM ANALYZE")


def _copy(
    connection: psycopg.Connection[Any], table: str, belongs: str, sample: Copied, span: int, operations: int
) -> None:
    # What is recent comes last in the log, too: numbers beyond all that is old.
    first = operations + 1 if sample.recent else 1
    ago = (
        "make_interval(mins => mod(n, 2160)::int)"
        if sample.recent
        else f"make_interval(secs => {span} - (n - 1) * {span / max(1, sample.copies):.6f} + 129600)"
    )
    columns = connection.execute(
        "SELECT attname::text, atttypid::regtype::text FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        [table],
    ).fetchall()
    names = ", ".join(f'"{name}"' for name, _ in columns)
    values = ", ".join(_value(table, name, kind, ago) for name, kind in columns)
    connection.execute(
        f"INSERT INTO {table} ({names}) SELECT {values} FROM {table} AS source,"  # type: ignore[arg-type]
        f" generate_series({first}::bigint, {first + sample.copies - 1}) AS n WHERE {belongs}",
        {"run": sample.run, "operations": sample.operations},
    )


def _value(table: str, name: str, kind: str, ago: str) -> str:
    """What a copy's column holds, as SQL over `source` and `n`."""
    own = _OWN.get(table, {}).get(name)
    if own is not None:
        return own
    if name == "id":
        prefix = _OWN_IDS.get(table)
        return f"source.id + n * {STRIDE}" if prefix is None else f"bench_id('{prefix}', source.id, n)"
    if name in _PREFIXES:
        there = f"""source."{name}" """
        return f"CASE WHEN {there} <> '' THEN bench_id('{_PREFIXES[name]}', {there}, n) ELSE {there} END"
    if name in _NUMBERED and kind == "bigint":
        return f'source."{name}" + n * {STRIDE}'
    if kind == "timestamp with time zone":
        return f'source."{name}" - {ago}'
    return f'source."{name}"'


def _claim_those_settled(connection: psycopg.Connection[Any]) -> None:
    """Whoever decided a case had claimed it, and that ended."""
    connection.execute(
        "INSERT INTO reconciliation_caseclaim"
        " (case_id, number, actor, actor_name, claimed_at, used_at, until_at, given_by, taken_as)"
        " SELECT decision.case_id, 1, decision.actor, decision.actor_name, decision.made_at,"
        " decision.made_at, decision.made_at, '', 'chosen' FROM reconciliation_decision AS decision"
        " ON CONFLICT DO NOTHING"
    )


def _index_names(connection: psycopg.Connection[Any]) -> None:
    """What the console takes over from the log bit by bit, all at once."""
    connection.execute(
        """
        INSERT INTO console_searchterm (kind, term, team_slug, subject)
        SELECT name.kind, name.term, operation.team_id, operation.id
        FROM runs_operation AS operation CROSS JOIN LATERAL (
            VALUES ('operation', lower(substr(operation.id, 4))), ('key', lower(operation.key))
        ) AS name (kind, term)
        """
    )
    connection.execute(
        "INSERT INTO console_searchterm (kind, term, team_slug, subject)"
        " SELECT 'receipt', lower(receipt.reference), operation.team_id, operation.id"
        " FROM runs_receipt AS receipt"
        " JOIN runs_operation AS operation ON operation.id = receipt.operation_id"
    )
    connection.execute(
        "INSERT INTO console_searchterm (kind, term, team_slug, subject)"
        " SELECT 'external_id', lower(external_id), team_id, id FROM runs_run"
    )
    connection.execute("CREATE INDEX search_term_parts ON console_searchterm USING gin (term gin_trgm_ops)")
    connection.execute(
        "INSERT INTO console_searchprogress"
        " (id, through_leaf, through_at, settled_leaf, noted_leaf, noted_xid)"
        " SELECT 1, max(id), now(), max(id), max(id), 0 FROM runs_auditleaf"
    )


def _file_history(connection: psycopg.Connection[Any]) -> None:
    """What the console files of the log bit by bit, all at once; its indexes afterwards, which is faster."""
    indexes = connection.execute(
        "SELECT indexname, indexdef FROM pg_indexes"
        " WHERE tablename = 'console_historyentry' AND indexname LIKE 'history\\_%'"
    ).fetchall()
    for name, _ in indexes:
        connection.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(name)))
    connection.execute(
        """
        INSERT INTO console_historyentry (leaf, at, team_slug, action, provider, actor)
        SELECT leaf.id, leaf.at, leaf.team_slug, leaf.action, coalesce(operation.provider_id, ''), leaf.actor
        FROM runs_auditleaf AS leaf LEFT JOIN runs_operation AS operation ON operation.id = leaf.operation_ref
        WHERE leaf.team_slug <> ''
        """
    )
    connection.execute(
        "INSERT INTO console_historymark (leaf, mark, at, team_slug, provider)"
        " SELECT leaf, 'people', at, team_slug, provider FROM console_historyentry"
        " WHERE actor LIKE 'person:%'"
    )
    for _, definition in indexes:
        connection.execute(sql.SQL(definition))
    connection.execute(
        "INSERT INTO console_historyprogress"
        " (id, through_leaf, through_at, settled_leaf, noted_leaf, noted_xid)"
        " SELECT 1, max(id), now(), max(id), max(id), 0 FROM runs_auditleaf"
    )
