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


_NIGHTLY = "tests/workflows/test_nightly.py"
_OFFLINE = "tests/offline/test_measure.py"
_WHOLE_WAY = "tests/offline/test_whole_way.py"
_KUBERNETES = "tests/fleet/kubernetes/test_kubernetes.py"

WEEKLY = (
    Row(
        "tests/probe/test_real_gate.py::test_each_fault_is_found_by_all_of_its_checks",
        "Four combinations of a release and a precision take six minutes with every fault and every check "
        "that finds it. `.ci/run` has 2.15.1 with TensorFloat-32, where each check finds a fault and each "
        "code is seen, and the same checks in 2.21.0 on the CPU.",
    ),
    Row(
        "tests/probe/test_real_gate.py::test_they_pass_and_say_that_it_was_the_cpu",
        "The same checks in a second release, which `.ci/run` runs on the simulated GPU.",
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
        "tests/probe/test_real_workers.py::test_a_worker_that_is_killed_while_training_is_named",
        "It waits for two TensorFlows too. `tests/probe/test_workers.py` loses a worker without TensorFlow.",
    ),
    Row(
        "tests/probe/checks/test_xla_cache.py::test_a_real_tensorflow_finds_its_programs",
        "It starts TensorFlow three times. The tests next to it judge what two processes find, without it.",
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
        "Each setting starts TensorFlow twice, and one runs every check. The gates stay, in two settings "
        "that come furthest towards a certificate.",
        kept=("two GPUs, kernels are said to run", "kernels are said to run, no NVML"),
    ),
    Row(
        "tests/emulation/test_never_certified.py::test_no_setting_is_certified_in_other_releases",
        "In the oldest release, the setting that comes furthest stays.",
        kept=("kernels are said to run-2.15.1",),
    ),
    Row(
        "tests/emulation/test_real_lines.py::test_a_fault_gives_the_committed_lines",
        "Five faults in three releases. One fault stays in each release.",
        kept=("cuinit_999-2.15.1", "cudnn_missing-2.18.1", "driver_too_old-2.21.0"),
    ),
    Row(
        "tests/integration/page/test_answers.py::test_the_answers_to_the_corpus_are_those_of_doctor",
        "A thousand logs in the browser's Python. Some stay, and `doctor` itself reads all of them.",
        kept=("every fortieth",),
    ),
    Row(
        "tests/integration/docker/test_against_uv.py",
        "uv installs all of TensorFlow in a container, to compare each file. "
        "`tests/assemble/test_against_uv.py` does so with the smaller wheels of an image, without an engine, "
        "and the probe of `test_main_job.py` trains a step in this image.",
    ),
    Row(
        "tests/integration/docker/test_faults.py::test_two_machines_make_the_same_image",
        "Makes an image with two engines and without any, with three caches. "
        "`test_push.py::test_an_image_is_pushed_without_an_engine` compares one engine with none.",
    ),
    Row(
        "tests/integration/podman/test_gpu.py",
        "The same devices and the same probe as with Docker, whose tests stay. Podman runs the probe in "
        "`tests/integration/podman/test_probe.py`.",
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
        "tests/assemble/test_bases_with_packages.py::test_mmdebstrap_adds_packages_and_keeps_the_locked_ones",
        "Bootstraps all of Debian once more. The default base, which stays, is bootstrapped, and the engine "
        "adds the same package to it in `tests/integration/docker/test_system_packages.py`.",
    ),
    Row(
        "tests/reports/page/test_table.py::test_each_answer_of_the_table_is_that_of_the_rules",
        "Answers 252 questions in two ways. A random part of the whole table stays.",
    ),
    Row(
        f"{_NIGHTLY}::test_in_the_second_night_only_what_a_registered_runner_signed_is_certified",
        "The same workflow with a measurement from elsewhere. The first night runs each of its jobs, and "
        "`tests/attacks/test_typed_verdicts.py` refuses what somebody typed, and "
        "`tests/certify/test_from_measurement_to_certificate.py` certifies what a registered runner signed.",
    ),
    Row(
        f"{_NIGHTLY}::test_in_the_third_night_a_cell_gets_worse_and_a_runner_is_offline",
        "One more night. `tests/reports/test_regressions.py` finds the same regression, "
        "`tests/workflows/test_scripts.py` writes the issue and waits for runners, and "
        "`tests/certify/test_promote.py` reports aliases whose certificate is gone.",
    ),
    Row(
        "tests/workflows/test_refresh.py::test_a_patch_of_anything_else_is_refused",
        "One step compares all patches. One of each kind stays.",
        kept=(
            "echo '# planted' >>validator/cli/project.py",
            "echo '# planted' >images/locks/planted.sh",
            "chmod +x requirements/test.txt",
            "ln -sf /etc/passwd requirements/test.txt",
            "rm images/locks/*py312.txt",
        ),
    ),
    Row(
        "tests/integration/podman/test_rootless.py",
        "Runs `test_probe.py` once more, as an ordinary user. Root runs it in `.ci/run`.",
    ),
    Row(
        "tests/workflows/test_actions.py::test_what_is_installed_from_the_package_index_runs_the_tool",
        "Installs every package again. The tests next to it run the actions with this environment.",
    ),
    Row(
        "tests/attacks/test_foreign_files.py::test_no_file_blocks_a_command_or_fills_the_memory",
        "Every command reads each kind of file. A file without an end and one without a beginning stay.",
        kept=("zero", "pipe"),
    ),
    Row(
        "tests/registry/test_blobs.py::test_a_push_that_is_killed_is_resumed_without_sending_a_blob_twice",
        "More moments at which a push is killed. Six stay.",
        kept=("6",),
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
        f"{_OFFLINE}::test_the_probe_of_this_project_comes_back_as_a_record",
        "One program unpacks images for both ways without an engine. A hostile image stays in the other one.",
        kept=("docker", "podman", "namespace"),
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
        "Three signals in four ways. The signal that can't be caught stays, with an engine and without one.",
        kept=("docker-9", "namespace-9"),
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
