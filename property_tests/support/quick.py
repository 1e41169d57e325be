"""The quick selection of the tests (`pytest --quick`): at most 60 s on two cores, for those who change the code.

Chosen by measured time, and by what a test catches: the decisions, the protocols and the language, tested without
processes, sockets and large searches. `python -m trystate.property_tests.support.quick_mutants` counts what it catches.
"""

from __future__ import annotations

# A file of property_tests/tests, and the tests in it that are left out because they take seconds.
QUICK: dict[str, tuple[str, ...]] = {
    "agent/test_core.py": ("test_every_mutant_is_noticed",),
    "agent/test_members.py": (),
    "agent/test_processes.py": (),
    "autograd/test_accumulate_grad.py": (),
    "autograd/test_contexts.py": (),
    "autograd/test_local_passes.py": (),
    "autograd/test_simulated.py": ("test_a_mutant_is_found",),
    "autograd/test_troubles.py": (),
    "checker/test_checker.py": (),
    "checker/test_explicit_engine.py": ("test_random_systems_agree_with_the_reference",),
    "checker/test_limits.py": (),
    "checker/test_max_faults.py": (),
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
    "store/test_blocking.py": (),
    "store/test_hash_store.py": (),
    "store/test_prefix_store.py": (),
    "store/test_service.py": (),
    "store/test_watching.py": (),
}
