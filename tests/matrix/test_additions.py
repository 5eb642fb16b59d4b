"""The keys of an image entry that add packages, files and settings to its images."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest
from uv import find_uv_bin

from validator.matrix.document import MatrixError
from validator.matrix.images import JUPYTER_PACKAGES
from validator.matrix.load import Matrix, parse_matrix
from validator.model.spec import Additions, CheckFile, LocalWheel, Requirements

from .support import GOOD

ENTRY = '    python: ["3.12"]\n'
WHEEL = "ours-1.0-py3-none-any.whl"
HASH = hashlib.sha256(b"wheel").hexdigest()
OURS = LocalWheel(f"wheels/{WHEEL}", "ours", "1.0", HASH, 5)
ONLY_WHEELS = "images are made only from wheels: build one with `uvx pip wheel --no-deps --wheel-dir wheels"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / WHEEL).write_bytes(b"wheel")
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "our_check.py").write_text("def run(): ...\n")
    return tmp_path


def load(project: Path, keys: str) -> Matrix:
    """Load a matrix whose only image entry, on lines 2 and 3, has these lines as well."""
    return parse_matrix(GOOD.replace(ENTRY, ENTRY + keys).encode(), str(project / "m.yaml"))


def added(project: Path, keys: str) -> Additions:
    [image] = load(project, keys).images
    assert image.additions is not None
    return image.additions


def problems(project: Path, keys: str) -> list[str]:
    with pytest.raises(MatrixError) as caught:
        load(project, keys)
    return str(caught.value).replace(f"{project}/", "").splitlines()


def test_an_entry_without_these_keys_adds_nothing(project: Path) -> None:
    [image] = load(project, "").images
    assert (image.additions, image.max_size) == (None, None)


def test_all_keys(project: Path) -> None:
    (project / "requirements.txt").write_text("attrs>=23\n")
    keys = f"""\
    name: ours
    packages: ["pandas >= 2", keras-hub, ./wheels/{WHEEL}]
    requirements: requirements.txt
    system_packages: [libgl1, git]
    environment: {{TF_CPP_MIN_LOG_LEVEL: "1", A: "b c"}}
    checks: [checks/our_check.py]
    max_size: 3.5GB
