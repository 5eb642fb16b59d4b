"""What only the weekly workflows run, and why: the one list of it.

A row takes a test, or a whole module, out of `.ci/run`. If the test has parameters, `kept` names those that
stay. Each row repeats what a test in `.ci/run` also asserts, with other data, another release or more often,
or it waits for something that happens rarely. `scripts/test` runs everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Row:
    """A module or a test that moved, by the beginning of its id.

    reason: why a run of every week is enough, and what `.ci/run` still has of it
    kept: the parameters of the test, as pytest names them, that stay in `.ci/run`
    """

    name: str
    reason: str
    kept: tuple[str, ...] = ()


_OFFLINE = "tests/offline/test_measure.py"
_WHOLE_WAY = "tests/offline/test_whole_way.py"
_KUBERNETES = "tests/fleet/kubernetes/test_kubernetes.py"

WEEKLY = (
    Row(
        "tests/probe/test_real_gate.py::test_each_fault_is_found_by_all_of_its_checks",
        "Four combinations of a release and a precision take six minutes with every fault and every check "
        "that finds it. `.ci/run` has 2.21.0 with TensorFloat-32, where each check finds a fault and each "
        "code is seen.",
    ),
    Row(
        "tests/probe/test_real_gate.py::test_they_pass_and_say_that_it_was_the_cpu",
        "The same checks in a second release, which `.ci/run` also runs on the simulated GPU.",
        kept=("2.21.0",),
    ),
    Row(
        "tests/probe/test_real_host_checks.py",
        "The same checks in each release. The newest one stays.",
        kept=("2.21.0",),
    ),
    Row(
        "tests/probe/test_real_workers.py::test_a_closed_port_is_named",
        "It starts TensorFlow in two processes that then wait for each other. `tests/probe/test_workers.py` "
        "closes a port of two workers without TensorFlow.",
    ),
    Row(
        "tests/probe/test_real_measurements.py",
        "The same measurements in each release. The newest one stays.",
        kept=("2.21.0",),
    ),
    Row(
        "tests/emulation/test_fused_convolution.py::test_the_compiled_program_makes_the_call_that_users_make",
        "The same program in each release. The newest one stays.",
        kept=("2.21.0",),
    ),
    Row(
        "tests/emulation/test_never_certified.py::test_no_setting_of_the_stubs_is_certified",
        "Each setting starts TensorFlow twice. Those that come furthest towards a certificate stay.",
        kept=(
            "kernels are said to run",
            "two GPUs, kernels are said to run",
            "kernels are said to run, no NVML",
        ),
    ),
    Row(
        "tests/emulation/test_never_certified.py::test_no_setting_is_certified_in_other_releases",
        "In each release, the setting that comes furthest stays.",
        kept=("kernels are said to run-2.15.1", "kernels are said to run-2.18.1"),
    ),
    Row(
        "tests/emulation/test_real_lines.py::test_a_fault_gives_the_committed_lines",
        "Five faults in three releases. Each fault and each release stay in one combination at least.",
        kept=(
            "cuinit_999-2.15.1",
            "cudnn_missing-2.18.1",
            "driver_too_old-2.21.0",
            "launch_no_kernel_image-2.15.1",
            "xla_flags_unknown-2.21.0",
        ),
    ),
    Row(
        "tests/integration/page/test_answers.py::test_the_answers_to_the_corpus_are_those_of_doctor",
        "A thousand logs in the browser's Python. Every tenth stays, and `doctor` itself reads all of them.",
        kept=("every tenth",),
    ),
    Row(
        "tests/integration/docker/test_against_uv.py::test_the_environment_has_the_files_that_uv_installs",
        "uv installs all of TensorFlow in a container, to compare each file. "
        "`tests/assemble/test_against_uv.py` does so with the smaller wheels of an image, without an engine.",
    ),
    Row(
        "tests/integration/test_resume.py::test_an_ended_run_continues_where_it_stopped",
        "Installs two releases of TensorFlow and runs the whole probe. A run with tiny wheels, which the "
        "same signals end, stays.",
    ),
    Row(
        "tests/integration/docker/test_jupyter.py::test_its_first_notebook_shows_the_gpu_and_why_not",
        "Imports TensorFlow in JupyterLab's kernel. That the image starts JupyterLab stays, and "
        "`tests/embedded/test_notebook.py` runs the notebooks.",
    ),
    Row(
        "tests/distribution/test_empty_directory.py"
        "::test_an_image_without_cuda_is_built_and_proven_without_an_engine",
        "Installs a real TensorFlow and probes it. `tests/integration/test_resume.py` builds such "
        "environments with tiny wheels, `tests/integration/docker/test_main_job.py` records that a real "
        "release works on the CPU, and the tests next to it use the installed tool.",
    ),
    Row(
        "tests/distribution/test_images.py::test_without_an_engine",
        "The same without bubblewrap, which only leaves out byte code.",
        kept=("True",),
    ),
    Row(
        "tests/workflows/test_actions.py::test_what_is_installed_from_the_package_index_runs_the_tool",
        "Installs every package again. The tests next to it run the actions with this environment.",
    ),
    Row(
        "tests/fleet/slurm/test_killed.py::test_every_cell_has_one_record_after_so_many_kills",
        "More moments at which a submitter is killed. Five stay.",
        kept=("5",),
    ),
    Row(
        "tests/fleet/kubernetes/test_killed.py",
        "A submitter is killed 20 times. `test_submitter.py` kills one between any two statements, without a "
        "cluster.",
    ),
    Row(
        "tests/fleet/kubernetes/test_real_node.py",
        "Starts a real node with containers, which needs a privileged container in CI.",
    ),
    Row(
        f"{_OFFLINE}::test_a_probe_sees_only_its_image",
        "Each way unpacks an image again. What follows from it, the records of every way and the hostile "
        "image, stays.",
        kept=("namespace",),
    ),
    Row(
        f"{_OFFLINE}::test_a_user_measures_in_a_namespace",
        "The same namespace as root's, which stays.",
    ),
    Row(
        f"{_OFFLINE}::test_the_tool_itself_measures_where_python_is_new_enough",
        "Podman has the engine protocol of Docker, which stays.",
        kept=("docker",),
    ),
    Row(
        f"{_OFFLINE}::test_a_hostile_image_does_not_get_out_of_its_directory",
        "One program unpacks images for both ways. The one that hides less stays.",
        kept=("chroot",),
    ),
    Row(
        f"{_OFFLINE}::test_a_link_to_this_machine_leads_nowhere",
        "One more link. The hostile image, which stays, has several.",
    ),
    Row(
        f"{_OFFLINE}::test_whiteouts_hide_the_layers_below",
        "The hostile image, which stays, has whiteouts too.",
    ),
    Row(
        f"{_OFFLINE}::test_a_probe_that_never_ends_is_ended",
        "Waits for a time limit. A program that neither ends nor obeys stays, where the measurement is "
        "killed.",
    ),
    Row(
        f"{_OFFLINE}::test_a_python_that_writes_without_end_is_ended",
        "Fills a file of a hundred megabytes.",
    ),
    Row(
        f"{_OFFLINE}::test_nothing_is_left_if_it_is_killed",
        "Three signals in four ways. The signal that can't be caught stays in each way.",
        kept=(
            "docker-9",
            "podman-9",
            "namespace-9",
            "chroot-9",
        ),
    ),
    Row(
        f"{_OFFLINE}::test_nothing_is_left_if_the_tool_is_killed",
        "The tool's own tests end it in the same way without a bundle.",
    ),
    Row(
        f"{_OFFLINE}::test_a_full_disk_is_named",
        "One program unpacks images for both ways.",
        kept=("namespace",),
    ),
    Row(
        f"{_WHOLE_WAY}::test_an_engine_and_the_runners_key_lead_to_a_certificate",
        "Podman has the engine protocol of Docker, which stays.",
        kept=("docker",),
    ),
    Row(
        f"{_WHOLE_WAY}::test_without_the_runners_key_it_is_not_certified",
        "Measures once more with Docker. `tests/pipeline/test_delivered.py` measures without a key.",
    ),
    Row(
        f"{_WHOLE_WAY}::test_the_answer_to_the_challenge_of_another_image_is_refused",
        "Measures once more with Docker. `tests/certify/test_challenges.py` refuses such a challenge.",
    ),
    Row(
        f"{_KUBERNETES}::test_a_lost_node_ends_the_attempt_and_the_next_one_runs_once",
        "Waits until a cluster notices that a node is gone.",
    ),
    Row(
        f"{_KUBERNETES}::test_a_stopped_api_server_is_an_outage_and_nothing_is_lost",
        "Waits for a part of the control plane to be gone and back.",
    ),
    Row(
        f"{_KUBERNETES}::test_the_time_limit_holds_while_a_part_hangs",
        "Waits for a part of the control plane that hangs.",
    ),
    Row(
        f"{_KUBERNETES}::test_a_stopped_etcd_is_an_outage_and_nothing_is_lost",
        "Waits for a part of the control plane to be gone and back.",
    ),
)


def mark(items: Sequence[pytest.Item]) -> None:
    """Mark the tests of the rows with `weekly`."""
    rows = {row.name: row for row in WEEKLY}
    for item in items:
        name, _, parameters = item.nodeid.partition("[")
        row = rows.get(name) or rows.get(name.partition("::")[0])
        if row is not None and parameters.removesuffix("]") not in row.kept:
            item.add_marker("weekly")
