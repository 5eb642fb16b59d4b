"""Names of people and machines are taken out; what is needed to find a fault stays."""

from __future__ import annotations

import re
import string
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from validator.redaction import identifiers, redact
from validator.redaction.identifiers import _MODULES, IDENTIFIERS
from validator.redaction.redact import ALWAYS, COLOURS, MOSTLY, PROMPT, ROWS, SHELL, redacted
from validator.system import package_sources

from ..laws import subjects_to_try

UUID = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
NAMES = st.text(string.ascii_lowercase, min_size=6, max_size=12).map(lambda name: name + "zq")
HEX = st.text("0123456789abcdef", min_size=32, max_size=32)

#: Places in which software and people name a `{user}` or a `{host}`.
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
    "LD_LIBRARY_PATH: /mnt/{user}/x and /media/{user}/disk/lib",
    "no CUDA-capable device is detected [192.168.1.57] host={host}.cluster.local user={user}",
    "boom (run by {user} on host {host}.corp.example.com 10.20.30.40, mac 00:1a:2b:3c:4d:5e)",
    "$ whoami\n{user}\n$ pwd",
    '{{"user": "{user}", "host": "{host}"}}',
    "uname_result(system='Linux', node='{host}', release='5.15.0', version='#1', machine='x86_64')",
    "User: {user}",
    "git config user.name={user}, DB_USER={user}",
    '  File "~{user}/venv/lib/python3.11/site-packages/keras/__init__.py", line 3',
    "{user}   12345 99.0  1.2 9876543 123456 pts/0 Rl+ 10:00 5:00 python train.py",
    "drwxr-xr-x 2 {user} research 4096 Nov 21 08:33 models",
    "Normal  Scheduled  12s  default-scheduler  Successfully assigned ml/train-0 to {host}",
    "Node:         {host}/10.128.0.5",
    "kubernetes.io/hostname={host}",
    "\x1b[01;32m{user}@{host}\x1b[00m:\x1b[01;34m~/x\x1b[00m$ python train.py",
    "{user}@{host}.corp.example.com:~$ nvidia-smi",
    "ssh {user}@{host}",
    "/home/users/{user}/venv /home/a/{user}/x",
    "/homes/{user}/x and /mnt/homes/staff/{user}/x",
    "/afs/example.edu/user/a/{user}/x",
    """TF_CONFIG={{"cluster": {{"worker": ["{host}:2222", "localhost:2223"]}}}}""",
    "POD_NAME={host}",
    "docker run --hostname {host} tensorflow/tensorflow",
    "/scratch/{user}/venv/lib, /lustre/scratch2/users/{user}/x and cd /scratch/a/{user}",
    "SLURM_JOB_NODELIST={host},login1 SLURM_NNODES=2",
    "   NodeList=login[1-2],{host}",
    "JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)\n  4711 gpu train {user} R 1:02:03 1 {host}",
    "   4712_3   gpu   train   {user}  PD   0:00   2   (Priority)",
)


@pytest.mark.parametrize("place", PLACES)
@given(user=NAMES, host=NAMES)
def test_a_name_in_such_a_place_is_taken_out(place: str, user: str, host: str) -> None:
    named = [name for name in ("user", "host") if f"{{{name}}}" in place]
    values = {"user": user, "host": host}
    shown = redacted(
        place.format(**values) + "\n" + "\n".join(f"started by {values[name]}." for name in named)
    )
    assert all(values[name] not in shown for name in named)


@pytest.mark.slow
@given(user=NAMES, before=st.text(max_size=20), after=st.text(max_size=20), upper=st.booleans())
def test_a_known_name_is_taken_out_everywhere(user: str, before: str, after: str, upper: bool) -> None:
    text = f"/home/{user}/x\n{before} {user.upper() if upper else user} {after}"
    assert user not in redacted(text).lower()


def test_a_name_with_a_blank_is_taken_out_completely() -> None:
    shown = redacted(r"C:\\Users\\Annabel Lee\\venv" + "\nC:\\Users\\Annabel Lee\\x, says Annabel Lee")
    assert "Annabel" not in shown
    assert "Lee" not in shown


