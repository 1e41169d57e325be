"""The quick selection of the tests (`pytest --quick`): at most 60 s on two cores, for those who change the code.

Chosen by measured time, and by what a test catches: the decisions, the protocols and the language, tested without
processes, sockets and large searches.
"""

from __future__ import annotations

# A file of property_tests/tests, and the tests in it that are left out because they take seconds.
QUICK: dict[str, tuple[str, ...]] = {
    "agent/test_core.py": ("test_every_mutant_is_noticed",),
    "agent/test_command.py": (
        "test_a_function_returns_its_results_by_rank",
        "test_a_worker_sees_what_it_sees_under_torchrun",
        "test_the_exit_code_is_torchruns",
        "test_the_record_of_a_worker_is_shown",
    ),
    "agent/test_deploy.py": (),
    "agent/test_processes.py": (),
    "agent/test_watchdog.py": (
        "test_a_lost_or_stopped_watchdog_is_replaced_by_one_with_its_knowledge",
        "test_a_watchdog_that_starts_slowly_lives_until_its_first_answer",
        "test_all_processes_of_workers_are_killed_and_nothing_else_is",
        "test_workers_of_a_stopped_agent_are_dead_before_the_next_group_starts",
    ),
    "autograd/test_accumulate_grad.py": (),
    "autograd/test_edges.py": (
        "test_a_mutant_of_a_part_is_a_disagreement",
        "test_the_runtime_does_what_its_models_say",
    ),
    "autograd/test_local_passes.py": (),
    "autograd/test_programs.py": (
        "test_fast_fails_exactly_on_an_unused_result_and_can_be_tried_again",
        "test_mutants_are_noticed",
        "test_ours_is_right",
        "test_smart_needs_no_result_to_be_used",
        "test_torch_is_right",
    ),
    "autograd/test_troubles.py": (),
    "checker/test_checker.py": (),
    "checker/test_explicit_engine.py": ("test_lassos_of_random_systems_are_as_short_as_those_of_the_reference",),
    "checker/test_limits.py": (),
    "checker/test_linearizability.py": ("test_a_planted_mistake_of_the_judge_is_found_with_three_calls_at_most",),
    "checker/test_max_faults.py": (),
    "checker/test_transitions_adapter.py": (),
    "language/test_expressions.py": (),
    "language/test_final_values.py": (),
    "language/test_language.py": (),
    "language/test_sequences.py": (),
    "language/test_systems.py": (),
    "language/test_tables.py": (),
    "monitor/test_machines.py": (),
    "rendezvous/test_changes.py": (),
    "rendezvous/test_driver.py": (),
    "rendezvous/test_encoding.py": (),
    "rendezvous/test_events.py": (),
    "rendezvous/test_observer.py": (),
    "rendezvous/test_operators.py": (
        "test_every_mutant_of_an_operator_is_noticed",
        "test_every_mutant_of_what_an_operator_sees_is_noticed",
    ),
    "rendezvous/test_rooms_member.py": (),
    "rendezvous/test_rooms_messages.py": (),
    "rendezvous/test_what_runs.py": (),
    "rpc/test_allowed.py": (),
    "rpc/test_frames.py": (),
    "rpc/test_functions.py": (),
    "rpc/test_meeting.py": (),
    "rpc/test_rrefs.py": (),
    "rpc/test_serialising.py": (),
    "rpc/test_workers.py": ("test_the_arguments_of_a_call_arrive",),
    "store/test_prefix_store.py": (),
    "store/test_recording.py": (
        "test_whatever_passes_states_are_followed_as_the_server_has_them",
        "test_with_a_record_of_all_keys_every_answer_is_the_same",
    ),
    "store/test_service.py": (
        "test_a_defect_of_a_handler_closes_one_connection_and_is_logged",
        "test_a_large_frame_in_pieces_is_read_once",
        "test_a_token_of_another_length_is_refused",
        "test_an_element_for_a_slow_reader_is_given_to_the_next",
        "test_deadlines_of_waits_that_are_over_do_not_pile_up",
        "test_however_the_bytes_are_cut_the_replies_are_the_same",
    ),
}