"""
    [image] = load(project, keys).images
    check = hashlib.sha256(b"def run(): ...\n").hexdigest()
    assert image.identifier == "tf2.21.0-cuda12.5-cudnn9.3-py312_ours"
    assert image.max_size == 3_500_000_000
    assert image.additions == Additions(
        name="ours",
        packages=("pandas>=2", "keras-hub"),
        wheels=(OURS,),
        requirements=Requirements("requirements.txt", ("attrs>=23",)),
        system_packages=("libgl1", "git"),
        environment=(("A", "b c"), ("TF_CPP_MIN_LOG_LEVEL", "1")),
        checks=(CheckFile("checks/our_check.py", check),),
    )
    assert image.additions.directory == project


def test_one_value_needs_no_list(project: Path) -> None:
    assert added(project, "    packages: pandas\n    checks: checks/our_check.py\n").packages == ("pandas",)


def test_without_a_name_the_identifier_ends_in_the_digest(project: Path) -> None:
    [image] = load(project, "    packages: pandas\n").images
    assert image.additions is not None
    assert image.identifier == f"tf2.21.0-cuda12.5-cudnn9.3-py312_{image.additions.digest[:8]}"
    [other] = load(project, "    packages: pandas>=2\n").images
    assert other.identifier != image.identifier


def test_a_size_budget_does_not_change_the_identifier(project: Path) -> None:
    [image] = load(project, "    max_size: 800MiB\n").images
    assert (image.identifier, image.max_size) == ("tf2.21.0-cuda12.5-cudnn9.3-py312", 800 * 1024**2)


def test_a_changed_file_is_another_addition(project: Path) -> None:
    keys = f"    name: ours\n    packages: ./wheels/{WHEEL}\n    checks: checks/our_check.py\n"
    first = added(project, keys)
    (project / "wheels" / WHEEL).write_bytes(b"another")
    second = added(project, keys)
    (project / "checks" / "our_check.py").write_text("def run(): return 1\n")
    assert len({first.digest, second.digest, added(project, keys).digest}) == 3


def test_a_check_may_be_optional(project: Path) -> None:
    [check] = added(project, "    checks: [{path: checks/our_check.py, required: false}]\n").checks
    assert check.required is False
    assert check.timeout_s == 120


def test_a_check_may_have_a_time_limit(project: Path) -> None:
    keys = "    checks: [{path: checks/our_check.py, timeout: 600}]\n"
    [check] = added(project, keys).checks
    assert (check.required, check.timeout_s) == (True, 600)
    for wrong, said in (
        ("0", "expected a whole number from 1 to 3600, found 0"),
        ("3601", "expected a whole number from 1 to 3600, found 3601"),
        ("-1", "expected a whole number from 1 to 3600, found "),
        ("soon", 'expected a whole number from 1 to 3600, found the text "soon"'),
        ("[1]", "expected a whole number from 1 to 3600, found "),
    ):
        [problem] = [line for line in problems(project, keys.replace("600", wrong)) if "timeout" in line]
        assert said in problem


def test_the_name_of_a_checks_file_is_a_module(project: Path) -> None:
    for name in ("__init__.py", "Our.py", "our-check.py", "our_check.txt"):
        (project / "checks" / name).write_text("def check(context): ...\n")
        assert "is not the name of a check" in "\n".join(problems(project, f"    checks: checks/{name}\n"))


def test_the_variant_jupyter_has_cuda_and_jupyterlab(project: Path) -> None:
    plain, jupyter = load(project, "    variant: [gpu, jupyter]\n").images
    assert plain.additions is None
    assert jupyter.identifier == "tf2.21.0-cuda12.5-cudnn9.3-py312_jupyter"
    assert jupyter.additions == Additions("jupyter", packages=JUPYTER_PACKAGES)
    assert jupyter.cuda == plain.cuda
    [ours] = load(project, "    variant: jupyter\n    name: lab\n    packages: pandas\n").images
    assert ours.additions == Additions("lab", packages=(*JUPYTER_PACKAGES, "pandas"))


def test_two_images_with_one_name_are_refused(project: Path) -> None:
    [line] = problems(project, "    variant: [gpu, jupyter]\n    name: lab\n    packages: pandas\n")
    assert "the same name, tf2.21.0-cuda12.5-cudnn9.3-py312_lab" in line
    assert "give different additions different names" in line


PACKAGES = {
    "sdist": (
        "./ours-1.0.tar.gz",
        f'is a source distribution; {ONLY_WHEELS} "./ours-1.0.tar.gz"` and write its path',
    ),
    "directory": ("./ours", f'is not a wheel; {ONLY_WHEELS} "./ours"` and write its path'),
    "editable": ("-e ./ours", f'is an editable requirement; {ONLY_WHEELS} "./ours"`'),
    "repository": (
        "git+https://example.com/ours.git",
        f'names a repository; {ONLY_WHEELS} "git+https://example.com/ours.git"`',
    ),
    "named repository": (
        "ours @ git+ssh://git@example.com/ours",
        "names a repository; images are made only from wheels",
    ),
    "address": (
        "https://example.com/ours-1.0-py3-none-any.whl",
        "is an address, but a lock is the same on every network; download the wheel",
    ),
    "named address": ("ours @ https://example.com/ours-1.0-py3-none-any.whl", "is an address"),
    "file address": ("file:///wheels/ours-1.0-py3-none-any.whl", "is an address"),
    "absolute": ("/wheels/ours-1.0-py3-none-any.whl", "must be a path relative to this file"),
    "home": ("~/ours-1.0-py3-none-any.whl", "must be a path relative to this file"),
    "missing": ("./wheels/other-1.0-py3-none-any.whl", "whl\" can't be read: No such file or directory"),
    "aarch64": (
        "./ours-1.0-cp312-cp312-manylinux_2_28_aarch64.whl",
        "is for manylinux_2_28_aarch64, but images are for Linux on x86_64 with glibc",
    ),
    "musl": ("./ours-1.0-cp312-cp312-musllinux_1_2_x86_64.whl", "is for musllinux_1_2_x86_64, but"),
    "windows": ("./ours-1.0-cp312-cp312-win_amd64.whl", "is for win_amd64, but"),
    "bad wheel name": ("./ours.whl", "is not the name of a wheel"),
    "not a requirement": ("pandas >> 2", "is not a requirement"),
}


@pytest.mark.parametrize(("text", "message"), PACKAGES.values(), ids=PACKAGES.keys())
def test_what_can_not_be_a_package_is_refused_with_what_to_do(project: Path, text: str, message: str) -> None:
    [line] = problems(project, f"    packages: [pandas, '{text}']\n")
    assert line.startswith(f'm.yaml:4:24: images[0].packages[1]: "{text[:60]}')
    assert message in line


WRONG = {
    "name": ("    name: Ours\n    packages: pandas\n", 'm.yaml:4:11: images[0].name: "Ours" is not a name'),
    "hexadecimal name": (
        "    name: deadbeef\n    packages: pandas\n",
        'm.yaml:4:11: images[0].name: "deadbeef" is',
    ),
    "a name for nothing": (
        "    name: ours\n",
        "m.yaml:4:5: images[0].name: has no effect on an image to which nothing is",
    ),
    "size": (
        "    max_size: 3.5 gigabytes\n",
        'm.yaml:4:15: images[0].max_size: "3.5 gigabytes" is not a size; write it like',
    ),
    "size as a number": (
        "    max_size: 3\n",
        "m.yaml:4:15: images[0].max_size: expected text, found a number (3)",
    ),
    "system package": (
        "    system_packages: [git, 'x; rm']\n",
        'm.yaml:4:28: images[0].system_packages[1]: "x; rm" is not the name',
    ),
    "a package twice": (
        "    packages: [pandas, pandas]\n",
        'm.yaml:4:24: images[0].packages[1]: "pandas" is already in this list',
    ),
    "variable": (
        '    environment: {A-B: "1"}\n',
        'm.yaml:4:19: images[0].environment.A-B: "A-B" is not the name of a variable',
    ),
    "PATH": (
        "    environment: {PATH: /bin}\n",
        "m.yaml:4:19: images[0].environment.PATH: PATH belongs to the image: it makes",
    ),
    "NVIDIA": (
        "    environment: {NVIDIA_VISIBLE_DEVICES: none}\n",
        "m.yaml:4:19: images[0].environment.NVIDIA_VISIBLE_DEVICES: NVIDIA_VISIBLE_DEVICES belongs",
    ),
    "VALIDATOR": (
        "    environment: {VALIDATOR_X: a}\n",
        "m.yaml:4:19: images[0].environment.VALIDATOR_X: VALIDATOR_X belongs to the image",
    ),
    "library path": (
        "    environment: {LD_LIBRARY_PATH: /x}\n",
        "LD_LIBRARY_PATH belongs to the image: it would come before the loader's cache",
    ),
    "number in the environment": (
        "    environment: {A: 1}\n",
        'm.yaml:4:22: images[0].environment.A: expected text, found a number (1); write "1"',
    ),
    "check that is not there": ("    checks: checks/other.py\n", "m.yaml:4:13: images[0].checks: "),
    "check that is not Python": (
        "    checks: [checks/our-check.sh]\n",
        'm.yaml:4:14: images[0].checks[0]: "our-check.sh" is not the name of a check',
    ),
    "absolute check": (
        "    checks: [/checks/our_check.py]\n",
        "m.yaml:4:14: images[0].checks[0]: must be a path relative to this file",
    ),
    "unknown key of a check": (
        "    checks: [{path: checks/our_check.py, requird: true}]\n",
        "m.yaml:4:42: images[0].checks[0].requird: unknown key; did you mean required?",
    ),
    "check that is a number": (
        "    checks: [{path: checks/our_check.py, required: 'x'}]\n",
        "images[0].checks[0].required: expected true or false, found the text",
    ),
    "requirements as a list": (
        "    requirements: [a.txt]\n",
        "m.yaml:4:19: images[0].requirements: expected text or a mapping, found a list",
    ),
    "project without a directory": (
        "    requirements: {group: train}\n",
        "m.yaml:4:19: images[0].requirements: the key project is missing",
    ),
    "no project there": (
        "    requirements: {project: wheels}\n",
        'images[0].requirements: "wheels" is not a project with a lock: it has no pyproject.toml',
    ),
    "project as a file": (
        "    requirements: pyproject.toml\n",
        "images[0].requirements: a project is written as {project: .}",
    ),
    "typo": (
        "    sytem_packages: git\n",
        "m.yaml:4:5: images[0].sytem_packages: unknown key; did you mean system_packages?",
    ),
}


@pytest.mark.parametrize(("keys", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_values_are_named_with_their_position(project: Path, keys: str, message: str) -> None:
    [line] = problems(project, keys)
    assert message in line


def test_a_secret_in_the_environment_is_a_warning(project: Path) -> None:
    matrix = load(project, '    environment: {OUR_API_KEY: "abcdefgh12345678", OTHER: "1"}\n')
    [warning] = matrix.warnings
    assert (warning.line, warning.column, warning.path) == (4, 19, "images[0].environment.OUR_API_KEY")
    assert "looks like a secret" in warning.message


def requirements(project: Path, text: str, keys: str = "    requirements: requirements.txt\n") -> Additions:
    (project / "requirements.txt").write_text(text)
    return added(project, keys)


def test_a_requirements_file_with_everything_that_can_be_honoured(project: Path) -> None:
    (project / "more").mkdir()
    (project / "more" / "base.txt").write_text(f"six\n-c ../limits.txt\n../wheels/{WHEEL}\n")
    (project / "limits.txt").write_text("numpy<3\n")
    found = requirements(
        project,
        "# ours\n-r more/base.txt\n--only-binary :all:\nattrs >= 23 \\\n"
        f"  --hash=sha256:{'a' * 64} \\\n  --hash sha256:{'B' * 64}  # both\n"
        'tomli; python_version < "3.11"  # old\n\nsix\n',
    )
    assert found.wheels == (OURS,)
    assert found.requirements == Requirements(
        "requirements.txt",
        ("six", "attrs>=23", 'tomli; python_version < "3.11"'),
        ("numpy<3",),
        (("attrs", ("a" * 64, "b" * 64)),),
    )


LINES = {
    "editable": ("six\n-e ./ours\n", 'requirements.txt:2: "-e" is an editable requirement'),
    "repository": (
        "git+https://example.com/x\n",
        'requirements.txt:1: "git+https://example.com/x" names a repository',
    ),
    "sdist": ("\n\n./x-1.tar.gz\n", 'requirements.txt:3: "./x-1.tar.gz" is a source distribution'),
    "index": (
        "--index-url https://index.example\n",
        "can't be honoured: indexes are configured for uv or pip",
    ),
    "find links": ("-f links\n", "can't be honoured: indexes"),
    "option": ("--pre\n", 'requirements.txt:1: "--pre" can\'t be honoured in a lock; remove it'),
    "option of a line": ("six --global-option=x\n", '"--global-option" can\'t be honoured in a lock'),
    "variable": ("six==${VERSION}\n", "uses an environment variable"),
    "other hash": (f"six --hash=sha512:{'a' * 128}\n", "is not a SHA-256"),
    "without a hash": (
        f"--require-hashes\na==1 --hash=sha256:{'a' * 64}\nb==1\n",
        'requirements.txt:3: "b==1" has no hash',
    ),
    "includes itself": ("-r requirements.txt\n", 'requirements.txt:1: includes "requirements.txt" again'),
    "missing include": ("-r other.txt\n", 'requirements.txt:1: "other.txt" can\'t be read: No such file'),
    "in an include": ("-r inner.txt\n", "inner.txt:2: the line is not a requirement"),
    "hash of a wheel": (
        f"./wheels/{WHEEL} --hash=sha256:{'a' * 64}\n",
        f"has the SHA-256 {HASH}, which is not in the list",
    ),
}


@pytest.mark.parametrize(("text", "message"), LINES.values(), ids=LINES.keys())
def test_what_a_lock_can_not_honour_is_named_with_its_line(project: Path, text: str, message: str) -> None:
    (project / "requirements.txt").write_text(text)
    (project / "inner.txt").write_text("six\nx y\n")
    [line] = problems(project, "    requirements: requirements.txt\n")
    assert line.startswith("m.yaml:4:19: images[0].requirements: ")
    assert message in line


PYLOCK = f"""\
lock-version = "1.0"
created-by = "test"

