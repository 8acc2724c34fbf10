"""Project and delivery: settings, pages, HTTP API, commands."""

from console.celery import app as celery_app

__all__ = ["celery_app"]
