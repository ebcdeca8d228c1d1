# SPDX-License-Identifier: BSD-3-Clause
"""A Slurm cluster for tests, of daemons of its own (munged, slurmctld, slurmd) in a folder of its own, ended with it."""
import os
import pathlib
import random
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time

PROGRAMS = ["munged", "slurmctld", "slurmd", "srun", "sbatch"]


class Node:
    """Where a slurmd runs: its host's name, its address, and the words before a command that make it run there."""

    def __init__(self, name, address, prefix=()):
        self.name, self.address, self.prefix = name, address, list(prefix)

    @staticmethod
    def this_host():
        return Node(socket.gethostname().split(".")[0], "127.0.0.1")


class Slurm:
    """`with Slurm([Node.this_host()], cpus=8) as slurm:`; srun then runs on the first node."""

    def __init__(self, nodes, cpus):
        self.nodes, self.cpus = nodes, cpus
        self.daemons = []

    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tutti-slurm-"))
        try:
            self._write_configuration()
            socket_file = self.folder / "munge.socket"
            self._start(self.nodes[0], "munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key",
                        f"--socket={socket_file}", f"--pid-file={self.folder}/munged.pid",
                        f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munge.seed")
            self._wait_for("munged", socket_file.exists)
            self._start(self.nodes[0], "slurmctld", "-D")
            for node in self.nodes:
                self._start(node, "slurmd", "-D")
            self._wait_for("the nodes", self._is_idle)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def srun(self, *arguments, environment=None, timeout=60):
        """(exit code, stdout and stderr together)"""
        done = self._run("srun", *arguments, environment=environment, timeout=timeout)
        return done.returncode, done.stdout

    def batch(self, *arguments, command):
        """The same for a command as a batch script."""
        out = self.folder / "batch.out"
        done = self._run("sbatch", "--wait", f"--output={out}", *arguments, f"--wrap={shlex.join(command)}", timeout=60)
        return done.returncode, out.read_text() if out.exists() else done.stdout

    def _run(self, *command, environment=None, timeout=10):
        return subprocess.run([*self.nodes[0].prefix, *command], env={**self.environment, **(environment or {})},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=timeout)

    def _is_idle(self):
        states = self._run("sinfo", "--noheader", "--format=%D %T").stdout
        return states.strip() == f"{len(self.nodes)} idle"

    def _wait_for(self, what, is_there):
        for _ in range(300):
            if is_there():
                return
            time.sleep(0.1)
        logs = "".join(f"{log.name}:\n{log.read_text()}" for log in sorted(self.folder.glob("*.log")))
        sys.exit(f"Slurm: {what} did not come up\n{logs}")

    def _start(self, node, *command):
        with open(self.folder / f"{command[0]}.{node.name}.log", "w") as log:
            self.daemons.append(subprocess.Popen([*node.prefix, *command], env=self.environment,
                                                 stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def _write_configuration(self):
        folder, first = self.folder, self.nodes[0]
        port = random.randrange(20000, 30000)
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        (folder / "state").mkdir()
        for node in self.nodes:
            (folder / f"tmp.{node.name}").mkdir()
        nodes = "\n".join(f"NodeName={n.name} NodeAddr={n.address} CPUs={self.cpus}" for n in self.nodes)
        (folder / "slurm.conf").write_text(f"""ClusterName=tests
SlurmctldHost={first.name}({first.address})
SlurmctldPort={port}
SlurmdPort={port + 1}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
TmpFS={folder}/tmp.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
""")
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
