# SPDX-License-Identifier: MIT
"""Processes, files and the daemon of a benchmark of programs; all of it ends with the session."""

import json
import os
import pathlib
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PATHS = ("tcp", "user")
READY_SECONDS = 20
RUN_SECONDS = 60
STOP_SECONDS = 5
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Failure(Exception):
    """Something did not work; the text says what, why and what to do."""


class Session:
    """
    Starts programs plainly (path tcp) and under 'tutti run' (path user).

    private: with a daemon of its own, so that what it has counted is this session's alone; else
    with the user's, which is started and ended here when there is none. user: who the programs
    run as, when this is root: for those that refuse to.
    """

    def __init__(self, tutti, private=True, user=None):
        self.tutti = str(tutti)
        self.children = []
        # Debian keeps nginx and haproxy where not every user's PATH leads.
        self.env = {**os.environ, "LC_ALL": "C.UTF-8",
                    "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"}
        self.become = []
        self.our_daemon = False
        self.apart = False  # each program in a session of its own
        self.dir = tempfile.mkdtemp(prefix="tutti-bench-")
        try:
            os.chmod(self.dir, 0o755)
            if user and os.geteuid() == 0:
                self.become_user(user)
            if private:
                self.env["XDG_RUNTIME_DIR"] = self.make_dir("run", 0o700)
            self.start_daemon()
        except BaseException:
            self.close()
            raise

    def become_user(self, user):
        try:
            who = pwd.getpwnam(user)
        except KeyError:
            raise Failure(f"there is no user {user}, who the server would run as (run: "
                          "scripts/deps results)") from None
        self.become = ["setpriv", "--reuid", user, "--regid", str(who.pw_gid), "--clear-groups",
                       "--"]
        self.env["HOME"] = self.dir
        os.chown(self.dir, who.pw_uid, who.pw_gid)
        if self.quietly("test", "-x", self.tutti).returncode:
            raise Failure(f"the user {user} cannot reach {self.tutti} (put the tree, or a build "
                          "named by $TUTTI, where every user may go)")

    def start_daemon(self):
        # A daemon that runs already is somebody's; one that comes up for us goes with us.
        self.our_daemon = self.quietly(self.tutti, "status").returncode != 0
        # Here, and not by the first 'tutti run', which may be pinned to a core.
        if self.our_daemon and self.quietly(self.tutti, "up").returncode:
            raise Failure(f"the daemon does not start (try: {self.tutti} up)")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        # A signal meanwhile must not leave servers behind: it waits.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            for child in reversed(list(self.children)):
                self.stop(child)
            if self.our_daemon:
                self.quietly(self.tutti, "down")
        finally:
            shutil.rmtree(self.dir, ignore_errors=True)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    # ---- files ----

    def make_dir(self, name, mode=0o755):
        """A folder that belongs to whom the programs run as."""
        path = os.path.join(self.dir, name)
        os.mkdir(path)
        os.chmod(path, mode)
        owner = os.stat(self.dir)
        os.chown(path, owner.st_uid, owner.st_gid)
        return path

    def file(self, name, data):
        path = os.path.join(self.dir, name)
        with open(path, "wb") as f:
            f.write(data.encode() if isinstance(data, str) else data)
        return path

    # ---- processes ----

    def quietly(self, *argv):
        return subprocess.run([*self.become, *argv], stdin=subprocess.DEVNULL, env=self.env,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              check=False, timeout=RUN_SECONDS)

    def command(self, path, *argv):
        run = [self.tutti, "run", "--path", "user", "--"] if path == "user" else []
        return [*self.become, *run, *argv]

    def start(self, argv, output):
        # In a group of its own: ^C at the terminal is for us, who end it in order. In our
        # session, as from a terminal: a scheduler may share cores out by sessions.
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output,
                                 stderr=subprocess.STDOUT, env=self.env, cwd=self.dir,
                                 start_new_session=self.apart,
                                 process_group=None if self.apart else 0)
        child.stop_by = signal.SIGTERM
        self.children.append(child)
        return child

    def stop(self, child):
        if child.poll() is None:
            child.send_signal(child.stop_by)
            try:
                child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)  # with its workers
                child.wait()
        if child in self.children:
            self.children.remove(child)

    def serve(self, path, argv, port, ready=None, stop_by=signal.SIGTERM):
        """Starts a server; returns when it listens and ready(port), if given, is true."""
        name = os.path.basename(argv[0])
        log_name = os.path.join(self.dir, f"{name}-{path}-{port}.log")
        with open(log_name, "wb") as log:
            server = self.start(self.command(path, *argv), log)
        server.stop_by = stop_by
        until = time.monotonic() + READY_SECONDS
        while not (listening(port) and (ready is None or ready(port))):
            if server.poll() is not None or time.monotonic() > until:
                raise Failure(f"{name} did not start on path {path}: {last_line(log_name)} "
                              f"(try: {self.tutti} doctor {name})")
            time.sleep(0.02)
        return server

    def client(self, path, argv, seconds=0):
        """Runs a client, of which so many seconds are expected; returns what it printed."""
        name = os.path.basename(argv[0])
        # A file and not a pipe: the end of the program is waited for, not that of the output.
        with tempfile.TemporaryFile("w+", dir=self.dir) as out:
            child = self.start(self.command(path, *argv), out)
            try:
                status = child.wait(seconds + RUN_SECONDS)
            except subprocess.TimeoutExpired:
                status = "no end in time"
            self.stop(child)
            out.seek(0)
            text = out.read()
        if status:
            said = text.strip().splitlines() or ["nothing"]
            raise Failure(f"{name} failed on path {path}: status {status}, it said: {said[-1]}")
        return text

    def connections(self):
        """What 'tutti ss' sees now."""
        done = subprocess.run([*self.become, self.tutti, "ss", "--json"], env=self.env,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False, timeout=RUN_SECONDS)
        if done.returncode:
            raise Failure(f"tutti ss failed: {done.stderr.strip() or done.returncode}")
        return json.loads(done.stdout)


def free_port():
    """Below those that the kernel gives to clients, which might take it before a server does."""
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
    with open("/proc/net/tcp", encoding="ascii") as f:
        rows = [line.split() for line in f][1:]
    return any(row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port for row in rows)


def last_line(file_name):
    with open(file_name, encoding="utf-8", errors="replace") as f:
        lines = f.read().strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def run_script(name, body):
    """
    Calls body(tutti), the script's work; returns the exit status. Signals that end a process
    unwind it, so that every session is closed.
    """
    for sig in ENDING:
        signal.signal(sig, lambda number, _: sys.exit(128 + number))
    # Anew, since a job in a shell's background is born with it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tutti = pathlib.Path(os.environ.get("TUTTI", ROOT / "build" / "tutti"))
    try:
        if not os.access(tutti, os.X_OK):
            raise Failure(f"there is no {tutti} (run: make build)")
        return body(tutti.resolve())
    except Failure as failure:
        progress("")
        sys.stdout.flush()
        print(f"{name}: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
