# SPDX-License-Identifier: MIT
"""The part of churn_test with 10,000 connections at once."""

import os
import resource
import select
import subprocess
import sys

import common
from churn.growth import Growth, all_given_back, of_daemon, smaps_kb

ENDS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "crowd_ends.py")
CROWD = 10_000
SPARE = 200  # descriptors that are no connections
MOST_BYTES = 16 << 10  # of an idle connection, both ends together
ANSWER_S = 180  # each takes some seconds


class Client:
    def __init__(self, port):
        self.proc = subprocess.Popen([*common.under(), sys.executable, ENDS, "client", str(port)],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                     start_new_session=True)
        self.pid = self.proc.pid
        common.STARTED.append(self)

    def tell(self, word, number):
        self.proc.stdin.write(f"{word} {number}\n")
        self.proc.stdin.flush()
        ready = select.select([self.proc.stdout], [], [], ANSWER_S)[0]
        return self.proc.stdout.readline().strip() if ready else "no answer in time"

    def stop(self):
        common.kill_group(self.proc)
        self.proc.stdin.close()
        self.proc.stdout.close()
        if self in common.STARTED:
            common.STARTED.remove(self)


def on_the_user_path(port):
    listed = common.json_of("ss", "--port", str(port)).get("connections", [])
    return sum(x["path"] == "user" for x in listed)


def part(c, w):
    count = min(CROWD, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - SPARE)
    server = common.Server([*common.under(), sys.executable, ENDS, "server"])
    client = Client(server.port)

    def resident_kb():
        # Each page once: what several map is split among them.
        return sum(smaps_kb(pid, "Pss_Anon:", "Pss_Shmem:")
                   for pid in (server.pid, client.pid, common.status()["pid"]))

    def tell(word, number):
        return c.equal(client.tell(word, number), "ok", f"{word} {number}")

    def crowd():
        """False when it cannot go on."""
        before = resident_kb()
        if not tell("open", count) or not tell("echo", 7):
            return False
        common.wait_until(lambda: on_the_user_path(server.port) == 2 * count, 20, 0.5)
        c.equal(on_the_user_path(server.port), 2 * count, "accelerated ends")
        if not tell("bulk", count if w.long else 200) or not tell("echo", 8):
            return False
        each = (resident_kb() - before) * 1024 // count
        print(f"  {count} connections, {each} bytes each, both ends")
        c.ok(each <= MOST_BYTES, f"{each} bytes for a connection, at most {MOST_BYTES}")
        if not tell("close", 0):
            return False
        # A release that finds the daemon's queue full is dropped: a report makes it look.
        common.wait_until(lambda: not of_daemon()[1]["connections"], 20, 0.5)
        return c.equal(of_daemon()[1]["claims"], 0, "claims after the close")
    if crowd():
        growth = Growth(c, server=server.pid, client=client.pid)
        for _ in range(3 if w.long else 1):
            if crowd():
                growth.check(count)
    client.stop()
    server.stop()
    all_given_back(c)
