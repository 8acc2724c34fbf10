"""Attaching files and texts to a case: what is taken, what it changes, and how it comes back out."""

from __future__ import annotations

import hashlib
import struct
import zlib
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from console.models import Role
from console.pages.present.timeline import event_of
from reconciliation import attaching, snoozing
from reconciliation.attaching import media_type_of
from reconciliation.attachment_models import ATTACHMENT_BYTES_MAX, CaseAttachment
from reconciliation.models import Case
from reconciliation.working import Worker
from runs.actors import Actor, ActorKind
from runs.locking import database_now
from runs.models import AuditLeaf, Evidence
from runs.refusals import Refusal
from tests import cases
from tests.concurrency import Connect
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import fields, page_of, post

SAYS = "The courier's mail of this morning: nothing was picked up."


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PNG = (
    b"\x89PNG\r\n\x1a\n"
    + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    + chunk(b"IDAT", zlib.compress(b"\x00\x00"))
    + chunk(b"IEND", b"")
)
PDF = b"%PDF-1.4\n1 0 obj\n<<>>\nendobj\ntrailer\n<<>>\n%%EOF\n"
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + b"\x00" * 9 + b"\xff\xd9"


@pytest.fixture
def kim(login: Login) -> Client:
    return login(Role.OPERATOR, name="kim")


def send(
    client: Client,
    opened: cases.Opened,
    *,
    content: bytes = b"",
    name: str = "mail.txt",
    text: str = "",
    summary: str = SAYS,
    key: str = "form-1",
) -> Any:
    file = {"file": SimpleUploadedFile(name, content)} if content else {}
    return client.post(
        f"/cases/{opened.case_id}/attachments/", {"summary": summary, "text": text, "key": key, **file}
    )


def by_a_person() -> Worker:
    return Worker(actor=Actor(ActorKind.PERSON, "person:9", "operator"), name="Nine")


# --- Kept ---------------------------------------------------------------------------------------------------


def test_a_picture_is_kept_whole_and_comes_back_as_a_file_that_no_browser_opens(kim: Client) -> None:
    opened = cases.needs_decision()
    assert send(kim, opened, content=PNG, name="../../<b>shot.png").status_code == 302
    kept = CaseAttachment.objects.get()
    assert (bytes(kept.content), kept.media_type, kept.length) == (PNG, "image/png", len(PNG))
    assert kept.sha256 == hashlib.sha256(PNG).hexdigest()
    item = page_of(kim, f"/cases/{opened.case_id}/").evidence[0]
    assert (item.title, item.text, item.bodies) == ("Attached by kim", (SAYS,), ())
    assert item.file is not None
    assert (item.file.kind, item.file.bytes_total) == ("PNG picture", len(PNG))
    answer = kim.get(item.file.href)
    assert answer.content == PNG
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{kept.evidence_id}.png"'
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    shown = kim.get(f"/cases/{opened.case_id}/").content.decode()
    assert "<b>shot" not in shown
    event = event_of(AuditLeaf.objects.filter(action="evidence.recorded").latest("id"))
    assert (event["subject"], event["after"]["kind"]) == (kept.evidence_id, "attachment")
    assert event["evidence"] == Evidence.objects.get(pk=kept.evidence_id).digest


def test_a_text_is_shown_inert_and_what_looks_secret_in_it_is_hidden(kim: Client) -> None:
    opened = cases.needs_decision()
    said = "They wrote: <script>alert(1)</script> password=hunter2hunter2"
    send(kim, opened, text=said)
    evidence = Evidence.objects.get(kind="attachment")
    page = kim.get(f"/cases/{opened.case_id}/")
    body = page.context["page"].evidence[0].bodies[0]
    assert body.text == "They wrote: <script>alert(1)</script> password=[redacted]"
    assert "<script>alert" not in page.content.decode()
    file = kim.get(f"/cases/{opened.case_id}/bodies/{evidence.pk}/file/")
    assert file.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert b"hunter2" not in file.content
    # A text has no second address on which nothing is hidden.
    assert kim.get(f"/cases/{opened.case_id}/attachments/{evidence.pk}/").status_code == 404


def test_a_long_text_is_whole_on_its_own_page(kim: Client) -> None:
    opened = cases.needs_decision()
    content = b"line\n" * 20_000 + b"the end"
    send(kim, opened, content=content)
    evidence = Evidence.objects.get(kind="attachment")
    body = page_of(kim, f"/cases/{opened.case_id}/").evidence[0].bodies[0]
    assert body.cut
    assert "The beginning; its own page has all of it." in body.notes
    assert kim.get(f"/cases/{opened.case_id}/bodies/{evidence.pk}/file/").content == content
    whole = kim.get(f"/cases/{opened.case_id}/bodies/{evidence.pk}/").context["page"].view
    assert whole.text.endswith("the end")


