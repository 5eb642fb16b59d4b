"""Identifiers that are known by their form: addresses, host names, serial numbers; credentials first.

Text of the same form that identifies nobody stays: versions of four numbers, names of libraries and of Python
modules, hosts that everybody downloads from.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

# Credentials: tokens recognized by their form, and secrets recognized by what comes before them.
#
# The forms are those that the services publish, and that gitleaks and trufflehog look for. No pattern may
# scan the same text again from many positions, so repeated parts are bounded, or start only at the beginning
# of a run of their characters.

#: Tokens by service. Each is looked for where a word begins.
_TOKENS = (
    # Sources and packages: GitHub, GitLab, npm, PyPI, RubyGems, Docker Hub, Hugging Face, JFrog, Atlassian.
    r"gh[pousr]_\w{20,}", r"github_pat_\w{20,}",
    r"(?:glpat|gldt|glrt|glcbt|glptt|glft|glsoat|glimt|glagent|gloas)-[\w-]{20,}",
    r"npm_[A-Za-z0-9]{30,}", r"pypi-AgE[\w-]{20,}", r"rubygems_[0-9a-f]{40,}", r"dckr_[po]at_[\w-]{10,}",
    r"(?:hf|api_org)_[A-Za-z0-9]{20,}",
    r"AKCp[A-Za-z0-9]{60,}", r"ATATT3[\w=-]{50,}",
    # Clouds: AWS, Google, DigitalOcean, Alibaba, Heroku, Fly.
    r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    r"AIza[\w-]{30,}", r"ya29\.[\w-]{20,}", r"GOCSPX-[\w-]{20,}", r"do[opr]_v1_[0-9a-f]{60,}",
    r"LTAI[A-Za-z0-9]{16,24}(?![A-Za-z0-9])", r"HRKU-[\w-]{30,}", r"f(?:o1|m1|m2|m1r|m1a)_[\w+/=-]{60,}",
    # Models and experiments: OpenAI, Anthropic, NVIDIA, Weights & Biases, Groq, Replicate, xAI, Perplexity.
    r"sk-(?=[\w-]{0,40}\d)[\w-]{20,}", r"nvapi-[\w-]{20,}", r"wandb_v\d_\w{20,}", r"gsk_[A-Za-z0-9]{40,}",
    r"r8_[A-Za-z0-9]{30,}", r"xai-[A-Za-z0-9]{60,}", r"pplx-[A-Za-z0-9]{40,}",
    # Messages and mail: Slack, SendGrid, Mailgun, Mailchimp, Telegram, Discord, Twilio.
    r"xox[abeoprs](?:\.xox[bp])?-[\w-]{10,}", r"xapp-\d-[\w-]{20,}", r"SG\.[\w-]{16,32}\.[\w-]{16,64}",
    r"key-[0-9a-f]{32}(?![0-9a-f])", r"[0-9a-f]{32}-us\d{1,2}\b", r"\d{8,10}:AA[\w-]{32,34}(?![\w-])",
    r"[MNO][A-Za-z0-9_-]{23,27}\.[\w-]{6}\.[\w-]{27,40}(?![\w-])", r"SK[0-9a-f]{32}(?![0-9a-f])",
    # Payments and shops: Stripe, Square, Shopify.
    r"(?:sk|rk|pk)_(?:live|test|prod)_[A-Za-z0-9]{10,}", r"whsec_[A-Za-z0-9+/=]{20,}",
    r"sq0[a-z]{3}-[\w-]{22,}", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
    # Infrastructure: age, Vault, Databricks, Grafana, New Relic, Tailscale, Pulumi, Doppler, Terraform.
    r"AGE-SECRET-KEY-1[A-Za-z0-9]{20,}", r"hv[sbr]\.[\w-]{20,}", r"dapi[0-9a-f]{32}(?:-\d)?",
    r"gl(?:sa|c)_[\w+/=-]{30,}", r"NRAK-[A-Z0-9]{27}", r"tskey-[a-z]{2,10}-[\w-]{10,}",
    r"pul-[0-9a-f]{40}", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9]{40,44}",
    r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,70}", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}", r"lin_api_[A-Za-z0-9]{40}",
    r"ops_eyJ[\w+/=-]{100,}",
)  # fmt: skip
#: A secret as the value of something: up to the closing quote, or to the next separator.
_VALUE = r"""(?:(?<=")(?!<)[^"\n]{1,500}|(?<=')(?!<)[^'\n]{1,500}|[^\s,;'"<]+)"""
#: A secret as a word of a command line, with its quotes.
_WORD = r"""(?:'[^'\n]{1,500}'|"[^"\n]{1,500}"|[^\s'"<]+)"""
#: Parts of the names of variables and options that hold secrets.
_SECRETS = (
    "token|secret|passw(?:or)?d|passphrase|credential|(?:shared[_-]?access"
    "|access|account|admin|api|app|auth|client|comet|deploy|encryption|google|hf|hmac|kaggle|license|master|neptune"
    "|ngc|openai|private|service|session|signing|ssh|storage|subscription|wandb|webhook)[_-]?key"
)
#: Programs whose option -p is a password; for some of them only after `login`.
_P_IS_PASSWORD = (
    r"7z|cqlsh|influx|mariadb|mariadb-dump|mongo|mongosh|mongodump|mysql|mysqladmin|mysqldump|mysqlimport|sshpass"
    r"|twine|(?:apptainer|az|buildah|crane|docker|helm|nerdctl|oc|oras|podman|singularity|skopeo)"
    r"(?=[^\n|;&]{0,60}?\blogin\b)"
)
#: The rest of a command, up to an option.
_UP_TO = r"(?![\w/.=-])[^\n|;&]{0,200}?\s"
#: A command that reads a password from its standard input.
_READS_PASSWORD = (
    r"(?:sudo\b[^\n|;&]{0,60}?[ \t](?:-[A-Za-z]*S|--stdin)(?![\w-])"
    r"|(?:sudo[ \t]+)?(?:chpasswd|kinit|cryptsetup)\b"
    r"|[^\n|;&]{0,200}?[ \t](?:--(?:password|token|secret)-stdin|--with-token|--passphrase-fd))"
)
_SCHEMES = "apikey|basic|bearer|bot|digest|negotiate|token"
#: A user and a password as one word. A user and a group, as numbers or variables, are none.
_USER = r"""(?!['"]?(?:\d+:\d+(?!\S)|\$|[A-Za-z]:\\))(?=[^\s:/%]{0,64}[:%](?!//)\S)"""

#: What stands before a secret, the secret, and what to write in its place if that is not `<secret>`.
_PLACES = (
    # In an address. The user may be empty (`redis://:password@host`), and a number after the host is a port.
    (
        r"://",
        r"""[^/\s:@<]*(?::(?!\d{1,5}/)[^\s@"'<>]{0,256}(?:@[^\s@/"'<>]{1,128}(?=@))?)?@[^/\s:@<]+""",
        "<credentials>@<host>",
    ),
    # In an address without a scheme, as of proxies. In the name of an image, a digest follows the `@`.
    (
        r"(?<![\w./@:+%-])(?!mailto:|acct:|sip:|xmpp:)",
        r"""[\w.+%-]{1,64}:[^\s@/:,;'"<]{3,128}@(?!sha256:)(?=[\w.-]{0,253}[A-Za-z])\w[\w.-]{0,253}(?=[:/\s'",()]|$)""",
        "<credentials>@<host>",
    ),
    # The two halves of a key of AWS.
    (r"""\b(?:A3T[A-Z0-9]|AKIA|ASIA)[A-Z0-9]{16}[\s"',:;|]{1,20}""", r"[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])"),
    # JSON Web Tokens: three parts, of which the last may be empty.
    (r"(?<![\w-])", r"eyJ[\w-]{6,}\.[\w-]+\.[\w-]*", "<token>"),
    (r"\b", "|".join(_TOKENS), "<token>"),
    # Webhooks: whoever has the address may write there.
    (r"\bhooks\.slack\.com/(?:services|workflows|triggers)/", r"""[^\s'"<>]+"""),
    (r"\bdiscord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/", r"""[^\s'"<>]+"""),
    (r"\.webhook\.office\.com/webhookb?2?/", r"""[^\s'"<>]+"""),
    (r"\bapi\.telegram\.org/bot", r"""[^\s'"<>/]+"""),
    # Private keys: PEM, OpenSSH, PGP, SSH2, PuTTY. A key that is cut off goes on to the end.
    (
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|---- BEGIN SSH2 [A-Z ]{0,40}PRIVATE KEY ----",
        r"(?s:.*?)(?=-----END |---- END |\Z)",
    ),
    (r"\bPrivate-Lines: \d{1,4}\r?\n", r"(?:[A-Za-z0-9+/=]+(?:\r?\n|$))+", "<secret>\n"),
    # Headers.
    (rf"""(?i)\bauthorization["']?\s{{0,8}}[:=]\s{{0,8}}["']?(?:{_SCHEMES})\s{{1,8}}""", r"""[^\s'"<]+"""),
    (
        rf"""(?i)\bauthorization["']?\s{{0,8}}[:=]\s{{0,8}}["']?(?!{_SCHEMES})(?=\S{{0,40}}\d)""",
        r"""[^\s'"<]{8,}""",
    ),
    (r"(?i)\b(?:bearer|basic) (?=\S{8})", _VALUE),
    (r"(?i)\b(?:set-)?cookie: ", r"[^\n]+"),
    # Names of secrets with their values. That a value follows is looked for first, because that is faster.
    (
        rf"""(?i)(?<![\w-])(?=[\w-]+(?:\\?["']\]?)?\s{{0,40}}[=:])(?=[\w-]*(?:{_SECRETS}))"""
        r"""[\w-]+(?:\\?["']\]?)?\s{0,40}[=:]\s{0,40}(?:\\?["'])?""",
        _VALUE,
    ),
    (r"""\b[A-Z]\w*_(?:AUTH|PASS|PWD)(?:["']\]?)?\s{0,8}=\s{0,8}["']?""", _VALUE),
    (
        r"""\b(?!\w*(?:CACHE|FOREIGN|HOST|PRIMARY|PUB|PUBLIC|SORT)_KEY)[A-Z]\w*_KEY(?:["']\]?)?\s{0,8}=\s{0,8}["']?""",
        _VALUE,
    ),
    # The configuration of Docker, and calls such as `wandb.login(key=...)`.
    (r"""(?<!\w)\\?["'](?:auth|_auth)\\?["']\s{0,8}:\s{0,8}\\?["']""", r"""[^\s"'<\\]+"""),
    (r"""\blogin\([^()\n]{0,200}?\bkey\s{0,8}=\s{0,8}["']?""", _VALUE),
    # Commands and arguments that give a name and its value as two words.
    (
        rf"""(?i)\b(?:config(?:ure)?[ \t](?:[^\n|;&]{{0,80}}?[ \t])?(?:set[ \t]{{1,8}})?|putenv\("""
        rf"""|setdefault\(|setenv\(|setenv[ \t]|^[ \t]*ENV[ \t])["']?(?=[\w./:-]*(?:{_SECRETS}|_key))"""
        r"""[\w./:-]+["']?[ \t,]{1,8}["']?""",
        _VALUE,
    ),
    (rf"""(?i)<(?=[\w-]*(?:{_SECRETS}))[\w-]+>""", r"[^<>\n]+(?=</)"),
    (r"""(?i);\s{0,8}(?:pwd|pass)\s{0,8}=\s{0,8}["']?""", _VALUE),
    (rf"""(?i)(?<![\w-])(?=[\w-]*--)[\w-]*(?:{_SECRETS}|\bpass|\bpw)(?=[= ])[= ]{{1,40}}["']?""", _VALUE),
    (r"""(?i)(?<!\S)-(?:password|passwd|pass|secret|token)(?=[= ])[= ]{1,40}["']?""", _VALUE),
    (r"(?<!\S)-pass(?:in|out)?[ =]{1,8}pass:", _WORD),
    # .netrc and .npmrc.
    (r"(?i)\b(?:login|machine)[ \t]{1,40}\S{1,200}\s{1,40}password[ \t]{1,40}", r"[^\s<]\S*"),
    (r"(?<![\w-])_auth\s{0,8}=\s{0,8}", r"[^\s<]+"),
    # Options of commands.
    (rf"""(?<!\S)(?:-[uU](?=[\w.@'"])|(?:-[uU]|--(?:proxy-)?user)[= ]{{1,40}}){_USER}""", _WORD),
    (rf"\b(?:{_P_IS_PASSWORD}){_UP_TO}-p[ \t]{{0,8}}(?!-)", _WORD),
    (rf"\bredis-cli{_UP_TO}-a[ \t]{{1,8}}", _WORD),
    (rf"\bldap[a-z]{{1,12}}{_UP_TO}-w[ \t]{{1,8}}", _WORD),
    (rf"\b(?:bcp|sqlcmd|unzip|zip){_UP_TO}-P[ \t]{{0,8}}(?!-)", _WORD),
    (r"\bwandb login (?:--\S{1,40} ){0,4}", r"[0-9a-f]{40}\b"),
    (
        r"\b(?:echo|printf|yes)[ \t]+(?:-\w{1,3}[ \t]+){0,3}",
        rf"(?![ \t])[^|\n]{{1,300}}?(?=[ \t]{{0,8}}\|[ \t]{{0,8}}{_READS_PASSWORD})",
    ),
    (rf"(?:\b|^){_READS_PASSWORD}[^\n|;&<]{{0,200}}<<<[ \t]{{0,8}}", _WORD),
    # Hashes of passwords, as in /etc/shadow and .htpasswd.
    (r"\$(?:[1567y]|2[abxy]?|gy|apr1|argon2i?d?|scrypt)\$", r"[\w./$=,+-]{12,}"),
    # Channels of conda. In a forum, `/t/` stands before the title of a thread and its number.
    (
        r"""(?:://[^\s'"]{1,300}?|\banaconda\.(?:cloud|com|org)(?:/[\w.-]{1,64}){0,3}?)/t/""",
        r"""(?![\w-]+/\d+(?:[/?#\s'")\],.]|$))(?=[^\s/'"<>]{0,200}\d)[^\s/'"<>]{8,}""",
        "<token>",
    ),
    # Signed addresses.
    (
        r"(?i)(?:[?&]|&amp;)(?:code|key|sig|signature|x-(?:amz|goog)-(?:credential|security-token|signature))=",
        r"""[^&\s'"<>]+""",
    ),
)  # fmt: skip


def _compile(before: str, secret: str) -> re.Pattern[str]:
    # Flags count only at the beginning of a pattern.
    flags = "(?i)" if before.startswith("(?i)") else ""
    return re.compile(rf"{flags}(?P<before>{before.removeprefix('(?i)')})(?:{secret})")


#: Patterns and their replacements, in the order in which they are applied.
CREDENTIALS = tuple(
    (_compile(before, secret), rf"\g<before>{instead[0] if instead else '<secret>'}")
    for before, secret, *instead in _PLACES
)

# Other values that nobody would type, if they stand next to a word that names secrets.

_NAMES_A_SECRET = (
    rf"(?:{_SECRETS}|(?<![A-Za-z])(?:auth|creds?|key|login|otp|pass|passcode|pat|pin|pw|pwd)|(?<=[a-z])(?-i:Key))s?"
    r"(?:[_-](?:b64|base64|data|json|value))?(?![A-Za-z0-9])"
)
#: A value that is named by the text before it. Between the two are signs and small words.
_NAMED_BEFORE = re.compile(
    rf"(?i){_NAMES_A_SECRET}"
    r"(?:[^\w/]|\b(?:a|as|env|here|is|it|its|of|set|string|the|to|value|was|with)\b){1,60}$"
)
_NAMED_AFTER = re.compile(
    rf"(?i)[\"'`)\s]{{1,4}}(?:is|was|as|=|for)\s(?:(?!{_NAMES_A_SECRET})\w{{1,20}}\s){{0,3}}?\w{{0,32}}?{_NAMES_A_SECRET}"
)
#: Names of keys that hide nothing.
_OPEN_KEY = re.compile(
    r"(?i)cache|checksum|commit|digest|fingerprint|foreign|hash|primary|public|pub_?key|sha\d|sort"
)
_WORDS = re.compile(r"(?<![\w+/.~-])[\w+/.~-]{14,}={0,2}")


def _random_value(match: re.Match[str]) -> str:
    """Return `<secret>` for a random value next to a word that names secrets, or else the text as it is."""
    if not _looks_random(match[0]):
        return match[0]
    before = _NAMED_BEFORE.search(match.string, max(0, match.start() - 120), match.start())
    after = _NAMED_AFTER.match(match.string, match.end(), match.end() + 120)
    names = [found.string[max(0, found.start() - 12) : found.end()] for found in (before, after) if found]
    return "<secret>" if any(_OPEN_KEY.search(name) is None for name in names) else match[0]


def _looks_random(text: str) -> bool:
    """Return True for a text whose letters and digits alternate as in no version, path, name or address."""
    if text.startswith("0x") or ("/" in text and re.search(r"(?:^|/)[._~]*[a-z_]{2,}[._-]?\d*(?:/|$)", text)):
        return False
    part = max(re.split(r"[._~-]", text), key=len)
    kinds = ["d" if char.isdecimal() else "u" if char.isupper() else "l" for char in part if char.isalnum()]
    changes = [pair for pair in itertools.pairwise(kinds) if pair[0] != pair[1]]
    with_digits = sum("d" in pair for pair in changes)
    # Without digits, it may be a name that is written without blanks: `GradientDescentOptimizer`.
    return (len(kinds) >= 14 and with_digits >= 3) or (len(kinds) >= 20 and len(changes) >= 0.4 * len(kinds))


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


#: As in `IDENTIFIERS`; most patterns are not compiled yet.
_FORMS: tuple[tuple[str | re.Pattern[str], Replacement], ...] = (
    *CREDENTIALS,
    (_WORDS, _random_value),
    # Only the start of a run of letters is tried, so that a long run takes no more time.
    (
        r"(?<![\w.+-])(?P<before>[.+-]*)(?=\w)[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}\b",
        r"\g<before><email>",
    ),
    *((pattern, "<gpu-uuid>") for pattern in _GPU_UUIDS),
    (rf"(?<![0-9A-Fa-f]){_UUID}(?![0-9A-Fa-f])", "<uuid>"),
    (r"(?<![\w:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![\w:])", "<mac>"),
    (
        r"(?i)(?P<before>\b(?:serial(?:[ _-]?(?:number|no\.?|nr\.?|id))?|board[ _-]?id|service[ _-]?tag"
        r"|asset[ _-]?tag|s/n)\s{0,64}(?:[:=#]\s{0,64}|(?<=[ \t])(?=[\w-]{0,64}\d)))(?!N/A\b)[^\s<,;)\]]+",
        r"\g<before><serial>",
    ),
    (
        # As people write it. A shorter number may be another one: `serial is 3 times slower`.
        r"(?i)(?P<before>\bserial(?:[ _-]?(?:number|no\.?))?[ \t](?:is|was):?[ \t]{1,8})"
        r"(?=[\w-]{0,64}\d)[\w-]{6,64}",
        r"\g<before><serial>",
    ),
    (r"(?P<before>\bSN[:=# ]\s*)(?=[\w-]*\d)[\w-]{6,}", r"\g<before><serial>"),
    (r"(?<![\w-])(?:[0-9A-Fa-f]{2}-){5}[0-9A-Fa-f]{2}(?![\w-])", "<mac>"),
    (r"(?i)(?<![\w.])(?=[\d.]*[a-f])[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4}(?![\w.])", "<mac>"),
    (_IP, _ip),
    (r"(?<![\w:.])(?:[0-9A-Fa-f]{1,4}:){4,7}[0-9A-Fa-f]{1,4}(?![\w:])", "<ip>"),
    (
        # With `::` in it. Names in C++ have this form too, but no part that begins with a digit.
        r"(?<![\w:.])(?=[0-9A-Fa-f:]*\d)(?:[0-9A-Fa-f]{1,4}:){1,6}(?::[0-9A-Fa-f]{1,4}){1,6}(?![\w:])",
        "<ip>",
    ),
    # Clouds name machines after the address, or after a pool and a number.
    (r"(?i)(?<![\w-])ip-\d{1,3}(?:-\d{1,3}){3}(?![\w-])", "<host>"),
    (r"(?<![\w-])(?:gke|aks|eks)-[a-z0-9-]*\d[\w-]*(?![\w-])", "<host>"),
    # The id of a container. After `sha256:` it is the digest of public content.
    (r"(?<![0-9A-Za-z:=])[0-9a-f]{64}(?![0-9A-Za-z])", "<container>"),
    (
        r"(?m)(?P<before>(?i:\bcontainer(?:[ _]id)?[ =:\"']+)|^)(?=[0-9a-f]*\d)[0-9a-f]{12}(?=[\s\"',:]|$)",
        r"\g<before><container>",
    ),
    (_IN_ADDRESS, _host_in_address),
    (_FQDN, lambda match: "<host>" if _is_host(match[0]) else match[0]),
)
#: Patterns and their replacements, in the order in which they are applied.
IDENTIFIERS: tuple[tuple[re.Pattern[str], Replacement], ...] = tuple(
    (re.compile(pattern), instead) for pattern, instead in _FORMS
)
