"""Read `trust.yaml`, which says who may speak."""

from __future__ import annotations

import base64
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from validator.certify.trust import THROW_AWAY, Party, Signatory, TrustFile
from validator.certify.trust_file import entry_line, read_trust_file
from validator.errors import InputError
from validator.model.record import Source

UNTIL = datetime(2027, 11, 22, tzinfo=timezone.utc)


def pem(text: str, mark: str = "") -> str:
    """Return what looks like a public key, as YAML in one line."""
    encoded = base64.b64encode(text.encode()).decode()
    return f'"{mark}-----BEGIN PUBLIC KEY-----\\n{encoded}\\n-----END PUBLIC KEY-----\\n"'


def written(directory: Path, text: str) -> Path:
    path = directory / "trust.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def runner(**changes: str) -> str:
    fields = {"name": "gpu-1", "key": pem("gpu-1"), "host_classes": '["*-h100"]', "until": "2027-11-22"}
    return f"{{{', '.join(f'{name}: {value}' for name, value in (fields | changes).items() if value)}}}"


def test_all_parties_are_read(tmp_path: Path) -> None:
    found = read_trust_file(
        written(
            tmp_path,
            f"""
release: {{identity: https://example.org/nightly.yml, issuer: https://example.org}}
builders:
  - {{name: ci, key: {pem("ci")}, until: 2027-11-22}}
runners:
  - {runner()}
  - name: gpu-2
    key: |
      -----BEGIN PUBLIC KEY-----
      Z3B1LTI=
      -----END PUBLIC KEY-----
    host_classes: r580-t4
    until: "2027-11-22T06:30+02:00"
    revoked: 2026-12-01T00:00:00Z
""",
        )
    )
    assert found.release is not None and found.release.signer == "https://example.org/nightly.yml"
    [builder], [first, second] = found.builders, found.runners
    assert (builder.name, builder.until, builder.host_classes) == ("ci", UNTIL, ())
    assert (first.host_classes, first.until, first.revoked) == (("*-h100",), UNTIL, None)
    assert second.host_classes == ("r580-t4",)
    assert second.until == datetime(2027, 11, 22, 4, 30, tzinfo=timezone.utc)
    assert second.revoked == datetime(2026, 12, 1, tzinfo=timezone.utc)
    assert found.party_of(str(second.signatory.key)) == second
    assert found.party_of(str(builder.signatory.key)) == builder
    assert TrustFile().party_of(str(builder.signatory.key)) is None


@pytest.mark.parametrize("written_as", ["[node-labels]", "node-labels"])
def test_a_runner_may_be_trusted_with_the_labels_of_its_nodes(tmp_path: Path, written_as: str) -> None:
    text = f"runners: [{runner(outside=written_as)}, {runner(name='other', key=pem('other'))}]"
    first, second = read_trust_file(written(tmp_path, text)).runners
    assert (first.outside, first.labels_trusted) == ((Source.NODE_LABELS,), True)
    assert (second.outside, second.labels_trusted) == ((), False)
    [again] = read_trust_file(written(tmp_path, f"runners:\n  - {entry_line(first)}\n")).runners
    assert again == first


