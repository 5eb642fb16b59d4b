"""`predict` a combination, `lint` what a project pins, `inspect` a wheel, `plan` the cells of a matrix."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

import click

from .. import __version__
from ..answers import RejectedField
from ..compat.evidence import measured_on
from ..compat.judge import judge, judge_host, judge_uninspected, parse_driver, parse_gpu
from ..compat.known_issues import requirement_unmet
from ..compat.predict import image_support, software_in
from ..compat.releases import Release, nearest_inspected, release, release_of_any_age, releases
from ..errors import EXIT_FAILED, EXIT_OK, InputError
from ..model.prediction import (
    JETSON,
    KERNEL_MODULES,
    MACHINES,
    MODES,
    PYPI,
    SYSTEMS,
    WHEELS,
    Host,
    HostFields,
    Outcome,
    Prediction,
    Rank,
    Software,
    image_json,
)
from ..model.spec import AS_BUILT, Cell, Choice, HostClass, ImageSpec, Variant
from ..reports.diagnosis import what_works_text
from ..reports.printable import counted, json_text
from ..resources import manual
from ..system.package_sources import host_sources
from . import Command, as_started, combination, options
from .combination import Question, read_packages
from .options import Project, argument, flag, option, print_status


@click.command("predict", cls=Command)
def predict_command(
    tensorflow: str | None = option(
        "--tensorflow VERSION  The TensorFlow release, such as 2.21.0; without it, the newest that works is"
        " named."
    ),
    reference: str | None = option(
        "--image NAME  Predict for the TensorFlow in an official image, such as"
        " tensorflow/tensorflow:2.17.0-gpu."
    ),
    files: tuple[Path, ...] = option(
        "--requirements FILE...  Predict for the TensorFlow that this file pins, on each --host: a lock,"
        " requirements.txt, pyproject.toml, environment.yml or a Dockerfile; repeatable."
    ),
    hosts: tuple[str, ...] = option(
        "--host GPU:DRIVER...  A machine for --requirements, such as h100:535.183.01 or 'RTX 4090:580';"
        " repeatable."
    ),
    python: str | None = option(
        "--python VERSION  The Python version, such as 3.12.  [default: the newest one that it has wheels"
        " for]"
    ),
    policy: str | None = option(
        "--policy POLICY  The default of --cuda and --cudnn: recommended, as-built or latest.  [default:"
        " recommended; as-built if one of them is given; with --extra, what pip chooses]"
    ),
    cuda: str | None = option(
        "--cuda POLICY  The CUDA version: one of these policies, or a version such as 12.8."
    ),
    cudnn: str | None = option(
        "--cudnn POLICY  The cuDNN version: one of these policies, or a version such as 9.10."
    ),
    variant: str = option("--variant gpu|cpu", default="gpu"),
    driver: str | None = option(
        "--driver RELEASE  The machine's driver: a release such as 535.183.01, a branch such as 535, or the"
        " CUDA version that nvidia-smi shows, such as 12.2."
    ),
    gpu: str | None = option("--gpu MODEL  The machine's GPU, such as h100 or 'RTX 4090'."),
    capability: str | None = option(
        "--compute-capability VERSION  The GPU's compute capability, such as 9.0, if the model is unknown."
    ),
    compat: str | None = option("--compat CUDA  The cuda-compat package on the loader's path, such as 12.9."),
    system: str | None = option(
        "--system  The operating system.  [default: linux]", type=click.Choice(SYSTEMS)
    ),
    machine: str | None = option(
        "--machine  The architecture.  [default: x86_64]", type=click.Choice(MACHINES)
    ),
    kernel_modules: str | None = option(
        "--kernel-modules  The kind of the driver's kernel modules.", type=click.Choice(KERNEL_MODULES)
    ),
    wheel: str | None = option(
        f"--wheel SOURCE|FILE  Where the TensorFlow package comes from: {', '.join(WHEELS)}, or a wheel file,"
        " which is inspected.  [default: pypi]"
    ),
    extra: bool | None = option(
        "--extra/--no-extra  Predict for TensorFlow that pip installed, with or without its extra and-cuda,"
        " not for an image.",
        default=None,
    ),
    packages: tuple[tuple[str, str], ...] = option(
        "--package NAME==VERSION...  Another package in the environment, such as torch==2.6.0; repeatable.",
        callback=lambda _context, _parameter, values: read_packages(values),
    ),
    mode: str | None = option(
        "--mode  Predict only for eager operations or only for XLA.  [default: both]",
        type=click.Choice(MODES),
    ),
    from_host: bool = flag(
        "--from-host  With --tensorflow: use this machine's system, driver and GPU where they are not given."
    ),
    format_: str = options.formats("text", "json", "markdown", "github", "constraints", short=("json",)),
    host: Host = options.gathered(Host),
    software: Software = options.gathered(Software),
) -> int:
    """Predict whether one combination works, and show every reason with its fact and its source.

    Without --tensorflow: name the newest release that works on the machine, for eager operations and for XLA,
    how to get it, and why newer ones don't work. The exit code is 1 if no release works.

    With --requirements and --host: predict whether the TensorFlow that a project pins works on its machines.
    Only these two options allow the formats markdown (a table for a job's summary) and github (annotations).

    With only --tensorflow: show which CUDA, cuDNN and driver the release needs, and which GPUs it can run
    on, for eager operations and for XLA; --mode shows only one of the two. The exit code is 1 if the
    combination fails.

    --format constraints, with --tensorflow or --requirements: print one set of CUDA's libraries for
    TensorFlow and the project's PyTorch or JAX, for `pip install -c`. The exit code is 1 if there is none.
    """
    is_file = software.wheel is not None and software.wheel.endswith(".whl")
    if is_file:
        options.reject(_IN_A_WHEEL, "can't be combined with a file for --wheel")
    if format_ == "constraints":
        kept = ("tensorflow", "files", "packages", "python", "format_", *(["wheel"] if is_file else []))
        options.reject_all_but(kept, "has no effect with --format constraints")
        return print_constraints(_with_release(software) if is_file else software, files)
    if files or hosts:
        options.reject(
            ("driver", "gpu"), "can't be combined with --requirements: write --host GPU:DRIVER instead"
        )
        options.reject_all_but(
            ("files", "hosts", "format_", "as_json"), "has no effect with --requirements and --host"
        )
        if not (files and hosts):
            raise click.UsageError("--requirements and --host need each other")
        options.say_if_stale()
        return predict_project(files, hosts, format_)
    if format_ not in ("text", "json"):
        raise click.UsageError(f"--format {format_} is only for --requirements")
    if is_file:
        software = _with_release(software)
    elif software.wheel not in (None, *WHEELS):
        raise click.UsageError(
            f"--wheel: {software.wheel} is none of {', '.join(WHEELS)}, and not the name of a wheel"
        )
    if reference is not None:
        options.reject(_IN_AN_IMAGE, "can't be combined with --image")
        if (contents := software_in(reference)) is None:
            raise InputError(
                f"--image: {reference} is no official image with TensorFlow",
                hint="`doctor --image` examines any image that is in a local engine",
            )
        software = replace(contents, packages=software.packages)
    tensorflow = software.tensorflow
    if tensorflow is None:
        options.reject(
            ("from_host",), "needs --tensorflow: `validator` without a command asks about this host"
        )
        options.reject(_ABOUT_ONE_RELEASE, "has no effect without --tensorflow")
    asked = Question(combination.with_driver_of(host) if tensorflow else host, software, policy, mode)
    if asked.on_cpu and (asked.says_more or mode or from_host):
        raise click.UsageError(
            "--system, --machine, --kernel-modules, --wheel, --extra, --package, --mode and --from-host have"
            " no effect with --variant cpu"
        )
    options.say_if_stale()
    if from_host:
        asked = replace(asked, host=combination.with_this_host(host))
    if tensorflow is None:
        return predict_newest(asked, format_)
    nearest = None if asked.on_cpu else nearest_inspected(tensorflow)
    if reference is not None and not asked.names_host:
        raise InputError("--image needs a machine", hint="add --driver and --gpu, or --from-host")
    if nearest is not None and not asked.names_host:
        raise InputError(
            f"no wheel of tensorflow {tensorflow} was inspected, so what it needs is not known;"
            f" the nearest inspected release is {nearest.version}",
            hint=f"add --driver and --gpu to ask about one machine, or ask for {nearest.version}",
        )
    if not (asked.on_cpu or asked.names_host or asked.says_more):
        return _show_support(asked, format_)
    return _show_one(asked, nearest, format_, is_given=reference is not None)


def _with_release(software: Software) -> Software:
    """Return the software with the release that is in its wheel file."""
    from ..supply.release_facts import known_as_release, wheel_at

    found = known_as_release(wheel_at(Path(software.wheel or "")), print_status)
    return replace(software, tensorflow=found.version, wheel=None)


def predict_one(
    asked: Question, nearest: Release | None, *, is_given: bool = False
) -> tuple[ImageSpec, Software, Prediction, dict[str, Any]]:
    """Return the image, the software, the prediction for one combination, and all of it as JSON.

    nearest: None if a wheel of the release was inspected. is_given: True for an image that others have made.
    Raises UsageError if the machine is not described.
    """
    of_class, host = combination.host_class(asked), combination.host_for(asked)
    if nearest is None and not is_given:
        image = combination.image_for(asked)
        software = combination.software_for(asked, image)
        prediction = judge(software, host, asked.mode)
    else:
        image, software = _as_stated(asked, nearest or release(asked.software.tensorflow or ""))
        if nearest is not None and release_of_any_age(software.tensorflow or "") in (None, *releases()):
            prediction = judge_uninspected(software, host, nearest, asked.mode)
        else:
            prediction = judge(software, host, asked.mode)
    if asked.from_pypi and not is_given:
        prediction = prediction.ruled_out(requirement_unmet(image.tensorflow, asked.software.versions))
    # A Jetson has no driver release of its own: its driver is a part of JetPack.
    is_jetson = host.machine == JETSON and prediction.outcome is Outcome.UNKNOWN
    if of_class is None and prediction.outcome is not Outcome.FAILS and not is_jetson:
        if asked.host.driver:
            raise click.UsageError("--gpu or --compute-capability is needed to predict for a machine")
        raise click.UsageError(
            "--driver is needed to predict for a machine: its driver release or branch. --tensorflow without"
            " options about the machine shows what a release needs."
        )
    stated: SituationFields = {
        "host": of_class.identifier if of_class else None,
        "driver": host.driver,
        "gpu": of_class.gpu if of_class else host.gpu,
        "compute_capability": host.capability,
        "runner": [],
        "system": host.system,
        "machine": host.machine,
        "kernel_modules": host.kernel_modules,
        "wheel": software.wheel,
        "extra": software.extra,
        "packages": software.versions,
        "mode": asked.mode,
    }
    identifier = str(Cell(image, of_class)) if of_class else str(image)
    document = {"id": identifier, **image_json(image), **stated, "prediction": prediction.as_json()}
    return image, software, prediction, document


def _show_one(asked: Question, nearest: Release | None, format_: str, *, is_given: bool) -> int:
    image, software, prediction, document = predict_one(asked, nearest, is_given=is_given)
    if format_ == "json":
        click.echo(json.dumps(document, indent=2))
    else:
        from ..reports.terminal import prediction_text, show

        click.echo(document["id"])
        show(prediction_text(prediction))
        is_ours = nearest is None and not is_given
        if is_ours:
            options.say_recommended([image])
        host = combination.host_for(asked)
        if not any(attempt.rank is Rank.MEASURED for attempt in prediction.evidence):
            for sentence in measured_on(host, judge_host(host)):
                print_status(sentence)
        if is_ours and (assumed := combination.assumed_cudnn(asked, image, software)):
            click.echo(assumed)
    return EXIT_FAILED if prediction.outcome is Outcome.FAILS else EXIT_OK


def _as_stated(asked: Question, nearest: Release) -> tuple[ImageSpec, Software]:
    """Return the image and the software of a release that was not inspected, or of an image that others made.

    What was not given is what an older release was built with, or for a candidate what the nearest one was.
    For another package, only given versions are known.
    """
    stated = asked.software
    built = release_of_any_age(stated.tensorflow or "") or nearest
    python = stated.python or built.pythons[-1]
    cuda, cudnn = stated.cuda or built.cuda, stated.cudnn or built.cudnn
    image = ImageSpec(stated.tensorflow or "", python, Variant.GPU, Choice(cuda, cuda), Choice(cudnn, cudnn))
    software = replace(
        stated, wheel=stated.wheel or PYPI, library_path=True if stated.extra is None else None
    )
    if asked.from_pypi:
        software = replace(software, python=python, cuda=cuda, cudnn=cudnn)
    return image, software


#: Parameters that state what --image says.
_IN_AN_IMAGE = ("tensorflow", "python", "policy", "cuda", "cudnn", "variant", "wheel", "extra")
#: Parameters that state what a wheel file says.
_IN_A_WHEEL = ("tensorflow", "reference", "variant")
#: Parameters that describe a combination of one release, not a machine.
_ABOUT_ONE_RELEASE = (
    "policy", "cuda", "cudnn", "variant", "compat", "kernel_modules", "wheel", "extra", "packages", "mode",
)  # fmt: skip


class AskedFields(TypedDict):
    """What was asked besides the image and the host, as JSON."""

    system: Annotated[str | None, "The system: `linux`, `windows`, `wsl2` or `macos`."]
    machine: Annotated[str | None, "The architecture of the processor."]
    kernel_modules: Annotated[str | None, "The kernel modules of the driver: `open` or `proprietary`."]
    wheel: Annotated[str | None, "Where the package comes from."]
    extra: Annotated[bool | None, "Whether it was installed with the extra `and-cuda`."]
    packages: Annotated[dict[str, str], "The versions of other packages, by name."]
    mode: Annotated[str | None, "`eager` or `xla`, if only one of them was asked about."]


class SituationFields(HostFields, AskedFields):
    """The machine and the installation that were asked about, as JSON."""


def _show_support(asked: Question, format_: str) -> int:
    image = combination.image_of(asked)
    as_built = None
    if not (asked.policy or asked.software.cuda or asked.software.cudnn):
        as_built = combination.image_of(replace(asked, policy=AS_BUILT))
    support = image_support(image, asked.mode, as_built)
    if format_ == "json":
        click.echo(json.dumps(support.as_json(), indent=2))
    else:
        from ..reports.terminal import image_support_text, show

        click.echo(image.identifier)
        show(image_support_text(support))
        options.say_recommended([image])
        print_status("Add --driver and --gpu for the prediction for one machine.")
    return EXIT_FAILED if support.fails else EXIT_OK


# Answer the questions of `predict` that are about several combinations.
#
# Without `--tensorflow`: which releases work on a machine? With `--requirements`: does the software that a
# project pins work on its machines?


def predict_newest(asked: Question, format_: str) -> int:
    """Print which releases work on a machine, and return the exit code: 1 if none does.

    Raises UsageError if nothing describes the machine, and InputError for values that can't be understood.
    """
    from ..answers.what_works import what_works_on

    if not asked.names_host:
        raise click.UsageError(
            "--tensorflow is missing. To see which release works, describe a machine: --gpu and --driver. For"
            " this machine, run `validator` without a command."
        )
    # Reports a contradiction, and text that can't be read.
    _, capability = combination.gpu_of(asked.host)
    host = replace(asked.host, capability=str(capability) if capability else None)
    try:
        answer = what_works_on(host, asked.software.python)
    except RejectedField as error:
        raise InputError(f"--{error.field}: {error}", hint=error.hint) from None
    if format_ == "json":
        click.echo(json_text(answer))
    else:
        click.echo(as_started(what_works_text(answer, options.text_width())), nl=False)
        print_status("--json gives all reasons with their sources.")
    return EXIT_FAILED if answer["outcome"] == Outcome.FAILS.value else EXIT_OK


def predict_project(paths: Sequence[Path], hosts: Sequence[str], format_: str) -> int:
    """Predict for each file on each host, and return the exit code: 1 if a combination fails."""
    from ..lint.findings import on_hosts
    from ..reports.findings import PREDICTIONS

    found = on_hosts(paths, [_host(text) for text in hosts])
    click.echo(PREDICTIONS[format_](found), nl=False)
    failing = any(one.prediction.outcome is Outcome.FAILS for one in found)
    return EXIT_FAILED if failing else EXIT_OK


def print_constraints(software: Software, files: Sequence[Path]) -> int:
    """Print one set of CUDA's libraries for TensorFlow and other frameworks, or say why there is none."""
    from ..lint.findings import allowed_software, read
    from ..locks.resolve import SHARED, OneSet, one_set

    tensorflow, python = software.tensorflow, software.python
    lines = [f"{name}=={version}" for name, version in software.packages]
    found = [] if tensorflow is None else [tensorflow]
    for path in files:
        # A project can be installed in several ways, such as with each extra: take that with most frameworks.
        environment = max(
            read(path)[0],
            key=lambda one: sum(bool(SHARED.fullmatch(pin.name)) for pin in one.pins),
            default=None,
        )
        for pin in environment.pins if environment else ():
            if SHARED.fullmatch(pin.name) and pin.name != "tensorflow" and pin.versions is not None:
                extras = f"[{','.join(sorted(pin.extras))}]" if pin.extras else ""
                lines.append(f"{pin.name}{extras}{pin.versions}")
        ours, allowed = allowed_software(environment) if environment else (None, [])
        if ours is not None and ours.name == "tensorflow" and tensorflow is None:
            found += reversed(dict.fromkeys(one.tensorflow or "" for one in allowed))
            python = python or next((one.python for one in reversed(allowed) if one.python), None)
    if not found:
        raise click.UsageError("--format constraints needs --tensorflow, or a file that pins it")
    if not lines:
        raise click.UsageError("--format constraints needs --package or a file with PyTorch or JAX")
    for version in dict.fromkeys(found):
        known = release(version)
        answer = one_set(known, python or known.pythons[-1], lines, host_sources())
        if isinstance(answer, OneSet):
            click.echo(answer.text, nl=False)
            print_status("No known fault rules this set out. `validator check` measures it on a GPU.")
            return EXIT_OK
        print_status(f"No one set of CUDA's libraries works for tensorflow {version} and {', '.join(lines)}:")
        for reason in answer:
            print_status(f"  {reason}")
    return EXIT_FAILED


def _host(text: str) -> HostClass:
    gpu, colon, driver = (part.strip() for part in text.rpartition(":"))
    if not (gpu and colon and driver):
        raise InputError(
            f'--host: "{text}" is not a GPU and a driver', hint="write it as h100:535.183.01, or 9.0:580"
        )
    there = parse_driver(driver)
    host = replace(parse_gpu(gpu), driver=there.driver or there.driver_cuda)
    named = combination.host_class(Question(combination.with_driver_of(host)))
    assert named is not None
    return named


@click.command("lint", cls=Command)
def lint_command(
    files: tuple[Path, ...] = argument("FILE...", nargs=-1, required=True, type=options.PATH),
    for_gpu: bool = flag(
        "--gpu  Also report what runs only on the CPU, even if no file says that the project uses a GPU. Only"
        " a Dockerfile says if CUDA is on the system."
    ),
    ignored: tuple[str, ...] = option("--ignore CODE...  Leave out the findings with this code; repeatable."),
    format_: str = options.formats("text", "json", "github", "sarif"),
) -> int:
    """Report what can't work with the TensorFlow that a project pins.

    Reads Dockerfiles, requirements files, pyproject.toml, environment.yml, Pipfile, pixi.toml and lock files.
    Each finding has its place, a code, and what to write instead. `lint` never guesses a version that a file
    leaves open: a finding holds for every version that the file allows. A comment
    `# validator: ignore[CODE]` on the line or above it silences a finding. The format github prints
    annotations for a workflow, sarif what code scanning reads. The exit code is 1 if something was found.
    """
    from ..lint.findings import CODES, lint
    from ..reports.findings import FINDINGS, findings_sarif, findings_summary

    unknown = [code for code in ignored if code not in CODES]
    if unknown:
        raise click.UsageError(f'--ignore: there is no code "{unknown[0]}"; the codes are {", ".join(CODES)}')
    linted = lint(files, frozenset(ignored), for_gpu=for_gpu)
    found = linted.findings
    if format_ == "sarif":
        shown = findings_sarif(found, CODES, __version__, manual("how-to/check-a-project.md"))
    else:
        shown = FINDINGS[format_](found)
    click.echo(shown, nl=False)
    for place, error in linted.unknown:
        print_status(f"{place.file}:{place.line}: not checked: {error}")
    if format_ == "text":
        print_status(findings_summary(found, len(files)))
    return EXIT_FAILED if found else EXIT_OK


@click.command("inspect", cls=Command)
def inspect_command(
    file: Path = argument("FILE", type=options.PATH),
    format_: str = options.formats("text", "json", short=("json",)),
) -> int:
    """Show what is in a wheel of TensorFlow, and on which GPUs and drivers it should work.

    The wheel may be a build of your own, a nightly, or a community's build. It is neither installed nor run.
    `predict --wheel FILE` answers for one machine. The exit code is 1 if the wheel was built without CUDA, or
    works on no GPU.
    """
    from ..compat.policies import choose
    from ..compat.releases import add_wheel, published_twin
    from ..model.spec import RECOMMENDED
    from ..supply.release_facts import inspected, name_of, pythons_of, wheel_at

    wheel = wheel_at(file)
    row = inspected(wheel, print_status)
    twin, pythons = published_twin(row), pythons_of(file)
    support = None
    if row["build"]["cuda_build"]:
        release = add_wheel(row, name_of(row), pythons, wheel)
        chosen = choose(release, RECOMMENDED, RECOMMENDED)
        support = image_support(ImageSpec(release.version, pythons[-1], Variant.GPU, *chosen))
    if format_ == "json":
        document = {
            "name": name_of(row), "pythons": list(pythons), "same_as": twin, "contents": row,
            "support": support.as_json() if support else None,
        }  # fmt: skip
        click.echo(json_text(document))
    else:
        from ..reports.terminal import image_support_text, show

        click.echo("\n".join(_wheel_lines(name_of(row), row, pythons, twin)))
        if support:
            click.echo()
            show(image_support_text(support))
            print_status("`predict --wheel FILE --gpu MODEL --driver RELEASE` answers for one machine.")
    return EXIT_OK if support and not support.fails else EXIT_FAILED


def _wheel_lines(name: str, row: dict[str, Any], pythons: tuple[str, ...], twin: str | None) -> list[str]:
    built = row["build"]
    lines = [name, f"Python        {', '.join(pythons)}"]
    if not built["cuda_build"]:
        return [*lines, "It was built without CUDA, so it never uses a GPU."]
    lines += [
        f"built with    CUDA {built['cuda'] or 'unknown'}, cuDNN {built['cudnn_headers'] or built['cudnn']}",
        f"opens         {', '.join(row['opens'])}",
    ]
    for group in row["kernels"]:
        sass = ", ".join(map(str, group["sass"])) or "none"
        ptx = ", ".join(f"{target} (ISA {isa})" for target, isa in group["ptx"].items()) or "none"
        library = f" of {group['library'].upper()}" if "library" in group else ""
        lines.append(f"kernels       {group['fatbins']} units{library}: machine code {sass}; PTX {ptx}")
    lines.append(f"XLA's LLVM    writes PTX up to ISA {row.get('llvm_ptx', 'unknown')}")
    same = f"the same as tensorflow {twin} on PyPI" if twin else "not that of a release on PyPI"
    lines.append(f"device code   {same}")
    return lines


@click.command("plan", cls=Command)
def plan_command(
    project: Project = options.project("cells"),
    format_: str = options.formats("table", "json", "github", "github-images"),
) -> None:
    """List the cells with their predictions and reasons, without running anything.

    The format github is a value for strategy.matrix in a GitHub workflow (read with fromJSON) with one job
    per cell. If there are more than 256 cells, it is several such values, each on a line of its own.
    github-images has one job per image, for jobs that build.
    """
    from ..matrix.plan import github_image_matrix, github_matrices
    from ..model.prediction import count_words
    from .planning import load_plan

    plan = load_plan(*project.cells)
    if format_ == "json":
        click.echo(json.dumps([cell.as_json() for cell in plan.cells], indent=2))
    elif format_ == "github":
        for matrix in github_matrices(plan.cells):
            click.echo(json.dumps(matrix))
    elif format_ == "github-images":
        click.echo(json.dumps(github_image_matrix(plan.images)))
    else:
        from ..reports.terminal import plan_table, show

        show(plan_table(plan.cells))
    words = count_words(cell.prediction for cell in plan.cells)
    counts = ", ".join(f"{number} {word}" for word, number in words.items())
    images, cells = counted(len(plan.images), "image"), counted(len(plan.cells), "cell")
    print_status(f"{images}, {cells}: {counts}; {len(plan.excluded)} excluded")
    if plan.instead:
        pythons = ", ".join(sorted({image.python for image in plan.images}))
        print_status(
            f"Where Python {pythons} is not available, `build-matrix` uses the next of these that is:"
            f" {', '.join(plan.instead)}."
        )
    for reason in dict.fromkeys(cell.reason for cell in plan.excluded):
        print_status(f"  Excluded: {reason}")
    options.say_recommended(plan.images)
    options.say_if_stale()
