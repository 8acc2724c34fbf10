"""Which adapters were seen making an effect absent, and at which peer."""

from __future__ import annotations

from tests.contract.matrix import Row

CASE = "made absent"
SQUARE = Row(adapter="square", peer="our stub of Square", independent=False, case=CASE)
SANDBOX = Row(adapter="sandbox-payments", peer="sandbox provider", independent=False, case=CASE)
ROWS = (SQUARE, SANDBOX)
