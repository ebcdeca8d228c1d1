# SPDX-License-Identifier: BSD-3-Clause
"""Hosts for tests: network namespaces, each with a port on one or more switches (bridges in a namespace of their
own), made with ip(8), slowed with tc(8), and removed when the test ends, however it ends."""
import contextlib
import os
import random
import shlex
import signal
import socket
import subprocess
import sys

SKIPPED = 77  # what meson takes for "not run"


def run(*command):
    subprocess.run(command, check=True)


class Hosts:
    """`with Hosts(2) as hosts:` gives two; host h has the addresses 10.77.N.h+1 and fd77:N::h+1 on network N."""

    def __init__(self, count, networks=1, rate=None):
        self.count, self.networks, self.rate = count, networks, rate
        tag = f"tt{os.getpid():x}"
        self.names = [f"{tag}h{h}" for h in range(count)]
        self.switch = f"{tag}sw"
        self.made = []
        self.hosts_file, self.agent = f"/tmp/{tag}.hosts", f"/tmp/{tag}.agent"

    def __enter__(self):
        # SystemExit unwinds, so that what was made is removed on Ctrl-C and when meson ends a test.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, frame: sys.exit(128 + number))
        try:
            for name in [self.switch, *self.names]:
                made = subprocess.run(["ip", "netns", "add", name], stderr=subprocess.PIPE, text=True)
                if made.returncode != 0:
                    print(f"skipped: no network namespaces can be made here ({made.stderr.strip()})")
                    sys.exit(SKIPPED)
                self.made.append(name)
                run("ip", "-n", name, "link", "set", "lo", "up")
            for network in range(self.networks):
                self._make_network(network)
            with open(self.hosts_file, "w") as file:
                file.write("127.0.0.1 localhost\n" + "".join(f"{self.address(h)} host{h}\n" for h in range(self.count)))
        except BaseException as error:
            self.__exit__(None, None, None)
            if isinstance(error, (OSError, subprocess.CalledProcessError)):
                print(f"skipped: no networks can be made here ({error})")
                sys.exit(SKIPPED)
            raise
        return self

    def _make_network(self, network):
        bridge = f"br{network}"
        run("ip", "-n", self.switch, "link", "add", bridge, "type", "bridge", "forward_delay", "0")
        run("ip", "-n", self.switch, "link", "set", bridge, "up")
        for h, name in enumerate(self.names):
            port = f"p{network}h{h}"
            device = self.device(network)
            run("ip", "-n", self.switch, "link", "add", port, "type", "veth", "peer", "name", device, "netns", name)
            run("ip", "-n", self.switch, "link", "set", port, "master", bridge, "up")
            run("ip", "-n", name, "addr", "add", f"{self.address(h, network)}/24", "dev", device)
            run("ip", "-n", name, "-6", "addr", "add", f"fd77:{network}::{h + 1}/64", "dev", device, "nodad")
            run("ip", "-n", name, "link", "set", device, "up")
            if self.rate:
                # In both directions: what the host sends, and what the switch sends to it.
                for space, end in ((name, device), (self.switch, port)):
                    run("tc", "-n", space, "qdisc", "add", "dev", end, "root", "tbf", "rate", self.rate, "burst", "256k",
                        "latency", "50ms")

    def __exit__(self, *_):
        for name in reversed(self.made):
            # Whoever still runs there would keep it, and the test, alive.
            pids = subprocess.run(["ip", "netns", "pids", name], stdout=subprocess.PIPE, text=True).stdout.split()
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name])
        self.made = []
        for file in (self.hosts_file, self.agent):
            with contextlib.suppress(FileNotFoundError):
                os.remove(file)

    def device(self, network=0):
        return f"net{network}"

    def address(self, host, network=0):
        return f"10.77.{network}.{host + 1}"

    def counters(self, host, network=0):
        """Bytes that the host has received and sent there, as its interface counts them."""
        base = f"/sys/class/net/{self.device(network)}/statistics/"
        text = subprocess.run(["ip", "netns", "exec", self.names[host], "cat", base + "rx_bytes", base + "tx_bytes"],
                              check=True, stdout=subprocess.PIPE, text=True).stdout
        return tuple(int(word) for word in text.split())

    def set_link(self, host, state, network=0):
        run("ip", "-n", self.names[host], "link", "set", self.device(network), state)

    def drop_all(self, host, network=0):
        """The host's packets are lost from now on, and nobody is told."""
        run("ip", "-n", self.switch, "link", "set", f"p{network}h{host}", "nomaster")

    def prefix(self, host):
        """The words before a command that make it run there, under the name host0, host1, ..., which all know."""
        return ["nsenter", f"--net=/run/netns/{self.names[host]}", "unshare", "--uts", "--mount", "sh", "-c",
                'hostname $1; mount --bind $2 /etc/hosts; shift 2; exec "$@"', "sh", f"host{host}", self.hosts_file]

    def mpirun(self, per_host, *options):
        """Open MPI's mpirun on the first host, starting so many processes on each: words before a command."""
        with open(self.agent, "w") as agent:  # in the place of ssh
            cases = "".join(f'{self.address(h)}) exec {shlex.join(self.prefix(h))} sh -c "$*" ;;\n' for h in range(self.count))
            agent.write(f"#!/bin/sh\nhost=$1; shift\ncase $host in\n{cases}esac\n")
        os.chmod(self.agent, 0o755)
        slots = ",".join(f"{self.address(h)}:{per_host}" for h in range(self.count))
        return [*self.prefix(0), "mpirun.openmpi", "--allow-run-as-root", "--mca", "plm_rsh_agent", self.agent, "--mca",
                "oob_tcp_if_include", self.device(), "-H", slots, *options]

    def start(self, host, command, environment=None, **options):
        return subprocess.Popen(["ip", "netns", "exec", self.names[host], *command],
                                env={**os.environ, **(environment or {})}, **options)


class Job:
    """One program on `per_host` ranks of each host, found by torchrun's variables."""

    def __init__(self, hosts, per_host, command, environment=None, ranks=None):
        self.hosts = hosts
        port = random.randrange(20000, 30000)  # the namespaces are the test's own: nothing else is there
        size = ranks or per_host * hosts.count
        self.processes = []
        for rank in range(size):
            host = rank // per_host
            variables = {
                "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank % per_host),
                "LOCAL_WORLD_SIZE": str(per_host), "MASTER_ADDR": hosts.address(0), "MASTER_PORT": str(port),
                "TUTTI_JOB_SECRET": "namespaces", **(environment or {}),
            }
            self.processes.append(hosts.start(host, command, variables, stdout=subprocess.PIPE,
                                              stderr=subprocess.PIPE, text=True))

    def wait(self, seconds=120):
        """(exit code, stdout, stderr) by rank; who is not done in time is killed, and its code is None."""
        results = []
        for process in self.processes:
            try:
                out, err = process.communicate(timeout=seconds)
                results.append((process.returncode, out, err))
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                results.append((None, out, err))
        return results


def succeed(results, what):
    for rank, (code, out, err) in enumerate(results):
        if code != 0:
            sys.exit(f"{what}: rank {rank} ended with {code}\n{out}{err}")
    return results[0][1]
