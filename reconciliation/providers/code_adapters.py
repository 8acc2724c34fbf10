"""The adapters that are code, by the name that an account's file gives."""

from __future__ import annotations

from reconciliation.providers.code_accounts import CodeAdapter, OpenAdapter, read_code_account
from reconciliation.providers.ec2_run_instances import EC2_RUN_INSTANCES
from reconciliation.providers.smtp_account import SMTP
from reconciliation.providers.sqs_fifo import SQS_FIFO
from reconciliation.providers.step_functions import STEP_FUNCTIONS

CODE_ADAPTERS: dict[str, CodeAdapter] = {
    one.name: one for one in (SMTP, SQS_FIFO, STEP_FUNCTIONS, EC2_RUN_INSTANCES)
}

__all__ = ["CODE_ADAPTERS", "OpenAdapter", "read_code_account"]
