"""The quick selection of the tests (`pytest --quick`): at most 60 s on two cores, for those who change the code.

Chosen by measured time, and by what a test catches: the decisions, the protocols and the language, tested without
processes, sockets and large searches. `python -m trystate.property_tests.support.quick_mutants` counts what it catches.
"""

from __future__ import annotations

# A file of property_tests/tests, and the tests in it that are left out because they take seconds.
QUICK: dict[str, tuple[str, ...]] = {
    "agent/test_core.py": ("test_every_mutant_is_noticed",),
    "agent/test_command.py": (
        "test_a_function_returns_its_results_by_rank",
        "test_a_worker_sees_what_it_sees_under_torchrun",
        "test_the_exit_code_is_torchruns",
        "test_what_a_worker_recorded_is_shown",
        "test_what_happens_is_logged_from_the_level_that_is_asked_for",
    ),
    "agent/test_deploy.py": (),
    "agent/test_members.py": (),
    "agent/test_processes.py": (),
    "agent/test_watchdog.py": (
        "test_a_lease_that_is_renewed_in_time_kills_nobody",
        "test_a_watchdog_that_is_gone_or_stands_still_is_replaced_and_knows_what_the_one_before_knew",
        "test_a_watchdog_that_starts_slowly_lives_until_its_first_answer",
        "test_all_processes_of_workers_are_killed_and_nothing_else_is",
        "test_an_agent_that_comes_back_to_killed_workers_has_lost_its_lease_which_spends_nothing",
        "test_an_agent_that_is_stopped_for_less_than_its_lease_loses_nothing",
        "test_an_agent_whose_watchdog_was_killed_has_another_one",
        "test_the_workers_of_a_stopped_agent_are_dead_before_another_group_begins",
    ),
    "autograd/test_accumulate_grad.py": (),
    "autograd/test_local_passes.py": (),
    "autograd/test_simulated.py": ("test_a_mutant_is_found",),
    "autograd/test_tensors.py": ("test_a_mutant_is_found",),
    "autograd/test_troubles.py": (),
    "checker/test_checker.py": (),
    "checker/test_explicit_engine.py": (
        "test_check_gives_the_same_verdicts_with_both_engines",
        "test_random_systems_agree_with_the_reference",
        "test_a_million_states_of_two_phase_commit_take_less_than_60_bytes_each",
    ),
    "checker/test_limits.py": (),
    "checker/test_linearizability.py": ("test_a_judge_with_a_planted_bug_is_caught",),
    "checker/test_max_faults.py": (),
    "checker/test_transitions_adapter.py": (),
    "language/test_expressions.py": (),
    "language/test_final_values.py": (),
    "language/test_language.py": (),
    "language/test_sequences.py": (),
    "language/test_systems.py": (),
    "language/test_tables.py": (),
    "rendezvous/test_changes.py": ("test_every_mutant_of_a_change_is_noticed",),
    "rendezvous/test_driver.py": (),
    "rendezvous/test_encoding.py": ("test_every_check_that_is_missing_or_wrong_is_noticed",),
    "rendezvous/test_engine.py": (),
    "rendezvous/test_events.py": (),
    "rendezvous/test_observer.py": ("test_every_mutant_is_noticed",),
    "rendezvous/test_operators.py": (
        "test_every_mutant_of_an_operator_is_noticed",
        "test_every_mutant_of_what_an_operator_sees_is_noticed",
    ),
    "rendezvous/test_what_runs.py": (),
    "rpc/test_allowed.py": (),
    "rpc/test_frames.py": (),
    "rpc/test_futures.py": (),
    "rpc/test_meeting.py": (),
    "rpc/test_rrefs.py": ("test_mutants_of_counting_are_seen",),
    "rpc/test_serialising.py": (),
    "rpc/test_workers.py": ("test_mutants_of_memory_are_seen",),
    "store/record/test_passage.py": ("test_whatever_passes_states_are_followed_as_the_server_has_them",),
    "store/test_blocking.py": (),
    "store/test_hash_store.py": (),
    "store/test_prefix_store.py": (),
    "store/test_recording.py": (
        "test_each_rarer_mistake_of_the_recording_is_noticed_in_a_siege",
        "test_with_a_record_of_all_keys_every_answer_is_the_same",
        "test_with_a_record_of_rendezvous_every_answer_is_the_same",
    ),
    "store/test_service.py": (),
    "store/test_watching.py": (),
}
