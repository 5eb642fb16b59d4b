"""Each failure of uv becomes an error of the right kind that names the package."""

from __future__ import annotations

import textwrap

import pytest

from validator.errors import BuildError, InputError, MissingError, ValidatorError
from validator.locks.resolve import explain

HASH = """\
error: Failed to download `six==1.16.0`
  cause: Hash mismatch for `six==1.16.0`

         Expected:
           sha256:0000000000000000000000000000000000000000000000000000000000000000
"""
GONE = """\
error: No solution found when resolving dependencies
  cause: Because there is no version of nvidia-cudnn-cu12==9.3.0.75 and you
         require nvidia-cudnn-cu12==9.3.0.75, we can conclude that your requirements are unsatisfiable.
"""
UNKNOWN = """\
  cause: Because six-nonexistent was not found in the package registry and you require
         six-nonexistent==1.99.0, we can conclude that your requirements are unsatisfiable.
"""
NO_WHEEL = """\
  cause: Because tensorrt==8.6.1.post1 has no usable wheels and tensorflow[and-cuda]==2.15.0 depends on
         tensorrt==8.6.1.post1, we can conclude that tensorflow[and-cuda]==2.15.0 cannot be used.
"""
NO_TAG = "Because tensorflow==2.15.0 has no wheels with a matching Python ABI tag (e.g., `cp313`)"
CONFLICT = "No solution found when resolving dependencies: Because you require a<2 and a>=2"
NEWER = """\
error: No solution found when resolving dependencies
  cause: Because only six<=1.17.0 is available and you require six>=1.99, we can conclude that your
         requirements are unsatisfiable.
"""
REFUSED = """\
error: Request failed after 3 retries in 6.1s
  cause: Failed to fetch: http://<hidden>
  cause: error sending request for url (http://<hidden>)
  cause: client error (Connect)
  cause: tcp connect error
  cause: Connection refused (os error 111)
"""
CONNECT = "error: Request failed after 3 retries\n  cause: error sending request for url\n  cause: tcp"
DNS = "cause: dns error\n  cause: failed to lookup address information: Name or service not known"
LOCKED_OUT = "HTTP status client error (401 Unauthorized) for url (https://index.example/simple/six/)"
CERTIFICATE = "client error (Connect)\n cause: invalid peer certificate: UnknownIssuer"
FULL = "error: failed to write to file: No space left on device (os error 28)"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (HASH, InputError, "the index's file for six==1.16.0 has a different hash than the lock"),
        (GONE, InputError, "the index does not have nvidia-cudnn-cu12==9.3.0.75"),
        (UNKNOWN, InputError, "the index does not have six-nonexistent==1.99.0"),
        (NO_WHEEL, InputError, "the index has no wheel of tensorrt==8.6.1.post1 for this Python"),
        (NO_TAG, InputError, "the index has no wheel of tensorflow==2.15.0 for this Python"),
        (CONFLICT, InputError, "Because you require a<2 and a>=2"),
        (NEWER, InputError, "only six<=1.17.0 is available"),
        (REFUSED, MissingError, "the package index can't be reached"),
        (CONNECT, MissingError, "the package index can't be reached"),
        (DNS, MissingError, "the package index can't be reached"),
        (LOCKED_OUT, MissingError, "the package index can't be reached"),
        (CERTIFICATE, MissingError, "the index's certificate is not trusted here"),
        (FULL, MissingError, "no space left on the disk"),
        ("something new under the sun", BuildError, "something new under the sun"),
        ("", BuildError, "uv failed without a message"),
    ],
)
def test_each_kind_of_failure_is_recognized(text: str, kind: type[ValidatorError], message: str) -> None:
    error = explain(text, "the spec: can't be installed")
    assert type(error) is kind
    assert str(error).startswith("the spec: can't be installed: ")
    assert message in str(error)
    assert error.hint or kind is BuildError


@pytest.mark.parametrize(
    ("text", "pin"),
    [
        (HASH, "six==1.16.0"),
        (GONE, "nvidia-cudnn-cu12==9.3.0.75"),
        (UNKNOWN, "six-nonexistent==1.99.0"),
        (NO_WHEEL, "tensorrt==8.6.1.post1"),
        (NO_TAG, "tensorflow==2.15.0"),
    ],
)
def test_the_pin_is_found_wherever_the_line_breaks_are(text: str, pin: str) -> None:
    flat = " ".join(text.split())
    for width in range(40, 121, 5):
        wrapped = textwrap.fill(flat, width, break_long_words=False, break_on_hyphens=False)
        error = explain(wrapped.replace("\n", "\n         "), "x")
        assert isinstance(error, InputError)
        assert pin in str(error)