[[packages]]
name = "six"
version = "1.17.0"
wheels = [{{ url = "https://index.example/six.whl", hashes = {{ sha256 = "{"a" * 64}" }} }}]

[[packages]]
name = "Tomli"
version = "2.0"
marker = "python_version < '3.11'"
wheels = [{{ path = "tomli.whl", hashes = {{ sha256 = "{"b" * 64}" }} }}]
"""


def test_a_pylock_gives_pins_with_hashes(project: Path) -> None:
    (project / "pylock.toml").write_text(PYLOCK)
    assert added(project, "    requirements: pylock.toml\n").requirements == Requirements(
        "pylock.toml",
        ("six==1.17.0", 'Tomli==2.0; python_version < "3.11"'),
        hashes=(("six", ("a" * 64,)), ("tomli", ("b" * 64,))),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = [", "pylock.toml: not TOML"),
        ('lock-version = "2.0"\n', 'pylock.toml: its lock-version is "2.0"'),
        (
            PYLOCK + '[[packages]]\nname = "x"\nversion = "1"\n',
            'pylock.toml:14: "x" 1 has no wheel; build one with',
        ),
        (
            PYLOCK + '[[packages]]\nname = "x"\ndirectory = { path = "." }\n',
            'pylock.toml:14: "x" comes from a directory',
        ),
        (
            PYLOCK.replace("python_version < '3.11'", "'a' in extras"),
            'pylock.toml:9: "Tomli" has a condition that can\'t be',
        ),
        (PYLOCK.replace("hashes", "hash"), "pylock.toml:4: is not a package as PEP 751 describes it"),
    ],
)
def test_a_pylock_that_is_not_made_of_wheels_is_refused(project: Path, text: str, message: str) -> None:
    (project / "pylock.toml").write_text(text)
    [line] = problems(project, "    requirements: pylock.toml\n")
    assert message in line


UV_PROJECT = """\
[project]
name = "demo"
version = "0.1"
requires-python = ">=3.10"
dependencies = ["ours"]

