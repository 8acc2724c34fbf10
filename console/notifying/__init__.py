"""Telling people outside the console: what happened (`occurring`), to whom in which message (`packing`), by
which way (`delivering`, `senders`). The rows are in `console.notification_models`.
"""
