"""What each page's template takes: frozen values, already decided, worded and bounded.

A template shows a shape and decides nothing. Whatever a rule says (is this locked, which tone has this
verdict, is that the person's own request) is decided by policy, turned into one of these values by the
page's view, and only laid out by the template.

Text comes as `Phrase`: a sentence in parts, so that a template can set an id, an instant or an amount as
what it is, and so that a provider's or an agent's text can be nothing but text. The `say` filter of
`console.templatetags.recourse` escapes every part and makes invisible characters visible.

Instants are aware datetimes; pages show UTC. Amounts are `runs.money.Money`. `href` is a path of this
console. States are the values of the enums in `runs.states` and `reconciliation.states`.
"""

from __future__ import annotations

from console.pages.shapes.case import (
    ActionView,
    CasePage,
    Change,
    DecisionClosed,
    DecisionForm,
    DecisionMade,
    DecisionPanel,
    DiffRow,
    DiffView,
    Draft,
    EvidenceItem,
    FieldError,
    HiddenField,
    Option,
    OptionGroup,
    Piece,
    QuestionView,
    ReviewPage,
    TextField,
    VerdictView,
)
from console.pages.shapes.frame import (
    ProblemPage,
    Shell,
    Viewer,
)
from console.pages.shapes.history import (
    EffectEntry,
    EffectsPage,
    SearchHit,
    SearchPage,
)
from console.pages.shapes.parts import (
    Actor,
    Badge,
    Banner,
    Choice,
    Consequence,
    Counts,
    EmptyState,
    Fact,
    Filter,
    JsonView,
    KeyWindow,
    NextPage,
    Tab,
    TimelineItem,
)
from console.pages.shapes.queue import (
    QueueGroup,
    QueueNews,
    QueuePage,
    QueueRow,
    Stat,
    WaitBucket,
)
from console.pages.shapes.run import (
    BudgetView,
    LeaseRow,
    PlanCount,
    PlanRow,
    RunListPage,
    RunPage,
    RunRow,
    TurnGroup,
    Waterfall,
    WaterfallBar,
)
from console.pages.shapes.text import (
    Answer,
    Code,
    Link,
    Part,
    Phrase,
    Since,
    Strong,
    Tone,
    Until,
)

__all__ = [
    "ActionView",
    "Actor",
    "Answer",
    "Badge",
    "Banner",
    "BudgetView",
    "CasePage",
    "Change",
    "Choice",
    "Code",
    "Consequence",
    "Counts",
    "DecisionClosed",
    "DecisionForm",
    "DecisionMade",
    "DecisionPanel",
    "DiffRow",
    "DiffView",
    "Draft",
    "EffectEntry",
    "EffectsPage",
    "EmptyState",
    "EvidenceItem",
    "Fact",
    "FieldError",
    "Filter",
    "HiddenField",
    "JsonView",
    "KeyWindow",
    "LeaseRow",
    "Link",
    "NextPage",
    "Option",
    "OptionGroup",
    "Part",
    "Phrase",
    "Piece",
    "PlanCount",
    "PlanRow",
    "ProblemPage",
    "QuestionView",
    "QueueGroup",
    "QueueNews",
    "QueuePage",
    "QueueRow",
    "ReviewPage",
    "RunListPage",
    "RunPage",
    "RunRow",
    "SearchHit",
    "SearchPage",
    "Shell",
    "Since",
    "Stat",
    "Strong",
    "Tab",
    "TextField",
    "TimelineItem",
    "Tone",
    "TurnGroup",
    "Until",
    "VerdictView",
    "Viewer",
    "WaitBucket",
    "Waterfall",
    "WaterfallBar",
]
