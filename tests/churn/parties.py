# SPDX-License-Identifier: MIT
"""Who takes part in the churn: servers, and loads that are watched."""

import glob
import json
import os
import signal
import subprocess
import sys
import time

import common
import workload
from churn.load import FILES, file_bytes

LOAD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "load.py")
STUCK_S = 20.0  # a message takes far less than a tenth of it, also on a busy machine

NGINX = """
worker_processes 2;
daemon off;
pid {dir}/nginx.pid;
error_log {dir}/error.log notice;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
    keepalive_requests 500;
    sendfile on;
    server {{ listen 127.0.0.1:{port}; root {dir}/www; }}
}}
"""

POSTGRESQL = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
port = {port}
fsync = off
autovacuum = off
shared_buffers = 16MB
max_connections = 30
"""


class Load:
    """A process of load.py."""

    count = 0

    def __init__(self, w, kind, port, *options, path="user"):
        Load.count += 1
        self.kind, self.path = kind, path
        self.name = f"{kind} ({path})"
        self.file = f"{w.dir}/load.{Load.count}"
        self.out = open(self.file + ".out", "w+", encoding="utf-8")
        self.again = lambda: Load(w, kind, port, *options, path=path)
        self.proc = subprocess.Popen(
            [*common.under(path), sys.executable, LOAD, kind, str(port), self.file,
             "--seed", str(Load.count), *map(str, options)],
            stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.out, start_new_session=True)
        self.pid = self.proc.pid
        common.STARTED.append(self)

    def counters(self):
        try:
            with open(self.file, encoding="ascii") as f:
                return json.load(f)
        except (OSError, ValueError):
            return dict.fromkeys(("done", "made", "retried", "empty", "broken", "slowest_ms"), 0)

    def alive(self):
        return self.proc.poll() is None

    def text(self):
        with open(self.file + ".out", encoding="utf-8", errors="replace") as f:
            return f.read()[-800:]

    def finish(self, c):
        """Ends it by SIGTERM, or waits for its limit; its counters."""
        if self.alive():
            self.proc.send_signal(signal.SIGTERM)
        return self.wait(c, STUCK_S)

    def wait(self, c, timeout_s):
        try:
            status = self.proc.wait(timeout_s)
        except subprocess.TimeoutExpired:
            status = f"stuck, at {self.counters()}"
        c.ok(status == 0, f"{self.name} ended with {status}: {self.text()}")
        self.stop()
        return self.counters()

    def stop(self):
        common.kill_group(self.proc)
        self.out.close()
        if self in common.STARTED:
            common.STARTED.remove(self)


def progress(c, loads, when, more=3):
    """The watchdog: every load gets something done from now on."""
    begin = {load: load.counters()["done"] for load in loads}

    def behind():
        return [load for load in loads if load.alive() and
                load.counters()["done"] < begin[load] + more]
    start = time.monotonic()
    common.wait_until(lambda: not behind(), STUCK_S)
    for load in loads:
        c.ok(load.alive(), f"{when}: {load.name} has ended: {load.text()}")
    for load in behind():
        c.ok(False, f"{when}: {load.name} is stuck: {load.counters()}, "
             f"at the beginning {begin[load]} done; {stacks(load.pid)}")
    return time.monotonic() - start


def stacks(pid):
    """Where a process waits."""
    try:
        with open(f"/proc/{pid}/wchan", encoding="ascii") as f:
            wchan = f.read()
        return f"wchan {wchan}, {common.json_of('ss', '--pid', str(pid)).get('connections')}"
    except OSError as e:
        return str(e)


def start_echo(mode):
    return common.Server([*common.under(), common.program("helpers/echo"), "server", mode])


class Nginx:
    def __init__(self, w):
        self.w, self.port = w, workload.free_port()
        self.config = w.file("nginx.conf", NGINX.format(dir=w.dir, port=self.port))
        for name in FILES:
            w.file(f"www/{name}", file_bytes(name))
        self.service = w.start(["nginx", "-e", f"{w.dir}/error.log", "-c", self.config], self.port)
        self.pid = self.service.pid
        common.wait_until(lambda: len(self.workers()) == 2)

    def workers(self):
        return common.children(self.pid)

    def reload(self):
        """Returns when there is a worker that was not there before."""
        old = set(self.workers())
        done = common.run(["nginx", "-e", f"{self.w.dir}/error.log", "-c", self.config, "-s",
                           "reload"])
        new = common.wait_until(lambda: set(self.workers()) - old, STUCK_S)
        return done.returncode == 0 and new

    def errors(self, but="a^"):
        """What the log has that it should not; of signals those that are not in but."""
        with open(f"{self.w.dir}/error.log", encoding="utf-8") as f:
            return [line for line in f if
                    any(word in line for word in ("[emerg]", "[alert]", "[crit]", "on signal"))
                    and but not in line]


class Postgresql:
    def __init__(self, w):
        self.w, self.port = w, workload.free_port()
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
        self.bin = found[-1]
        data = f"{w.dir}/data"
        done = common.run([f"{self.bin}/initdb", "-D", data, "-U", "tester", "-A", "trust", "-N",
                           "--no-locale", "-E", "UTF8", "--no-instructions"], 60)
        if done.returncode:
            raise workload.Broken(f"initdb: {done.stdout}{done.stderr}")
        with open(f"{data}/postgresql.conf", "a", encoding="ascii") as f:
            f.write(POSTGRESQL.format(port=self.port))
        self.service = w.start([f"{self.bin}/postgres", "-D", data], self.port,
                               stop_by=signal.SIGINT)
        self.pid = self.service.pid
        if not common.wait_until(lambda: "ready to accept" in self.service.log(), STUCK_S):
            raise workload.Broken(f"PostgreSQL: {self.service.log()}")

    def psql(self, sql):
        return common.run([*common.under(), "psql", "-h", "127.0.0.1", "-p", str(self.port), "-U",
                           "tester", "-XAtq", "-d", "postgres", "-c", sql])

    def pgbench(self, *words):
        return common.run([*common.under(), f"{self.bin}/pgbench", "-h", "127.0.0.1", "-p",
                           str(self.port), "-U", "tester", *words, "postgres"], 600)

    def backends(self):
        """Processes of clients."""
        found = []
        for pid in common.children(self.pid):
            try:
                with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
                    if "127.0.0.1(" in f.read():
                        found.append(pid)
            except OSError:
                pass
        return found
