#!/usr/bin/env python
"""Django's command line for Recourse."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    try:
        from django.core.management import execute_from_command_line
    except ModuleNotFoundError as error:
        # A traceback would be the first that a newcomer sees.
        sys.exit(
            f"{sys.executable} has no {error.name}. `make .venv` installs what is needed; "
            "then it is `.venv/bin/python manage.py …`."
        )

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
