"""Places in a text that contain names of people and machines: home directories, prompts, the system log,
variables, the output of `id`, `uname` and `ps`.
"""

from __future__ import annotations

import re

#: The replacements, without their angle brackets.
PLACEHOLDERS = (
    "user", "host", "name", "email", "credentials", "gpu-uuid", "uuid", "mac", "ip", "token", "serial",
    "secret", "container",
)  # fmt: skip
#: Words that occur in such places and identify nobody.
COMMON = {
    *PLACEHOLDERS,
    "root", "users", "home", "ubuntu", "debian", "localhost", "admin", "jovyan", "runner", "app", "work",
    "tf", "gpu", "node", "docker", "nobody", "default", "public", "test", "python", "conda", "tensorflow",
    "nvidia", "linux", "windows", "kernel", "cuda", "cudnn", "xla", "keras", "numpy", "pip", "usr", "opt",
    "lib", "bin", "tmp", "var", "venv", "env", "src", "workspace", "project", "data", "model", "train",
    "error", "warning", "failed", "info", "cpu", "driver", "device", "library", "line", "file", "true",
    "false", "none", "null", "self", "unknown", "local", "server", "client", "worker", "master", "main",
    "all", "any", "str", "int", "titan", "tesla", "quadro", "geforce", "ampere", "hopper", "volta",
    "pascal", "turing", "ada", "rtx", "gtx", "amd", "intel", "ryzen", "xeon", "ubuntu2204", "wsl", "colab",
    "kaggle", "jupyter", "notebook", "anaconda", "miniconda", "conda-forge", "mambaforge", "desktop",
    "laptop", "workstation", "repo",
}  # fmt: skip
#: Mount points that are named after their content, not after their owner.
_MOUNTS = (
    "[a-z]|azureml|backups?|batch|cache|cdrom|cloud|cluster|common|data\\w*|disks?|drive|efs|external|fast|fsx|gcs"
    "|gdrive|gpfs|hdd|homes?|local|lustre|models?|nas|nfs|nvme|pool|opt|projects?|public|pvc?|raid|resource|s3|scratch|shared?"
    "|slow|srv|ssd|storage|tank|te?mp|usb|users?|usr|var|volumes?|vol|windows|work|workspace|wslg?|zfs"
)
#: Directories next to home directories.
_SHARED = (
    "(?:ana|mini)?conda|(?:mini|mamba)forge|v?envs?|containers?|images?|jobs?|logs?|slurm[\\w-]*|software"
)
_NAME = r"[A-Za-z_][\w.-]*"
#: Places that always hold a name.
ALWAYS = tuple(
    (re.compile(pattern, re.MULTILINE), instead)
    for pattern, instead in (
        # A name that contains blanks ends at the next backslash.
        (r"(?P<before>\b[A-Za-z]:\\{1,2}Users\\{1,2})(?P<name>[^/\\:'\"<>|\n]+)(?=\\)", "<user>"),
        (
            # Clusters group home directories by team or first letter.
            r"(?P<before>/homes?\d*/(?:(?:users?|staff|students?|people|faculty|corp|grad|[a-z0-9])/)?|/[Uu]sers/"
            r"|/afs/(?:[\w.-]+/){1,6}users?/(?:[a-z]/){0,3}|\b[A-Za-z]:\\{1,2}Users\\{1,2})"
            # Not the group of a home directory whose name is already replaced.
            r"(?P<name>[^/\\\s:'\"<>|]+)(?![^/\\\s:'\"<>|])(?!/<user>)",
            "<user>",
        ),
        (r"(?P<before>\b[ug]id=\d+\()(?P<name>[A-Za-z_][\w.-]*)", "<user>"),
        (
            # The system log.
            r"(?P<before>^[^\S\n]*(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.,+Z-]+) )"
            r"(?!(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL|[IWEF])\b)"
            r"(?P<name>[\w.-]+)(?= [\w./()-]+(?:\[\d+\])?:)",
            "<host>",
        ),
        (
            # TensorFlow's diagnostics; variables.
            r"(?P<before>\bon this host \(|\bdiagnostic information for host: "
            r"|(?i:(?:host|node)name)[\"']?\s?[:=]\s?[\"']?)"
            r"(?P<name>[\w.-]+)",
            "<host>",
        ),
        (
            # A scheduler's list of nodes: `gpu[01-04],login1`.
            r"(?P<before>\b(?i:\w*node_?list)[\"']?\s?[=:]\s?[\"']?)(?=[\w.-]*[\[,])(?P<name>[A-Za-z][\w.,\[\]-]*)",
            "<host>",
        ),
        (
            # uname, and not the name of a distribution.
            r"(?P<before>^Linux )(?!(?:Ubuntu|Debian|Mint|Fedora|CentOS|Rocky|AlmaLinux|openSUSE) )"
            r"(?P<name>[\w.-]+)(?= \d+\.\d+)",
            "<host>",
        ),
    )
)
#: Places that may also hold a word that is not a name: `user=None`, `host=localhost`, `/mnt/data`.
MOSTLY = tuple(
    (re.compile(pattern, re.MULTILINE), instead)
    for pattern, instead in (
        (rf"(?P<before>/mnt/|/(?:run/)?media/)(?!(?i:{_MOUNTS})\d*(?![\w.-]))(?P<name>{_NAME})", "<user>"),
        (
            rf"(?P<before>/scratch\d*/(?:users?/|[a-z]/)?)(?!(?i:{_MOUNTS}|{_SHARED})\d*(?![\w.-]))"
            # Not a file in that directory.
            rf"(?P<name>{_NAME}(?=/)|[A-Za-z_][\w-]*(?![\w.-]))",
            "<user>",
        ),
        (r"(?P<before>(?<![\w/.~])~)(?P<name>[a-z][\w-]{2,})(?=/)", "<user>"),
        (
            r"(?i)(?P<before>\b(?:\w*_)?(?:user(?:[ _-]?name)?|logname|login|owner)[\"']?\s*=\s*[\"']?"
            r"|[\"'](?:\w*_)?(?:user(?:[ _-]?name)?|logname|login|owner)[\"']\s*:\s*[\"'])"
            rf"(?P<name>{_NAME})(?![\w.(\[])",
            "<user>",
        ),
        (
            rf"(?i)(?P<before>\buser(?:[ _-]?name)?[ \t]*:[ \t]+)(?P<name>{_NAME})(?=[ \t]*(?:$|[,;|)]))",
            "<user>",
        ),
        (rf"(?P<before>\bwhoami[ \t]*\r?\n)(?P<name>{_NAME})(?=[ \t]*\r?$)", "<user>"),
        (
            rf"(?P<before>\b(?:run|started|submitted|launched|owned) by )(?P<name>{_NAME})"
            r"(?= on (?:host|node|machine)\b)",
            "<user>",
        ),
        (
            r"(?i)(?P<before>\b(?:\w*_)?(?:host|node|nodelist)[\"']?\s*=\s*[\"']?"
            r"|[\"'](?:host|node)[\"']\s*:\s*[\"'])"
            r"(?=[\w.-]*[a-z])(?P<name>[a-z0-9][\w.-]*)(?![\w.(])",
            "<host>",
        ),
        (
            r"(?P<before>^[^\S\n]*(?:Host|Node)[ \t]*:[ \t]+)(?=[\w.-]*[a-z])(?P<name>[a-z0-9][\w.-]*)"
            r"(?=[ \t]*$|/)",
            "<host>",
        ),
        # TF_CONFIG; variables and options of schedulers and engines.
        (r"(?P<before>[\"'])(?P<name>[A-Za-z][\w.-]*)(?=:\d{4,5}[\"'])", "<host>"),
        (
            r"(?P<before>\b(?:POD|NODE|HOST)_NAME=|--hostname[= ])(?=[\w.-]*[a-z])(?P<name>[a-z0-9][\w.-]*)",
            "<host>",
        ),
        (r"(?P<before>\bSuccessfully assigned \S+ to )(?P<name>[\w.-]+)", "<host>"),
        # An ordinary word after it is usually not a name: `on host memory`.
        (
            r"(?P<before>\bon (?:the )?(?:host|node|machine) )"
            r"(?=[\w.-]*(?:[\d-]|\.\w))(?P<name>[A-Za-z][\w.-]*\w)",
            "<host>",
        ),
    )
)
_JOB = r"^[ \t]*\d+(?:_\d+)?[ \t]+\S+[ \t]+\S+[ \t]+"
#: Rows of `ps aux`, `ls -l` and `squeue`. Names are learned here, and taken out wherever they occur.
ROWS = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        rf"^(?P<name>{_NAME})\+?\s+\d+\s+\d+\.\d\s+\d+\.\d\s",
        rf"^[dlcbps-][rwxsStT-]{{9}}[.+@]?\s+\d+\s+(?P<name>{_NAME})\s",
        rf"^[dlcbps-][rwxsStT-]{{9}}[.+@]?\s+\d+\s+\S+\s+(?P<name>{_NAME})\s",
        # Job, partition, name, user, state, time, number of nodes, nodes.
        rf"{_JOB}(?P<name>{_NAME})[ \t]+(?:R|CG|PD|S)[ \t]+(?:\d+-)?\d+:[\d:]+[ \t]+\d+[ \t]",
        rf"{_JOB}\S+[ \t]+(?:R|CG|S)[ \t]+(?:\d+-)?\d+:[\d:]+[ \t]+\d+[ \t]+(?P<name>{_NAME})[ \t]*$",
    )
)
#: What has the form of a user at a host: a cell of this project, and the digest of an image.
_NOBODY = (
    r"(?!tf\d[\w.]{1,16}-(?:cpu|cuda[\w.]{1,8}-cudnn[\w.]{1,8})-py3\d{1,2}[\w.-]{0,64}"
    r"@(?:no-gpu|r\d{3}[\d.]{0,10}-[a-z\d][a-z\d.-]{0,40})(?![\w.-]*[\w-])|[\w.-]{1,128}@sha256:[0-9a-f])"
)
PROMPT = re.compile(
    # A host name contains a letter; `python@3.11` is a version.
    rf"(?<![\w./@:+-]){_NOBODY}(?P<user>[A-Za-z_][\w.-]{{0,31}})"
    r"@(?P<host>(?=[\w.-]*[A-Za-z])[A-Za-z0-9][\w.-]{0,62})(?=[:~ \])]|$)",
    re.MULTILINE,
)
#: The same where it can only be a prompt, not a mail address.
SHELL = re.compile(
    rf"(?<![\w./@:+-]){_NOBODY}(?P<user>[A-Za-z_][\w.-]{{0,31}})@(?P<host>[A-Za-z0-9][\w.-]{{0,62}})"
    r"(?=:[~/]| [~/][^\n]*\][$#])"
)
COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
