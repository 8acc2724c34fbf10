"""What answers a form with a page, sent with hostile words in every field, for `test_hostile_text`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from django.test import Client
from django.urls import URLPattern, reverse

from console.models import Person, SavedView
from console.pages.urls import urlpatterns
from tests.browser.hostile_world import BODIES, LINES, MEMBERS, NAMES, TEXTS, HostileWorld, at
from tests.corpus.hostile_text import VECTORS
from tests.integration.pages.forms import fields
from tests.integration.pages.test_declaring import FIELDS_TYPED

# They end the session, answer without a page, or keep a setting and go back to where one was.
WITHOUT_A_PAGE = {"logout", "case_leaving", "theme"}
# Whatever a form calls its fields, each of these is hostile.
NAMES_OF_FIELDS = (
    *("reason", "text", "name", "note", "operation", "given_body", "given_reference", "payload", "slug"),
    *("label", "title", "comment", "action", "answer", "until", "length", "reason_code", "deed", "query"),
    *("choice", "seen", "assignee", "kind", "number", "as", "summary", "username", "email", "first_name"),
    *("reference", "key", "tool", "backup_taken_at", "first_sent_at", "theme", "reach", "team", "address"),
)


@dataclass(frozen=True, kw_only=True)
class Form:
    """One POST: its view's name, where it goes, what is in it, and what its page is recognised by, if any."""

    name: str
    address: str
    fields: dict[str, str]
    shows: str = ""


def generic(world: HostileWorld) -> list[Form]:
    """Every address of the console that takes a POST, with hostile words under every name of a field."""
    view = SavedView.objects.filter(owner__username="operator").first()
    ids = {
        "case_id": world.opened[0].case_id,
        "run_id": world.opened[0].run.pk,
        "slug": world.declared,
        "view_id": view.pk if view else "x",
        "name": "payload",
        "job_id": world.bulk.strip("/").split("/")[-1],
    }
    text = f"typed0 {TEXTS[0]}"
    return [
        Form(
            name=str(one.name),
            address=reverse(
                str(one.name), kwargs={name: ids.get(name, "1") for name in one.pattern.converters}
            ),
            fields=dict.fromkeys(NAMES_OF_FIELDS, text),
        )
        for one in urlpatterns
        if isinstance(one, URLPattern) and one.name not in WITHOUT_A_PAGE and _takes_post(one)
    ]


def _takes_post(one: URLPattern) -> bool:
    methods = getattr(one.callback, "page_methods", None)
    return "POST" in methods if methods is not None else one.name == "login"


def of_an_operator(world: HostileWorld) -> list[Form]:
    """The pages that only a form opens, each reached on purpose."""
    client = Client()
    client.force_login(Person.objects.get(username="operator"))
    made: list[Form] = []
    for row, opened in enumerate(world.opened[:4]):
        decision = f"/cases/{opened.case_id}/decision/"
        typed = {"reason": f"reviewed{row} {TEXTS[row]}", "note": LINES[row]}
        review = fields(client, opened, "abandon", then="end", **typed)
        stale = {**review, "seen_version": "0"}
        form = {**review, "action": "confirm", "given_body": BODIES[row], "given_reference": LINES[row]}
        made += [
            Form(name="review", address=decision, fields=review, shows=f"reviewed{row} "),
            Form(name="stale", address=decision, fields=stale, shows=f"reviewed{row} "),
            Form(name="locked", address=decision, fields={**review, "action": "retry"}),
            Form(name="typed", address=decision, fields=form, shows=f"reviewed{row} "),
            Form(name="kept", address=decision, fields={**form, "step": "edit"}, shows=f"reviewed{row} "),
            Form(name="trial", address="/providers/sandbox-payments/lookup-test/", fields=_about(world, row)),
        ]
    alike = {"deed": "decide", "case": [world.opened[row].case_id for row in (0, 2, 4)]}
    listed = str(client.post("/bulk/new/", alike)["Location"])
    preview = {"step": "review", "choice": "abandon-end", "reason": f"foreseen0 {TEXTS[0]}"}
    revealed = {"reason": "The customer asked what was sent."}
    body = f"/cases/{world.opened[1].case_id}/bodies/payload/hidden/"
    return [
        *made,
        Form(name="preview of a list", address=f"{listed}start/", fields=preview, shows="foreseen0 "),
        Form(name="hidden parts", address=body, fields=revealed),
    ]


def _about(world: HostileWorld, row: int) -> dict[str, str]:
    return {"operation": world.opened[row].operation.pk}


def of_an_administrator(world: HostileWorld) -> list[Form]:
    """A declaration looked at before it is saved, by fields and as text, with a sample of an answer."""
    usual = {**FIELDS_TYPED, "counts": "fields", "seen_number": "0", "base_url": "http://127.0.0.1:9/v1"}
    sample = {"sample_status": "200", "sample_payload": "{}", "sample_body": json.dumps(MEMBERS)}
    sources = {**usual, "title": f"title0 {NAMES[0]}", "key_source": LINES[0], "auth": "none", "variable": ""}
    return [
        Form(
            name="preview",
            address="/providers/new/",
            fields={
                **sources,
                "act": act,
                "slug": f"orders{row}",
                "title": at(NAMES, row, "title"),
                **sample,
            },
            shows=f"title{row} ",
        )
        for row in range(3)
        for act in ("preview", "sample", "save")
    ] + [
        Form(
            name="tightening",
            address="/providers/sandbox-payments/tightening/",
            fields={"dedup_window_ms": LINES[1], "visibility_lag_ms": LINES[2], "reason": TEXTS[0]},
        ),
        Form(
            name="environment",
            address="/environment/answer/",
            fields={"answer": NAMES[0], "backup_taken_at": NAMES[1][:40], "reason": f"said0 {TEXTS[1]}"},
            shows="said0 ",
        ),
    ]


@contextmanager
def hostile_provider() -> Iterator[str]:
    """A provider that answers every question with the whole corpus; gives its base URL."""
    record = {"id": "answered0 " + LINES[0], "memo": BODIES[0], **MEMBERS}
    body = json.dumps({"data": [record], "items": [record], **MEMBERS}).encode()
    head = next(one for one in VECTORS if "<img" in one and one.isascii() and one.isprintable())

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200, "answered0 " + head)
            self.send_header("Content-Type", "application/json")
            self.send_header("X-Answered", f"answered1 {head}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
