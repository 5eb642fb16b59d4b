"""One wrong file for each kind of mistake: its text, then the messages that it must cause."""

from __future__ import annotations

from validator.compat.hardware import branches

from .support import GOOD, changed, host, image

YAML = {
    "syntax": (
        "images: [1\n",
        "m.yaml:2:1: not YAML: while parsing a flow sequence, did not find expected ',' or ']'",
    ),
    "duplicate key": ("a: 1\nb: 2\na: 3\n", 'm.yaml:3:1: the key "a" is given twice (first on line 1)'),
    "duplicate key, quoted": ('a: 1\n"a": 3\n', 'm.yaml:2:1: the key "a" is given twice (first on line 1)'),
    "duplicate key, deep": (
        changed("    gpu: h100\n", "    gpu: h100\n    gpu: a100\n"),
        'm.yaml:7:5: hosts[0]: the key "gpu" is given twice (first on line 6)',
    ),
    "not UTF-8": (b"a: 1\nb: \xff\n", "m.yaml:2:4: not UTF-8: the byte 0xff at offset 8"),
    "not UTF-8, after a mark": (b"\xef\xbb\xbfa: \xff\n", "m.yaml:1:4: not UTF-8: the byte 0xff at offset 6"),
    "UTF-16": ("a: 1".encode("utf-16"), "m.yaml:1:1: not UTF-8: the byte 0xff at offset 0"),
    "cut in a character": ("é".encode()[:1], "m.yaml:1:1: not UTF-8: the byte 0xc3 at offset 0"),
    "empty": ("", "m.yaml:1:1: the file is empty"),
    "only a comment": ("# nothing\n", "m.yaml:1:1: the file is empty"),
    "null": ("~\n", "m.yaml:1:1: the file is empty"),
    "NUL": ("a: \0\n", "m.yaml:1:4: the character U+0000 is not allowed in a YAML file"),
    "control character": (
        "a: 1\nb: \x1b[31m\n",
        "m.yaml:2:4: the character U+001B is not allowed in a YAML file",
    ),
    "escaped control character": (
        'a: "\\e[31m"\n',
        'm.yaml:1:4: a: "\\x1b[31m" contains a character that can\'t be printed',
    ),
    "bidirectional override": (
        "a: \u202e\n",
        'm.yaml:1:4: a: "\\u202e" contains a character that can\'t be printed',
    ),
    "tab": (
        "images:\n\t- a\n",
        "m.yaml:2:1: not YAML: while scanning for the next token,"
        " found character that cannot start any token",
    ),
    "python tag": (
        "a: !!python/object/apply:os.system [ls]\n",
        'm.yaml:1:4: a: the tag "!!python/object/apply:os.system" is not allowed',
    ),
    "own tag": ("a: !env HOME\n", 'm.yaml:1:4: a: the tag "!env" is not allowed'),
    "an anchor defined twice": (
        "a: &a 1\nb: &a 2\n",
        "m.yaml:2:4: b: the anchor &a is defined twice",
    ),
    "standard tag of another type": ("a: !!float 1\n", 'm.yaml:1:4: a: the tag "!!float" is not allowed'),
    "two documents": (
        "a: 1\n---\nb: 2\n",
        "m.yaml:2:1: a second document begins here; the file may have only one",
    ),
    "key that is no text": ("? [a]\n: b\n", "m.yaml:1:3: a key must be text, not a list or a mapping"),
    "alias without anchor": ("a: *b\n", "m.yaml:1:4: a: the alias *b has no anchor before it"),
    "alias within itself": ("a: &a [*a]\n", "m.yaml:1:8: a[0]: the alias *a refers to itself"),
    "a list": ("- a\n", "m.yaml:1:1: expected a mapping, found a list"),
    "a text": ("hello\n", 'm.yaml:1:1: expected a mapping, found the text "hello"'),
}

