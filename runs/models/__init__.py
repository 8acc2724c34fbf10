"""The journal's tables. `runs.journal` is their only writer; nothing here changes a state.

Integrity lives in the constraints: a state is tied to its times, a key is unique at its provider
account, a provider's receipt confirms one operation, and audit leaves can't be changed (triggers and
grants in the migrations).
"""

from runs.models.auditing import AuditLeaf
from runs.models.columns import DIGEST_LENGTH, ID_LENGTH, NAME_LENGTH, TURN_ORDERS, one_of, words
from runs.models.effects import (
    KEY_LENGTH_MAX,
    OPERATION_SETTLED_STATES,
    Attempt,
    Evidence,
    Grant,
    Operation,
    Receipt,
    Report,
)
from runs.models.parties import AccountTeam, Approval, Flow, FlowVersion, ProviderAccount, Team
from runs.models.restoring import AccountReturn, Binding, Environment, Freeze, Orphan
from runs.models.running import RUN_ENDED_STATES, Call, Lease, Run, Turn

__all__ = [
    "DIGEST_LENGTH",
    "ID_LENGTH",
    "KEY_LENGTH_MAX",
    "NAME_LENGTH",
    "OPERATION_SETTLED_STATES",
    "RUN_ENDED_STATES",
    "TURN_ORDERS",
    "AccountReturn",
    "AccountTeam",
    "Approval",
    "Attempt",
    "AuditLeaf",
    "Binding",
    "Call",
    "Environment",
    "Evidence",
    "Flow",
    "FlowVersion",
    "Freeze",
    "Grant",
    "Lease",
    "Operation",
    "Orphan",
    "ProviderAccount",
    "Receipt",
    "Report",
    "Run",
    "Team",
    "Turn",
    "one_of",
    "words",
]
