"""The web server's entry: `granian --interface wsgi console.wsgi:application`."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

application = get_wsgi_application()

from console.checks import refuse_unless_safe  # noqa: E402 - needs the loaded application registry

refuse_unless_safe()
