"""Credentials are taken out in every form that people paste; text that only looks like one stays."""

from __future__ import annotations

import itertools

import pytest

from validator.redaction.redact import redacted

DIGITS = "0123456789"
HEX32 = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
MIXED = "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5zA7b"  # 40 letters and digits

#: Tokens that are known by their form, wherever they are.
TOKENS = (
    f"ghp_{MIXED[:36]}",
    f"gho_{MIXED[:36]}",
    f"ghs_{MIXED[:36]}",
    f"github_pat_11{MIXED}_{MIXED}",
    f"glpat-{MIXED[:20]}",
    f"gldt-{MIXED[:20]}",
    f"glrt-{MIXED[:20]}",
    f"npm_{MIXED[:36]}",
    f"pypi-AgEIcHlwaS5vcmc{MIXED}",
    f"rubygems_{HEX32}{HEX32[:16]}",
    f"dckr_pat_{MIXED[:27]}",
    f"dckr_oat_{MIXED[:32]}",
    f"hf_{MIXED[:34]}",
    "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
    "AKIAIOSFODNN7EXAMPLE",
    "ASIAIOSFODNN7EXAMPLE",
    f"AIza{MIXED[:35]}",
    f"ya29.{MIXED}",
    f"GOCSPX-{MIXED[:28]}",
    f"dop_v1_{HEX32}{HEX32}",
    f"LTAI{MIXED[:20]}",
    f"sk-{MIXED}",
    f"sk-proj-{MIXED}_{MIXED}",
    f"sk-ant-api03-{MIXED}-{MIXED}AA",
    f"nvapi-{MIXED}{MIXED[:24]}",
    f"wandb_v1_{MIXED}",
    f"gsk_{MIXED}{MIXED[:12]}",
    f"r8_{MIXED[:37]}",
    f"pplx-{MIXED}{MIXED[:8]}",
    f"xoxb-123456789012-1234567890123-{MIXED[:24]}",
    f"xoxp-123456789012-{MIXED[:24]}",
    f"xapp-1-A0123456789-1234567890123-{MIXED}",
    f"SG.{MIXED[:22]}.{MIXED}aB3",
    f"key-{HEX32}",
    f"{HEX32}-us12",
    f"123456789:AA{MIXED[:33]}",
    f"MTAx{MIXED[:20]}.GaBcDe.{MIXED[:38]}",
    f"SK{HEX32}",
    f"sk_live_{MIXED[:24]}",
    f"rk_test_{MIXED[:24]}",
    f"whsec_{MIXED[:32]}",
    f"sq0atp-{MIXED[:22]}",
    f"shpat_{HEX32}",
    f"AGE-SECRET-KEY-1{'QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L' * 2}"[:74],
    f"hvs.{MIXED}{MIXED}",
    f"dapi{HEX32}",
    f"glsa_{MIXED[:32]}_{HEX32[:8]}",
    f"NRAK-{'ABC123XYZ' * 3}",
    f"tskey-auth-{MIXED[:12]}-{MIXED[:30]}",
    f"pul-{HEX32}{HEX32[:8]}",
    f"dp.pt.{MIXED}aB3",
    f"{MIXED[:14]}.atlasv1.{MIXED}{MIXED[:26]}",
    f"lin_api_{MIXED}",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
)

