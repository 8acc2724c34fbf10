"""What happened, one leaf for each event, never changed."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from runs.models.columns import ID_LENGTH, NAME_LENGTH


class AuditLeaf(models.Model):
    """One event, in the transaction that made it. INSERT and SELECT only, for everybody.

    `body` is canonical JSON: {"at": database time, "event": {…}}. Leaves hold digests, not bodies.
    The columns beside it repeat parts of the body for searching and prove nothing.
    """

    id = models.BigAutoField(primary_key=True)
    body = models.BinaryField()
    at = models.DateTimeField()
    action = models.CharField(max_length=40)
    team_slug = models.CharField(max_length=NAME_LENGTH, blank=True)
    run_ref = models.CharField(max_length=ID_LENGTH, blank=True)
    operation_ref = models.CharField(max_length=ID_LENGTH, blank=True)
    actor_kind = models.CharField(max_length=20)
    actor = models.CharField(max_length=NAME_LENGTH)

    class Meta:
        indexes = [
            models.Index(fields=["operation_ref", "id"], name="leaf_of_operation"),
            models.Index(fields=["run_ref", "id"], name="leaf_of_run"),
            models.Index(fields=["team_slug", "-id"], name="leaf_of_team"),
            # The history of what people did: rare among what workers do, and asked for most. Workers' leaves
            # aren't in it, so an effect pays nothing for it.
            models.Index(
                fields=["team_slug", "-id"], name="leaf_by_people", condition=Q(actor_kind="person")
            ),
        ]
