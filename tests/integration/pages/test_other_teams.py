"""Every address that names something of a team, as the addresses themselves say: another team’s is a 404."""

from __future__ import annotations

from console.models import Role
from console.pages.urls import urlpatterns
from runs.models import AuditLeaf
from tests import cases
from tests.integration.pages.conftest import Login
from tests.integration.pages.test_bulk import freeze

# What an address names beside a case of its own. Accounts have their own test, in `test_access_matrix`.
NAMES = {"name": "payload", "evidence_id": "ev_00000000000000000000000000"}


def test_whatever_another_team_has_is_not_there_and_no_answer_about_it_is_kept(login: Login) -> None:
    opened = cases.needs_decision()
    job = freeze(login(Role.OPERATOR, name="kim"), "claim", opened).split("/")[2]
    named = {**NAMES, "case_id": opened.case_id, "run_id": opened.run.pk, "job_id": job}
    version = opened.case.version
    stranger = login(Role.OPERATOR, name="stranger", team="other")
    before, asked = AuditLeaf.objects.count(), 0
    for one in urlpatterns:
        wanted = set(one.pattern.converters)
        if not wanted or not wanted <= set(named) or wanted <= set(NAMES):
            continue
        path = "/" + str(one.pattern)
        for name in wanted:
            path = path.replace(f"<str:{name}>", named[name])
        for method in (stranger.get, stranger.post):
            answer = method(path)
            # An address for a form alone leads to the page above it, or another method isn't taken.
            assert answer.status_code in (302, 404, 405), path
            if answer.status_code == 302:
                assert method == stranger.get, path
                answer = stranger.get(answer["Location"])
                assert answer.status_code == 404, path
            if answer.status_code == 404:
                assert answer["Cache-Control"] == "no-store", path
                asked += 1
    assert asked > 30
    assert (AuditLeaf.objects.count(), opened.case.version) == (before, version)
