"""Credentials: tokens recognized by their form, and secrets recognized by what comes before them.

The forms are those that the services publish, and that gitleaks and trufflehog look for. No pattern may
scan the same text again from many positions, so repeated parts are bounded, or start only at the beginning
of a run of their characters.
"""

from __future__ import annotations

import re

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
    "|access|account|api|auth|client|deploy|encryption|license|master|ngc|private|session|signing|ssh|storage|wandb"
    "|webhook)[_-]?key"
)
#: Programs whose option -p is a password; for some of them only after `login`.
_P_IS_PASSWORD = (
    r"7z|cqlsh|influx|mariadb|mariadb-dump|mongo|mongosh|mongodump|mysql|mysqladmin|mysqldump|mysqlimport|sshpass"
    r"|twine|(?:apptainer|az|buildah|crane|docker|helm|nerdctl|oc|oras|podman|singularity|skopeo)"
    r"(?=[^\n|;&]{0,60}?\blogin\b)"
)
#: The rest of a command, up to an option.
_UP_TO = r"(?![\w/.=-])[^\n|;&]{0,200}?\s"
_SCHEMES = "apikey|basic|bearer|bot|digest|negotiate|token"
#: A user and a password as one word. A user and a group, as numbers or variables, are none.
_USER = r"""(?!['"]?(?:\d+:\d+(?!\S)|\$|[A-Za-z]:\\))(?=[^\s:/%]{0,64}[:%](?!//)\S)"""

#: What stands before a secret, the secret, and what to write in its place.
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
    (
        r"""\b(?:A3T[A-Z0-9]|AKIA|ASIA)[A-Z0-9]{16}[\s"',:;|]{1,20}""",
        r"[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])",
        "<secret>",
    ),
    # JSON Web Tokens: three parts, of which the last may be empty.
    (r"(?<![\w-])", r"eyJ[\w-]{6,}\.[\w-]+\.[\w-]*", "<token>"),
    (r"\b", "|".join(_TOKENS), "<token>"),
    # Webhooks: whoever has the address may write there.
    (r"\bhooks\.slack\.com/(?:services|workflows|triggers)/", r"""[^\s'"<>]+""", "<secret>"),
    (r"\bdiscord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/", r"""[^\s'"<>]+""", "<secret>"),
    (r"\.webhook\.office\.com/webhookb?2?/", r"""[^\s'"<>]+""", "<secret>"),
    (r"\bapi\.telegram\.org/bot", r"""[^\s'"<>/]+""", "<secret>"),
    # Private keys: PEM, OpenSSH, PGP, SSH2, PuTTY. A key that is cut off goes on to the end.
    (
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|---- BEGIN SSH2 [A-Z ]{0,40}PRIVATE KEY ----",
        r"(?s:.*?)(?=-----END |---- END |\Z)",
        "<secret>",
    ),
    (r"\bPrivate-Lines: \d{1,4}\r?\n", r"(?:[A-Za-z0-9+/=]+(?:\r?\n|$))+", "<secret>\n"),
    # Headers.
    (
        rf"""(?i)\bauthorization["']?\s{{0,8}}[:=]\s{{0,8}}["']?(?:{_SCHEMES})\s{{1,8}}""",
        r"""[^\s'"<]+""",
        "<secret>",
    ),
    (
        rf"""(?i)\bauthorization["']?\s{{0,8}}[:=]\s{{0,8}}["']?(?!{_SCHEMES})(?=\S{{0,40}}\d)""",
        r"""[^\s'"<]{8,}""",
        "<secret>",
    ),
    (r"(?i)\b(?:bearer|basic) (?=\S{8})", _VALUE, "<secret>"),
    (r"(?i)\b(?:set-)?cookie: ", r"[^\n]+", "<secret>"),
    # Names of secrets with their values. That a value follows is looked for first, because that is faster.
    (
        rf"""(?i)(?<![\w-])(?=[\w-]+["']?\s{{0,40}}[=:])(?=[\w-]*(?:{_SECRETS}))"""
        r"""[\w-]+["']?\s{0,40}[=:]\s{0,40}["']?""",
        _VALUE,
        "<secret>",
    ),
    (r"""\b[A-Z]\w*_(?:AUTH|PASS|PWD)=["']?""", _VALUE, "<secret>"),
    (r"""(?i);\s{0,8}(?:pwd|pass)\s{0,8}=\s{0,8}["']?""", _VALUE, "<secret>"),
    (
        rf"""(?i)(?<![\w-])(?=[\w-]*--)[\w-]*(?:{_SECRETS}|\bpass|\bpw)(?=[= ])[= ]{{1,40}}["']?""",
        _VALUE,
        "<secret>",
    ),
    (r"""(?i)(?<!\S)-(?:password|passwd|pass|secret|token)(?=[= ])[= ]{1,40}["']?""", _VALUE, "<secret>"),
    (r"(?<!\S)-pass(?:in|out)?[ =]{1,8}pass:", _WORD, "<secret>"),
    # .netrc and .npmrc.
    (r"(?i)\b(?:login|machine)[ \t]{1,40}\S{1,200}\s{1,40}password[ \t]{1,40}", r"[^\s<]\S*", "<secret>"),
    (r"(?<![\w-])_auth\s{0,8}=\s{0,8}", r"[^\s<]+", "<secret>"),
    # Options of commands.
    (rf"""(?<!\S)(?:-[uU](?=[\w.@'"])|(?:-[uU]|--(?:proxy-)?user)[= ]{{1,40}}){_USER}""", _WORD, "<secret>"),
    (rf"\b(?:{_P_IS_PASSWORD}){_UP_TO}-p[ \t]{{0,8}}(?!-)", _WORD, "<secret>"),
    (rf"\bredis-cli{_UP_TO}-a[ \t]{{1,8}}", _WORD, "<secret>"),
    (rf"\bldap[a-z]{{1,12}}{_UP_TO}-w[ \t]{{1,8}}", _WORD, "<secret>"),
    (rf"\b(?:bcp|sqlcmd|unzip|zip){_UP_TO}-P[ \t]{{0,8}}(?!-)", _WORD, "<secret>"),
    (r"\bwandb login (?:--\S{1,40} ){0,4}", r"[0-9a-f]{40}\b", "<secret>"),
    # Signed addresses.
    (
        r"(?i)(?:[?&]|&amp;)(?:code|key|sig|signature|x-(?:amz|goog)-(?:credential|security-token|signature))=",
        r"""[^&\s'"<>]+""",
        "<secret>",
    ),
)  # fmt: skip


def _compile(before: str, secret: str) -> re.Pattern[str]:
    # Flags count only at the beginning of a pattern.
    flags = "(?i)" if before.startswith("(?i)") else ""
    return re.compile(rf"{flags}(?P<before>{before.removeprefix('(?i)')})(?:{secret})")


#: Patterns and their replacements, in the order in which they are applied.
CREDENTIALS = tuple(
    (_compile(before, secret), rf"\g<before>{instead}") for before, secret, instead in _PLACES
)
