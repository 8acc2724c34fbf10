"""The policy's table in the documentation is the policy's own word."""

from __future__ import annotations

import re

import pytest
from django.core.management import CommandError, call_command

from console import policy_table
from console.policy_table import FOUND, KINDS, REPORTED, facts_of, times_of
from reconciliation.policy import POLICY, assess
from reconciliation.states import Permission
from tests.processes import ROOT


def test_the_page_is_in_line_with_the_policy() -> None:
    text = (ROOT / "docs" / "policy.md").read_text()
    assert text == policy_table.page(), "docs/policy.md is behind: run manage.py policy_table"
    assert POLICY in text
    call_command("policy_table", "--check")


def test_a_page_that_is_behind_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_table, "page", lambda: "other")
    with pytest.raises(CommandError, match="behind the policy"):
        call_command("policy_table", "--check")


def test_every_number_leads_to_a_reason() -> None:
    text = policy_table.page()
    used = {int(one) for one in re.findall(r"\[(\d+)\]", text)}
    listed = {int(one) for one in re.findall(r"^(\d+)\. ", text, flags=re.MULTILINE)}
    assert used == listed


def test_every_situation_of_the_table_is_one_that_the_policy_answers() -> None:
    seen = set()
    for kind in KINDS:
        for shown in (*REPORTED, *FOUND):
            for _, now in times_of(kind.contract):
                judged = assess(facts_of(kind, shown, now), kind.contract, now)
                assert all(one.sentence for one in judged.actions)
                seen |= {one.permission for one in judged.actions}
    assert seen == set(Permission)
