"""Tries what a pod without rights should not reach: the daemon's socket, metrics without a token, and other pods' processes."""
import json
import os
import socket
import sys

address = sys.argv[1]


def asked_daemon():
    try:
        with socket.socket(socket.AF_UNIX) as daemon:
            daemon.connect("/run/hugepilot/control.sock")
            daemon.sendall(b'{"version":1,"command":"status"}\n')
            state = json.loads(daemon.makefile().readline())
    except OSError as error:
        return type(error).__name__
    return f"{len(state['state']['targets'])} targets"


def asked_metrics():
    with socket.create_connection((address, 9472)) as agent:
        agent.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        return agent.makefile().readline().split()[1]


def others():
    return sum(name.isdigit() and int(name) != os.getpid() for name in os.listdir("/proc"))


print(f"socket: {asked_daemon()}, metrics: {asked_metrics()}, processes of others: {others()}")
