"""Fills memcached on this machine with values of 400 bytes, and reads them at random from then on: read_memcached.py [SECONDS BETWEEN REQUESTS]"""
import random
import socket
import sys
import time

KEYS, AT_ONCE = 300_000, 100
REST = float(sys.argv[1]) if len(sys.argv) > 1 else 0


def connected():
    while True:
        try:
            return socket.create_connection(("127.0.0.1", 11211))
        except OSError:
            time.sleep(0.2)


server = connected()
for first in range(0, KEYS, AT_ONCE):
    pairs = (b"set k%d 0 0 400 noreply\r\n%s\r\n" % (key, b"v" * 400) for key in range(first, first + AT_ONCE))
    server.sendall(b"".join(pairs))
while True:
    keys = b" ".join(b"k%d" % random.randrange(KEYS) for _ in range(AT_ONCE))
    server.sendall(b"get " + keys + b"\r\n")
    answer = b""
    while not answer.endswith(b"END\r\n"):
        answer = server.recv(1 << 20)
    if REST:
        time.sleep(REST)
