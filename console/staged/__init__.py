"""Agents that say where they are and are killed there: real processes of the Python client.

`inside` is the agent's half, `process` that of whoever starts it, waits for its window and sends SIGKILL.
"""