def test_a_key_that_was_made_for_a_test_keeps_its_mark(tmp_path: Path) -> None:
    key = pem("gpu-1", f"{THROW_AWAY}\\n")
    marked, plain = read_trust_file(
        written(tmp_path, f"runners: [{runner(key=key)}, {runner(name='other', key=pem('other'))}]")
    ).runners
    assert marked.signatory.throw_away
    assert not plain.signatory.throw_away


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("runners: 5", "trust.yaml:1:10: runners: expected a list"),
        ("runner: []", "trust.yaml:1:1: runner: unknown key; did you mean runners?"),
        ("runners:\nrunners: []", "trust.yaml:2:1: the key \"runners\" is given twice"),
        (f"runners:\n  - {runner(until='')}", "trust.yaml:2:5: runners[0]: the key until is missing"),
        (f"runners:\n  - {runner(until='soon')}", 'until: "soon" is not a time'),
        (f"runners:\n  - {runner(until='5')}", "until: expected a date or a time"),
        (f"runners:\n  - {runner(host_classes='')}", "the key host_classes is missing"),
        (f"runners:\n  - {runner(host_classes='[]')}", "host_classes: is empty"),
        (f"runners:\n  - {runner(host_classes='[r580-h100, A?]')}", 'host_classes[1]: "A?" is not'),
        (f"runners:\n  - {runner(key='')}", "runners[0]: needs either a key, or an identity"),
        (f"runners:\n  - {runner(identity='me')}", "runners[0]: needs either a key, or an identity"),
        (f"runners:\n  - {runner(key='cosign.pub')}", "runners[0].key: not a public key"),
        (f"runners:\n  - {runner(key=pem('a')[:-1] + pem('b')[1:])}", "runners[0].key: not a public key"),
        (f"runners:\n  - {runner(key=pem('a').replace('Y', '='))}", "runners[0].key: not a public key"),
        (f"runners:\n  - {runner(name='a b')}", 'runners[0].name: "a b" is not a name'),
        (f"runners: [{runner()}, {runner(key=pem('b'))}]", 'runners[1].name: the name "gpu-1" is given'),
        (f"runners: [{runner()}, {runner(name='b')}]", "runners[1].key: this key is given twice"),
        (f"release: {{key: {pem('gpu-1')}}}\nrunners: [{runner()}]", "runners[0].key: this key is given"),
        (
            f"builders: [{runner()}]",
            "builders[0].host_classes: unknown key; the keys here are name, key, identity, issuer, until and"
            " revoked",
        ),
        (
            f"runners: [{runner(zzz='1')}]",
            "zzz: unknown key; the keys here are name, key, identity, issuer, until, revoked, host_classes"
            " and outside",
        ),
        (f"runners: [{runner(outside='[node-label]')}]", 'outside[0]: "node-label" is not known; the near'),
        (f"runners: [{runner(outside='[]')}]", "runners[0].outside: is empty"),
        (
            "refuse_limits: [keras_jit_float32,\n  xla_convolution_float]",
            'trust.yaml:2:3: refuse_limits[1]: "xla_convolution_float" is not known; the nearest'
            " are xla_convolution_float32",
        ),
        ("refuse_limits: gpu_off", 'trust.yaml:1:16: refuse_limits: "gpu_off" is not known; choose from'),
        ("refuse_limits: []", "trust.yaml:1:16: refuse_limits: is empty"),
        ("refuse_limit: [keras_jit_float32]", "refuse_limit: unknown key; did you mean refuse_limits?"),
    ],
)  # fmt: skip
def test_a_problem_is_named_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        read_trust_file(written(tmp_path, text))
    assert says in str(caught.value)


@pytest.mark.parametrize("written_as", ["[xla_convolution_float32]", "xla_convolution_float32"])
def test_limits_may_be_refused(tmp_path: Path, written_as: str) -> None:
    found = read_trust_file(written(tmp_path, f"refuse_limits: {written_as}\n"))
    assert found == TrustFile(refuse_limits=("xla_convolution_float32",))
    assert read_trust_file(written(tmp_path, f"runners: [{runner()}]")).refuse_limits == ()


@pytest.mark.parametrize("text", ["", "# Nobody yet.\n"])
def test_an_empty_file_lists_nobody(tmp_path: Path, text: str) -> None:
    assert read_trust_file(written(tmp_path, text)) == TrustFile()


def test_without_the_file_nobody_may_speak(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist, so nobody may sign") as caught:
        read_trust_file(tmp_path / "trust.yaml")
    assert "runner init --register" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("glob", "host_class", "may"),
    [
        ("*-h100", "r580-h100", True),
        ("*-h100", "r580.65.06-h100", True),
        ("r580-h100", "r580-h100", True),
        ("r580*-*", "r580.65.06-t4", True),
        ("*-rtx-4090", "r580-rtx-4090", True),
        ("r580-h100", "r535-h100", False),
        ("*-t4", "r580-h100", False),
        # A model that somebody calls so is not a T4.
        ("*-t4", "r580-h100-t4", False),
        ("*-h100", "r580-h100-compat12.9", False),
        ("r5.0-h100", "r580-h100", False),
    ],
)
def test_a_runner_may_sign_for_its_host_classes_only(glob: str, host_class: str, may: bool) -> None:
    party = Party("gpu-1", Signatory(identity="a", issuer="b"), UNTIL, host_classes=(glob,))
    assert party.may_sign_for(host_class) is may


def test_a_word_counts_until_its_time_or_its_revocation(tmp_path: Path) -> None:
    party = read_trust_file(written(tmp_path, f"runners: [{runner(revoked='2026-12-01T12:00Z')}]")).runners[0]
    revoked = datetime(2026, 12, 1, 12, tzinfo=timezone.utc)
    assert party.silent_since(revoked - timedelta(seconds=1)) is None
    assert "was revoked from 2026-12-01T12:00:00+00:00 on" in str(party.silent_since(revoked))
    [still] = read_trust_file(written(tmp_path, f"runners: [{runner()}]")).runners
    assert still.silent_since(UNTIL - timedelta(seconds=1)) is None
    assert "was registered until 2027-11-22" in str(still.silent_since(UNTIL))