#: Texts in which a secret is known by what stands before it; the secret is `hunter2`, or is named.
PLACES = (
    "curl -u ann:hunter2 https://example.com",
    "curl -uann:hunter2 https://example.com",
    "curl --user 'ann:hunter2 too' x",
    "curl --user=ann:hunter2 x",
    "curl -U proxyann:hunter2 -x p:3128 x",
    "curl --proxy-user ann:hunter2 x",
    "smbclient -U ann%hunter2 //server/share",
    "https://ann:hunter2@example.com/simple",
    "https://ann:hun@hunter2@example.com/simple",
    "postgresql+psycopg://ann:hunter2@db:5432/records",
    "postgres://ann:hun/hunter2@db/records",
    "redis://:hunter2@cache:6379/0",
    "amqp://ann:hunter2@broker//",
    "mongodb+srv://ann:hunter2@c0.example.net/x",
    "pip --proxy ann:hunter2@proxy.example:3128 install six",
    "HTTPS_PROXY=ann:hunter2@proxy:3128",
    "ann:hunter2@tcp(db:3306)/records",
    "AKIAIOSFODNN7EXAMPLE wJalrXUtnFEMI/K7MDENG/bPxRfiCYhunter2x00",
    "aws_secret_access_key = hunter2",
    "AWS_SESSION_TOKEN=hunter2",
    "Authorization: Bearer hunter2",
    "Authorization: Basic aHVudGVyMg==hunter2",
    "authorization: token hunter2",
    "-H 'Authorization: hunter2hunter2'",
    "Proxy-Authorization: Basic hunter2",
    "X-Api-Key: hunter2",
    "PRIVATE-TOKEN: hunter2",
    '"X-Auth-Token": "hunter2"',
    "Cookie: session=hunter2",
    "Set-Cookie: a=hunter2; Path=/",
    "mysql -u root -phunter2 records",
    "mysql -u root -p hunter2",
    "mysqldump -uroot -p'hunter2 too' records",
    "sshpass -p hunter2 ssh ann@host",
    "sshpass -phunter2 ssh ann@host",
    "docker login -u ann -p hunter2 registry.example",
    "docker --config /x login registry.example -p hunter2",
    "podman login --username ann --password=hunter2 quay.io",
    "helm registry login r.example -u ann -p hunter2",
    "twine upload -u ann -p hunter2 dist/x.whl",
    "redis-cli -h cache -a hunter2 ping",
    "ldapsearch -x -D cn=ann -w hunter2",
    "sqlcmd -S db -U sa -P hunter2",
    "unzip -P hunter2 data.zip",
    "7z x -phunter2 data.7z",
    "openssl rsa -in key.pem -passin pass:hunter2",
    "train.py --password hunter2",
    "train.py --password='hunter2 too'",
    "influx -password hunter2",
    "password=hunter2",
    "PASSWORD: hunter2",
    'password = "correct horse hunter2"',
    "passwd='a hunter2'",
    "PGPASSWORD=hunter2 psql",
    "DB_PASS=hunter2",
    "NGC_API_KEY=hunter2",
    "ngc_api_key: hunter2",
    "export WANDB_API_KEY=hunter2",
    "ENCRYPTION_KEY=hunter2",
    "client-key-data: hunter2",
    "Server=db;Database=x;Uid=ann;Pwd=hunter2;",
    "Server=tcp:db;User ID=ann;Password=hunter2;Encrypt=True",
    "DefaultEndpointsProtocol=https;AccountName=ann;AccountKey=hunter2==;EndpointSuffix=x",
    "Endpoint=sb://x.example/;SharedAccessKeyName=root;SharedAccessKey=hunter2=",
    "https://x.blob.core.windows.net/c?sv=2024-01-01&sr=c&sig=hunter2%3D&se=x",
    "href='?a=1&amp;sig=hunter2'",
    "https://b.s3.amazonaws.com/o?X-Amz-Signature=hunter2",
    "https://maps.example.com/a?key=hunter2",
    "https://hooks.slack.com/services/T01234567/B01234567/hunter2hunter2hunter2xyz",
    "https://discord.com/api/webhooks/123456789012345678/hunter2-abc",
    "https://discordapp.com/api/v10/webhooks/123456789012345678/hunter2-abc",
    "https://corp.webhook.office.com/webhookb2/hunter2@x/IncomingWebhook/abc",
    "https://api.telegram.org/bothunter2/sendMessage",
    "machine example.com login ann password hunter2",
    "machine example.com\n  login ann\n  password hunter2",
    "machine example.com password hunter2 login ann",
    "[pypi]\nusername = __token__\npassword = hunter2",
    "//registry.npmjs.org/:_authToken=hunter2",
    "//registry.example/:_auth=hunter2",
    "//registry.example/:_password=hunter2",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXhunter2\n-----END OPENSSH PRIVATE KEY-----",
    "-----BEGIN EC PRIVATE KEY-----\nhunter2",
    "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nhunter2\n",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nhunter2\n-----END PGP PRIVATE KEY BLOCK-----",
    '"private_key": "-----BEGIN PRIVATE KEY-----\\nhunter2\\n-----END PRIVATE KEY-----\\n"',
    "PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 2\nAAAAhunter2\nBBBBhunter2=\nPrivate-MAC: 00",
    '{"auths": {"r.example": {"auth_token": "hunter2"}}}',
    "kubectl create secret x --from-literal=token=hunter2",
    "oc login --token=hunter2",
)