def test_it_changes_no_verdict_and_tells_whoever_is_deciding(kim: Client, login: Login) -> None:
    opened = cases.needs_decision()
    before = page_of(kim, f"/cases/{opened.case_id}/")
    form = fields(kim, opened, "abandon", then="end")
    send(login(Role.APPROVER, name="robin"), opened, text="Nothing arrived, says the shop.")
    after = page_of(kim, f"/cases/{opened.case_id}/")
    # Whether the next lookup is due by now is a matter of seconds, and not of what was attached.
    verdicts = [replace(page.verdict, lookup_href="", note=()) for page in (before, after)]
    assert verdicts[0] == verdicts[1]
    assert after.questions == before.questions
    assert [one.standing for one in after.panel.actions] == [one.standing for one in before.panel.actions]
    assert after.panel.evidence_digest != before.panel.evidence_digest
    refused = post(kim, opened, {**form, "step": "record"})
    assert refused.status_code == 409
    assert SAYS in refused.content.decode().replace("&#x27;", "'")
    assert refused.context["page"].panel.draft.reason == form["reason"]


def test_it_wakes_a_case_that_was_put_off(kim: Client) -> None:
    opened = cases.needs_decision()
    kim.post(f"/cases/{opened.case_id}/snooze/", {"length": "30", "reason": "Waiting for the courier."})
    assert snoozing.is_asleep(opened.case, database_now())
    send(kim, opened, text="They answered.")
    assert not snoozing.is_asleep(opened.case, database_now())


def test_a_resolved_case_takes_evidence_and_stays_resolved(kim: Client) -> None:
    opened = cases.open_case()
    cases.looked_up(opened, cases.found(opened))
    version = opened.case.version
    assert send(kim, opened, text="The receipt, as they mailed it.").status_code == 302
    assert (opened.case.state, opened.case.version) == ("resolved", version)


# --- Once ---------------------------------------------------------------------------------------------------


def test_a_form_sent_twice_is_one_attachment_and_one_that_was_changed_is_refused(kim: Client) -> None:
    opened, other = cases.needs_decision(), cases.needs_decision()
    first = send(kim, opened, text="Nothing arrived.")
    again = send(kim, opened, text="Nothing arrived.")
    assert first.headers["Location"] == again.headers["Location"]
    assert "attached already" in kim.get(f"/cases/{opened.case_id}/").content.decode()
    changed = send(kim, opened, text="Something arrived.")
    assert changed.status_code == 409
    assert changed.context["page"].attach.text == "Something arrived."
    assert changed.context["page"].attach.key != "form-1"
    assert send(kim, other, text="Nothing arrived.").status_code == 409
    assert CaseAttachment.objects.count() == 1
    assert AuditLeaf.objects.filter(action="evidence.recorded", actor_kind="person").count() == 1


def test_the_same_words_and_bytes_by_the_same_person_are_one_piece_of_evidence(kim: Client) -> None:
    opened = cases.needs_decision()
    send(kim, opened, content=PDF, key="form-1")
    version = opened.case.version
    send(kim, opened, content=PDF, key="form-2")
    assert (Evidence.objects.filter(kind="attachment").count(), opened.case.version) == (1, version)


# --- Refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", [Role.AUDITOR, Role.ADMINISTRATOR, Role.VIEWER])
def test_other_roles_attach_nothing(login: Login, role: Role) -> None:
    opened = cases.needs_decision()
    client = login(role)
    assert page_of(client, f"/cases/{opened.case_id}/").attach is None
    answer = send(client, opened, text="Nothing arrived.")
    assert answer.status_code == 403
    assert "evidence is attached by operators and approvers" in answer.content.decode()
    assert not CaseAttachment.objects.exists()


def test_another_teams_case_takes_and_gives_nothing(kim: Client, login: Login) -> None:
    opened = cases.needs_decision()
    send(kim, opened, content=PNG)
    href = page_of(kim, f"/cases/{opened.case_id}/").evidence[0].file.href
    outsider = login(Role.OPERATOR, name="out", team="other")
    assert outsider.get(href).status_code == 404
    assert send(outsider, opened, text="Nothing arrived.").status_code == 404
    assert (
        kim.get(f"/cases/{cases.needs_decision().case_id}{href[href.index('/attach') :]}").status_code == 404
    )
    asked = kim.get(f"/cases/{opened.case_id}/attachments/")
    assert (asked.status_code, asked.headers["Location"]) == (302, f"/cases/{opened.case_id}/")
    assert kim.post(href).status_code == 405


