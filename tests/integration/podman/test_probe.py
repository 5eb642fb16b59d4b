"""The probe is as confined in Podman as in Docker."""

from ..docker.test_probe import (  # noqa: F401
    test_a_flood_on_stderr_does_no_harm,
    test_a_probe_is_ended_at_its_limit,
    test_a_probe_that_runs_out_of_memory_is_recognized,
    test_an_image_without_a_shell_is_named,
    test_an_image_without_python_is_named,
    test_endless_stdout_is_cut_off,
    test_leftovers_of_a_killed_run_are_removed_but_not_those_of_a_live_one,
    test_the_probe_is_confined,
    test_the_report_comes_only_from_stdout,
)