def test_the_home_directory_of_the_user_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/srv/people/annabel")
    assert redacted("/srv/people/annabel/venv/lib, Annabel's") == "~/venv/lib, <name>'s"
    assert redacted("/mnt/srv/people/annabel2") == "/mnt/srv/people/annabel2"


@given(HEX, st.text(max_size=10), st.text(max_size=10))
def test_a_uuid_is_taken_out_everywhere(digits: str, before: str, after: str) -> None:
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    glued = f"{before[:-1]}_{uuid}_{after[1:]}" if before else f"x{uuid}"
    for text in (f"{before} {uuid} {after}", glued.replace("x", "=")):
        assert uuid not in redacted(text)


@given(HEX)
def test_uuids_of_gpus_and_instances_are_taken_out(digits: str) -> None:
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
        ("fault S/N 1320921012345 again", "fault S/N <serial> again"),
        ("S/N: PK-1320921012345", "S/N: <serial>"),
        ("SN: 1320921012345", "SN: <serial>"),
        ("The serial number is 1652421008123.", "The serial number is <serial>."),
        ("its serial was: PK-1320921012345", "its serial was: <serial>"),
        (
            "    Board ID                          : 0x6500",
            "    Board ID                          : <serial>",
        ),
        ("Chassis Serial Number             : 1764123000456", "Chassis Serial Number             : <serial>"),
        ("Service Tag: 7XK9Q12", "Service Tag: <serial>"),
        ("ether 52-54-00-12-34-56, 001a.2b3c.4d5e", "ether <mac>, <mac>"),
        ("is detected [192.168.1.57]", "is detected [<ip>]"),
        ("lost worker 10.0.0.7.", "lost worker <ip>."),
        ("reached 10.20.30.40, then 34.120.7.9", "reached <ip>, then <ip>"),
        ("NCCL INFO NET/Socket : eth0:10.1.10.6<0>", "NCCL INFO NET/Socket : eth0:<ip><0>"),
        ("on gpubox.corp.example.com:", "on <host>:"),
        ("on os.corp.example.com and google.golang.org/grpc", "on <host> and google.golang.org/grpc"),
        ("https://nexus/simple http://proxy:3128", "https://<host>/simple http://<host>:3128"),
        ("login.hpc.uni-x.de, atlas-07.local, db.cluster.local", "<host>, <host>, <host>"),
        ("docker pull registry.corp.example.com/team/tf:1", "docker pull <host>/team/tf:1"),
        ("ip-10-1-2-3.ec2.internal", "<host>.ec2.internal"),
        ("gke-ml-a100-pool-1a2b3c4d-x7z9", "<host>"),
        ("glpat-abcdefghij0123456789", "<token>"),
        ("https://x.example.com/a?access_key=abc123&b", "https://<host>/a?access_key=<secret>"),
        ('{"password": "hunter2"}', '{"password": "<secret>"}'),
        ("train.py --pw hunter2", "train.py --pw <secret>"),
        ("--from=-ann@example.org", "--from=-<email>"),
        ("run.sh x--hub-token hunter2", "run.sh x--hub-token <secret>"),
        ("train.py --api_key abc123 --wandb_key 0123", "train.py --api_key <secret> --wandb_key <secret>"),
        (f"wandb login --relogin {'0a' * 20}", "wandb login --relogin <secret>"),
        ("DB_PASS=hunter22 AccountKey=Zm9v/x==", "DB_PASS=<secret> AccountKey=<secret>"),
        ("nvapi-abcdefghij0123456789_x", "<token>"),
        ("dckr_pat_abcdefghij0123", "<token>"),
        ("https://x.blob.example.com/a?sv=1&sig=Zm9v%3D&x=2", "https://<host>/a?sv=1&sig=<secret>&x=2"),
        ("https://b.example.com/o?X-Amz-Signature=0a1b2c", "https://<host>/o?X-Amz-Signature=<secret>"),
        ("Cookie: session=abc; id=1", "Cookie: <secret>"),
        ("CUDA_VISIBLE_DEVICES=GPU-8c7b6a55", "CUDA_VISIBLE_DEVICES=<gpu-uuid>"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
            "-----BEGIN RSA PRIVATE KEY-----<secret>-----END RSA PRIVATE KEY-----",
        ),
    ],
)
def test_identifiers_are_known_by_their_form(text: str, shown: str | None) -> None:
    if shown is None:
        assert "hunter2" not in redacted(text) and "ann:" not in redacted(text)
    else:
        assert redacted(text) == shown


