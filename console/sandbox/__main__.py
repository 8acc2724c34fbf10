"""`python -m console.sandbox`: the provider without Django."""

from __future__ import annotations

import sys

from console.sandbox.command import main

if __name__ == "__main__":
    sys.exit(main())
