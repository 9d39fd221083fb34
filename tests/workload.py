# SPDX-License-Identifier: MIT
"""What the tests of tests/programs share: a workload, run natively and over Tutti.

A script defines work(w), which starts servers (w.start), runs clients (w.run)
and says what it saw: w.note(name, value) for what must be the same in both
runs, w.equal(name, got, want) for what is known beforehand. judge(work, ...)
runs it twice, compares, and asks the daemon how much was accelerated.

The lines that a script prints, and that run_programs reads:

    FAIL: ...                      wrong in itself, or it ended early
    DIFFERS: ...                   over Tutti otherwise than natively
    accelerated: 9 of 10 connections, 99.9 % of 123456 bytes
    reasons: 1 peer-not-tutti
    N passed, N failed
"""

import argparse
import hashlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import common  # noqa: E402  pylint: disable=wrong-import-position

LIMIT_S = 100  # of one run; a script that needs more says so
NOBODY = "nobody"
NOTHING = "(nothing)"

if "--long" not in sys.argv or "--path" in sys.argv:
    common.CHECK_OUT = None  # the table tells of whole runs


class Broken(Exception):
    """The workload cannot go on."""


def free_port():
    """Below those that the kernel gives to clients, which might take it before we listen."""
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


def listening(port):
    """Somebody listens. The kernel is asked, since a connection would be counted."""
    for path in "/proc/net/tcp", "/proc/net/tcp6":
        try:
            with open(path, encoding="ascii") as f:
                for line in list(f)[1:]:
                    words = line.split()
                    if words[3] == "0A" and int(words[1].rpartition(":")[2], 16) == port:
                        return True
        except OSError:
            pass
    return False


def sha256(data):
    if isinstance(data, str):
        data = data.encode()
    return hashlib.sha256(data).hexdigest()