def test_a_timeout_is_explained() -> None:
    assert isinstance(explain("", "x", timed_out=True), MissingError)


OLD_NUMPY = """\
error: No solution found when resolving dependencies
  cause: Because tensorflow==2.21.0 depends on numpy>=1.26.0 and you require tensorflow==2.21.0, we can
         conclude that you require numpy>=1.26.0. And because you require numpy<1.26, we can conclude that
         your requirements are unsatisfiable.
"""
OTHER_PROTOBUF = """\
  cause: Because tensorflow==2.21.0 depends on protobuf>=6.31.1,<8.0.0 and you require tensorflow==2.21.0,
         we can conclude that you require protobuf>=6.31.1,<8.0.0. And because you require protobuf<4, we
         can conclude that your requirements are unsatisfiable.
"""
OTHER_CUDNN = """\
  cause: Because you require nvidia-cudnn-cu12==9.3.0.75 and nvidia-cudnn-cu12==9.10.2.21, we can conclude
         that your requirements are unsatisfiable.
"""
TORCH = """\
  cause: Because torch==2.8.0 depends on nvidia-cuda-nvrtc-cu12{platform_machine == 'x86_64' and
         sys_platform == 'linux'}==12.8.93 and you require nvidia-cuda-nvrtc-cu12==12.5.82, we can conclude
         that your requirements and torch==2.8.0 are incompatible. And because you require torch==2.8.0, we
         can conclude that your requirements are unsatisfiable.
"""
ONLY_TORCH = """\
  cause: Because all versions of torch depend on nvidia-cudnn-cu12==9.10.2.21 and you require
         nvidia-cudnn-cu12==9.3.0.75, we can conclude that your requirements and all versions of torch are
         incompatible. And because you require torch==2.8.0, we can conclude that your requirements are
         unsatisfiable.
"""
JAX = """\
  cause: Because jax-cuda12-plugin[with-cuda]==0.7.0 depends on nvidia-cudnn-cu12>=9.8 and
         jax[cuda12]==0.7.0 depends on jax-cuda12-plugin[with-cuda]==0.7.0, we can conclude that
         jax[cuda12]==0.7.0 depends on nvidia-cudnn-cu12>=9.8. And because you require
         nvidia-cudnn-cu12==9.3.0.75 and jax[cuda12]==0.7.0, we can conclude that your requirements are
         unsatisfiable.
"""
PINNED = (
    "tensorflow==2.21.0",
    "nvidia-cudnn-cu12==9.3.0.75",
    "nvidia-cuda-nvrtc-cu12==12.5.82",
)


@pytest.mark.parametrize(
    ("text", "sides"),
    [
        (OLD_NUMPY, "tensorflow==2.21.0 needs numpy>=1.26.0, but the matrix asks for numpy<1.26"),
        (
            OTHER_PROTOBUF,
            "tensorflow==2.21.0 needs protobuf>=6.31.1,<8.0.0, but the matrix asks for protobuf<4",
        ),
        (
            OTHER_CUDNN,
            "this image pins nvidia-cudnn-cu12==9.3.0.75,"
            " but the matrix asks for nvidia-cudnn-cu12==9.10.2.21",
        ),
        (
            TORCH,
            "torch==2.8.0 needs nvidia-cuda-nvrtc-cu12==12.8.93,"
            " but this image pins nvidia-cuda-nvrtc-cu12==12.5.82",
        ),
        (
            ONLY_TORCH,
            "torch needs nvidia-cudnn-cu12==9.10.2.21, but this image pins nvidia-cudnn-cu12==9.3.0.75",
        ),
        (
            JAX,
            "jax-cuda12-plugin[with-cuda]==0.7.0 needs nvidia-cudnn-cu12>=9.8,"
            " but this image pins nvidia-cudnn-cu12==9.3.0.75",
        ),
    ],
)
def test_a_conflict_names_both_sides(text: str, sides: str) -> None:
    error = explain(text, "x: can't be resolved", pinned=PINNED)
    assert str(error) == f"x: can't be resolved: {sides}"
    assert isinstance(error, InputError)
    assert "change or remove one of the two" in str(error.hint)


def test_a_package_that_does_not_exist_is_named() -> None:
    text = (
        "cause: Because nosuch was not found in the package registry and you require nosuch, we can conclude"
    )
    assert "the index does not have nosuch" in str(explain(text, "x"))
