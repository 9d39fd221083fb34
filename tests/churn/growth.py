# SPDX-License-Identifier: MIT
"""What processes and the daemon hold, before and after thousands of connections.

A bound is what a few links that wait to be given back, or a few processes or
threads that end at this moment, may cost, or a table that has doubled. A leak of one
descriptor, mapping or entry a connection is beyond it after some hundred
connections; of 512 bytes of memory after 8,000.

Rings are another matter: a link keeps two chunks of 4 MiB, of which pages are
touched as bytes come by, and some links are kept. So they are counted, and
their memory is bound by their number.
"""

import collections
import os
import re

import common
from workload import Broken

FEW = 8
# A thread that sleeps has a doorbell of its own: as many as there were threads at once.
BOUNDS = {"anon_kb": 2048, "tables_kb": 3072, "pss_kb": 16 << 10, "descriptors": 24,
          "bells": 24,
          # Of who is connecting at that moment, beside thousands that have been.
          "claims": 48, "connections": 48, "links": 16, "control_connections": 16}
RING_KB = 8 << 10  # of a link
SETTLE_S = 20.0


def smaps_kb(pid, *keys):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith(keys))


def kinds(found):
    """How many descriptors of each kind."""
    return collections.Counter(re.sub(r":?\[?\d+\]?$", "", what) for what in found.values())


def of_process(pid):
    found = common.descriptors(pid)
    return {"descriptors": len(found), "memfds": sum("memfd:" in what for what in found.values()),
            "segments": common.segments(pid), "anon_kb": common.proc_status(pid, "RssAnon"),
            "pss_kb": smaps_kb(pid, "Pss:"), "kinds": kinds(found)}


def allocated_kb(pid, name):
    """Memory of the segments of a name that a process has open, each once."""
    blocks = {}
    for fd, what in common.descriptors(pid).items():
        if f"memfd:{name}" in what:
            try:
                st = os.stat(f"/proc/{pid}/fd/{fd}")
            except OSError:
                continue
            blocks[st.st_ino] = st.st_blocks
    return sum(blocks.values()) // 2


def of_daemon():
    listed = common.json_of("ss")  # makes the daemon look for the dead
    now = common.status()
    held = {key: now.get(key, 0) for key in
            ("sides", "links", "bells", "claims", "control_connections")}
    held["connections"] = len(listed.get("connections", []))
    return now.get("pid"), held


class Growth:
    """Snapshots of the daemon and of processes, given by name."""

    def __init__(self, c, sides=0, **processes):
        """sides: how many may come back to a daemon, each when it needs one."""
        self.c, self.sides, self.processes = c, sides, processes
        self.before = self.now = self.take()

    def take(self):
        pid, held = of_daemon()
        if not self.c.ok(pid, "the daemon answers"):
            return {}
        held["tables_kb"] = allocated_kb(pid, "tutti-side")
        held["rings_kb"] = allocated_kb(pid, "tutti-link")
        found = {"tables": held, "daemon": of_process(pid)}
        for name, one in self.processes.items():
            try:
                found[name] = of_process(one)
            except OSError as e:
                raise Broken(f"{name} has ended: {e}") from e
        return found

    def excess(self):
        """What is beyond its bound now."""
        self.now = self.take()
        over = []
        for name, before in self.before.items():
            after = self.now.get(name, {})
            for key, value in before.items():
                bound = self.sides if key == "sides" else BOUNDS.get(key, FEW)
                if key == "rings_kb":
                    bound = RING_KB * (after.get("links", 0) or 1)
                if key != "kinds" and after.get(key, 1 << 60) > value + bound:
                    over.append(f"{name}: {key} {value}, at the end {after.get(key)}")
                    if key == "descriptors":
                        over.append(f"{dict(after['kinds'] - before['kinds'])} more")
        return over

    def check(self, made, least=0):
        """After made connections, of which at least least are needed to see a leak."""
        self.c.ok(made >= least, f"{made} connections were made, not {least}")
        common.wait_until(lambda: not self.excess(), SETTLE_S, 0.3)
        over = self.excess()
        self.c.ok(not over, f"growth over {made} connections: " + "; ".join(over))
        print(f"  {made} connections")
        for name, before in self.before.items():
            changed = [f"{key} {value} -> {self.now[name][key]}" for key, value in before.items()
                       if key != "kinds" and self.now.get(name, {}).get(key) != value]
            print(f"  {name}: {', '.join(changed) or 'as before'}")


def all_given_back(c):
    """When all programs have ended the daemon holds nothing."""
    def left():
        held = of_daemon()[1]
        held.pop("control_connections")
        return {key: value for key, value in held.items() if value}
    common.wait_until(lambda: not left(), SETTLE_S, 0.3)
    c.equal(left(), {}, "what the daemon holds at the end")
