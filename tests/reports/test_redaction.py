"""What names people and machines does not leave; what is needed to find a fault stays."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.reports.redaction import redacted

UUID = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
NAMES = st.text(string.ascii_lowercase, min_size=6, max_size=12).map(lambda name: name + "zq")
HEX = st.text("0123456789abcdef", min_size=32, max_size=32)

#: Places in which software and people name a user or a machine; `{user}` and `{host}` stand for them.
PLACES = (
    '  File "/home/{user}/venv/lib/python3.11/site-packages/tensorflow/__init__.py", line 41',
    "/Users/{user}/miniforge3/envs/tf",
    r"C:\Users\{user}\anaconda3\envs\tf\lib\site-packages",
    "/mnt/c/Users/{user}/project",
    "{user}@{host}:~/project$ python train.py",
    "(venv) [{user}@{host} ~]$ nvidia-smi",
    "Mar  5 17:56:23 {host} kernel: NVRM: Xid (PCI:0000:01:00): 79",
    "2024-03-05T17:56:23.1+01:00 {host} nv-fabricmanager[1843]: started",
    "cuda_diagnostics.cc:168] retrieving CUDA diagnostic information for host: {host}",
    "cuda_diagnostics.cc:175] hostname: {host}",
    "kernel driver does not appear to be running on this host ({host}): no /proc/driver/nvidia/version",
    "Linux {host} 5.15.0-91-generic #101-Ubuntu SMP x86_64 GNU/Linux",
    "file:///home/{user}/wheels, /export/home2/{user}/x and /gpfs/users/{user}/venv",
    "LOGNAME={user} HOSTNAME={host}",
    "uid=1001({user}) gid=1001({user}) groups=1001({user}),27(sudo)",
    "SLURMD_NODENAME={host}",
)


@pytest.mark.parametrize("place", PLACES)
@given(user=NAMES, host=NAMES)
def test_a_user_or_host_that_its_place_gives_away_is_nowhere(place: str, user: str, host: str) -> None:
    named = [name for name in ("user", "host") if f"{{{name}}}" in place]
    values = {"user": user, "host": host}
    shown = redacted(
        place.format(**values) + "\n" + "\n".join(f"started by {values[name]}." for name in named)
    )
    assert all(values[name] not in shown for name in named)


@given(user=NAMES, before=st.text(max_size=20), after=st.text(max_size=20), upper=st.booleans())
def test_a_name_goes_wherever_it_stands_once_it_is_known(
    user: str, before: str, after: str, upper: bool
) -> None:
    text = f"/home/{user}/x\n{before} {user.upper() if upper else user} {after}"
    assert user not in redacted(text).lower()


def test_a_name_with_a_blank_goes_whole() -> None:
    shown = redacted(r"C:\\Users\\Annabel Lee\\venv" + "\nC:\\Users\\Annabel Lee\\x, says Annabel Lee")
    assert "Annabel" not in shown
    assert "Lee" not in shown


def test_the_home_of_whoever_runs_it_goes_wherever_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/srv/people/annabel")
    assert redacted("/srv/people/annabel/venv/lib, Annabel's") == "~/venv/lib, <name>'s"
    assert redacted("/mnt/srv/people/annabel2") == "/mnt/srv/people/annabel2"


@given(HEX, st.text(max_size=10), st.text(max_size=10))
def test_a_uuid_goes_wherever_it_stands(digits: str, before: str, after: str) -> None:
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    glued = f"{before[:-1]}_{uuid}_{after[1:]}" if before else f"x{uuid}"
    for text in (f"{before} {uuid} {after}", glued.replace("x", "=")):
        assert uuid not in redacted(text)


@given(HEX)
def test_uuids_of_gpus_and_instances_go(digits: str) -> None:
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    for text in (
        f"GPU 0: NVIDIA H100 (UUID: GPU-{uuid})",
        f"export CUDA_VISIBLE_DEVICES=MIG-{uuid},MIG-GPU-{uuid}/7/0",
    ):
        assert uuid not in redacted(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Serial Number : 1652421008123", "Serial Number : <serial>"),
        ("mail ann.example@example.org now", "mail <email> now"),
        ("pip install --index-url https://ann:hunter2@packages.example/simple", None),
        ("HF_TOKEN=hf_abcdefghijklmnopqrstuvwx", "HF_TOKEN=<token>"),
        ("export WANDB_API_KEY=0123456789abcdef", "export WANDB_API_KEY=<secret>"),
        ("inet 10.3.6.82 netmask", "inet <ip> netmask"),
        ("grpc://10.0.0.2:8470", "grpc://<ip>:8470"),
        ("peer 192.168.1.17 lost", "peer <ip> lost"),
        ("ether 52:54:00:12:34:56", "ether <mac>"),
        (f"MLflow run {UUID}", "MLflow run <uuid>"),
        ("https://ann%40x:p%40ss@nexus.corp.example/simple", "https://<credentials>@<host>/simple"),
        ("Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.abc", "Authorization: Bearer <token>"),
        ("login --password hunter2 now", "login --password <secret> now"),
        (f"container {'3f' * 32} failed", "container <container> failed"),
        (f"/docker/{'3f' * 32}/merged", "/docker/<container>/merged"),
        ("3f4e5d6c7b8a   tensorflow/tensorflow:2.18.0-gpu", "<container>   tensorflow/tensorflow:2.18.0-gpu"),
        ("Error: No such container: 3f4e5d6c7b8a", "Error: No such container: <container>"),
        ("fe80::1ff:fe23:4567:890a and 2001:db8::1", "<ip> and <ip>"),
        ("connect to 10.1.2.3 port 8080", "connect to <ip> port 8080"),
        ("Device Serial Number 48-b0-2d-ff-ff-fe", "Device Serial Number <serial>"),
    ],
)
def test_identifiers_go_by_their_form(text: str, shown: str | None) -> None:
    if shown is None:
        assert "hunter2" not in redacted(text) and "ann:" not in redacted(text)
    else:
        assert redacted(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "nvidia-cudnn-cu12==9.3.0.75",
        "nvidia-curand-cu12           10.3.6.82",
        "cufft 11.0.8.103, cusparse 12.1.2.141",
        "driver 535.183.01, CUDA 12.2, TensorFlow 2.18.0",
        "cuda_driver.cc:152] failed call to cuInit: CUDA_ERROR_UNKNOWN: unknown error",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.535.183.01 and /root/.keras/keras.json",
        "root@4f5e6d7c8b9a",
        "python3 -c 'import tensorflow' at 10:11:12",
        "pciBusID: 0000:65:00.0 name: Quadro GV100",
        "2024-11-21T08:33:12Z ERROR trainer: ERROR is a word",
        f"six==1.16.0 --hash=sha256:{'3f' * 32}",
        "tensorflow/tensorflow@sha256:" + "3f" * 32,
        "std::abs, absl::Status, dead::beef, xla::gpu::GpuCompiler",
        "spack load cuda@12.2 python@3.11: loaded",
        "[12345.678901] NVRM: Xid (PCI:0000:01:00): 79, pid=1234",
        "/usr/local/cuda/compat /home /Users",
    ],
)
def test_what_a_diagnosis_needs_stays(text: str) -> None:
    if text.startswith("root@"):
        assert redacted(text) == "<user>@<host>"
    else:
        assert redacted(text) == text


def test_names_that_are_given_go_too() -> None:
    assert redacted("trained on atlas-07, see atlas", ["atlas-07"]) == "trained on <name>, see atlas"


@given(
    st.lists(
        st.sampled_from((*PLACES, "HF_TOKEN=abc", "10.0.0.2:80", "GPU-" + UUID, "plain text")), max_size=5
    )
)
def test_redacting_twice_changes_nothing(lines: list[str]) -> None:
    once = redacted("\n".join(lines).replace("{user}", "annabel").replace("{host}", "atlas-07"))
    assert redacted(once) == once


@given(st.text(max_size=300))
def test_any_text_is_redacted(text: str) -> None:
    assert redacted(redacted(text)) == redacted(text)
