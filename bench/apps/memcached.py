# SPDX-License-Identifier: MIT
"""memcached, loaded by tb-mcload (bench/mcload.c)."""

import json
import os
import pathlib

from apps.compare import Case, compare, must_be
from apps.session import PATHS, free_port

THREADS, CONNECTIONS, VALUE_BYTES = 2, 16, 100


def start(session, path):
    port = free_port()
    user = ["-u", "memcache"] if os.geteuid() == 0 else []
    session.serve(path, ["memcached", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-t", "4",
                         *user], port)
    return port


def memcached(session, length):
    load = pathlib.Path(session.tutti).parent / "bench" / "tb-mcload"
    must_be(os.access(load, os.X_OK), f"there is no {load} (run: make build)")
    ports = {path: start(session, path) for path in PATHS}

    def run(path, seconds):
        text = session.client(path, [str(load), "--port", str(ports[path]), "--seconds",
                                     str(seconds), "--connections", str(CONNECTIONS),
                                     "--threads", str(THREADS), "--size", str(VALUE_BYTES)],
                              seconds)
        result = json.loads(text)
        return {"requests_per_s": result["requests_per_s"],
                "p50_us": result["p50_ns"] / 1000, "p99_us": result["p99_ns"] / 1000,
                "payload_bytes": result["rx_bytes"]}
    yield compare(session, Case(
        "memcached", "memcached, 4 threads, 16 connections, 9 gets to a set of 100 bytes",
        "memcached -t 4, its default; the client has two threads, one request under way on each "
        "connection, and checks each answer", "requests_per_s", run, aim=1), length)
