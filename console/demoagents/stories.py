"""What the demo's agents are asked to do: goals, the model's turns, payloads. Data only.

A turn here is what a model would have decided; the agent asks it once, and the journal keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from recourse_client import Decided, Effect, Money, Read

SUPPLIER, LEGACY, DESK = "sandbox-supplier", "sandbox-legacy", "sandbox-desk"
MAIL, PAYMENTS, COURIER = "sandbox-mail", "sandbox-payments", "sandbox-courier"
# Where the agents send, by provider account: the sandbox's account and kind (docs/sandbox.md).
ENDPOINTS = {
    SUPPLIER: "supplier/orders",
    LEGACY: "legacy/orders",
    DESK: "desk/tickets",
    MAIL: "mail/emails",
    PAYMENTS: "payments/refunds",
    COURIER: "courier/orders",
}


def sandbox_account(provider: str) -> str:
    return ENDPOINTS[provider].partition("/")[0]


@dataclass(frozen=True, kw_only=True)
class Story:
    """One run of one agent, from its goal to its last call."""

    slug: str
    # The line that stands for it in the table.
    title: str
    flow: str
    flow_version: str
    external_id: str
    goal: str
    input: dict[str, Any]
    turns: tuple[Decided, ...]
    # What a read of this call id finds.
    found: dict[str, Any] = field(default_factory=dict)
    budget: Money | None = None


def _eur(minor: int) -> Money:
    return Money("EUR", minor)


def _order(call_id: str, *, sku: str, quantity: int, unit_minor: int, provider: str = SUPPLIER) -> Effect:
    minor = quantity * unit_minor
    payload = {
        "sku": sku,
        "quantity": quantity,
        "unit_price_minor": unit_minor,
        "amount_minor": minor,
        "currency": "EUR",
        "deliver_to": "Warehouse 2, gate C",
    }
    return Effect(call_id, tool="place_order", provider=provider, args=payload, amount=_eur(minor))


def _refund(call_id: str, *, order: str, minor: int, reason: str) -> Effect:
    payload = {"order": order, "amount_minor": minor, "currency": "EUR", "reason": reason}
    return Effect(call_id, tool="create_refund", provider=PAYMENTS, args=payload, amount=_eur(minor))


def _email(call_id: str, *, to: str, subject: str, text: str) -> Effect:
    return Effect(
        call_id, tool="send_email", provider=MAIL, args={"to": to, "subject": subject, "text": text}
    )


def _ticket(call_id: str, *, title: str, text: str, priority: str) -> Effect:
    payload = {"title": title, "text": text, "priority": priority}
    return Effect(call_id, tool="open_ticket", provider=DESK, args=payload)


def _pickup(call_id: str, *, reference: str, pallets: int, minor: int) -> Effect:
    payload = {
        "reference": reference,
        "item": "pallet of radiators",
        "quantity": pallets,
        "pick_up_at": "Warehouse 2, gate C",
        "amount_minor": minor,
        "currency": "EUR",
    }
    return Effect(call_id, tool="book_pickup", provider=COURIER, args=payload, amount=_eur(minor))


REPLY_LOST = Story(
    slug="reply-lost",
    title="Supplier order, reply lost after the commit",
    flow="restock-agent",
    flow_version="6",
    external_id="PO-2026-1187",
    goal="Keep circulation pumps in stock for the heating season, and tell the warehouse what is coming.",
    input={"sku": "PUMP-25-60", "stock": 3, "reorder_below": 10},
    found={"stock": {"sku": "PUMP-25-60", "in_stock": 3, "sold_per_week": 4}},
    turns=(
        Decided(
            "Before ordering I want to know how fast they sell.",
            [Read("stock", tool="read_stock", args={"sku": "PUMP-25-60"})],
        ),
        Decided(
            "Three are left and four go each week. Twelve bring us through three weeks of delivery.",
            [_order("order", sku="PUMP-25-60", quantity=12, unit_minor=8_650)],
        ),
        Decided(
            "The order is placed. The warehouse has to make room at gate C.",
            [
                _email(
                    "tell-warehouse",
                    to="warehouse-2@example.com",
                    subject="12 pumps PUMP-25-60 are coming",
                    text="Purchase order PO-2026-1187 is placed. Please keep gate C free.",
                )
            ],
        ),
    ),
)

TICKET_THEN_EMAIL = Story(
    slug="ticket-then-email",
    title="Ticket then e-mail, killed before the record",
    flow="support-agent",
    flow_version="9",
    external_id="MSG-88213",
    goal="A customer reports a leaking boiler. Open a ticket for it, then tell them its number.",
    input={"message": "MSG-88213", "channel": "web form"},
    turns=(
        Decided(
            "Water and electricity: this is urgent, and needs a technician today.",
            [
                _ticket(
                    "ticket",
                    title="Boiler leaks onto the control board",
                    text="Reported by web form, message MSG-88213. Customer has shut the water off.",
                    priority="urgent",
                )
            ],
        ),
        Decided(
            "The ticket is open. The customer should know that somebody comes.",
            [
                _email(
                    "tell-customer",
                    to="customer-4471@example.com",
                    subject="A technician comes today",
                    text="Please keep the water shut off. We call you before we arrive.",
                )
            ],
        ),
    ),
)

REFUND_UNSENT = Story(
    slug="refund-unsent",
    title="Refund, killed before it was sent",
    flow="refund-agent",
    flow_version="14",
    external_id="RET-5521",
    goal="Refund the returned lamp of order ORD-77102.",
    input={"return": "RET-5521", "order": "ORD-77102"},
    turns=(
        Decided(
            "The lamp arrived undamaged, so the full price goes back.",
            [_refund("refund", order="ORD-77102", minor=8_990, reason="returned, undamaged")],
        ),
    ),
)

COURIER_PICKUP = Story(
    slug="courier",
    title="Courier with neither key nor lookup",
    flow="dispatch-agent",
    flow_version="3",
    external_id="SHP-3307",
    goal="Have three pallets of shipment SHP-3307 picked up tomorrow morning.",
    input={"shipment": "SHP-3307", "pallets": 3},
    turns=(
        Decided(
            "Three pallets, gate C, tomorrow between seven and nine.",
            [_pickup("pickup", reference="SHP-3307", pallets=3, minor=6_400)],
        ),
    ),
)

OTHER_PAYLOAD = Story(
    slug="other-payload",
    title="Lookup finds another amount than intended",
    flow="restock-agent",
    flow_version="6",
    external_id="PO-2026-1191",
    goal="Reorder heat exchangers before the last two are gone.",
    input={"sku": "HX-40", "stock": 2, "reorder_below": 4},
    turns=(
        Decided(
            "Four heat exchangers at €310.00 each.",
            [_order("order", sku="HX-40", quantity=4, unit_minor=31_000)],
        ),
    ),
)

KEY_WINDOW = Story(
    slug="key-window",
    title="Key window closed at the legacy supplier",
    flow="spare-parts-agent",
    flow_version="2",
    external_id="SP-0418",
    goal="Order the gaskets for the service round of next week.",
    input={"round": "2026-W50", "part": "GSK-112"},
    turns=(
        Decided(
            "Forty gaskets; only the old supplier still has them.",
            [_order("order", sku="GSK-112", quantity=40, unit_minor=796, provider=LEGACY)],
        ),
    ),
)

FLOW_VERSION = Story(
    slug="flow-version",
    title="Flow version that nobody runs any more",
    flow="contract-renewal-agent",
    flow_version="3",
    external_id="CT-2207",
    goal="Renew the maintenance contract CT-2207 if its terms are unchanged, and confirm it to the customer.",
    input={"contract": "CT-2207"},
    found={"terms": {"contract": "CT-2207", "changed": False, "ends_on": "2026-12-31"}},
    turns=(
        Decided(
            "First the terms: a changed contract is for a person.",
            [Read("terms", tool="read_terms", args={"contract": "CT-2207"})],
        ),
        Decided(
            "Nothing changed. The customer gets the confirmation.",
            [
                _email(
                    "confirm",
                    to="facilities@example.com",
                    subject="Your maintenance contract CT-2207 goes on",
                    text="The terms are unchanged for 2027.",
                )
            ],
        ),
    ),
)

# What the newer version of the same flow does meanwhile: another contract, and no trouble with it.
FLOW_VERSION_NEWER = Story(
    slug="flow-version-newer",
    title="The newer version of that flow",
    flow=FLOW_VERSION.flow,
    flow_version="4",
    external_id="CT-2231",
    goal="Renew the maintenance contract CT-2231 if its terms are unchanged, and confirm it to the customer.",
    input={"contract": "CT-2231"},
    turns=(
        Decided(
            "Nothing changed. The customer gets the confirmation.",
            [
                _email(
                    "confirm",
                    to="office@example.com",
                    subject="Your maintenance contract CT-2231 goes on",
                    text="The terms are unchanged for 2027.",
                )
            ],
        ),
    ),
)

OVER_BUDGET = Story(
    slug="over-budget",
    title="Run that would exceed its budget",
    flow="workshop-supply-agent",
    flow_version="1",
    external_id="WS-2026-49",
    goal="Fill up the workshop's supplies for week 49, for at most €500.00.",
    input={"week": "2026-W49"},
    budget=_eur(50_000),
    turns=(
        Decided(
            "Solder and sealant first: without them nobody can work.",
            [_order("consumables", sku="WS-KIT-A", quantity=20, unit_minor=1_900)],
        ),
        Decided(
            "Two torque wrenches are due for replacement.",
            [_order("wrenches", sku="TW-60", quantity=2, unit_minor=12_000)],
        ),
    ),
)

NOT_FOUND = Story(
    slug="not-found",
    title="Not found, where that proves nothing",
    flow="restock-agent",
    flow_version="6",
    external_id="PO-2026-1194",
    goal="Reorder expansion vessels for the two jobs in December.",
    input={"sku": "EXP-24", "stock": 0, "reorder_below": 2},
    turns=(
        Decided(
            "Ten vessels, as in the last two winters.",
            [_order("order", sku="EXP-24", quantity=10, unit_minor=5_620)],
        ),
    ),
)

COMPLETED = Story(
    slug="completed",
    title="Refund with everything as it should be",
    flow="refund-agent",
    flow_version="14",
    external_id="RET-5518",
    goal="Settle return RET-5518: refund what came back, note it, and tell the customer.",
    input={"return": "RET-5518", "order": "ORD-76950"},
    found={
        "order": {"order": "ORD-76950", "paid_minor": 12_750, "currency": "EUR", "lines": 3},
        "parcel": {"return": "RET-5518", "received": ["thermostat"], "damaged": False},
    },
    turns=(
        Decided(
            "What was paid, and what came back?",
            [
                Read("order", tool="read_order", args={"order": "ORD-76950"}),
                Read("parcel", tool="read_return", args={"return": "RET-5518"}),
            ],
            parallel=True,
        ),
        Decided(
            "One thermostat of three lines came back undamaged: €42.50.",
            [_refund("refund", order="ORD-76950", minor=4_250, reason="thermostat returned")],
        ),
        Decided(
            "The desk wants a note, the customer a word.",
            [
                _ticket(
                    "note",
                    title="Return RET-5518 settled",
                    text="Thermostat returned undamaged, €42.50 refunded.",
                    priority="low",
                ),
                _email(
                    "tell-customer",
                    to="customer-2094@example.com",
                    subject="Your refund of €42.50 is on its way",
                    text="Thank you for sending the thermostat back.",
                ),
            ],
            parallel=True,
        ),
    ),
)

LATE_REPORT = Story(
    slug="late-report",
    title="Worker frozen past its lease, reports late",
    flow="dispatch-agent",
    flow_version="3",
    external_id="SHP-3311",
    goal="Have the pallet of shipment SHP-3311 picked up tomorrow, and tell the recipient.",
    input={"shipment": "SHP-3311", "pallets": 1},
    turns=(
        Decided(
            "One pallet, gate C, tomorrow.",
            [_pickup("pickup", reference="SHP-3311", pallets=1, minor=2_900)],
        ),
        Decided(
            "It is booked; the recipient should be there.",
            [
                _email(
                    "tell-recipient",
                    to="goods-in@example.com",
                    subject="Shipment SHP-3311 is on its way",
                    text="One pallet, picked up tomorrow between seven and nine.",
                )
            ],
        ),
    ),
)

TWICE = Story(
    slug="twice",
    title="Refund that the provider made twice",
    flow="refund-agent",
    flow_version="14",
    external_id="RET-5534",
    goal="Refund the cancelled installation of order ORD-77319.",
    input={"return": "RET-5534", "order": "ORD-77319"},
    turns=(
        Decided(
            "Cancelled in time, so the deposit goes back in full.",
            [_refund("refund", order="ORD-77319", minor=15_000, reason="installation cancelled")],
        ),
    ),
)

RETRY_GRANTED = Story(
    slug="retry-granted",
    title="Retry granted, waiting for its agent",
    flow="restock-agent",
    flow_version="6",
    external_id="PO-2026-1198",
    goal="Reorder filter cartridges for the maintenance contracts.",
    input={"sku": "FC-20", "stock": 11, "reorder_below": 30},
    turns=(
        Decided(
            "Forty cartridges last until February.",
            [_order("order", sku="FC-20", quantity=40, unit_minor=1_215)],
        ),
    ),
)

STORIES = (
    REPLY_LOST,
    TICKET_THEN_EMAIL,
    REFUND_UNSENT,
    COURIER_PICKUP,
    OTHER_PAYLOAD,
    KEY_WINDOW,
    FLOW_VERSION,
    FLOW_VERSION_NEWER,
    OVER_BUDGET,
    NOT_FOUND,
    COMPLETED,
    LATE_REPORT,
    TWICE,
    RETRY_GRANTED,
)