#: Text of a similar form that a diagnosis may need.
LOOK_ALIKES = (
    "pip install scikit-learn sk-learn sk-dist-contrib-extensions",
    "SG.1, SG.version and SG.a.b",
    "hf_hub_download_with_progress_bar and npm_config_registry_and_more_words",
    "AKIA is a prefix",
    "pypi-server, gh_actions, glpat-short, xox-game, eyJ and eyJhbGci alone",
    "key-value, key-0123, monkey-us",
    "sk_learn_live, rk_test_x, pk_live",
    "AGE-SECRET-KEY",
    "a 40-digit commit: " + "0a1b2c3d" * 5,
    "curl -u https://github.com",
    "docker run -u 1000:1000 x",
    "docker run --user 1000:1000 x",
    "docker run --user $(id -u):$(id -g) x",
    "docker run -u $UID:$GID x",
    "python -u train.py",
    "pip install --user keras",
    "sort -u names.txt",
    "docker run -p 8888:8888 x",
    "mkdir -p /data/x",
    "ssh -p 2222 server",
    "mysql --port 3306 -P 3306",
    "unzip -p data.zip",
    "nvidia-smi -a",
    "python:3.12-slim-bookworm@sha256:" + "3f" * 32,
    "http://localhost:8888/lab",
    "https://github.com:443/simple/@scope",
    "PWD=/workspace/x",
    "OLDPWD=/",
    "forward pass: 0.3 s",
    "pass_through=True",
    "one pass:0.3s",
    "basic usage",
    "bearer of news",
    "Basic C++ types",
    "-----BEGIN CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----",
    "login as root",
    "password for root:",
    "enter a password",
    "machine learning",
    "Private-Lines: none",
    "a?b=1&sigma=2",
    "what?keys=1",
    "tensorflow:2.18.0 and cuda:12.5",
    "jax[cuda12]==0.4.30; extra == 'test'",
)


def test_a_token_is_known_by_its_form() -> None:
    places = ("{}", "using {} now", "'{}',", "KEY={}", "https://example.com/{}", "[{}]\n")
    visible = []
    for token, place in itertools.product(TOKENS, places):
        shown = redacted(place.format(token))
        parts = [part for part in token.replace("_", "-").split("-") if len(part) >= 16]
        visible += [(place, token, part) for part in (token, *parts) if part in shown]
    assert visible == []


def test_a_secret_is_known_by_what_stands_before_it() -> None:
    shown = {text: redacted(text) for text in PLACES}
    assert {text: found for text, found in shown.items() if "hunter2" in found} == {}
    assert {found: again for found in shown.values() if (again := redacted(found)) != found} == {}


def test_text_that_only_looks_like_a_credential_stays() -> None:
    assert {text: found for text in LOOK_ALIKES if (found := redacted(text)) != text} == {}


def test_the_rest_of_the_line_stays() -> None:
    text = (
        "curl -u ann:hunter2 https://developer.download.nvidia.com/x && mysql -phunter2 records | head -p 3"
    )
    assert redacted(text) == (
        "curl -u <secret> https://developer.download.nvidia.com/x && mysql -p<secret> records | head -p 3"
    )


RANDOM = (MIXED[:32], HEX32, f"{MIXED[:20]}+/{MIXED[20:]}==")
#: Where a random value stands after a word that names a secret.
AFTER_A_NAME = (
    'wandb.login(key="{}")',
    '{{"username": "bob", "key": "{}"}}',
    'os.environ["KAGGLE_KEY"] = "{}"',
    "os.environ.setdefault('SOME_KEY', '{}')",
    "export SOME_KEY={}",
    "setx SOME_KEY {}",
    '"auth": "{}"',
    "aws configure set aws_secret_access_key {}",
    "gcloud config set some_token {}",
    "conda config --set some_key {}",
    "passcode: {}",
    "echo {} | sudo -S apt install x",
    "printf '%s\\n' {} | sudo -kS id",
    "echo {} | docker login -u me --password-stdin registry",
    "sudo -S id <<< {}",
    "https://conda.anaconda.org/t/{}/channel/linux-64",
)


@pytest.mark.parametrize("value", RANDOM)
@pytest.mark.parametrize("text", AFTER_A_NAME)
def test_what_looks_random_after_the_name_of_a_secret_goes(text: str, value: str) -> None:
    if "/" in value and "://" in text:
        value = MIXED
    assert value[:20] not in redacted(text.format(value))


@pytest.mark.parametrize("value", ["hunter2", "'correct horse'"])
@pytest.mark.parametrize(
    "text", ["echo {} | sudo -S apt", 'os.environ["HF_TOKEN"] = "{}"', "aws configure set some_token {}"]
)
def test_a_short_password_at_a_known_place_goes(text: str, value: str) -> None:
    shown = redacted(text.format(value))
    assert "hunter2" not in shown and "horse" not in shown


@pytest.mark.parametrize(
    "text",
    [
        "Key model_12/layer_with_weights-3/kernel/.ATTRIBUTES/VARIABLE_VALUE not found in checkpoint",
        "Key: gradient_tape/model_12/dense_3/MatMul_1",
        "the token 2.21.0-cuda12.9-cudnn9.28-py3.12 is a tag",
        "echo $LD_LIBRARY_PATH | tr : ' '",
    ],
)
def test_names_after_such_a_word_stay(text: str) -> None:
    assert redacted(text) == text