DIGEST = f"sha256:{'3f' * 32}"


@pytest.mark.parametrize(
    "text",
    [
        "tf2.21.0-cuda12.5-cudnn9.3-py312@r535-rtx-4090",
        "cell tf2.22.0rc0-cudalatest-cudnnlatest-py313@r580.95.05-sm90 failed",
        "tf2.21.0-cuda12.5-cudnn9.3-py312@r535-h100-compat12.9: fails",
        "(tf2.21.0-cpu-py39@no-gpu)",
        "tf2.21.0-cuda12.5-cudnn9.3-py312_ours@r535-h100",
        "tf2.21.0+b3f1c2d4-cuda12.5-cudnn9.3-py312@r535-h100",
        "tf2.23.0.dev20261127+b3f1c2d4-cuda12.9-cudnn9.28-py312@no-gpu",
        f"docker pull tensorflow-gpu-matrix@{DIGEST}",
        f"ghcr.io/team/tensorflow@{DIGEST} and tf@{DIGEST}",
        f"tf@{DIGEST[:19]} was pulled",
    ],
)
def test_what_only_looks_like_a_user_at_a_host_stays(text: str) -> None:
    assert redacted(text) == text
    for part in text.replace("@", " ").split():
        assert part in redacted(f"{text}\n{part} again"), "it is not learned as a name either"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("tf@r580-h100:~$ nvidia-smi", "<user>@<host>:~$ nvidia-smi"),
        ("tf2@r580-h100:~$ nvidia-smi", "<user>@<host>:~$ nvidia-smi"),
        ("ssh ann@r535-h100", "ssh <user>@<host>"),
        ("ssh tf2.21.0-cpu-py312@gpubox", "ssh <user>@<host>"),
        ("ssh ann@sha256", "ssh <user>@<host>"),
        ("ssh ann@sha256box:3f", "ssh <user>@<host>:3f"),
    ],
)
def test_a_user_at_a_host_with_a_similar_name_is_taken_out(text: str, shown: str) -> None:
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
        "libcurand  10.3.6.82  0  nvidia",
        "TensorRT version: 10.0.1.6, libnvinfer.so.10.0.1, libcufft.so.11.0.8.103",
        "requires cudnn>=9.3.0.75 and cuFFT 10.9.0.58 or 11.2.1.3",
        "listening on 127.0.0.1:8888 and 0.0.0.0",
        "libcudnn.so.9: cannot open shared object file; nvidia-nvjitlink-cu12 12.5.82",
        "/mnt/data/venv /mnt/c/tools /mnt/wsl /media/disk2 /mnt/nfs1/x",
        "pip install --user keras-cv",
        "user=None host=localhost, user: root, host=127.0.0.1, node=0, numa node = 1",
        "https://developer.download.nvidia.com/compute/cuda/repos https://docs.python.org/3/library",
        "see www.tensorflow.org/install, github.com/tensorflow/tensorflow/issues/1, nvcr.io/nvidia/x:24.01",
        "tensorflow.python.framework.errors_impl.InternalError, keras.src.backend.tensorflow.nn, tf.data.x",
        "tensorflow/core/common_runtime/gpu/gpu_device.cc:2348, threading.local, model.fit(x), np.random.de",
        "org.tensorflow.framework, google.protobuf.internal, self.session.it, a.py b.so c.md x.tar.gz",
        "buffer lives on host memory, on host platform, on device 0; RTX 3090 on machine",
        "crw-rw-rw- 1 root root 195, 0 Nov 21 08:33 /dev/nvidia0",
        "name: NVIDIA GeForce GTX TITAN X, pci bus id: 0000:65:00.0, compute capability: 5.2",
        "Serial Number                     : N/A",
        "retry: 3, owner: it, serial execution, board identification",
        "the serial number is missing, serial is slower, serial was 3 times slower",
        "Linux Ubuntu 24.04, Linux Mint 22",
        "Linux Mint 22.1",
        '"a:0": 1, "dense:10", "job:worker/replica:0", "device:GPU:0", key=value, --key loss, monkey: 3',
        "forward_pass = model(x), one_pass=True",
        "/scratch/train.py /scratch/data/imagenet /scratch/miniconda3/envs/tf /lustre/scratch /scratch/t/",
        "ReqNodeList=(null) ExcNodeList=(null), node_list = [1, 2], nodelist[0], NODELIST(REASON)",
    ],
)
def test_text_that_a_diagnosis_needs_stays(text: str) -> None:
    if text.startswith("root@"):
        assert redacted(text) == "<user>@<host>"
    else:
        assert redacted(text) == text