SHAPE = {
    "unknown key at the top": (
        GOOD + "exlude: []\n",
        "m.yaml:10:1: exlude: unknown key; did you mean exclude?",
    ),
    "unknown key in an image": (
        changed("python:", "pyhton:"),
        "m.yaml:2:5: images[0]: the key python is missing",
        "m.yaml:3:5: images[0].pyhton: unknown key; did you mean python?",
    ),
    "unknown key, nothing near": (
        changed("    gpu: h100\n", "    gpu: h100\n    zzz: 1\n"),
        "m.yaml:7:5: hosts[0].zzz: unknown key;"
        " the keys here are driver, gpu, compute_capability, compat and runner",
    ),
    "merge key": (
        changed("    gpu: h100\n", "    gpu: h100\n    <<: {}\n"),
        'm.yaml:7:5: hosts[0]."<<": unknown key;'
        " the keys here are driver, gpu, compute_capability, compat and runner",
    ),
    "missing section": (
        changed('hosts:\n  - driver: "535"\n    gpu: h100\n', ""),
        "m.yaml:1:1: the key hosts is missing",
    ),
    "python as a number": (
        changed('["3.12"]', "[3.10]"),
        'm.yaml:3:14: images[0].python[0]: expected text, found a number (3.10); write "3.10", in quotes',
    ),
    "tensorflow as a number": (
        changed('"2.21.0"', "2.21"),
        'm.yaml:2:17: images[0].tensorflow: expected text, found a number (2.21); write "2.21", in quotes',
    ),
    "driver as a number": (
        changed('"535"', "535"),
        'm.yaml:5:13: hosts[0].driver: expected text, found a number (535); write "535", in quotes',
    ),
    "truth value": (
        changed("h100", "yes"),
        'm.yaml:6:10: hosts[0].gpu: expected text, found a truth value (yes); write "yes", in quotes',
    ),
    "date": (
        changed("h100", "2024-01-01"),
        'm.yaml:6:10: hosts[0].gpu: expected text, found a date (2024-01-01); write "2024-01-01", in quotes',
    ),
    "nothing after a key": (changed("h100", ""), "m.yaml:6:9: hosts[0].gpu: is empty"),
    "mapping for a list": (
        changed("h100", "{a: b}"),
        "m.yaml:6:10: hosts[0].gpu: expected text, found a mapping",
    ),
    "list in a list": (
        changed("h100", "[[h100]]"),
        "m.yaml:6:11: hosts[0].gpu[0]: expected text, found a list",
    ),
    "section that is no list": (
        "images: all\n" + GOOD[GOOD.index("hosts") :],
        'm.yaml:1:9: images: expected a list, found the text "all"',
    ),
    "section that is a number": (
        "images: 5\n" + GOOD[GOOD.index("hosts") :],
        "m.yaml:1:9: images: expected a list, found a number (5)",
    ),
    "entry that is no mapping": (
        GOOD + "exclude:\n  - python=3.12\n",
        'm.yaml:11:5: exclude[0]: expected a mapping, found the text "python=3.12"',
    ),
    "no images": (
        "images: []\n" + GOOD[GOOD.index("hosts") :],
        "m.yaml:1:9: images: is empty; it needs at least one value",
    ),
    "empty axis": (
        changed('["3.12"]', "[]"),
        "m.yaml:3:13: images[0].python: is empty; it needs at least one value",
    ),
    "empty text": (changed("h100", '""'), "m.yaml:6:10: hosts[0].gpu: is empty"),
    "repeated value": (
        changed('["3.12"]', '["3.12", "3.12"]'),
        'm.yaml:3:22: images[0].python[1]: "3.12" is already in this list',
    ),
    "text too long": (
        GOOD + f"exclude:\n  - select: python=3.12\n    reason: {'a' * 501}\n",
        "m.yaml:12:13: exclude[0].reason: is longer than 500 characters",
    ),
    "no reason": (
        GOOD + "exclude:\n  - select: python=3.12\n",
        "m.yaml:11:5: exclude[0]: the key reason is missing",
    ),
}

