# SPDX-License-Identifier: MIT
"""The parts of churn_test, but the crowd."""

import os
import random
import shutil
import signal
import time

import common
from churn.growth import Growth, all_given_back
from churn.parties import STUCK_S, Load, Nginx, Postgresql, progress, start_echo
from client import Client

MODES = ["epoll", "thread", "fork"]


def finish_all(c, loads):
    """Ends loads; what they did, summed."""
    total = {}
    for load in loads:
        for key, value in load.finish(c).items():
            total[key] = max(total.get(key, 0), value) if key == "slowest_ms" else \
                total.get(key, 0) + value
    print(f"  {total}")
    return total


def accelerates(c, server, when):
    """A new connection to an echo server leaves TCP."""
    stats = {}

    def once():
        client = Client(server.port, "--messages", 60, stats=True)
        ended = client.result(STUCK_S)
        if ended == "ok 60":
            stats.update(client.stats())
        client.kill()
        return ended != "ok 60" or stats.get("accelerated") == 1
    # It may have begun in the 0.1 s in which nobody asks again for a daemon.
    common.wait_until(once, STUCK_S, 0.2)
    c.ok(stats.get("accelerated") == 1, f"{when}: a new connection is accelerated: {stats}")


def user_path(c, port, when):
    """Some connection of a port is on the user path."""
    def on_it():
        listed = common.json_of("ss", "--port", str(port)).get("connections", [])
        return any(x["path"] == "user" for x in listed)
    c.ok(common.wait_until(on_it, STUCK_S, 0.1),
         f"{when}: connections of port {port} on the user path: "
         f"{common.json_of('ss', '--port', str(port)).get('connections', [])[:2]}")


# --- thousands of short connections ---

