"""The sandbox provider: an outside system in a process of its own, with a store of its own.

It stands in for the supplier, the ticket desk, the mail service and the payment provider in the demo, in
the tests and in the crash lab. It shares nothing with the journal but the network, so that what it counts
(requests received, effects made) is a witness against us and not an echo of our own records.

`docs/sandbox.md` says what it serves; `control.py` is its client, `process.py` starts it.
"""