def test_a_gpu_model_is_not_taken_for_a_host() -> None:
    assert "GTX TITAN X" in redacted("ann@titan:~$ nvidia-smi\nGeForce GTX TITAN X")


@given(
    st.tuples(*[st.integers(0, 255)] * 3), st.integers(20, 255), st.sampled_from(["", "[", "(", "at ", ", "])
)
def test_an_address_of_a_private_network_is_taken_out(
    numbers: tuple[int, ...], second: int, before: str
) -> None:
    third, fourth, _ = numbers
    for address in (f"10.{second}.{third}.{fourth}", f"192.168.{third}.{fourth}", f"172.16.{third}.{fourth}"):
        assert address not in redacted(f"x lost {before}{address}, then died")


@given(
    st.sampled_from(["nvidia-curand-cu12", "libcufft", "cuDNN", "TensorRT", "nvidia-cublas-cu12", "driver"]),
    st.sampled_from(["==", " ", "   ", ": ", ">=", " version "]),
    st.tuples(st.integers(1, 13), st.integers(0, 13), st.integers(0, 15), st.integers(0, 255)),
)
def test_a_version_of_four_numbers_stays(name: str, between: str, numbers: tuple[int, ...]) -> None:
    text = f"{name}{between}{'.'.join(map(str, numbers))}"
    assert redacted(text) == text


@given(
    st.from_regex(
        r"[a-z]{2,8}(-[a-z0-9]{1,5})?\.[a-z]{3,8}\.(example\.com|example\.org|internal|de)", fullmatch=True
    )
)
def test_a_fully_qualified_host_name_is_taken_out(host: str) -> None:
    # `np.random.de` and `tf.data.internal` are attributes of modules.
    assume(not (host.endswith((".de", ".internal")) and host.partition(".")[0] in _MODULES))
    assert host not in redacted(f"can't reach {host} (port 80)")


def test_given_names_are_taken_out() -> None:
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


# Every pattern takes time proportional to the length of the text, for any text.
#
# The texts are made from the patterns themselves: long runs of what each part of a pattern matches, after
# and between the words in it. A pattern that tries each of n places and reads up to n characters there
# takes a million steps for a line of a thousand characters.


if sys.version_info >= (3, 11):
    from re import _constants, _parser  # type: ignore[attr-defined]
else:
    import sre_constants as _constants
    import sre_parse as _parser

_REPEATS = tuple(
    getattr(_constants, name)
    for name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
    if hasattr(_constants, name)
)
PATTERNS = {
    pattern.pattern: pattern
    for pattern in (
        *(pattern for pattern, _ in (*IDENTIFIERS, *ALWAYS, *MOSTLY)),
        *ROWS,
        *(COLOURS, PROMPT, SHELL),
        # Patterns that stand for themselves.
        *(
            value
            for module in (identifiers, redact, redact, package_sources)
            for value in vars(module).values()
            if isinstance(value, re.Pattern)
        ),
    )
}
#: Characters for the classes of a pattern: one of each kind that patterns tell apart.
_KINDS = "aAz0_-. \t\n:/@=\"',;[(%+~<"
#: Characters of a text. A pattern that takes more than `_SUSPICIOUS_S` for it is tried with a longer one.
_SHORT, _FACTOR = 1500, 4
_SUSPICIOUS_S = 0.004


