# SPDX-License-Identifier: MIT
"""What the tests share: a daemon of their own, processes that end, counting."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SKIP = 77
HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("TUTTI_BUILD", os.path.join(os.path.dirname(HERE), "build"))
TUTTI = os.environ.get("TUTTI", os.path.join(BUILD, "tutti"))
# Where record() leaves what a judge found; what the tests start has no part in it.
CHECK_OUT = os.environ.pop("TUTTI_CHECK_OUT", None)


def program(name):
    """Path of a test's program."""
    return os.path.join(BUILD, "tests", name)


def skip(reason):
    print(reason)
    sys.exit(SKIP)


def record(judge, **cells):
    """
    Leaves a row of the table in docs/compatibility.md, which scripts/compatibility makes,
    as JSON in the folder that TUTTI_CHECK_OUT names. Of the cells, passed and failed are
    numbers; differs and left_out are names, with words on them or not; skipped and
    unfinished are reasons; connections, accelerated, ring_bytes, tcp_bytes are numbers;
    remarks are words.
    Returns the file's path, if there is one.
    """
    if not CHECK_OUT:
        return None
    path = os.path.join(CHECK_OUT, judge.replace("/", "-").replace(" ", "-") + ".json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"judge": judge, **cells}, f, indent=1)
        f.write("\n")
    return path


def share(totals):
    """Cells of record(), from the totals of `tutti ss`. Connections that ended before both
    ends had cause to leave TCP say nothing, and are not counted."""
    return {"connections": totals.get("connections", 0) -
            totals.get("fallback_reasons", {}).get("short", 0),
            "accelerated": totals.get("accelerated", 0),
            "ring_bytes": totals.get("ring_tx_bytes", 0),
            "tcp_bytes": totals.get("shadow_tx_bytes", 0)}


STARTED = []  # what has a stop(), and must not outlive the test


def on_sigterm(_sig, _frame):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt that
    sys.exit(143)  # by way of __exit__


class Home:
    """A runtime directory, hence a daemon, that belongs to this test alone."""

    def __enter__(self):
        signal.signal(signal.SIGTERM, on_sigterm)
        self.path = tempfile.mkdtemp(prefix="tutti-test-")
        self.saved = os.environ.copy()
        for name in [n for n in os.environ if n.startswith("TUTTI_")]:
            if name not in ("TUTTI_BUILD", "TUTTI_SOURCE", "TUTTI_FUZZ_SECONDS"):
                del os.environ[name]
        os.environ["XDG_RUNTIME_DIR"] = self.path
        os.environ["TUTTI_CONFIG"] = ""  # not this user's own defaults
        return self

    def __exit__(self, *what):
        for started in list(STARTED):
            started.stop()
        if os.path.exists(self.path + "/tutti"):
            run([TUTTI, "down"])
        os.environ.clear()
        os.environ.update(self.saved)
        shutil.rmtree(self.path, ignore_errors=True)

    def log(self):
        """Every text that the daemon left, joined."""
        text = ""
        for name in sorted(os.listdir(self.path + "/tutti")):
            path = f"{self.path}/tutti/{name}"
            if os.path.isfile(path):
                with open(path, errors="replace", encoding="utf-8") as f:
                    text += f.read()
        return text

    def daemon_pid(self):
        return status().get("pid")


def run(argv, timeout_s=20, **more):
    """Runs to the end; after the time the whole process group is killed."""
    more.setdefault("stdout", subprocess.PIPE)
    more.setdefault("stderr", subprocess.PIPE)
    more.setdefault("stdin", subprocess.DEVNULL)
    proc = subprocess.Popen(argv, text=True, errors="replace", start_new_session=True, **more)
    try:
        out, err = proc.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(proc.pid, signal.SIGKILL)
        out, err = proc.communicate()
        return subprocess.CompletedProcess(argv, "timeout", out, err)
    return subprocess.CompletedProcess(argv, proc.returncode, out, err)


def json_of(*command):
    """The JSON object of a command of tutti; {} when there is none."""
    text = run([TUTTI, *command, "--json"]).stdout
    try:
        return json.loads(text)
    except ValueError:
        return {}


def status():
    return json_of("status")


def wait_until(what, timeout_s=5.0, step_s=0.02):
    """Calls what until it is true; returns its last value."""
    end = time.monotonic() + timeout_s
    while True:
        value = what()
        if value or time.monotonic() > end:
            return value
        time.sleep(step_s)


def under(path="user"):
    """The words before a program: under Tutti, or the plain kernel."""
    return [] if path == "native" else [TUTTI, "run", "--"]


def kill_group(proc, sig=signal.SIGKILL):
    """Ends a process and its group, unless it was waited for: then its number is free."""
    if proc.returncode is None:
        try:
            os.killpg(proc.pid, sig)
        except ProcessLookupError:
            pass
        proc.wait()


class Server:
    """A program that says 'port N' on its standard output when it can be connected to."""

    pid = port = None

    def __init__(self, argv, **more):
        self.proc = subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                     text=True, start_new_session=True, **more)
        STARTED.append(self)
        line = self.proc.stdout.readline().split()
        if len(line) != 2 or line[0] != "port":
            self.stop()
            raise RuntimeError(f"{argv[-1]}: no port, but {line}")
        self.port = int(line[1])
        self.pid = self.proc.pid

    def alive(self):
        return self.proc.poll() is None

    def stop(self, sig=signal.SIGKILL):
        kill_group(self.proc, sig)
        self.proc.stdout.close()


class Checks:
    """Counts what was asserted; a test without any assertion fails."""

    def __init__(self):
        self.good, self.bad = 0, 0

    def ok(self, condition, what):
        if condition:
            self.good += 1
        else:
            self.bad += 1
            print(f"FAIL: {what}", flush=True)
        return bool(condition)

    def equal(self, got, want, what):
        return self.ok(got == want, f"{what}: {got!r}, not {want!r}")

    def end(self):
        print(f"{self.good} passed, {self.bad} failed")
        return 1 if self.bad or not self.good else 0


def proc_status(pid, key):
    """A number from /proc/PID/status."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        for line in f:
            if line.startswith(key + ":"):
                return int(line.split()[1])
    return None


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as f:
            return [int(word) for word in f.read().split()]
    except OSError:
        return []


def descriptors(pid):
    """Descriptor -> what it is."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            pass
    return found


def segments(pid, kind="memfd:tutti-"):
    """How many of Tutti's segments a process has mapped."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as f:
            return sum(kind in line for line in f)
    except OSError:
        return 0


def warm_pair():
    """The two ends of a connection over loopback, after some messages each way."""
    listener = socket.create_server(("127.0.0.1", 0))
    one = socket.create_connection(listener.getsockname())
    other = listener.accept()[0]
    listener.close()
    for i in range(20):
        if i == 10:
            time.sleep(0.2)  # the grant may take longer than all of them
        one.sendall(b"ping")
        other.recv(4, socket.MSG_WAITALL)
        other.sendall(b"pong")
        one.recv(4, socket.MSG_WAITALL)
    return one, other
