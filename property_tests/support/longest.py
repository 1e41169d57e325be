"""The files of tests that take longest, so that they begin first: none is to run alone at the end of a parallel run.

Measured, the longest first, by seconds of wall time on two cores; a file that is not here is among the short ones.
"""

from __future__ import annotations

LONGEST: tuple[str, ...] = (  # below property_tests/tests
    "house/test_docs.py",
    "house/test_benchmarks.py",
    "store/test_conformance.py",
    "monitor/test_real_jobs.py",
    "rendezvous/test_torch_scenarios.py",
    "rendezvous/test_defects.py",
    "rendezvous/test_torch_mutants.py",
    "monitor/test_simulated_jobs.py",
    "agent/test_jobs.py",
    "agent/test_model.py",
    "agent/test_torch_scenarios.py",
    "page/test_browser.py",
    "harness/test_state_machine.py",
    "rendezvous/test_ablations.py",
    "monitor/rendezvous/test_follower.py",
    "simulator/test_swarms.py",
    "autograd/test_backward.py",
    "store/test_torch_scenarios.py",
    "checker/test_explicit_engine.py",
    "autograd/test_torch_scenarios.py",
    "agent/test_edges.py",
    "checker/test_transitions_adapter.py",
    "agent/test_defects.py",
    "prover/test_proofs.py",
    "autograd/test_upstream.py",
    "agent/test_ranks.py",
    "autograd/test_ablations.py",
    "checker/test_symbolic_engine.py",
    "autograd/test_note_example.py",
    "agent/test_health.py",
)