def connections(c, w):
    servers = {mode: start_echo(mode) for mode in MODES}
    stays = [Load(w, "echo", s.port, *["--poll"][:i]) for i, s in enumerate(servers.values())]

    def churn(each):
        limit = {"epoll": each, "thread": each, "fork": each // 4}
        loads = [Load(w, "echo-short", s.port, "--limit", limit[mode], *["--poll"][:i])
                 for mode, s in servers.items() for i in range(2)]
        # Those that are never claimed too: what they leave must go as well.
        loads.append(Load(w, "echo-short", servers["fork"].port, "--limit", each // 2, "--messages",
                          1, path="native"))
        loads.append(Load(w, "echo-short", servers["epoll"].port, "--limit", each, path="native"))
        progress(c, stays, "beside short connections")
        return sum(load.wait(c, 60 + each / 10)["made"] for load in loads)
    churn(100)
    progress(c, stays, "after a warm-up")
    growth = Growth(c, **{f"server_{mode}": s.pid for mode, s in servers.items()},
                    **{f"client_{i}": load.pid for i, load in enumerate(stays)})
    made = churn(6000 if w.long else 500)
    for server in servers.values():
        accelerates(c, server, "after the churn")
    growth.check(made, 2500)
    finish_all(c, stays)
    for s in servers.values():
        s.stop()
    all_given_back(c)


# --- nginx ---

def reloads(c, w, path, count):
    """Reloads under load; what the loads did."""
    nginx_server = Nginx(w)
    port = nginx_server.port
    loads = [Load(w, "http", port, "--connections", 4, path=path),
             Load(w, "http", port, "--connections", 2, "--poll", path=path),
             Load(w, "http-short", port, path=path), Load(w, "http", port, path="native")]

    def rounds(n):
        for i in range(n):
            # At a fifth, as soon as the last one has begun: workers end while others start.
            if w.random.random() > 0.2:
                progress(c, loads, f"reload {i}")
            if not c.ok(nginx_server.reload(), f"reload {i}"):
                break
    rounds(3)
    settled(c, nginx_server)
    growth = Growth(c, master=nginx_server.pid) if path == "user" else None
    rounds(count)
    settled(c, nginx_server)
    if path == "user":
        user_path(c, port, "after the reloads")
    total = finish_all(c, loads)
    if growth:
        growth.check(total["made"])
    c.equal(nginx_server.service.stop(), 0, "nginx's exit status")
    c.equal(nginx_server.errors(), [], "lines in nginx's error log")
    return total


def settled(c, nginx_server):
    """The workers before the last reload have ended."""
    c.ok(common.wait_until(lambda: len(nginx_server.workers()) == 2, STUCK_S),
         f"two workers are left, not {len(nginx_server.workers())}")


def nginx(c, w):
    w.under = []
    native = reloads(c, w, "native", 3)
    w.under = common.under()
    user = reloads(c, w, "user", 200 if w.long else 20)
    for key in "empty", "broken":
        c.ok(not user[key] or native[key], f"{key}: {user[key]}, natively {native[key]}")
    all_given_back(c)


# --- PostgreSQL ---

def postgresql(c, w):
    server = Postgresql(w)

    def churn(each):
        loads = [Load(w, "postgresql", server.port, "--limit", each, *["--poll"][:i])
                 for i in range(2)]
        loads.append(Load(w, "postgresql", server.port, "--limit", each, path="native"))
        progress(c, loads, "at the beginning")
        return sum(load.wait(c, 60 + each / 4)["made"] for load in loads)

    def bench(each):
        script = w.file("script", "SELECT :client_id;\n" * 4)
        out = server.pgbench("-n", "-C", "-c", "4", "-j", "2", "-t", str(each), "-f", script).stdout
        c.ok(f"actually processed: {4 * each}/{4 * each}" in out, f"pgbench -C: {out}")
        return 4 * each
    churn(20)
    bench(10)
    growth = Growth(c, postmaster=server.pid)
    made = churn(4000 if w.long else 300)
    made += bench(2000 if w.long else 100)
    c.equal(server.psql("SELECT 6 * 7").stdout, "42\n", "psql after it")
    growth.check(made, 1000)
    c.equal(server.service.stop(), 0, "PostgreSQL's exit status")
    c.ok("terminated by signal" not in server.service.log(), server.service.log()[-2000:])
    all_given_back(c)


# --- the daemon, and kills ---

class Everything:
    """Servers of all kinds and loads of all kinds."""

    def __init__(self, c, w, *options):
        self.c, self.w = c, w
        self.random = random.Random(w.seed)
        self.echoes = {mode: start_echo(mode) for mode in MODES}
        self.nginx, self.postgresql = Nginx(w), Postgresql(w)
        echo = {mode: server.port for mode, server in self.echoes.items()}
        http, sql = self.nginx.port, self.postgresql.port
        self.loads = [
            Load(w, "echo", echo["epoll"], "--connections", 4, *options),
            Load(w, "echo", echo["thread"], "--poll", *options),
            Load(w, "echo", echo["fork"], *options),
            Load(w, "echo", echo["epoll"], *options, path="native"),
            Load(w, "echo-short", echo["epoll"], "--poll", *options),
            Load(w, "http", http, *options),
            Load(w, "http-short", http, *options),
            Load(w, "postgresql", sql, *options)]
        self.ended = 0

    def progress(self, when):
        return progress(self.c, self.loads, when)

    def processes(self):
        return {**{f"echo_{mode}": s.pid for mode, s in self.echoes.items()},
                "nginx": self.nginx.pid, "postmaster": self.postgresql.pid}

    def all_accelerate(self, when):
        for server in self.echoes.values():
            accelerates(self.c, server, when)
        user_path(self.c, self.nginx.port, when)

    def up(self, what="tutti up"):
        self.c.equal(common.run([common.TUTTI, "up"]).returncode, 0, what)

    def end(self, signals):
        total = finish_all(self.c, self.loads)
        self.c.equal(self.nginx.errors(but=signals), [], "lines in nginx's error log")
        self.c.equal(self.nginx.service.stop(), 0, "nginx's exit status")
        self.c.equal(self.postgresql.service.stop(), 0, "PostgreSQL's exit status")
        for server in self.echoes.values():
            self.c.ok(server.alive(), f"the echo server lives, not {server.proc.poll()}")
            server.stop()
        all_given_back(self.c)
        return total


def kill_daemon(all_):
    pid = all_.w.home.daemon_pid()
    os.kill(pid, signal.SIGKILL)
    common.wait_until(lambda: not os.path.exists(f"/proc/{pid}"))
    all_.progress("without a daemon")
    all_.up()


def down_up(all_):
    all_.c.equal(common.run([common.TUTTI, "down"]).returncode, 0, "tutti down")
    all_.progress("after tutti down")
    all_.up()


def restart_at_once(all_):
    all_.c.equal(common.run([common.TUTTI, "down"]).returncode, 0, "tutti down")
    all_.up()


def replace(all_):
    """The daemon's socket is removed, which another daemon then makes anew."""
    old = all_.w.home.daemon_pid()
    os.unlink(all_.w.home.path + "/tutti/ctl")
    all_.up()
    pid = common.wait_until(all_.w.home.daemon_pid)
    all_.c.ok(pid and pid != old, f"another daemon is up: {pid}, before {old}")


def other_file(all_):
    """The daemon's file is replaced while it runs, and it is started anew from it."""
    common.run([common.TUTTI, "down"])
    copy = all_.w.dir + "/tutti-copy"
    shutil.copy(common.TUTTI, copy)
    all_.c.equal(common.run([copy, "up"]).returncode, 0, "up from a copy")
    all_.progress("with a daemon from a copy")
    shutil.copy(common.TUTTI, copy + ".new")
    os.replace(copy + ".new", copy)
    all_.c.equal(common.run([copy, "up"]).returncode, 0, "up while it runs")
    common.run([copy, "down"])
    all_.c.equal(common.run([copy, "up"]).returncode, 0, "up from the new file")


def stop_and_continue(all_):
    """It answers nobody for some seconds, and nobody waits for it that long."""
    pid = all_.w.home.daemon_pid()
    # Not a backend that ends: its claim holds the socket, and it may not be the only holder.
    others = [load for load in all_.loads if load.kind != "postgresql"]
    os.kill(pid, signal.SIGSTOP)
    try:
        progress(all_.c, others, "while the daemon is stopped")
        time.sleep(2)
        progress(all_.c, others, "while the daemon is still stopped")
    finally:
        os.kill(pid, signal.SIGCONT)
    all_.c.ok(common.wait_until(lambda: all_.w.home.daemon_pid() == pid, STUCK_S),
              "the daemon answers again")


def daemon(c, w):
    all_ = Everything(c, w)
    all_.progress("at the beginning")
    ways = [kill_daemon, down_up, restart_at_once, replace, other_file, stop_and_continue]

    def cycle(when, some):
        for way in some:
            way(all_)
            all_.progress(f"{when}: after {way.__name__}")
            all_.all_accelerate(f"{when}: after {way.__name__}")
    cycle("warm-up", ways[:2])
    growth = Growth(c, 12, **all_.processes())
    made = sum(load.counters()["made"] for load in all_.loads)
    for i in range(10 if w.long else 1):
        cycle(f"cycle {i}", ways)
    growth.check(sum(load.counters()["made"] for load in all_.loads) - made)
    total = all_.end("a^")
    c.equal(total["broken"], 0, "connections that broke")


class Kills:
    """One party is killed, at a random time."""

    def __init__(self, all_):
        self.all, self.random = all_, all_.random
        self.counts = {}

    def client(self):
        i = self.random.randrange(len(self.all.loads))
        load = self.all.loads[i]
        self.all.ended += load.counters()["made"]
        load.stop()
        self.all.loads[i] = load.again()

    def nginx_worker(self):
        return self.one_of(self.all.nginx.workers())

    def echo_child(self):
        return self.one_of(common.children(self.all.echoes["fork"].pid))

    def backend(self):
        """Which makes the postmaster end the others, and start anew."""
        return self.one_of(self.all.postgresql.backends())

    def daemon(self):
        pid = self.all.w.home.daemon_pid()
        if self.all.c.ok(pid, "there is a daemon to be killed"):
            self.end_daemon(pid)

    def stopped_daemon(self):
        """Killed while it was stopped, with requests that it has not read."""
        pid = self.all.w.home.daemon_pid()
        if self.all.c.ok(pid, "there is a daemon to be stopped"):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self.random.random() * 0.5)
            self.end_daemon(pid)

    def end_daemon(self, pid):
        os.kill(pid, signal.SIGKILL)
        # Until then another one would find it up.
        common.wait_until(lambda: not os.path.exists(f"/proc/{pid}"))
        time.sleep(self.random.random() * 0.3)
        self.all.up("a new daemon")

    def one_of(self, pids):
        if pids:
            try:
                os.kill(self.random.choice(pids), signal.SIGKILL)
            except ProcessLookupError:
                pass

    def round(self):
        kind = self.random.choice([self.client] * 3 + [self.nginx_worker] * 3 +
                                  [self.echo_child] * 3 +
                                  [self.daemon, self.stopped_daemon, self.backend])
        time.sleep(self.random.random() * 0.2)
        kind()
        self.counts[kind.__name__] = self.counts.get(kind.__name__, 0) + 1


def kill(c, w):
    all_ = Everything(c, w, "--tolerant")
    kills = Kills(all_)
    all_.progress("at the beginning")

    def rounds(count, what):
        for i in range(count):
            kills.round()
            if i % 5 == 4:
                all_.progress(f"{what} {i}")
    # While a daemon is stopped or gone, entries wait for it: as many as connections end in that
    # time. So long is the warm-up that the tables have had that size.
    rounds(100 if w.long else 10, "warm-up")
    all_.all_accelerate("after a warm-up")
    growth = Growth(c, 12, **all_.processes())
    rounds(300 if w.long else 25, "round")
    all_.progress("after the kills")
    all_.all_accelerate("after the kills")
    growth.check(sum(load.counters()["made"] for load in all_.loads) + all_.ended)
    print(f"  killed {kills.counts}")
    all_.end("exited on signal 9")
