# SPDX-License-Identifier: MIT
"""nginx, alone and behind haproxy, loaded by wrk."""

import json
import math
import os
import pathlib

from apps.compare import Case, compare, must_be
from apps.session import PATHS, free_port

SCRIPT = pathlib.Path(__file__).resolve().parent / "report.lua"
SMALL_BYTES, LARGE_BYTES = 1024, 10 << 20
THREADS, CONNECTIONS, DOWNLOADS = 2, 16, 4

NGINX = """
{user}
# As Debian's nginx.conf has it: a worker for each core.
worker_processes auto;
daemon off;
pid {home}/nginx.pid;
error_log stderr;
events {{ worker_connections 768; }}
http {{
    access_log off;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000000;
    server {{
        listen 127.0.0.1:{port};
        root {www};
    }}
}}
"""
# Without nbthread: haproxy starts a thread for each core.
HAPROXY = """
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend web
    bind 127.0.0.1:{port}
    default_backend webs
backend webs
    server one 127.0.0.1:{back}
"""
WORKERS = ("worker_processes auto, as Debian's nginx.conf has it: a worker for each core; wrk has "
           "two threads; nothing is pinned")


def start_nginx(session, path):
    home = session.make_dir(f"nginx-{path}")
    port = free_port()
    www = os.path.join(session.dir, "www")
    if not os.path.isdir(www):
        session.make_dir("www")
        for name, size in (("small", SMALL_BYTES), ("large", LARGE_BYTES)):
            session.file(f"www/{name}", os.urandom(size))
    config = session.file(f"nginx-{path}/nginx.conf", NGINX.format(
        home=home, port=port, www=www, user="user www-data;" if os.geteuid() == 0 else ""))
    session.serve(path, ["nginx", "-e", "stderr", "-c", config], port)
    return port


def start_haproxy(session, path, back):
    port = free_port()
    config = session.file(f"haproxy-{path}.cfg", HAPROXY.format(port=port, back=back))
    session.serve(path, ["haproxy", "-db", "-f", config], port)
    return port


def wrk(session, path, url, seconds, connections, *options):
    whole = math.ceil(seconds)  # wrk knows no parts of a second
    text = session.client(path, ["wrk", f"-t{THREADS}", f"-c{connections}", f"-d{whole}s", "-s",
                                 str(SCRIPT), *options, url], whole)
    result = json.loads(text.strip().splitlines()[-1])
    wrong = {what: n for what, n in result["errors"].items() if n}
    must_be(result["requests"] and not wrong,
            f"wrk on path {path}: {result['requests']} requests, errors: {wrong} ({url})")
    return result


def figures(result, metric):
    count = result["bytes"] if metric == "bytes_per_s" else result["requests"]
    return {metric: count * 1e6 / result["duration_us"], "p50_us": result["p50_us"],
            "p99_us": result["p99_us"], "payload_bytes": result["bytes"]}


def case_of(session, ports, name, title, file, settings, metric="requests_per_s",
            connections=CONNECTIONS, options=(), **aims):
    def run(path, seconds):
        url = f"http://127.0.0.1:{ports[path]}/{file}"
        return figures(wrk(session, path, url, seconds, connections, *options), metric)
    return Case(name, title, settings, metric, run, **aims)


def nginx(session, length):
    ports = {path: start_nginx(session, path) for path in PATHS}
    yield compare(session, case_of(
        session, ports, "nginx", "nginx, file of 1 KiB, 16 connections", "small",
        f"{WORKERS}; keepalive_requests without a limit", aim=2.5), length)


def nginx_apart(session, length):
    session.apart = True
    ports = {path: start_nginx(session, path) for path in PATHS}
    yield compare(session, case_of(
        session, ports, "nginx-apart",
        "nginx, file of 1 KiB, 16 connections, each program in a session of its own", "small",
        f"{WORKERS}; as services are run: the scheduler shares each core out by sessions"), length)


def nginx_large(session, length):
    ports = {path: start_nginx(session, path) for path in PATHS}
    yield compare(session, case_of(
        session, ports, "nginx-large", "nginx, file of 10 MiB, 4 downloads at once", "large",
        f"sendfile on, tcp_nopush on; {WORKERS}", "bytes_per_s", DOWNLOADS), length)


def nginx_short(session, length):
    ports = {path: start_nginx(session, path) for path in PATHS}
    yield compare(session, case_of(
        session, ports, "nginx-short", "nginx, file of 1 KiB, a connection for each request",
        "small", f"16 at once, 'Connection: close'; {WORKERS}", "connections_per_s",
        options=("-H", "Connection: close"), aim=0.9, lasting=False), length)


def haproxy(session, length):
    ports = {path: start_haproxy(session, path, start_nginx(session, path)) for path in PATHS}
    yield compare(session, case_of(
        session, ports, "haproxy", "haproxy in front of nginx, file of 1 KiB, 16 connections",
        "small", f"haproxy with its default of a thread for each core; nginx: {WORKERS}",
        aim_p99=1), length)
