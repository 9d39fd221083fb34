# SPDX-License-Identifier: MIT
"""The client of tests/helpers/echo.c, as the tests see it."""

import json
import os
import select
import subprocess
import tempfile
import time

from common import STARTED, kill_group, program, under


class Client:
    """Runs in the background; its lines are read with a time limit."""

    def __init__(self, port, *options, path="user", prefix=None, stats=False):
        self.stats_file = tempfile.NamedTemporaryFile("r", prefix="stats-") if stats else None
        env = dict(os.environ)
        if stats:
            env["TUTTI_STATS"] = self.stats_file.name
        argv = [*(prefix or under(path)), program("helpers/echo"), "client", str(port),
                *map(str, options)]
        self.proc = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env,
                                     start_new_session=True)
        STARTED.append(self)
        self.pid = self.proc.pid
        self.buffer = b""

    def line(self, timeout_s):
        """The next line; "" at the end of the output; None when there is none in time."""
        end = time.monotonic() + timeout_s
        fd = self.proc.stdout.fileno()
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while b"\n" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                return None
            piece = os.read(fd, 4096)
            if not piece:
                return ""
            self.buffer += piece
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode()

    def ready(self, timeout_s=10):
        return self.line(timeout_s) == "ready"

    def result(self, timeout_s):
        """The last line, whether "ready" was read before or not."""
        line = self.line(timeout_s)
        return self.line(timeout_s) if line == "ready" else line

    def go(self):
        """Lets a client with --hold go on."""
        self.proc.stdin.write(b"\n")
        self.proc.stdin.flush()

    def kill(self):
        kill_group(self.proc)
        self.proc.stdin.close()
        self.proc.stdout.close()
        if self.stats_file:
            self.stats_file.close()
        if self in STARTED:
            STARTED.remove(self)

    stop = kill

    def stats(self):
        """The counters of a client that has ended by itself."""
        self.proc.wait()
        self.stats_file.seek(0)
        lines = [json.loads(line) for line in self.stats_file if line.strip()]
        mine = [line for line in lines if line.get("pid") == self.pid]
        return mine[0] if mine else {}
