"""Who a session belongs to: the person with their teams, in one query."""

from __future__ import annotations

from django.contrib.auth.backends import ModelBackend
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef

from console.models import Person


class Backend(ModelBackend):
    """Django's own, by password; a person of a session comes with `team_slugs`, which `access` reads."""

    def get_user(self, user_id: int) -> Person | None:
        of_person = Person.teams.through.objects.filter(person=OuterRef("pk"))
        teams = ArraySubquery(of_person.order_by("team").values("team"))
        person = Person.objects.annotate(team_slugs=teams).filter(pk=user_id).first()
        return person if person is not None and self.user_can_authenticate(person) else None
