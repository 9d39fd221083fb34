# SPDX-License-Identifier: MIT
"""PostgreSQL, loaded by pgbench: select only, with connections that last and with new ones."""

import glob
import math
import os
import re
import signal

from apps.compare import Case, compare, must_be
from apps.session import PATHS, free_port

USER = "postgres"  # the server refuses to run as root
CONFIG = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
port = {port}
"""
# Clients, options of pgbench, what is special about it.
LOADS = [
    ("postgresql-1", "PostgreSQL, pgbench -S, 1 client", 1, [], {"aim": 1}),
    ("postgresql-8", "PostgreSQL, pgbench -S, 8 clients", 8, [], {"aim": 1}),
    ("postgresql-connect", "PostgreSQL, pgbench -S -C, a connection for each transaction, "
     "8 clients", 8, ["-C"], {"lasting": False}),
]


def binary(name):
    """Debian does not put the server's on PATH, and pgbench only behind a wrapper in Perl."""
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"),
                   key=lambda path: [int(n) for n in re.findall(r"\d+", path)])
    return found[-1] if found else None


def address(port):
    return ["-h", "127.0.0.1", "-p", str(port), "-U", USER]


def start(session, path):
    port = free_port()
    data = os.path.join(session.dir, f"data-{path}")
    session.client("tcp", [binary("initdb"), "-D", data, "-U", USER, "-A", "trust", "-N",
                           "--no-locale", "-E", "UTF8", "--no-instructions"])
    with open(f"{data}/postgresql.conf", "a", encoding="ascii") as f:
        f.write(CONFIG.format(port=port))
    # SIGINT: without waiting for clients.
    session.serve(path, [binary("postgres"), "-D", data], port, stop_by=signal.SIGINT)
    session.client(path, [binary("pgbench"), *address(port), "-i", "-s", "1", "-q", "postgres"])
    return port


def postgresql(session, length):
    ports = {path: start(session, path) for path in PATHS}
    for name, title, clients, options, more in LOADS:
        def run(path, seconds, clients=clients, options=tuple(options)):
            whole = math.ceil(seconds)  # pgbench knows no parts of a second
            text = session.client(path, [
                binary("pgbench"), *address(ports[path]), "-n", "-S", "-M", "prepared", "-c",
                str(clients), "-j", str(min(clients, 2)), "-T", str(whole), *options,
                "postgres"], whole)
            rate = re.search(r"^tps = ([0-9.]+)", text, re.MULTILINE)
            mean = re.search(r"^latency average = ([0-9.]+) ms", text, re.MULTILINE)
            failed = re.search(r"^number of failed transactions: ([1-9]\d*)", text, re.MULTILINE)
            must_be(rate and mean and not failed, f"pgbench on path {path} said: {text.strip()}")
            return {"transactions_per_s": float(rate[1]), "mean_us": float(mean[1]) * 1000}
        yield compare(session, Case(
            name, title, "scale 1, prepared statements, the server's defaults; pgbench has a "
            "thread for each client, two at most", "transactions_per_s", run, **more), length)
