#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""load.py KIND PORT COUNTERS [--connections N] [--messages N] [--limit N] [--seed N]
        [--poll] [--tolerant]

A client that works until SIGTERM, or until it has made --limit connections. It
checks every byte that it gets. KIND:

    echo        messages there and back, on connections that stay
    echo-short  a few messages a connection, which then ends in one of several ways
    http        requests of files, on keep-alive connections
    http-short  a request a connection
    postgresql  a few queries a connection

COUNTERS is a file that it keeps up to date, one JSON object:

    done        messages, requests, queries
    made        connections
    retried     requests that a kept connection's end met before a byte of answer, and that
                were sent again, as HTTP clients do
    empty       the same on a new connection
    broken      other ends of connections; without --tolerant that is the end of the load
    slowest_ms  the longest of them, with the connect

Exit status: 0; 3 after a wrong byte; 4 when something was lost; each with a line.
--poll waits by poll() for what is otherwise a blocking call.
"""

import argparse
import json
import os
import random
import signal
import socket
import struct
import sys
import time

FILES = {"small": 1000, "middle": 100_000}
PATTERN = random.Random(7).randbytes(1 << 18)  # what every load sends, and what FILES hold


def file_bytes(name):
    return PATTERN[:FILES[name]]


class Ended(Exception):
    """The connection ended, or broke."""


class Load:
    def __init__(self, options):
        self.options, self.random = options, random.Random(options.seed)
        self.stopped = False
        self.counters = dict.fromkeys(
            ("done", "made", "retried", "empty", "broken", "slowest_ms"), 0)
        self.file = os.open(options.counters, os.O_WRONLY | os.O_CREAT, 0o600)
        self.told = self.began = 0.0

    def tell(self):
        """Fixed in length: a reader finds it whole."""
        os.pwrite(self.file, json.dumps(self.counters).ljust(200).encode(), 0)
        self.told = time.monotonic()

    def count(self, what):
        self.counters[what] += 1
        now = time.monotonic()
        if what == "done":
            spent = int((now - self.began) * 1000)
            self.counters["slowest_ms"] = max(self.counters["slowest_ms"], spent)
            self.began = now
        if now - self.told > 0.05:
            self.tell()

    def connect(self):
        s = socket.socket()
        try:
            s.connect(("127.0.0.1", self.options.port))
        except OSError as e:
            s.close()
            raise Ended(f"connect: {e}") from e
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.options.poll:
            s.settimeout(600)
        self.count("made")
        return s

    def full(self):
        limit = self.options.limit
        return self.stopped or (limit and self.counters["made"] >= limit)

    def wrong(self, what):
        self.tell()
        print(f"WRONG: {what}", flush=True)
        os._exit(3)

    def broke(self, why):
        self.count("broken")
        if self.options.tolerant:
            time.sleep(0.02)  # its server may be about to come back
            return
        self.tell()
        print(f"LOST: {why}", flush=True)
        os._exit(4)

    # --- echo ---

    def message(self, s):
        n = 30_000 if self.random.random() < 0.06 else self.random.randrange(1, 2000)
        at = self.random.randrange(len(PATTERN) - n)
        data = PATTERN[at:at + n]
        send(s, data)
        got = receive(s, n)
        if got != data:
            self.wrong(f"echo: {n} bytes of {at}: {differ(got, data)}")
        self.count("done")

    def echo(self):
        kept = [None] * self.options.connections
        while not self.stopped:
            for i, s in enumerate(kept):
                self.began = time.monotonic()
                try:
                    kept[i] = s = s or self.connect()
                    self.message(s)
                except Ended as e:
                    kept[i] = s and s.close()
                    self.broke(e)

    def echo_short(self):
        while not self.full():
            self.began = time.monotonic()
            try:
                with self.connect() as s:
                    for _ in range(self.options.messages):
                        self.message(s)
                    self.end(s)
            except Ended as e:
                self.broke(e)

    def end(self, s):
        way = self.random.random()
        if way < 0.1:  # by a reset
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif way < 0.2:  # the server first
            s.shutdown(socket.SHUT_WR)
            try:
                if s.recv(1):
                    self.wrong("a byte after the end")
            except OSError as e:
                raise Ended(f"after the half-close: {e}") from e
        elif way < 0.3:  # with bytes unread
            send(s, b"x" * 100)

    # --- HTTP ---

    def request(self, s, keep):
        """True when the server wants the connection to be kept. None: it had ended."""
        name = "middle" if self.random.random() < 0.1 else "small"
        head = f"GET /{name} HTTP/1.1\r\nHost: x\r\n" + "Connection: close\r\n" * (not keep)
        answer = b""
        try:
            send(s, (head + "\r\n").encode())
            while b"\r\n\r\n" not in answer:
                answer += receive_some(s)
        except Ended:
            if answer:
                raise
            return None
        words, _, body = answer.partition(b"\r\n\r\n")
        if b"200 OK" not in words or b"Content-Length: %d\r" % FILES[name] not in words + b"\r":
            self.wrong(f"http: {words[:300]!r}")
        body += receive(s, FILES[name] - len(body))
        if body != file_bytes(name):
            self.wrong(f"http: {name}: {differ(body, file_bytes(name))}")
        self.count("done")
        return b"Connection: close" not in words

    def http(self):
        kept = [None] * self.options.connections
        while not self.stopped:
            for i, s in enumerate(kept):
                self.began = time.monotonic()
                fresh = s is None
                try:
                    kept[i] = s = s or self.connect()
                    more = self.request(s, True)
                    if more is None:
                        self.count("empty" if fresh else "retried")
                    if not more:
                        kept[i] = s.close()
                except Ended as e:
                    kept[i] = s and s.close()
                    self.broke(e)

    def http_short(self):
        while not self.full():
            self.began = time.monotonic()
            try:
                with self.connect() as s:
                    if self.request(s, False) is None:
                        self.count("empty")
                    elif some_or_end(s):
                        self.wrong("http: bytes after the body")
            except Ended as e:
                self.broke(e)

    # --- PostgreSQL ---

    def answer(self, s):
        """The fields of the rows until the server is ready for a query."""
        fields = []
        while True:
            kind, n = struct.unpack("!cI", receive(s, 5))
            body = receive(s, n - 4)
            if kind == b"E":
                raise Ended(f"PostgreSQL: {body!r}")
            if kind == b"D":
                at, found = 2, struct.unpack_from("!H", body)[0]
                for _ in range(found):
                    size, = struct.unpack_from("!I", body, at)
                    fields.append(body[at + 4:at + 4 + size])
                    at += 4 + size
            if kind == b"Z":
                return fields

    def query(self, s):
        a, b, n = (self.random.randrange(10_000) for _ in range(3))
        sql = b"SELECT %d * %d, repeat('x', %d)" % (a, b, n)
        send(s, struct.pack("!cI", b"Q", len(sql) + 5) + sql + b"\0")
        got = self.answer(s)
        if got != [b"%d" % (a * b), b"x" * n]:
            self.wrong(f"PostgreSQL: {sql}: {got!r:.300}")
        self.count("done")

    def postgresql(self):
        start = struct.pack("!I", 3 << 16) + b"user\0tester\0database\0postgres\0\0"
        while not self.full():
            self.began = time.monotonic()
            try:
                with self.connect() as s:
                    send(s, struct.pack("!I", len(start) + 4) + start)
                    if self.answer(s):
                        self.wrong("PostgreSQL: rows before a query")
                    for _ in range(4):
                        self.query(s)
                    send(s, b"X\0\0\0\4")
                    if some_or_end(s):
                        self.wrong("PostgreSQL: bytes after the end")
            except Ended as e:
                self.broke(e)


def send(s, data):
    try:
        s.sendall(data)
    except OSError as e:
        raise Ended(f"send: {e}") from e


def some_or_end(s):
    try:
        return s.recv(65536)
    except OSError as e:
        raise Ended(f"recv: {e}") from e


def receive_some(s):
    data = some_or_end(s)
    if not data:
        raise Ended("the end")
    return data


def receive(s, n):
    data = bytearray()
    while len(data) < n:
        try:
            piece = s.recv(n - len(data))
        except OSError as e:
            raise Ended(f"recv after {len(data)} of {n} bytes: {e}") from e
        if not piece:
            raise Ended(f"the end after {len(data)} of {n} bytes")
        data += piece
    return bytes(data)


def differ(got, want):
    at = next((i for i, (x, y) in enumerate(zip(got, want)) if x != y), min(len(got), len(want)))
    return f"{len(got)} bytes, not {len(want)}, differ from {at} on"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["echo", "echo-short", "http", "http-short", "postgresql"])
    parser.add_argument("port", type=int)
    parser.add_argument("counters")
    parser.add_argument("--connections", type=int, default=2)
    parser.add_argument("--messages", type=int, default=6)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--poll", action="store_true")
    parser.add_argument("--tolerant", action="store_true")
    load = Load(parser.parse_args())

    def stop(_sig, _frame):
        load.stopped = True
    signal.signal(signal.SIGTERM, stop)
    getattr(load, load.options.kind.replace("-", "_"))()
    load.tell()


if __name__ == "__main__":
    sys.exit(main())
