"""A trust file that a person and the program could read in two ways: empty or not, one party or two.

What the reader of YAML finds counts, and nothing else. A party that is revoked stays revoked.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.certify.trust_file import is_empty, read_trust_file
from validator.errors import InputError

IDENTITY = "https://github.com/ann/images/.github/workflows/build.yml@refs/heads/main"
WHO = f"identity: {IDENTITY}\n  issuer: https://token.actions.githubusercontent.com\n"
RELEASE = f"release:\n  {WHO}"


def party(name: str, *, revoked: bool = False, issuer: str = "") -> str:
    who = WHO.replace("https://token.actions.githubusercontent.com", issuer) if issuer else WHO
    lines = [f"name: {name}", *who.strip().replace("\n  ", "\n").split("\n"), "until: 2030-01-01T00:00:00Z"]
    lines += ["revoked: 2026-01-01T00:00:00Z"] if revoked else []
    return "  - " + "\n    ".join(lines) + "\n"


def runner(name: str, *, revoked: bool = False) -> str:
    return party(name, revoked=revoked) + '    host_classes: "*-h100"\n'


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85", "\r", "\r\n"], ids=ascii)
@pytest.mark.parametrize("head", ["# ours", "#", "%YAML 1.2\n---\n# ours", "\ufeff# ours"], ids=ascii)
def test_no_end_of_a_comment_hides_what_follows(tmp_path: Path, head: str, end: str) -> None:
    path = tmp_path / "trust.yaml"
    path.write_bytes(f"{head}{end}{RELEASE}".encode())
    # Where the reader of YAML sees an error, nothing may count as empty either.
    assert not is_empty(path)
    try:
        assert read_trust_file(path).release is not None
    except InputError as error:
        assert str(path) in str(error)


@pytest.mark.parametrize("comment", [1 << 10, 1 << 19, 1 << 21], ids=["1 kB", "512 kB", "2 MB"])
def test_no_length_of_a_comment_hides_what_follows(tmp_path: Path, comment: int) -> None:
    path = tmp_path / "trust.yaml"
    path.write_text(f"#{'x' * comment}\n{RELEASE}")
    assert not is_empty(path)
    if comment < 1 << 20:
        assert read_trust_file(path).release is not None
    else:
        with pytest.raises(InputError, match="larger"):
            read_trust_file(path)


@pytest.mark.parametrize(
    "text", ["", "\n", "# ours\n", "---\n", "---\n# ours\n...\n", "\ufeff", "# a\n\n  # b", "~\n"], ids=ascii
)
def test_a_file_without_content_is_empty(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trust.yaml"
    path.write_bytes(text.encode())
    assert is_empty(path)
    assert read_trust_file(path).release is None


@pytest.mark.parametrize(
    "text",
    [f"---\n---\n{RELEASE}", f"# a\n---\n~\n---\n{RELEASE}", f"\0{RELEASE}", f"\f{RELEASE}"],
    ids=ascii,
)
def test_a_second_document_or_a_strange_character_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trust.yaml"
    path.write_bytes(text.encode())
    assert not is_empty(path)
    with pytest.raises(InputError):
        read_trust_file(path)


@pytest.mark.parametrize(
    "text",
    [
        "builders:\n" + party("a") + party("b", revoked=True),
        "builders:\n" + party("a", revoked=True) + party("b"),
        "builders:\n" + party("a") + party("b"),
        "builders:\n" + party("a", revoked=True) + "runners:\n" + runner("b"),
        "builders:\n" + party("a") + "runners:\n" + runner("b", revoked=True),
        "runners:\n" + runner("a", revoked=True) + runner("b"),
        RELEASE + "builders:\n" + party("a", revoked=True),
        RELEASE + "runners:\n" + runner("a", revoked=True),
    ],
)
def test_an_identity_is_one_party(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trust.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"this identity is given twice|is revoked as that of"):
        read_trust_file(path)


@pytest.mark.parametrize(
    "text",
    [
        RELEASE + "builders:\n" + party("a"),
        "builders:\n" + party("a") + party("b", issuer="https://gitlab.com"),
        RELEASE + "builders:\n" + party("a", issuer="https://gitlab.com", revoked=True),
    ],
)
def test_other_parties_stay(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trust.yaml"
    path.write_text(text)
    assert read_trust_file(path).builders
