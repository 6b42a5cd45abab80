#!/usr/bin/env python3
"""Reads, overwrites and deletes items of a patched memcached while it moves them, and fails on any that is wrong or lost.

It plays the daemon and calls every page active, so that as much as possible moves, on any kernel and without root.
"""

import argparse
import contextlib
import multiprocessing
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

PAGE = 4096
TOLD = ("curr_items", "evictions", "slabs_moved", "hash_power_level")


class Daemon(threading.Thread):
    """Speaks the daemon's side of libhps's protocol, to one client, every half second."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()

    def run(self):
        connection, _ = self.listener.accept()
        pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        lines = connection.makefile("rb")
        request = lines.readline()
        signal = int(request.split(b'"signal":')[1].split(b",")[0])
        memory = os.memfd_create("list")
        socket.send_fds(connection, [b'{"version":2,"tracked":{}}\n'], [memory])
        with contextlib.suppress(OSError, ValueError):
            for sequence in range(1, sys.maxsize):
                time.sleep(0.5)
                runs = active(pid)
                pages = sum(run[1] for run in runs)
                os.pwrite(memory, b"".join(struct.pack("=QIf", *run) for run in runs), 32)
                os.pwrite(memory, b"hpslist2" + struct.pack("=QQQ", sequence, len(runs), pages), 0)
                os.kill(pid, signal)
                while f'"taken":{sequence}'.encode() not in (line := lines.readline()):
                    if not line:
                        return


def active(pid):
    """All private memory, as hot as it gets."""
    runs = []
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps:
        for line in maps:
            place, mode, _, _, inode, *name = line.split()
            if mode == "rw-p" and inode == "0" and not (name and name[0].startswith("[stack")):
                start, end = (int(number, 16) for number in place.split("-"))
                runs.append((start, (end - start) // PAGE, 1000.0))
    return runs


class Client:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(path)
        self.lines = self.socket.makefile("rb")

    def ask(self, command):
        self.socket.sendall(command)
        return self.lines.readline().rstrip()

    def get(self, keys, verb=b"get"):
        """Key to (value, cas)."""
        self.socket.sendall(verb + b" " + b" ".join(keys) + b"\r\n")
        found = {}
        while (line := self.lines.readline()) != b"END\r\n":
            _, key, _, length, *cas = line.split()
            found[key] = (self.lines.read(int(length) + 2)[:-2], cas[0] if cas else None)
        return found

    def stats(self, of=b""):
        self.socket.sendall(b"stats " + of + b"\r\n")
        found = {}
        while (line := self.lines.readline().decode()) != "END\r\n":
            _, name, value = line.rstrip("\r\n").split(" ", 2)
            found[name] = value
        return found


def value_of(key, version, length):
    return (b"%s.%d." % (key, version) * (length // (len(key) + 3) + 1))[:length]


class Worker(multiprocessing.Process):
    """Has keys of its own, and so knows what each must hold."""

    def __init__(self, path, number, items, until, may_evict):
        super().__init__()
        self.path, self.number, self.items, self.until, self.may_evict = path, number, items, until, may_evict

    def run(self):
        self.client = Client(self.path)
        self.random = random.Random(self.number)
        self.held = {}
        self.cas = {}
        self.reads = 0
        keys = [b"%d-%d" % (self.number, item) for item in range(self.items)]
        self.random.shuffle(keys)
        for key in keys:
            self.set(key, 0)
        counter = b"counter-%d" % self.number
        self.expect(self.client.ask(b"set %s 0 0 1\r\n0\r\n" % counter), b"STORED")
        counted, hot, rotate = 0, [], 0
        while time.monotonic() < self.until:
            if time.monotonic() > rotate:
                # Hot items become cold, and have to make room.
                hot, rotate = self.random.sample(keys, self.items // 20), time.monotonic() + 8
            for _ in range(20):
                self.read(self.random.sample(hot, min(50, len(hot))))
            self.read(self.random.sample(keys, 50))
            self.change(self.random.choice(self.random.choice([hot, keys])))
            counted += 1
            answer = self.client.ask(b"incr %s 1\r\n" % counter)
            if not (self.may_evict and answer == b"NOT_FOUND"):
                self.expect(answer, b"%d" % counted)
            elif answer == b"NOT_FOUND":
                self.expect(self.client.ask(b"set %s 0 0 10\r\n%-10d\r\n" % (counter, counted)), b"STORED")
        for start in range(0, len(keys), 100):
            self.read(keys[start:start + 100])
        print(f"worker {self.number}: {self.reads} values were right, {len(self.held)} items at the end", flush=True)

    def expect(self, answer, expected):
        if answer != expected:
            raise SystemExit(f"worker {self.number}: {answer[:200]} instead of {expected[:200]}")

    def set(self, key, version):
        # Some items are so large that memcached keeps them in several chunks.
        large = self.random.random() < 0.001 and not self.may_evict
        length = 700_000 if large else self.random.choice([100, 500, 500, 500, 1500, 6000])
        value = value_of(key, version, length)
        self.expect(self.client.ask(b"set %s %d 0 %d\r\n%s\r\n" % (key, version % 2, length, value)), b"STORED")
        self.held[key] = (version, value)
        self.cas.pop(key, None)

    def read(self, keys):
        found = self.client.get(keys)
        for key in keys:
            expected = self.held[key][1] if key in self.held else None
            value = found.get(key, (None, None))[0]
            if value != expected and not (value is None and self.may_evict):
                told = "lost" if value is None else f"{value[:60]}, and should be {expected and expected[:60]}"
                raise SystemExit(f"worker {self.number}: {key} is {told}")
            self.reads += value is not None

    def change(self, key):
        version, value = self.held.get(key, (0, None))
        action = self.random.random()
        if value is None or action < 0.3:
            self.set(key, version + 1)
        elif action < 0.4:
            answer = self.client.ask(b"delete %s\r\n" % key)
            if not (self.may_evict and answer == b"NOT_FOUND"):
                self.expect(answer, b"DELETED")
            del self.held[key]
            self.cas.pop(key, None)
        elif action < 0.7:
            found = self.client.get([key], b"gets")
            if key in found:
                # It is used later, perhaps after a move of the item, which clients must not notice.
                self.cas[key] = found[key][1]
        elif self.cas:
            key = self.random.choice(list(self.cas))
            version, value = self.held[key]
            value = value_of(key, version + 1, len(value))
            answer = self.client.ask(b"cas %s 0 0 %d %s\r\n%s\r\n" % (key, len(value), self.cas.pop(key), value))
            if not (self.may_evict and answer == b"NOT_FOUND"):
                self.expect(answer, b"STORED")
                self.held[key] = (version + 1, value)


def scenario(binary, name, options, seconds, items, megabytes, may_evict=False):
    print(f"{name}: -o {options or 'hps'}", flush=True)
    with tempfile.TemporaryDirectory() as place:
        daemon, served = f"{place}/daemon", f"{place}/memcached"
        Daemon(daemon).start()
        # The hash table starts small, so that it grows meanwhile; memcached's own mover is on, too.
        option = ",".join(filter(None, ["hashpower=13,slab_automove_window=3", f"hps={daemon}", options]))
        command = [binary, "-s", served, "-m", str(megabytes), "-o", option]
        with subprocess.Popen(command + (["-u", "root"] if os.getuid() == 0 else [])) as server:
            try:
                for _ in range(100):
                    if os.path.exists(served):
                        break
                    time.sleep(0.1)
                client = Client(served)
                until = time.monotonic() + seconds
                workers = [Worker(served, number, items, until, may_evict) for number in range(2)]
                for worker in workers:
                    worker.start()
                for worker in workers:
                    worker.join()
                stats = client.stats() | client.stats(b"hps")
                print({key: value for key, value in stats.items() if key.startswith("hps") or key in TOLD})
                if server.poll() is not None:
                    raise SystemExit(f"memcached ended with {server.returncode}")
                if any(worker.exitcode for worker in workers):
                    raise SystemExit(1)
            finally:
                server.terminate()
        if server.returncode not in (0, -15):
            raise SystemExit(f"memcached ended with {server.returncode}")
        return {name: int(value) for name, value in stats.items() if value.isdigit()}


def check(stats, *names):
    for name in names:
        if stats[name] == 0:
            raise SystemExit(f"{name} is 0: what was to be tested did not happen")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("memcached", help="the patched program")
    parser.add_argument("--seconds", type=float, default=20, help="for each of the five scenarios")
    asked = parser.parse_args()

    def run(*arguments, **keywords):
        return scenario(asked.memcached, *arguments[:2], asked.seconds, *arguments[2:], **keywords)

    stats = run("all dense, converted in place", "", 20_000, 256)
    if stats["hps_regions_converted"] + stats["hps_regions_refused"] == 0:
        raise SystemExit("no region was converted")
    stats = run("moved, room for all", "hps_compact", 20_000, 256)
    check(stats, "hps_items_moved", "hps_arena_bytes", "slabs_moved")
    stats = run("moved, within a budget", "hps_budget=10", 20_000, 256)
    check(stats, "hps_items_moved", "hps_items_moved_back")
    if stats["hps_arena_bytes"] + (stats["hps_regions_converted"] << 21) > 10 << 20:
        raise SystemExit("more than the budget was spent")
    stats = run("moved, while memory is short", "hps_budget=16", 20_000, 40, may_evict=True)
    check(stats, "hps_items_moved", "evictions")
    stats = run("only observed", "hps_observe", 20_000, 256)
    check(stats, "hps_lists")
    if any(stats[name] for name in ("hps_items_moved", "hps_regions_converted", "hps_regions_refused")):
        raise SystemExit("something was done, though it was only to be observed")
    print("nothing is wrong or lost")


if __name__ == "__main__":
    main()