[dependency-groups]
train = ["other"]

[tool.uv]
find-links = ["wheels"]
no-index = true
"""


@pytest.mark.engine
@pytest.mark.parametrize(
    ("keys", "origin"),
    [
        ("{project: .}", "pyproject.toml"),
        ("{project: ., group: train}", "pyproject.toml (group train)"),
    ],
)
def test_a_uv_project_gives_what_its_lock_says(
    project: Path, keys: str, origin: str, our_project: None
) -> None:
    found = added(project, f"    requirements: {keys}\n").requirements
    assert found is not None
    assert found.origin == origin
    names = {line.split("==")[0] for line in found.lines}
    assert names == ({"ours", "other"} if "group" in keys else {"ours"})
    assert all(len(hashes) == 1 for _, hashes in found.hashes)
    assert not (project / ".venv").exists()


@pytest.mark.engine
def test_a_project_whose_lock_is_out_of_date_is_refused(project: Path, our_project: None) -> None:
    text = UV_PROJECT.replace('["other"]', '["other==1.0"]')
    (project / "pyproject.toml").write_text(text)
    [line] = problems(project, "    requirements: {project: ., group: train}\n")
    assert "the project's uv.lock is out of date; run `uv lock` in its directory" in line


@pytest.fixture
def our_project(project: Path) -> None:
    """Make a uv project with a lock, made from two local wheels and without an index."""
    for name in ("ours", "other"):
        write_wheel(project / "wheels", name)
    (project / "pyproject.toml").write_text(UV_PROJECT)
    subprocess.run([find_uv_bin(), "lock", "--offline"], cwd=project, check=True, capture_output=True)


def write_wheel(directory: Path, name: str) -> None:
    """Write the smallest wheel that uv reads."""
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(directory / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