IMAGES = {
    "unknown release": (
        changed('"2.21.0"', '"2.99.0"'),
        'm.yaml:2:17: images[0].tensorflow: tensorflow "2.99.0" is not known;'
        " the nearest are 2.22.0rc0, 2.21.0, 2.20.0",
    ),
    "unknown minor": (
        changed('"2.21.0"', '"2.99"'),
        'm.yaml:2:17: images[0].tensorflow: tensorflow "2.99" is not known; the nearest are 2.21, 2.20, 2.19',
    ),
    "no release": (
        changed('"2.21.0"', "new"),
        'm.yaml:2:17: images[0].tensorflow: "new" is not a TensorFlow release'
        " (expected something like 2.21.0)",
    ),
    "empty range": (
        changed('"2.21.0"', '">=3"'),
        'm.yaml:2:17: images[0].tensorflow: no known release is in ">=3"; the newest is 2.21.0',
    ),
    "wrong range": (
        changed('"2.21.0"', '"=>2.20"'),
        'm.yaml:2:17: images[0].tensorflow: "=>2.20" is not a range:'
        ' "=>2.20" does not begin with one of = == != >= <= > <',
    ),
    "release given twice": (
        changed('"2.21.0"', '["2.21.0", newest]'),
        'm.yaml:2:28: images[0].tensorflow[1]: "newest" gives 2.21.0, which is already in this list',
    ),
    "no wheel for a Python": (
        changed('["3.12"]', '["3.12", "3.9"]'),
        "m.yaml:3:22: images[0].python[1]: TensorFlow 2.21.0 has no wheel for Python 3.9;"
        " it has 3.10, 3.11, 3.12 and 3.13",
    ),
    "no wheel of several for a Python": (
        image('  - {tensorflow: ["2.16", "2.15.1"], python: "3.13"}\n'),
        "m.yaml:2:46: images[0].python: TensorFlow 2.16.1, 2.16.2 and 2.15.1 have no wheel for Python 3.13",
    ),
    "no Python": (
        changed('"3.12"', "python3"),
        'm.yaml:3:14: images[0].python[0]: "python3" is not a Python version (expected "3.12", or all)',
    ),
    "all beside another": (
        changed('"3.12"', 'all, "3.12"'),
        "m.yaml:3:14: images[0].python[0]: all can't be in a list with versions; it means every Python",
    ),
    "unknown cuDNN": (
        changed("hosts:", '    cudnn: "9.99"\nhosts:'),
        'm.yaml:4:12: images[0].cudnn: "9.99" is not known; the nearest are 9.28, 9.27, 9.26',
    ),
    "cuDNN below the metadata": (
        changed("hosts:", '    cudnn: ["9.10", "9.2"]\nhosts:'),
        'm.yaml:4:21: images[0].cudnn[1]: "9.2" is not allowed by the metadata of tensorflow 2.21.0'
        " (>=9.3,<10); the nearest is 9.3",
    ),
    "CUDA above the metadata": (
        changed("hosts:", '    cuda: "13.0"\nhosts:'),
        'm.yaml:4:11: images[0].cuda: "13.0" is not allowed by the metadata of tensorflow 2.21.0'
        " (>=12.5,<13); the nearest is 12.9",
    ),
    "CUDA that never was": (
        changed("hosts:", '    cuda: "12.7"\nhosts:'),
        'm.yaml:4:11: images[0].cuda: "12.7" is not known; the nearest are 12.8, 12.6, 12.9',
    ),
    "pin of an exact release": (
        image('  - {tensorflow: "2.18.1", python: all, cudnn: "9.10"}\n'),
        'm.yaml:2:48: images[0].cudnn: "9.10" is not allowed by the metadata of tensorflow 2.18.1 (==9.3);'
        " the nearest is 9.3",
    ),
    "a version as policy": (
        changed("hosts:", '    policy: "12.8"\nhosts:'),
        'm.yaml:4:13: images[0].policy: "12.8" is not known; choose from recommended, as-built and latest;'
        " give versions with cuda and cudnn",
    ),
    "policy beside cuda": (
        changed("hosts:", "    policy: latest\n    cuda: latest\nhosts:"),
        "m.yaml:4:5: images[0].policy: can't be combined with cuda; remove one",
    ),
    "latest without an extra": (
        image('  - {tensorflow: "2.13.1", python: all, policy: latest}\n'),
        "m.yaml:2:49: images[0].policy: tensorflow 2.13.1 has no and-cuda extra, which would define its"
        " latest cuda; use as-built or a version",
    ),
    "no CUDA wheels at all": (
        image('  - {tensorflow: "2.11.1", python: all}\n'),
        "m.yaml:2:18: images[0].tensorflow: tensorflow 2.11.1 was built with CUDA 11.2,"
        " for which there are no wheels",
    ),
    "CUDA of a cpu image": (
        changed("hosts:", "    variant: cpu\n    cuda: latest\nhosts:"),
        "m.yaml:5:5: images[0].cuda: a cpu image has no CUDA; leave this key out",
    ),
    "unknown variant": (
        changed("hosts:", "    variant: tpu\nhosts:"),
        'm.yaml:4:14: images[0].variant: "tpu" is not known; the nearest are gpu and cpu',
    ),
    "no image name": (
        changed("hosts:", "    base: a b\nhosts:"),
        'm.yaml:4:11: images[0].base: "a b" is not an image name',
    ),
    "duplicate image": (
        changed("hosts:", '  - {tensorflow: "2.21", python: all}\nhosts:'),
        "m.yaml:4:5: images[1]: is a duplicate: images[0] (line 2) already asks for"
        " tf2.21.0-cuda12.5-cudnn9.3-py312",
    ),
    "duplicate images": (
        image("  - {tensorflow: newest, python: all}\n  - {tensorflow: newest, python: all}\n"),
        "m.yaml:3:5: images[1]: is a duplicate: images[0] (line 2) already asks for"
        " tf2.21.0-cuda12.5-cudnn9.3-py310 and 3 more",
    ),
    "two images of one name": (
        changed("hosts:", '    cudnn: ["9.10", "9.10.1"]\nhosts:'),
        "m.yaml:2:5: images[0]: gives two of its images the same name,"
        " tf2.21.0-cuda12.5-cudnn9.10-py312; write versions as major.minor, use bases that differ"
        " in more than punctuation, and give different additions different names",
    ),
    "two bases of one name": (
        changed("hosts:", "    base: a/b\n  - {tensorflow: newest, python: '3.12', base: a-b}\nhosts:"),
        "m.yaml:5:5: images[1]: gives one of its images and one of images[0] the same name,"
        " tf2.21.0-cuda12.5-cudnn9.3-py312-a-b; write versions as major.minor, use bases that differ"
        " in more than punctuation, and give different additions different names",
    ),
    "cpu image without a host": (
        changed("hosts:", "    variant: cpu\nhosts:"),
        "m.yaml:6:3: hosts: cpu images need a host without a GPU; add an entry gpu: none",
    ),
}

