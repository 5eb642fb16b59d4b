"""The changes of a derived image, in words."""

from __future__ import annotations

from validator.model.spec import Lock, Wheel
from validator.reports.diagnosis import Changes, derived_text, packages_changed

LOCK = Lock(
    "tf2.21.0-cpu-py312",
    "3.12",
    "x",
    (),
    tuple(
        Wheel(name, version, "0" * 64, "a.whl")
        for name, version in (("keras", "3.0"), ("numpy", "2.0"), ("pip", "26"))
    ),
)


def test_packages_are_compared_with_the_lock() -> None:
    installed = {"keras": "3.0", "numpy": "2.1", "pandas": "2.3", "pytz": "2026"}
    assert packages_changed(LOCK, installed) == (
        {"pandas": "2.3", "pytz": "2026"},
        {"pip": "26"},
        {"numpy": ("2.0", "2.1")},
    )
    assert packages_changed(LOCK, {"keras": "3.0", "numpy": "2.0", "pip": "26"}) == ({}, {}, {})


def test_the_text_says_what_changed_and_what_a_certificate_is_about() -> None:
    changes = Changes(
        LOCK.identifier, LOCK.digest, "sha256:base", ("RUN pip install pandas",), True,
        {"pandas": "2.3"}, {"pip": "26"}, {"numpy": ("2.0", "2.1")},
        {"tensorflow-cpu": ["a.py", "b.py", "c.py", "d.py"]},
    )  # fmt: skip
    assert derived_text(changes) == (
        "This image was derived from tf2.21.0-cpu-py312 (sha256:base):\n"
        "  packages added: pandas 2.3\n"
        "  packages removed: pip 26\n"
        "  packages changed: numpy 2.0 to 2.1\n"
        "  files of tensorflow-cpu changed: a.py, b.py, c.py and 1 more\n"
        "A certificate of tf2.21.0-cpu-py312 is about that image's digest. It says nothing about this image."
    )


def test_what_was_not_compared_is_said() -> None:
    unknown = Changes(LOCK.identifier, "sha256:lock", None, (), False, {}, {}, {}, {})
    text = derived_text(unknown)
    assert "packages: not compared, because the lock sha256:lock is not here" in text
    assert "no file of TensorFlow's or NVIDIA's packages changed" in text
    same = Changes(LOCK.identifier, LOCK.digest, None, (), True, {}, {}, {}, {})
    assert "the packages are those of its lock" in derived_text(same)
