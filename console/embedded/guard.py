"""Become another program that can't outlive its parent: `guard.py PARENT_PID UID GID SIGNAL PROGRAM …`.

A script of its own, run by `python -I -S`, rather than code between fork and exec: that way it is safe
from any parent, with threads or without. It imports nothing of the project.

UID and GID are -1 for "as we are". SIGNAL is the number that Linux sends this process when its parent
dies, however it dies; elsewhere there is no such promise and the next start stops what was left.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def become(arguments: list[str]) -> None:
    parent, uid, gid, death_signal = (int(argument) for argument in arguments[:4])
    command = arguments[4:]
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if sys.platform == "linux":
        # After setuid, which clears it. The parent may have died already: then nobody would tell us.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit("The process that started this one is gone.")
    # Shells ignore SIGINT in background jobs and the ignoring is inherited; a server must be stoppable.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.execv(command[0], command)  # noqa: S606 - a list of arguments; no shell is wanted


if __name__ == "__main__":
    become(sys.argv[1:])
