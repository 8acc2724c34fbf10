"""One account for an e-mail address, whatever its capitals: a verified address may link an account to a login."""

from typing import Any

from django.db import migrations, models
from django.db.models import Count
from django.db.models.functions import Lower

# So many addresses are named; whoever has more of them reads the rest from the table.
NAMED_MAX = 20
BEFORE = (
    "Nothing was changed. From this version on an e-mail address belongs to one login, and these share one:"
)
AFTER = (
    "Decide whose each address is, empty it at the others in psql, and migrate again:",
    "  UPDATE console_person SET email = '' WHERE username = '…';",
    "A login without an address signs in as before; it is told nothing by mail.",
)


class AddressesTwice(Exception):
    """Several accounts have one e-mail address, and nobody here can know whose it is."""


def refuse_doubles(apps: Any, _schema_editor: Any) -> None:
    """Say which logins share an address, and what to do, instead of failing at the index."""
    people = apps.get_model("console", "Person").objects
    twice = (
        people.exclude(email="")
        .annotate(address=Lower("email"))
        .values("address")
        .annotate(accounts=Count("id"))
        .filter(accounts__gt=1)
        .order_by("address")
        .values_list("address", flat=True)[: NAMED_MAX + 1]
    )
    shared = list(twice)
    if not shared:
        return
    told = []
    for address in shared[:NAMED_MAX]:
        logins = people.filter(email__iexact=address).order_by("id").values_list("username", flat=True)
        told.append(f"  {address}: {', '.join(logins)}")
    if len(shared) > NAMED_MAX:
        told.append("  … and more")
    raise AddressesTwice("\n".join(["", BEFORE, *told, *AFTER]))


class Migration(migrations.Migration):
    dependencies = [("console", "0010_hold_approvals_to_two_human_beings")]

    operations = [
        migrations.RunPython(refuse_doubles, migrations.RunPython.noop),
        migrations.AddConstraint(
            model_name="person",
            constraint=models.UniqueConstraint(
                Lower("email"), condition=models.Q(("email", ""), _negated=True), name="person_email_once"
            ),
        ),
    ]