def parts(tree: Any, flags: int) -> Iterator[tuple[str, str]]:
    """Yield the words of a pattern (`word`), and the characters that its repeated parts match (`run`)."""
    word = ""
    for operator, argument in tree:
        if operator is _constants.LITERAL:
            word += chr(argument)
            continue
        if word:
            yield "word", word
            word = ""
        if operator in _REPEATS:
            _, high, inner = argument
            if high > 1:
                yield from (("run", kind) for kind in _KINDS if _matches(inner, kind, flags))
                yield from (("run", found) for what, found in parts(inner, flags) if what == "word")
            yield from parts(inner, flags)
        elif operator is _constants.SUBPATTERN:
            yield from parts(argument[-1], flags)
        elif operator is _constants.BRANCH:
            for branch in argument[1]:
                yield from parts(branch, flags)
        elif operator in (_constants.ASSERT, _constants.ASSERT_NOT):
            yield from parts(argument[1], flags)
        elif operator is getattr(_constants, "ATOMIC_GROUP", None):
            yield from parts(argument, flags)
        elif operator is _constants.IN:
            yield from (("word", kind) for kind in _KINDS if _in(argument, kind))
    if word:
        yield "word", word


def _matches(tree: Any, kind: str, flags: int) -> bool:
    return any(
        (operator is _constants.LITERAL and chr(argument) == kind)
        or (operator is _constants.NOT_LITERAL and chr(argument) != kind)
        or operator is _constants.ANY
        or (operator is _constants.IN and _in(argument, kind))
        for operator, argument in tree
    )


def _in(items: Any, kind: str) -> bool:
    """Return True if a character class contains a character."""
    negated, found, code = False, False, ord(kind)
    for operator, argument in items:
        if operator is _constants.NEGATE:
            negated = True
        elif operator is _constants.LITERAL:
            found |= argument == code
        elif operator is _constants.RANGE:
            found |= argument[0] <= code <= argument[1]
        elif operator is _constants.CATEGORY:
            found |= {
                _constants.CATEGORY_DIGIT: kind.isdigit(),
                _constants.CATEGORY_NOT_DIGIT: not kind.isdigit(),
                _constants.CATEGORY_SPACE: kind.isspace(),
                _constants.CATEGORY_NOT_SPACE: not kind.isspace(),
                _constants.CATEGORY_WORD: kind.isalnum() or kind == "_",
                _constants.CATEGORY_NOT_WORD: not (kind.isalnum() or kind == "_"),
            }[argument]
    return found != negated


def samples(tree: Any, flags: int) -> Iterator[tuple[str, str]]:
    """Yield for each repeated part a text that matches everything before it, and a character of the part."""
    before = ""
    for element in tree:
        operator, argument = element
        if operator in _REPEATS:
            yield from (
                (before, kind) for kind in _KINDS if argument[1] > 1 and _matches(argument[2], kind, flags)
            )
        for inner in _inside(operator, argument):
            yield from ((before + text, kind) for text, kind in samples(inner, flags))
        before += _sample(element, flags)


def _inside(operator: Any, argument: Any) -> list[Any]:
    if operator in _REPEATS:
        return [argument[2]]
    if operator is _constants.SUBPATTERN:
        return [argument[-1]]
    if operator is _constants.BRANCH:
        return list(argument[1])
    return [argument[1]] if operator is _constants.ASSERT and argument[0] > 0 else []


def _sample(element: Any, flags: int) -> str:
    """Return a short text that a part of a pattern matches."""
    operator, argument = element
    if operator is _constants.LITERAL:
        return chr(argument)
    if operator in (_constants.IN, _constants.ANY, _constants.NOT_LITERAL):
        kinds: Iterator[str] = (kind for kind in _KINDS if _matches([element], kind, flags))
        return next(kinds, "b")
    if operator in _REPEATS:
        return "".join(_sample(inner, flags) for inner in argument[2]) * int(argument[0])
    if operator is _constants.SUBPATTERN:
        return "".join(_sample(inner, flags) for inner in argument[-1])
    if operator is _constants.BRANCH:
        return "".join(_sample(inner, flags) for inner in argument[1][0])
    return ""