@pytest.mark.parametrize(
    ("content", "status", "sentence"),
    [
        (b"MZ\x90\x00\x03", 415, "neither text in UTF-8"),
        (b"PK\x03\x04" + b"\x00" * 20, 415, "neither text in UTF-8"),
        (b"GIF89a\x01\x00\x01\x00", 415, "neither text in UTF-8"),
        # What it is called, and how it begins, makes it none of the kinds that are taken.
        (b"\x89PNG\r\n\x1a\nnothing more\x00", 415, "neither text in UTF-8"),
        ("größer".encode("utf-16"), 415, "neither text in UTF-8"),
        (b"x" * (ATTACHMENT_BYTES_MAX + 1), 413, "at most 2 MiB are taken"),
    ],
    ids=["program", "archive", "gif", "half a picture", "utf-16", "too large"],
)
def test_what_isnt_taken_is_refused_by_its_content_and_the_words_are_kept(
    kim: Client, content: bytes, status: int, sentence: str
) -> None:
    opened = cases.needs_decision()
    answer = send(kim, opened, content=content, name="picture.png")
    assert answer.status_code == status
    form = answer.context["page"].attach
    assert sentence in form.errors[0].sentence
    assert (form.summary, form.key, form.file_again) == (SAYS, "form-1", True)
    assert not CaseAttachment.objects.exists()


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"text": "Nothing arrived.", "summary": " "}, "attach-summary"),
        ({"text": "Nothing arrived.", "summary": "x" * 501}, "attach-summary"),
        ({"text": "  "}, "attach-file"),
        ({"text": "Nothing arrived.", "content": PDF}, "attach-file"),
    ],
    ids=["no words", "too many words", "nothing", "both"],
)
def test_a_form_that_lacks_something_says_where(kim: Client, form: dict[str, Any], field: str) -> None:
    opened = cases.needs_decision()
    answer = send(kim, opened, **form)
    assert answer.status_code == 422
    assert answer.context["page"].attach.error_fields == {field}
    assert answer.context["page"].attach.text == form["text"]
    assert not CaseAttachment.objects.exists()


def test_a_machine_attaches_no_files_and_a_full_case_takes_none(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = cases.needs_decision()
    common = {"case_id": opened.case_id, "team": None, "summary": SAYS, "name": ""}
    token = Worker(actor=Actor(ActorKind.TOKEN, "tok_1"))
    with pytest.raises(Refusal) as refused:
        attaching.attach_file(**common, worker=token, content=PDF, key="k1")
    assert refused.value.word == "forbidden"
    monkeypatch.setattr(attaching, "ATTACHMENTS_MAX", 1)
    attaching.attach_file(**common, worker=by_a_person(), content=PDF, key="k1")
    with pytest.raises(Refusal) as refused:
        attaching.attach_file(**common, worker=by_a_person(), content=JPEG, key="k2")
    assert refused.value.word == "too_many_attachments"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (PNG, "image/png"),
        (JPEG + b"\x00\x00", "image/jpeg"),
        (PDF + b"\n\n", "application/pdf"),
        (b'{"a": 18446744073709551616}', "application/json"),
        (b"{not json", "text/plain"),
        (b"[" * 100_000, "text/plain"),
        (b"<html><script>x</script>", "text/plain"),
        ("größer ✓\r\n".encode(), "text/plain"),
        (b"a\x00b", None),
        (b"\x1b[31mred", None),
        (PNG + b"<script>", None),
        (b"%PDF-1.4 and no end \xff", None),
    ],
)
def test_what_it_is_is_told_by_the_content(content: bytes, kind: str | None) -> None:
    assert media_type_of(content) == kind


@pytest.mark.django_db(transaction=True)
def test_what_was_attached_is_refused_to_change_to_the_owner_too(owner_url: str, connect: Connect) -> None:
    opened = cases.needs_decision()
    attaching.attach_file(
        case_id=opened.case_id,
        team=None,
        worker=by_a_person(),
        summary=SAYS,
        content=PDF,
        name="",
        key="k1",
    )
    for statement in (
        "UPDATE reconciliation_caseattachment SET name = ''",
        "DELETE FROM reconciliation_caseattachment",
    ):
        with (
            psycopg.connect(owner_url, autocommit=True) as owner,
            pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"),
        ):
            owner.execute(statement)
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied"):
            connect().execute(statement)
    assert Case.objects.get(pk=opened.case_id).attachments.count() == 1
