#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""crowd_ends.py server | client PORT: both ends of many connections at once.

The server prints "port N" and sends back what it gets, from one epoll set. The
client does what it reads on standard input, a word and a number a line, and
answers with a line each: "ok" or what is wrong.

    open N   connections, each of which carries some messages
    echo N   a message there and back on every connection, with the bytes N makes
    bulk N   1 MiB each way over N of them
    close 0  all

Plain numbers of descriptors: the objects of this program must not weigh more
than what is measured.
"""

import os
import random
import resource
import select
import socket
import sys

PIECE = 16 << 10
PATTERN = random.Random(3).randbytes(1 << 20)


def server():
    listener = socket.create_server(("0.0.0.0", 0), backlog=4096)
    print(f"port {listener.getsockname()[1]}", flush=True)
    ep = select.epoll()
    ep.register(listener.fileno(), select.EPOLLIN)
    while True:
        for fd, _ in ep.poll():
            if fd == listener.fileno():
                conn = listener.accept()[0].detach()
                ep.register(conn, select.EPOLLIN)
                continue
            try:
                data = os.read(fd, PIECE)
                while data:
                    data = data[os.write(fd, data):]
                    if not data:
                        break
                else:
                    os.close(fd)
            except OSError:
                os.close(fd)


def ask(fd, data):
    left = data
    while left:
        left = left[os.write(fd, left):]
    got = b""
    while len(got) < len(data):
        piece = os.read(fd, len(data) - len(got))
        if not piece:
            return "the end"
        got += piece
    return None if got == data else "wrong bytes"


class Client:
    def __init__(self, port):
        self.port, self.fds = port, []

    def message(self, i, salt):
        at = (i * 977 + salt * 13) % (len(PATTERN) - 64)
        return PATTERN[at:at + 64]

    def open(self, count):
        for i in range(count):
            s = socket.socket()
            # Several addresses: the ports of one are fewer than what two rounds leave in TIME_WAIT.
            s.connect((f"127.0.0.{1 + i % 8}", self.port))
            self.fds.append(s.detach())
            for k in range(6):
                wrong = ask(self.fds[-1], self.message(i, k))
                if wrong:
                    return f"{wrong}, connection {i}, message {k}"
        return "ok"

    def echo(self, salt):
        for i, fd in enumerate(self.fds):
            wrong = ask(fd, self.message(i, salt))
            if wrong:
                return f"{wrong}, connection {i}"
        return "ok"

    def bulk(self, count):
        for i in range(0, len(self.fds), max(1, len(self.fds) // count)):
            for at in range(0, len(PATTERN), PIECE):
                wrong = ask(self.fds[i], PATTERN[at:at + PIECE])
                if wrong:
                    return f"{wrong}, connection {i} from {at} on"
        return "ok"

    def close(self, _):
        for fd in self.fds:
            os.close(fd)
        self.fds = []
        return "ok"


def main(argv):
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    if argv[0] == "server":
        server()
    client = Client(int(argv[1]))
    for line in sys.stdin:
        word, number = line.split()
        try:
            print(getattr(client, word)(int(number)), flush=True)
        except OSError as e:
            print(f"{word}: {e}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
