"""Identifiers that are known by their form: addresses, host names, serial numbers; credentials first.

Text of the same form that identifies nobody stays: versions of four numbers, names of libraries and of Python
modules, hosts that everybody downloads from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .credentials import CREDENTIALS

Replacement = str | Callable[[re.Match[str]], str]

_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#: Hosts of registries, documentation, projects and vendors, with their subdomains.
_PUBLIC = {
    "aka.ms", "anaconda.com", "anaconda.org", "apache.org", "archlinux.org", "arxiv.org", "askubuntu.com",
    "astral.sh", "bazel.build", "conda.io", "conda-forge.org", "debian.org", "docker.com", "docker.io",
    "fedoraproject.org", "gcr.io", "ghcr.io", "gitee.com", "github.com", "github.io", "githubassets.com",
    "githubusercontent.com", "gitlab.com", "gnu.org", "golang.org", "goo.gl", "google.com", "googleapis.com",
    "googlesource.com", "huggingface.co", "jax.dev", "jetson-ai-lab.dev", "kaggle.com", "keras.io",
    "kernel.org", "kubernetes.io", "launchpad.net", "launchpadcontent.net", "llvm.org", "mamba.pm",
    "mcr.microsoft.com", "microsoft.com", "nvcr.io", "nvidia.cn", "nvidia.com", "numpy.org", "opencv.org",
    "openxla.org", "pydata.org", "pypa.io", "python.org", "pytorch.org", "quay.io",
    "readthedocs.io", "readthedocs.org", "redhat.com", "rpmfusion.org", "scipy.org",
    "stackexchange.com", "stackoverflow.com", "tensorflow.google.cn", "tensorflow.org", "ubuntu.com",
    "wikipedia.org", "wandb.ai",
}  # fmt: skip
#: Labels of the longest of them.
_LABELS = max(host.count(".") for host in _PUBLIC) + 1
#: First parts of the names of Python modules and Java packages.
_MODULES = {
    "absl", "asyncio", "com", "concurrent", "google", "importlib", "ipykernel", "ipython", "jax", "jaxlib",
    "jupyter", "keras", "logging", "matplotlib", "multiprocessing", "np", "numpy", "nvidia", "org", "os",
    "pandas", "pip", "pkg_resources", "scipy", "self", "setuptools", "sklearn", "sys", "tensorboard",
    "tensorflow", "tf", "tf_keras", "threading", "torch", "tsl", "unittest", "urllib3", "xla",
}  # fmt: skip
#: Domains under which a name of two parts counts as a host name.
_DOMAINS = {"com", "edu", "gov", "mil", "org"}
#: Under these it needs three parts, because attributes in Python and file names end like this too.
_SHORT_DOMAINS = {
    "ai", "ar", "at", "au", "be", "br", "ca", "ch", "cl", "cloud", "cn", "cz", "de", "dev", "dk", "es",
    "eu", "fi", "fr", "gr", "hk", "hu", "ie", "il", "intra", "io", "ir", "it", "jp", "kr", "mx", "net",
    "nl", "no", "nz", "pt", "ru", "se", "sg", "th", "tr", "tw", "ua", "uk", "us", "vn", "za", "example",
    "test",
}  # fmt: skip
#: Domains inside companies. Two parts are enough if a digit or a dash shows that the first is not a module.
_OWN_DOMAINS = {"corp", "home", "internal", "intranet", "lan", "local", "localdomain", "private"}
_FQDN = re.compile(rf"(?<![\w.@>/\\-])(?:{_LABEL}\.)+[A-Za-z]{{2,14}}(?![\w-]|\.\w|\()")
_IN_ADDRESS = re.compile(r"(?<=://)[A-Za-z0-9][\w.-]*(?![\w@.-])")

_IP = re.compile(rf"(?<![\w.]){_OCTET}(?:\.{_OCTET}){{3}}(?!\.?\w)")
#: Follows an address and not a version.
_AFTER_IP = re.compile(r":\d{2,5}\b|/\d{1,2}\b| port\b")
#: Words before an address.
_BEFORE_IP = re.compile(
    r"(?i)(?:inet6?|addr(?:ess)?|peer|server|host(?:name)?|node|worker|ip|ping|ssh|scp|gateway|remote|client|endpoint"
    r"|bind|nameserver|coordinator|chief|connect\w*|listen\w*)$"
)
#: Words before a version.
_BEFORE_VERSION = re.compile(
    r"(?i)(?:nvidia|cuda|cu(?:dnn|blas|fft|rand|solver|sparse|dart|pti|file|sparselt|tensor)|lib|nv|tensor|trt|nccl"
    r"|driver|version|release|ver|package|wheel|toolkit|runtime|rev)"
)
#: Addresses that identify nobody: this machine, any machine.
_NOBODYS = ("127.0.0.1", "0.0.0.0", "255.255.255.255")


def is_public(host: str) -> bool:
    """Return whether a host is one that everybody uses, such as a registry or a documentation site."""
    labels = host.lower().rsplit(".", _LABELS)
    return any(".".join(labels[-count:]) in _PUBLIC for count in range(1, _LABELS + 1))


def hosts_in(text: str) -> Iterator[str]:
    """Yield the host names in a text that are known by their form, each without its domain."""
    for match in _FQDN.finditer(text):
        first = match[0].partition(".")[0]
        # Without a digit or a dash it may be an ordinary word: `mail`, `proxy`, `build`.
        if _is_host(match[0]) and re.search(r"\d|-", first):
            yield first


def is_address(text: str) -> bool:
    """Return whether the whole text is an address or a version, which is not a name."""
    return re.fullmatch(r"[\d.:]+", text) is not None


def _is_host(name: str) -> bool:
    parts = name.lower().split(".")
    if is_public(name) or (parts[0] in _MODULES and (len(parts) < 3 or parts[-1] not in _DOMAINS)):
        return False
    if parts[-1] in _OWN_DOMAINS:
        return len(parts) > 2 or re.search(r"\d|-", parts[0]) is not None
    return parts[-1] in _DOMAINS or (parts[-1] in _SHORT_DOMAINS and len(parts) > 2)


def _host(match: re.Match[str]) -> str:
    return "<host>" if _is_host(match[0]) else match[0]


def _host_in_address(match: re.Match[str]) -> str:
    name = match[0]
    kept = is_public(name) or name == "localhost" or is_address(name)
    return name if kept else "<host>"


def _ip(match: re.Match[str]) -> str:
    if match[0] in _NOBODYS:
        return match[0]
    line = match.string[max(0, match.start() - 200) : match.start()].rpartition("\n")[2]
    first, second, third, _ = (int(part) for part in match[0].split("."))
    if _AFTER_IP.match(match.string, match.end()) or line.endswith("//"):
        return "<ip>"
    if re.search(r"[=<>~!]=\s*$|[-_+]$", line):
        return match[0]
    # No library has such a version. Versions of cuRAND, cuFFT and TensorRT begin with 10 too.
    if first >= 100 or (first == 10 and (second >= 20 or third >= 30)):
        return "<ip>"
    words = re.findall(r"[A-Za-z][\w.+/-]*", line)[-2:]
    for word in reversed(words):
        if _BEFORE_IP.match(word):
            return "<ip>"
        if _BEFORE_VERSION.match(word):
            return match[0]
    return "<ip>" if first >= 10 else match[0]


_GPU_UUIDS = (
    re.compile(rf"\b(?:GPU|MIG)-(?:GPU-)?{_UUID}(?:/\d+/\d+)?(?![0-9A-Fa-f])"),
    # CUDA_VISIBLE_DEVICES accepts a prefix of a UUID.
    re.compile(r"\b(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){0,3}(?![\w-])"),
)
_GPU_UUID_BEGINNINGS = ("GPU-", "MIG-")


def without_gpu_uuids(text: str) -> str:
    """Return a published text without the UUIDs of GPUs. What replaces them is no markup in any format."""
    # Most files have none, and a search for plain text shows that many times faster than the patterns.
    if not any(beginning in text for beginning in _GPU_UUID_BEGINNINGS):
        return text
    for pattern in _GPU_UUIDS:
        text = pattern.sub("(GPU UUID)", text)
    return text


#: Patterns and their replacements, in the order in which they are applied.
IDENTIFIERS: tuple[tuple[re.Pattern[str], Replacement], ...] = (
    *CREDENTIALS,
    # Only the start of a run of letters is tried, so that a long run takes no more time.
    (
        re.compile(r"(?<![\w.+-])(?P<before>[.+-]*)(?=\w)[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}\b"),
        r"\g<before><email>",
    ),
    *((pattern, "<gpu-uuid>") for pattern in _GPU_UUIDS),
    (re.compile(rf"(?<![0-9A-Fa-f]){_UUID}(?![0-9A-Fa-f])"), "<uuid>"),
    (re.compile(r"(?<![\w:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![\w:])"), "<mac>"),
    (
        re.compile(
            r"(?i)(?P<before>\b(?:serial(?:[ _-]?(?:number|no\.?|nr\.?|id))?|board[ _-]?id|service[ _-]?tag"
            r"|asset[ _-]?tag|s/n)\s{0,64}(?:[:=#]\s{0,64}|(?<=[ \t])(?=[\w-]{0,64}\d)))(?!N/A\b)[^\s<,;)\]]+"
        ),
        r"\g<before><serial>",
    ),
    (
        # As people write it. A shorter number may be another one: `serial is 3 times slower`.
        re.compile(
            r"(?i)(?P<before>\bserial(?:[ _-]?(?:number|no\.?))?[ \t](?:is|was):?[ \t]{1,8})"
            r"(?=[\w-]{0,64}\d)[\w-]{6,64}"
        ),
        r"\g<before><serial>",
    ),
    (re.compile(r"(?P<before>\bSN[:=# ]\s*)(?=[\w-]*\d)[\w-]{6,}"), r"\g<before><serial>"),
    (re.compile(r"(?<![\w-])(?:[0-9A-Fa-f]{2}-){5}[0-9A-Fa-f]{2}(?![\w-])"), "<mac>"),
    (
        re.compile(r"(?i)(?<![\w.])(?=[\d.]*[a-f])[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4}(?![\w.])"),
        "<mac>",
    ),
    (_IP, _ip),
    (re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{1,4}:){4,7}[0-9A-Fa-f]{1,4}(?![\w:])"), "<ip>"),
    (
        # With `::` in it. Names in C++ have this form too, but no part that begins with a digit.
        re.compile(
            r"(?<![\w:.])(?=[0-9A-Fa-f:]*\d)(?:[0-9A-Fa-f]{1,4}:){1,6}(?::[0-9A-Fa-f]{1,4}){1,6}(?![\w:])"
        ),
        "<ip>",
    ),
    # Clouds name machines after the address, or after a pool and a number.
    (re.compile(r"(?i)(?<![\w-])ip-\d{1,3}(?:-\d{1,3}){3}(?![\w-])"), "<host>"),
    (re.compile(r"(?<![\w-])(?:gke|aks|eks)-[a-z0-9-]*\d[\w-]*(?![\w-])"), "<host>"),
    # The id of a container. After `sha256:` it is the digest of public content.
    (re.compile(r"(?<![0-9A-Za-z:=])[0-9a-f]{64}(?![0-9A-Za-z])"), "<container>"),
    (
        re.compile(
            r"(?P<before>(?i:\bcontainer(?:[ _]id)?[ =:\"']+)|^)(?=[0-9a-f]*\d)[0-9a-f]{12}(?=[\s\"',:]|$)",
            re.MULTILINE,
        ),
        r"\g<before><container>",
    ),
    (_IN_ADDRESS, _host_in_address),
    (_FQDN, _host),
)
