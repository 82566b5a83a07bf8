"""Clients of NVIDIA's Multi-Process Service share a GPU. One of them is killed while its grids and
those of another wait for all of their CTAs: the other goes on, with the right results.
"""

import os
import shutil
import subprocess
import sys

import pytest

CONTROL = "nvidia-cuda-mps-control"
CLIENT = """
import sys, time
import torch, tcgemm
torch.zeros(1, device="cuda")
print("begun", flush=True)
a, w = (torch.randn(512, 32768, device="cuda").bfloat16() for _ in range(2))
expected = tcgemm.mm(a, w.t())
assert tcgemm.explain(a, w.t()).grid_adds
print("ready", flush=True)
end = time.time() + float(sys.argv[1])
while time.time() < end:
    for _ in range(50):
        out = tcgemm.mm(a, w.t())
    assert torch.equal(out, expected)
print("done", flush=True)
"""


@pytest.fixture
def start(tmp_path):
    """start(seconds) returns a client that multiplies for so long, and has begun."""
    if shutil.which(CONTROL) is None:
        pytest.skip(f"{CONTROL} is not there")
    folders = {"CUDA_MPS_PIPE_DIRECTORY": tmp_path / "p", "CUDA_MPS_LOG_DIRECTORY": tmp_path / "l"}
    for folder in folders.values():
        folder.mkdir()
    env = os.environ | {name: str(folder) for name, folder in folders.items()}
    clients = []

    def start_client(seconds):
        command = [sys.executable, "-c", CLIENT, str(seconds)]
        client = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        clients.append(client)
        if client.stdout.readline() != "begun\n":
            pytest.skip("a client of the Multi-Process Service does not start here")
        assert client.stdout.readline() == "ready\n"
        return client

    subprocess.run([CONTROL, "-d"], env=env, check=True)
    try:
        yield start_client
    finally:
        for client in clients:
            client.kill()
            client.communicate()
        subprocess.run([CONTROL], env=env, input="quit\n", text=True, check=False)


@pytest.mark.gpu
@pytest.mark.sm90
@pytest.mark.alone
def test_a_client_that_ends_does_not_stop_the_grids_of_another(start):
    other, killed = start(8), start(60)
    killed.kill()
    output, _ = other.communicate(timeout=60)
    assert other.returncode == 0 and output == "done\n"
