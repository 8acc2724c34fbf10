"""Files that people send: held in memory up to the most that is taken, and nothing of them on disk."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from django.core.files.uploadedfile import InMemoryUploadedFile
from django.core.files.uploadhandler import FileUploadHandler

from reconciliation.attachment_models import ATTACHMENT_BYTES_MAX


class BoundedUpload(FileUploadHandler):
    """Keeps a file's beginning and counts the rest: whoever sends too much gets their form back.

    `size` is the length of what was sent; more than the bound means that the content isn't all of it.
    """

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        self.held = BytesIO()

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        # One byte more than is taken, so that what is too long is seen to be.
        room = ATTACHMENT_BYTES_MAX + 1 - self.held.tell()
        if room > 0:
            self.held.write(raw_data[:room])

    def file_complete(self, file_size: int) -> InMemoryUploadedFile:
        self.held.seek(0)
        return InMemoryUploadedFile(
            file=self.held,
            field_name=self.field_name,
            name=self.file_name,
            content_type=self.content_type,
            size=file_size,
            charset=self.charset,
            content_type_extra=self.content_type_extra,
        )
