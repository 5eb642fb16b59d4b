"""Volumes are verified and unpacked as they arrive; what is wrong is named, and nothing is left by half."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from validator.model.codec import encode
from validator.offline.receive import Bundle, Refused, receive

from ..support import killed, small_disk
from .bundles import BLOB, FILES, content, save, sha256, write

Said = list[str]


def quiet(_: str) -> None:
    pass


def as_json(bundle: Bundle) -> Any:
    return json.loads(json.dumps(encode(bundle)))


def received(into: Path) -> dict[str, bytes]:
    found = content(into)
    found.pop("bundle.json")
    return found


@pytest.mark.parametrize("size", [1, 999, 1000, 1_000_000])
def test_a_bundle_is_unpacked_whatever_its_volumes_are(size: int, tmp_path: Path) -> None:
    document = write(tmp_path, size if size > 1 else 173)
    said: Said = []
    assert as_json(receive(tmp_path, tmp_path / "received", False, said.append)) == document
    assert received(tmp_path / "received") == FILES
    assert os.access(tmp_path / "received" / "measure", os.X_OK)
    assert not os.access(tmp_path / "received" / "locks/a.txt", os.X_OK)
    assert not (tmp_path / "received.partial").exists()
    assert said[-1].endswith(sha256((tmp_path / "bundle.json").read_bytes()))
    said.clear()
    assert as_json(receive(tmp_path, tmp_path / "received", False, said.append)) == document
    assert said == [f"{tmp_path / 'received'} has this bundle already"]


def test_damaged_and_missing_volumes_are_named_and_the_rest_is_kept(tmp_path: Path) -> None:
    write(tmp_path)
    damaged, missing, short = (tmp_path / f"volume-000{number}" for number in (2, 4, 5))
    right = {path: path.read_bytes() for path in (damaged, missing, short)}
    damaged.write_bytes(right[damaged][:-1] + b"?")
    missing.unlink()
    short.write_bytes(right[short][:10])
    with pytest.raises(Refused) as caught:
        receive(tmp_path, tmp_path / "received", False, quiet)
    assert "3 of 8 volumes can't be received" in str(caught.value)
    assert "volume-0002 is damaged: its SHA-256 is wrong" in str(caught.value)
    assert "volume-0004 is missing" in str(caught.value)
    assert "volume-0005 has 10 of 1000 bytes" in str(caught.value)
    assert caught.value.hint.startswith("copy them again")
    assert not (tmp_path / "received").exists()
    for path, whole in right.items():
        path.write_bytes(whole)
    # What was received is not read again.
    (tmp_path / "volume-0001").unlink()
    said: Said = []
    receive(tmp_path, tmp_path / "received", False, said.append)
    assert [line.split()[0] for line in said[:-1]] == [path.name for path in right]
    assert received(tmp_path / "received") == FILES


def change(*path: object, to: object) -> Callable[[dict[str, Any]], None]:
    def apply(document: dict[str, Any]) -> None:
        place: Any = document
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = to

    return apply


def renamed(path: str) -> Callable[[dict[str, Any]], None]:
    """Give the lock another path, in the list of files and in the volumes."""

    def apply(document: dict[str, Any]) -> None:
        document["files"][path] = document["files"].pop("locks/a.txt")
        for volume in document["volumes"]:
            for piece in volume["holds"]:
                piece[0] = path if piece[0] == "locks/a.txt" else piece[0]

    return apply


def image(**changes: object) -> dict[str, object]:
    own = {"tag": "a", "digest": f"sha256:{'a' * 64}", "lock": "locks/a.txt", "probe": "locks/a.txt"}
    asked = {"arguments": ["--lock", "lock.txt"], "timeout_s": 60.0, "challenges": {"cell": "ab"}}
    return {**own, **asked, "image": "", "source": "a", "question": None, **changes}


#: Values that no such field of an image has.
WRONG: dict[str, list[object]] = {
    "image": [None], "source": [1], "arguments": ["--lock", None, [1]], "question": ["a", [], 1],
    "timeout_s": ["60", None, True, 0, -1, 1e6, float("inf"), float("nan")],
    "challenges": [None, [], "a", {"cell": 1}, {"cell": None}], "lock": ["", 0, False],
}  # fmt: skip
HOSTILE: dict[str, Callable[[dict[str, Any]], None]] = {
    "a path above": renamed("locks/../../stolen"),
    "an absolute path": renamed("/tmp/stolen"),
    "another directory": renamed("etc/passwd"),
    "an empty part": renamed("locks//a"),
    "a hidden file": renamed("images/.received"),
    "the manifest itself": renamed("bundle.json"),
    "a path with a million parts": renamed("locks" + "/a" * 1_000_000),
    "a backslash": renamed("locks/a\\b"),
    "NUL": renamed("locks/a\0b"),
    "a file in a file": renamed("images/index.json/a"),
    "a blob with another name": renamed("images/blobs/sha256/../../x"),
    "a lying size": change("files", "locks/a.txt", "size", to=149),
    "a negative size": change("files", "locks/a.txt", "size", to=-1),
    "a size that is a truth value": change("volumes", 0, "holds", 0, 2, to=True),
    "a huge size": change("volumes", 0, "size", to=1 << 60),
    "a lying volume": change("volumes", 0, "size", to=999),
    "a gap": change("volumes", 1, "holds", 0, 1, to=5),
    "no digest": change("files", "locks/a.txt", "sha256", to="x"),
    "a volume outside": change("volumes", 0, "name", to="../volume-0001"),
    "the same volume twice": change("volumes", 1, "name", to="volume-0001"),
    "an unlisted file": lambda document: document["files"].pop("locks/a.txt"),
    "a file without parts": change("files", "locks/b.txt", to={"size": 0, "sha256": sha256(b"")}),
    "no list of images": change("images", to=None),
    "an image without a digest": change("images", to=[{"tag": "a"}]),
    "an image with a number as its digest": change("images", to=[image(digest=1)]),
    "an image whose digest is a path": change("images", to=[image(digest="sha256:../../a")]),
    "an image whose tag is a path": change("images", to=[image(tag="../a")]),
    "a lock of this machine": change("images", to=[image(lock="../../etc/passwd")]),
    "a probe of this machine": change("images", to=[image(probe="/etc/passwd")]),
    "two images with one tag": change("images", to=[image(), image()]),
    **{
        f"{value!r} as {name} of an image": change("images", to=[image(**{name: value})])
        for name, values in WRONG.items()
        for value in values
    },
    "a question without a lock": change("images", to=[image(lock=None, question={})]),
    "another format": change("format", to=2),
}


def test_an_image_is_returned_as_it_was_described(tmp_path: Path) -> None:
    document = write(tmp_path)
    document["images"] = [image()]
    save(tmp_path, document)
    assert as_json(receive(tmp_path, tmp_path / "received", False, quiet)) == document


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_manifest_is_refused_before_anything_is_written(what: str, tmp_path: Path) -> None:
    place = tmp_path / "in" / "bundle"
    document = write(place)
    HOSTILE[what](document)
    save(place, document)
    before = content(tmp_path)
    with pytest.raises(Refused, match=r"bundle\.json (is not valid|has format 2)"):
        receive(place, place / "received", False, quiet)
    assert content(tmp_path) == before


@pytest.mark.parametrize("text", ["[]", "{", '{"format": 1}', "[" * 100_000, '{"format": 1, "volumes": [1]}'])
def test_a_manifest_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "bundle.json").write_text(text, encoding="utf-8")
    with pytest.raises(Refused, match=r"bundle\.json"):
        receive(tmp_path, tmp_path / "received", False, quiet)
    assert not (tmp_path / "received.partial").exists()


def test_a_file_with_another_digest_than_the_manifest_says_is_refused(tmp_path: Path) -> None:
    document = write(tmp_path)
    document["files"]["locks/a.txt"]["sha256"] = "0" * 64
    save(tmp_path, document)
    with pytest.raises(Refused, match=r"locks/a\.txt does not have the SHA-256"):
        receive(tmp_path, tmp_path / "received", False, quiet)
    assert not (tmp_path / "received").exists()


def test_a_blob_that_is_not_what_its_name_says_is_refused(tmp_path: Path) -> None:
    document = write(tmp_path)
    for volume in document["volumes"]:
        path = tmp_path / volume["name"]
        path.write_bytes(path.read_bytes().replace(BLOB[:20], bytes(20)))
        volume["sha256"] = sha256(path.read_bytes())
    save(tmp_path, document)
    with pytest.raises(Refused, match=r"images/blobs/sha256/[0-9a-f]+ does not have the SHA-256"):
        receive(tmp_path, tmp_path / "received", False, quiet)


@pytest.mark.parametrize("name", ["volume-0001", "bundle.json", "received.partial", "received"])
def test_symbolic_links_are_not_followed(name: str, tmp_path: Path) -> None:
    place, target = tmp_path / "bundle", tmp_path / "target"
    write(place)
    if name.startswith("received"):
        target.mkdir()
    else:
        (place / name).rename(target)
    (place / name).symlink_to(target)
    before = content(tmp_path)
    with pytest.raises(Refused):
        receive(place, place / "received", False, quiet)
    assert target.is_dir() is name.startswith("received")
    assert {path: found for path, found in content(tmp_path).items() if path.startswith("target")} == {
        path: found for path, found in before.items() if path.startswith("target")
    }


def test_a_directory_with_something_else_is_not_touched(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "received").mkdir()
    (tmp_path / "received" / "mine").write_text("mine", encoding="utf-8")
    with pytest.raises(Refused, match="is not an empty directory"):
        receive(tmp_path, tmp_path / "received", False, quiet)
    assert content(tmp_path / "received") == {"mine": b"mine"}


def test_another_bundle_starts_again(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "volume-0008").unlink()
    with pytest.raises(Refused, match="volume-0008 is missing"):
        receive(tmp_path, tmp_path / "received", False, quiet)
    other = {path: whole[::-1] for path, whole in FILES.items() if "/blobs/" not in path}
    write(tmp_path, 700, other)
    receive(tmp_path, tmp_path / "received", False, quiet)
    assert received(tmp_path / "received") == other


def test_two_processes_do_not_receive_into_one_directory(tmp_path: Path) -> None:
    write(tmp_path)
    other = tmp_path / "received.partial"
    other.mkdir()
    lock = os.open(other, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(Refused, match="another process uses it"):
        receive(tmp_path, tmp_path / "received", False, quiet)
    os.close(lock)
    receive(tmp_path, tmp_path / "received", False, quiet)


@pytest.mark.parametrize("inside", ["tool", "locks/a.txt", "images/blobs"])
def test_links_that_came_with_the_bundle_are_not_written_through(inside: str, tmp_path: Path) -> None:
    place, home = tmp_path / "bundle", tmp_path / "home"
    write(place)
    partial = place / "received.partial"
    (partial / inside).parent.mkdir(parents=True, exist_ok=True)
    (partial / inside).symlink_to(home)
    shutil.copyfile(place / "bundle.json", partial / "bundle.json")
    if "." in inside:
        home.write_bytes(b"mine")
    else:
        home.mkdir()
    receive(place, place / "received", False, quiet)
    assert received(place / "received") == FILES
    assert (home.read_bytes() if home.is_file() else list(home.iterdir())) in (b"mine", [])


def test_files_that_came_with_the_bundle_are_not_taken_for_its_own(tmp_path: Path) -> None:
    write(tmp_path)
    partial = tmp_path / "received.partial"
    (partial / "tool").mkdir(parents=True)
    (partial / "tool" / "b-9-py3-none-any.whl").write_bytes(b"hostile")
    shutil.copyfile(tmp_path / "bundle.json", partial / "bundle.json")
    receive(tmp_path, tmp_path / "received", False, quiet)
    assert received(tmp_path / "received") == FILES


@pytest.mark.parametrize("path", ["tool/a-1-py3-none-any.whl", "tool/b-9-py3-none-any.whl"])
def test_a_received_bundle_that_was_changed_is_refused(path: str, tmp_path: Path) -> None:
    write(tmp_path)
    receive(tmp_path, tmp_path / "received", False, quiet)
    (tmp_path / "received" / "measuring-1").mkdir()
    (tmp_path / "received" / "measuring-1" / "log").write_bytes(b"")
    receive(tmp_path, tmp_path / "received", False, quiet)
    (tmp_path / "received" / path).write_bytes(b"hostile")
    with pytest.raises(Refused, match=f"but {path} does not match it"):
        receive(tmp_path, tmp_path / "received", False, quiet)
    assert (tmp_path / "received" / path).read_bytes() == b"hostile"


def test_a_directory_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    (tmp_path / "received.partial").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(Refused, match=r"received\.partial belongs to another user"):
        receive(tmp_path, tmp_path / "received", False, quiet)


@pytest.mark.slow
def test_it_waits_for_volumes_and_takes_each_when_it_is_whole(tmp_path: Path) -> None:
    source, place = tmp_path / "source", tmp_path / "arriving"
    write(source)
    place.mkdir()
    said: Said = []
    arrived = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        if text.startswith("waiting for volume-0002"):
            # The first one was unpacked while this one is still copied.
            assert (place / "received.partial" / "measure").exists()
            arrived.set()

    def copy() -> None:
        whole = (source / "bundle.json").read_bytes()
        (place / "bundle.json").write_bytes(whole[:50])
        (place / "volume-0001").write_bytes((source / "volume-0001").read_bytes())
        (place / "bundle.json").write_bytes(whole)
        arrived.wait(60)
        # Preallocated, as some programs copy, and then cut off.
        (place / "volume-0003").write_bytes(bytes(1000))
        (place / "volume-0002").write_bytes((source / "volume-0002").read_bytes()[:500])
        for path in sorted(source.glob("volume-*"), reverse=True):
            shutil.copyfile(path, place / path.name)

    copying = threading.Thread(target=copy)
    copying.start()
    receive(place, place / "received", True, say)
    copying.join()
    assert received(place / "received") == FILES


@pytest.mark.slow
def test_it_is_killed_at_ten_moments_and_goes_on(tmp_path: Path) -> None:
    moments = [("fsync", after) for after in (0, 1, 2, 5, 9, 14, 18)] + [
        ("open", 9),
        ("open", 21),
        ("rename", 0),
    ]
    for number, (call, after) in enumerate(moments):
        place = tmp_path / str(number)
        write(place)

        def take(place: Path = place) -> None:
            receive(place, place / "received", False, quiet)

        assert killed(call, after, take) == -signal.SIGKILL, (call, after)
        assert not (place / "received").exists()
        noted = place / "received.partial" / ".received"
        done = set(noted.read_text("utf-8").split()) if noted.exists() else set()
        said: Said = []
        receive(place, place / "received", False, said.append)
        assert {line.split()[0] for line in said[:-1]} == {f"volume-000{n}" for n in range(1, 9)} - done
        assert received(place / "received") == FILES


@pytest.mark.service
def test_a_full_disk_is_named_and_it_goes_on_when_there_is_space(monkeypatch: pytest.MonkeyPatch) -> None:
    members = {**FILES, "tool/b-1-py3-none-any.whl": bytes(range(256)) * 500}
    with small_disk("1m") as disk:
        place = disk / "bundle"
        write(place, 20_000, members)
        filler = disk / "filler"
        with filler.open("wb") as stream:
            while shutil.disk_usage(disk).free > 60_000:
                stream.write(bytes(4096))
                stream.flush()
        with pytest.raises(
            Refused, match=r"no space left on the disk that holds .*: [\d,]+ bytes more are needed"
        ):
            receive(place, place / "received", False, quiet)
        # Somebody else fills the disk after the check.
        real = shutil.disk_usage
        monkeypatch.setattr(shutil, "disk_usage", lambda path: real("/"))
        with pytest.raises(Refused, match="no space left"):
            receive(place, place / "received", False, quiet)
        assert not (place / "received").exists()
        monkeypatch.undo()
        filler.unlink()
        receive(place, place / "received", False, quiet)
        assert received(place / "received") == members


def test_the_manifest_that_is_left_is_the_one_that_was_checked(tmp_path: Path) -> None:
    document = write(tmp_path)
    receive(tmp_path, tmp_path / "received", False, quiet)
    assert json.loads((tmp_path / "received" / "bundle.json").read_bytes()) == document