def hostile_texts(pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield texts to try a pattern with: a beginning, and what is repeated after it."""
    tree = _parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)
    found = list(dict.fromkeys(parts(tree, pattern.flags)))
    runs = list(dict.fromkeys(text for what, text in found if what == "run"))[:12]
    words = list(dict.fromkeys(text for what, text in found if what == "word" and len(text) < 40))[:25]
    for before, kind in dict.fromkeys(samples(tree, pattern.flags)):
        yield from ((before, kind), ("", before + kind), ("", before + kind * 50))
    for run in runs:
        yield from (("", run), ("", f"{run}\n"))
        for word in words:
            yield from ((word, run), ("", word + run), ("", run + word))
        for other in runs:
            yield ("", run + other)


def seconds(work: Callable[[str], object], text: str, enough: float = 0.0) -> float:
    """Return the time of the processor that the work takes: the best of three, or one below `enough`."""
    best = float("inf")
    for _ in range(3):
        began = time.thread_time()
        work(text)
        best = min(best, time.thread_time() - began)
        if best < enough:
            break
    return best


def is_linear(
    work: Callable[[str], object], head: str, unit: str, tail: str = "", shortest: int = _SHORT
) -> bool:
    """Return True if four times the text takes far less than sixteen times as long."""

    def text(length: int) -> str:
        return head + unit * (length // len(unit)) + tail

    short = seconds(work, text(shortest), _SUSPICIOUS_S)
    bound = short * _FACTOR * 2
    return short < _SUSPICIOUS_S or seconds(work, text(shortest * _FACTOR), bound) < bound


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=range(len(PATTERNS)))
def test_a_pattern_takes_time_in_proportion_to_the_length_of_the_text(pattern: re.Pattern[str]) -> None:
    def work(text: str) -> None:
        deque(pattern.finditer(text), maxlen=0)

    for head, unit in subjects_to_try(list(dict.fromkeys(hostile_texts(pattern)))):
        assert is_linear(work, head, unit), (pattern.pattern, head, unit)


@pytest.mark.slow
def test_a_pattern_with_a_longer_time_is_found() -> None:
    """The pattern for serial numbers was once like this. A line of 16,000 blanks took 14 seconds."""
    pattern = re.compile(r"\bserial\s*(?:[:=#]|(?=[ \t]+[\w-]*\d)[ \t]+)x")
    assert ("serial", " ") in set(hostile_texts(pattern))
    assert not is_linear(lambda text: deque(pattern.finditer(text), maxlen=0), "serial", " ", shortest=750)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "unit"),
    [
        ("", "/home/user{} "),
        ("", "u{0}@h{0}:~$ "),
        ("Serial", " "),
        ("", "10.1.2.3 "),
        ("", "token=a{} "),
        ("", "https://u{}:p@h "),
        ("", "x{}.corp.example.com "),
        ("", "-----BEGIN PRIVATE KEY-----"),
        ("mysql ", "-q "),
    ],
)
def test_redaction_takes_time_in_proportion_to_the_length_of_a_line(head: str, unit: str) -> None:
    """Thousands of names that are learned from a text are not looked for one by one."""

    def text(count: int) -> str:
        return head + "".join(unit.format(number) for number in range(count))

    # Most take so little that there is no need to know more exactly.
    long = seconds(redacted, text(2000), 0.1)
    assert long < 0.1 or long < seconds(redacted, text(500)) * 10


@pytest.mark.parametrize(
    "unit",
    [
        "a-",
        "--a",
        "a.",
        "a.-1",
        "-",
        "A_",
        "token",
        "/afs/a",
        "/home/a/",
        "/scratch/a/",
        "nodelist=a[",
        "a,[",
        "\n",
        " ",
        " \n",
        "1 a b ",
        "1 ",
        "-----BEGIN PRIVATE KEY-----",
    ],
)
def test_all_patterns_together_take_time_in_proportion_to_the_length_of_a_text(unit: str) -> None:
    def work(text: str) -> None:
        assert "hunter2" not in redacted(text)

    assert is_linear(work, "", unit, " password=hunter2")


def test_each_of_many_texts_is_stripped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stripped: list[str] = []

    def strip(text: str) -> redact._Stripped:
        stripped.append(text)
        return redact._Stripped(text, text)

    monkeypatch.setattr(redact, "_stripped", strip)
    texts = [str(number) for number in range(2000)]
    redaction = redact.Redaction(texts)
    assert [redaction(text) for text in texts] == texts
    assert stripped == texts


def test_a_long_line_is_redacted_quickly() -> None:
    line = "serial" + " " * 16_000 + "x"
    assert seconds(redacted, line, 1) < 1