HOSTS = {
    "no driver number": (
        changed('"535"', "new"),
        'm.yaml:5:13: hosts[0].driver: "new" is not a driver release'
        " (expected something like 535.183.01 or 535)",
    ),
    "a driver with a digit too many": (
        changed('"535"', '"5355"'),
        "m.yaml:5:13: hosts[0].driver: there is no driver branch R5355; the newest are "
        + ", ".join(f"R{branch.number}" for branch in branches()[:-4:-1]),
    ),
    "no driver": (changed('driver: "535"\n    ', ""), "m.yaml:5:5: hosts[0]: the key driver is missing"),
    "no GPU": (
        changed("    gpu: h100\n", ""),
        "m.yaml:5:5: hosts[0]: needs either gpu or compute_capability, and not both",
    ),
    "GPU and capability": (
        changed("h100\n", 'h100\n    compute_capability: "9.0"\n'),
        "m.yaml:5:5: hosts[0]: needs either gpu or compute_capability, and not both",
    ),
    "unknown GPU": (
        changed("h100", "[h100, h1000]"),
        'm.yaml:6:17: hosts[0].gpu[1]: GPU "h1000" is not known; the nearest are H100, T1000',
    ),
    "no capability": (
        changed("gpu: h100", "compute_capability: hopper"),
        'm.yaml:6:25: hosts[0].compute_capability: "hopper" is not a compute capability'
        " (expected something like 9.0)",
    ),
    "no compat version": (
        changed("h100\n", 'h100\n    compat: "12"\n'),
        'm.yaml:7:13: hosts[0].compat: "12" is not a CUDA version (expected something like 12.5)',
    ),
    "none among models": (
        changed("h100", "[h100, none]"),
        "m.yaml:6:17: hosts[0].gpu[1]: none can't be in a list with models;"
        " add a separate entry for machines without a GPU",
    ),
    "driver without a GPU": (
        host('  - {driver: "535", gpu: h100}\n  - {driver: "535", gpu: none}\n'),
        "m.yaml:6:6: hosts[1].driver: has no meaning with gpu: none; leave this key out",
    ),
    "duplicate host": (
        host(
            '  - {driver: ["535", "550"], gpu: [h100, a100]}\n'
            '  - {driver: "R550", gpu: [H100, NVIDIA A100]}\n'
        ),
        "m.yaml:6:5: hosts[1]: is a duplicate: hosts[0] (line 5) already gives r550-h100 and 1 more",
    ),
    "two spellings of a GPU": (
        changed("h100", "[rtx-4090, RTX 4090]"),
        "m.yaml:5:5: hosts[0]: defines the host class r535-rtx-4090 twice",
    ),
    "unknown placeholder": (
        changed("h100\n", 'h100\n    runner: ["gpu-{model}"]\n'),
        'm.yaml:7:14: hosts[0].runner[0]: in "gpu-{model}", the placeholder "model" is not known;'
        " choose from host, driver and gpu",
    ),
}

SELECTORS = {
    "unknown key": (
        changed("tensorflow=newest", "tensorfow=newest"),
        'm.yaml:9:14: profiles.quick.select[0]: the selector "tensorfow=newest":'
        ' the key "tensorfow" is not known; the nearest is tensorflow',
    ),
    "bad Python in a profile": (
        changed("[tensorflow=newest]", '[]\n    first_available_python: ["3"]'),
        "m.yaml:9:13: profiles.quick.select: is empty; it needs at least one value",
        'm.yaml:10:30: profiles.quick.first_available_python[0]: "3" is not a Python version'
        ' (expected "3.12")',
    ),
    "excluding by prediction": (
        GOOD + "exclude:\n  - {select: prediction=fails, reason: It fails.}\n",
        "m.yaml:11:14: exclude[0].select: cells can't be excluded by their prediction;"
        " use this selector in a profile",
    ),
}
