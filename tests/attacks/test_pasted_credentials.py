"""Credentials in a text that somebody publishes, in each form in which people paste them.

One kind is a secret at a place that only holds secrets. The other is a random value next to a word that names
secrets. What a diagnosis needs must stay: hashes, digests, versions, names and paths.
"""

from __future__ import annotations

import pytest

from validator.redaction.redact import redacted

SHORT = "hunter2"
MIXED = "qZ3xT8vB1nM6wK4pL9dR2cF7gH5jY0sA"
HEX = "9f8e7d6c5b4a39281706f5e4d3c2b1a0"

#: Places that hold a secret, whatever the secret looks like.
PLACES = (
    'wandb.login(key="{}")',
    "wandb.login(anonymous='never', key = '{}')",
    'os.environ["KAGGLE_KEY"] = "{}"',
    "os.environ['HF_TOKEN']='{}'",
    'os.environ.setdefault("KAGGLE_KEY", "{}")',
    "os.putenv('KAGGLE_KEY', '{}')",
    "export KAGGLE_KEY={}",
    "setenv KAGGLE_KEY {}",
    "ENV HF_TOKEN {}",
    '{{"auths": {{"r.example": {{"auth": "{}"}}}}}}',
    "{{'auth': '{}'}}",
    '{{\\"auth\\": \\"{}\\"}}',
    "<password>{}</password>",
    "echo {} | sudo -S apt-get install cuda",
    "echo 'my {}' | sudo -kS true",
    "printf '%s\\n' {} | sudo -u root --stdin true",
    "echo -n {}|sudo -S true",
    "yes {} | sudo -S true",
    "sudo -S true <<< {}",
    "echo {} | docker login -u ann --password-stdin r.example",
    "echo {} | gh auth login --with-token",
    "echo ann:{} | sudo chpasswd",
    "aws configure set aws_secret_access_key {}",
    "aws configure --profile x set aws_session_token {}",
    "aws configure set profile.x.aws_secret_access_key '{}'",
    "poetry config pypi-token.pypi {}",
    "git config user.password {}",
)
#: Places that may hold something else; only a random value is a secret there.
NEXT_TO_A_WORD = (
    '{{"username":"ann","key":"{}"}}',
    "{{'key': '{}'}}",
    "my wandb key is {}",
    "kaggle key ({})",
    "the token: `{}`",
    "login('{}')",
    "auth={}",
    "root:$6$saltsalt${}:19000:0:99999:7:::",
    "ann:$apr1$saltsalt${}",
    "$2b$12${}",
    "$argon2id$v=19$m=65536,t=3,p=4$c2FsdHNhbHQ${}",
    "my password was set to {}",
    "- name: KAGGLE_KEY\n  value: {}",
    '{{"name": "WANDB_KEY", "value": "{}"}}',
    "apiKey -> {}",
    "{} is my api key",
    "conda install -c https://conda.anaconda.org/t/{}/chan x",
    "https://repo.anaconda.cloud/t/{}/repo/main",
    "anaconda.org/t/{}/chan",
    "https://ann:x@h.example:8443/api/conda/t/{}/chan",
    "https://conda.h.example/t/{}",
)
#: Text that a diagnosis may need.
KEPT = (
    f"cache key: {HEX}",
    f"cache_key={HEX}",
    f"the public key is sha256:{HEX}{HEX}",
    f"the key's fingerprint is {HEX}",
    f"commit {HEX}01234567",
    f"XLA dumps module_0001.{HEX} to disk",
    "KeyError: 'dense_1/kernel:0'",
    "the key is tensorflow-2.18.0-cp312-cp312-manylinux_2_17_x86_64.whl",
    "key /usr/local/cuda-12.5/targets/x86_64-linux/lib/libcudnn.so.9.3.0",
    "https://discuss.tensorflow.org/t/gpu-not-found-cuda-12-5/24680",
    "https://forums.developer.nvidia.com/t/cuda-error-no-device-575-64/1234567?u=x",
    "token_embedding_layer_1_kernel",
    "key: GradientDescentOptimizerFactory",
    "key: 0x7f8a9b0c1d2e3f4a",
    "no key for nvidia-cudnn-cu12-9.3.0.75",
    "pass 2.18.0.dev20240101",
    "keys: model/layer_12/attention_3/kernel_2",
    "echo hello | sudo apt-get install x",
    "echo hello | grep -S x",
    "git config core.editor vim",
)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("secret", [SHORT, MIXED, HEX], ids=["short", "mixed", "hex"])
def test_a_place_that_holds_a_secret_is_emptied(place: str, secret: str) -> None:
    shown = redacted(place.format(secret))
    assert secret not in shown
    assert redacted(shown) == shown


@pytest.mark.parametrize("place", NEXT_TO_A_WORD)
@pytest.mark.parametrize("secret", [MIXED, HEX], ids=["mixed", "hex"])
def test_a_random_value_next_to_a_word_that_names_secrets_goes(place: str, secret: str) -> None:
    shown = redacted(place.format(secret))
    assert secret not in shown
    assert redacted(shown) == shown


@pytest.mark.parametrize("text", KEPT)
def test_what_a_diagnosis_needs_stays(text: str) -> None:
    assert redacted(text) == text


def test_the_rest_of_the_line_stays() -> None:
    text = f"wandb.login(key='{MIXED}'); cuInit: CUDA_ERROR_NO_DEVICE, cuDNN 9.3.0"
    assert redacted(text) == "wandb.login(key='<secret>'); cuInit: CUDA_ERROR_NO_DEVICE, cuDNN 9.3.0"
