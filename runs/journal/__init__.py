"""The journal's one way in: every write of a run, turn, call, operation, attempt, grant or receipt.

`starting`, `turns`, `sending`, `replies` and `ending` own their transactions and are what an endpoint or a
task calls. `settling`, `grants`, `evidence`, `pausing` and `consenting` need a transaction that holds the run
(`runs.locking`) and are what reconciliation composes its own single transactions from.
"""