def sha256_file(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def tail(text, lines=15):
    return "".join(f"\n    | {line}" for line in text.splitlines()[-lines:])


class Service:
    """A process that runs until it is told to end; what it prints goes into a file."""

    def __init__(self, world, argv, env, stop_by):
        self.name, self.stop_by, self.status = os.path.basename(argv[0]), stop_by, None
        self.log_path = os.path.join(world.dir, f"{self.name}.{len(world.services)}.log")
        with open(self.log_path, "wb") as log:
            self.proc = subprocess.Popen([*world.under, *argv], stdin=subprocess.DEVNULL,
                                         stdout=log, stderr=log, cwd=world.dir, env=env,
                                         start_new_session=True)
        self.pid = self.proc.pid

    def alive(self):
        return self.proc.poll() is None

    def log(self):
        with open(self.log_path, errors="replace", encoding="utf-8") as f:
            return f.read()

    def stop(self, timeout_s=10):
        """Returns the exit status, or 'killed' when it did not heed the signal."""
        if self.status is None:
            if self.alive():
                self.proc.send_signal(self.stop_by)
            try:
                self.status = self.proc.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.status = "killed"
            try:
                os.killpg(self.pid, signal.SIGKILL)  # what it left behind
            except ProcessLookupError:
                pass
            self.proc.wait()
        return self.status


class World:
    """One run of the workload: path is 'native', 'user', or 'mixed': servers only."""

    def __init__(self, path, options):
        self.path, self.long, self.verbose = path, options.long, options.verbose
        self.under = common.under("native" if path == "native" else "user")
        self.notes, self.faults, self.good, self.broken = {}, [], 0, False
        self.services = []
        self.random = random.Random(1)
        self.dir = tempfile.mkdtemp(prefix="tutti-program-")
        os.chmod(self.dir, 0o755)

    def env(self, more):
        env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        env.update({"LC_ALL": "C.UTF-8", "HOME": self.dir, **(more or {})})
        return env

    # What a script calls.

    def file(self, name, data, mode=0o644):
        """Writes a file of this run's folder; returns its path."""
        path = os.path.join(self.dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data.encode() if isinstance(data, str) else data)
        os.chmod(path, mode)
        return path

    def bytes(self, count):
        """The same in every run."""
        return self.random.randbytes(count)

    def start(self, argv, port=None, ready=None, env=None, stop_by=signal.SIGTERM,
              timeout_s=20):
        """A server; returns when it listens on the port, and when ready() is true."""
        service = Service(self, argv, self.env(env), stop_by)
        self.services.append(service)

        def up():
            return not service.alive() or ((port is None or listening(port)) and
                                           (ready is None or ready()))
        if not common.wait_until(up, timeout_s) or not service.alive():
            raise Broken(f"{service.name} does not come up:{tail(service.log())}")
        return service

    def run(self, argv, timeout_s=30, env=None, status=0, stdin=None, data=None):
        """A client, to its end; returns what it printed. A status of None: any is good."""
        if stdin is None and data is not None:
            stdin = tempfile.TemporaryFile()
            stdin.write(data.encode() if isinstance(data, str) else data)
            stdin.seek(0)
        begin = time.monotonic()
        done = common.run([*([] if self.path == "mixed" else self.under), *argv], timeout_s,
                          env=self.env(env), cwd=self.dir, stdin=stdin or subprocess.DEVNULL)
        if self.verbose:
            print(f"  {self.path} {time.monotonic() - begin:6.2f} s  {' '.join(argv)[:120]}",
                  flush=True)
        if status is not None and done.returncode != status:
            raise Broken(f"{' '.join(argv)[:200]}: exit status {done.returncode}"
                         f"{tail(done.stdout)}{tail(done.stderr)}")
        return done

    def note(self, name, value):
        """Must be the same in both runs."""
        while name in self.notes:
            name += "'"
        self.notes[name] = value

    def ok(self, condition, what):
        if condition:
            self.good += 1
        else:
            self.faults.append(str(what))
        return bool(condition)

    def equal(self, name, got, want):
        return self.ok(got == want, f"{name}: {str(got)[:300]!r}, not {str(want)[:300]!r}")

    def together(self, *calls):
        """Calls functions in threads of their own; the first fault is raised."""
        faults = []

        def call(function):
            try:
                function()
            except BaseException as e:  # pylint: disable=broad-except
                faults.append(e)
        threads = [threading.Thread(target=call, args=(c,)) for c in calls]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if faults:
            raise faults[0]

    def stop(self):
        """Ends the servers, the last first, and notes how they ended."""
        for service in reversed(self.services):
            if service.status is None:
                self.note(f"exit status of {service.name}", service.stop())

    def close(self):
        for service in self.services:
            service.stop_by = signal.SIGKILL
            service.stop()
        shutil.rmtree(self.dir, ignore_errors=True)


def on_alarm(_sig, _frame):
    raise Broken("out of time")


def one_run(work, path, options, limit_s):
    """Returns the closed world; what went wrong is among its faults."""
    w = World(path, options)
    signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(limit_s)
    try:
        work(w)
        w.stop()
    except Exception as e:  # pylint: disable=broad-except
        text = str(e) if isinstance(e, Broken) else traceback.format_exc()
        for service in w.services:
            text += f"\n  {service.name}:{tail(service.log())}" if service.log() else ""
        w.faults.append(text)
        w.broken = True
    finally:
        signal.alarm(0)
        if options.keep:
            print(f"{path}: {w.dir} is kept")
            shutil.copytree(w.dir, w.dir + ".kept", ignore_dangling_symlinks=True)
        w.close()
    return w


def differing(native, other):
    """Names of notes that are not the same; and how many are."""
    names = list(native.notes) + [n for n in other.notes if n not in native.notes]
    if native.broken or other.broken:  # which is a fault that was told: what is left is not
        names = [n for n in native.notes if n in other.notes]
    differs = [n for n in names if native.notes.get(n, NOTHING) != other.notes.get(n, NOTHING)]
    return differs, len(names) - len(differs)


def compare(c, runs, again):
    """
    Holds the runs against the native one. What differs may differ from one native run to
    the next too: two more of them tell. Returns the names of what differs, and of the latter.
    """
    native, differs = runs["native"], {}
    for path, w in runs.items():
        if path != "native":
            differs[path], same = differing(native, w)
            c.good += same
    unstable = set()
    if any(differs.values()):
        for w in (again(), again()):
            unstable.update(differing(native, w)[0])
    for path, names in differs.items():
        for name in names:
            word = "unstable" if name in unstable else "DIFFERS"
            c.bad += name not in unstable
            x, y = native.notes.get(name, NOTHING), runs[path].notes.get(name, NOTHING)
            print(f"{word}: {path}: {name}: {str(y)[:300]!r}, natively {str(x)[:300]!r}",
                  flush=True)
    everything = {name for names in differs.values() for name in names}
    return sorted(everything - unstable), sorted(everything & unstable)


def prove(c, totals, least, reason):
    """That it was accelerated; or why it was not, when that is what is expected."""
    cells, reasons = common.share(totals), totals.get("fallback_reasons", {})
    n, good, ring, tcp = cells.values()
    part = 100 * ring / (ring + tcp) if ring + tcp else 0
    print(f"accelerated: {good} of {n} connections, {part:.1f} % of {ring + tcp} bytes")
    if reasons:
        print("reasons: " + ", ".join(f"{k} {name}" for name, k in sorted(reasons.items())))
    if least:
        c.ok(n and good >= least * n, f"accelerated: {good} of {n} connections: {reasons}")
        c.ok(ring > tcp, f"the rings carried {ring} bytes, kernel TCP {tcp}")
    elif least == 0:
        c.equal(good, 0, "connections accelerated, where none can be")
    if reason:
        c.ok(reasons.get(reason), f"the reason {reason} is told: {reasons}")
    return cells


def row():
    """This script's in the table of docs/compatibility.md."""
    return "program " + os.path.basename(sys.argv[0])


def skip(reason):
    common.record(row(), skipped=reason)
    common.skip(reason)


def unprivileged():
    """Starts the script again as nobody, for programs that refuse root."""
    if os.geteuid() == 0:
        who = pwd.getpwnam(NOBODY)
        path = common.record(row(), unfinished="it broke off")
        if path:
            os.chown(path, who.pw_uid, who.pw_gid)
        os.setgroups([])
        os.setgid(who.pw_gid)
        os.setuid(who.pw_uid)
        os.environ["HOME"] = "/nonexistent"
        if not os.access(common.TUTTI, os.X_OK):
            skip(f"{NOBODY} cannot reach {common.TUTTI}")


def judge(work, *programs, share=0.9, reason=None, limit_s=LIMIT_S):
    """
    Runs the script; returns its exit status. programs must be installed. share:
    the least part of the connections that must be accelerated; 0: none may be; None:
    some may. reason: of a fallback that must have been told.
    """
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--long", action="store_true", help="more of it")
    parser.add_argument("--path", choices=["native", "user", "mixed"], action="append",
                        help="these runs only; mixed: servers over Tutti, clients natively")
    parser.add_argument("--keep", action="store_true", help="a copy of the runs' folders")
    parser.add_argument("-v", "--verbose", action="store_true", help="each command and its time")
    options = parser.parse_args()
    common.record(row(), unfinished="it broke off")
    if not os.path.exists(common.TUTTI):
        skip(f"there is no {common.TUTTI}")
    for name in programs:
        if not shutil.which(name):
            skip(f"{name} is not installed")
    c, cells, runs, differs = common.Checks(), {}, {}, ([], [])
    paths = options.path or (["native", "user"] + ["mixed"] * options.long)
    limit_s *= 4 if options.long else 1

    def native():
        with common.Home():
            return one_run(work, "native", options, limit_s)

    for path in paths:
        begin = time.monotonic()
        with common.Home():
            w = runs[path] = one_run(work, path, options, limit_s)
            if path == "user":
                totals = common.json_of("ss").get("totals", {})
                c.ok(totals, "the daemon is alive")
        print(f"{path}: {time.monotonic() - begin:.1f} s")
        c.good += w.good
        for fault in w.faults:
            c.ok(False, f"{path}: {fault}")
        if path == "user":
            cells = prove(c, totals, share, reason)
    if "native" in runs:
        differs = compare(c, runs, native)
    common.record(row(), passed=c.good, failed=c.bad - len(differs[0]), differs=differs[0],
                  left_out=differs[1], **cells)
    return c.end()
