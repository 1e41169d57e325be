"""The files of tests that take longest, so that they begin first: none is to run alone at the end of a parallel run.

Measured, the longest first, by seconds of wall time on two cores; a file that is not here is among the short ones.
"""

from __future__ import annotations

LONGEST: tuple[str, ...] = (  # below property_tests/tests
    "house/test_docs.py",
    "monitor/test_real_jobs.py",
    "house/test_benchmarks.py",
    "page/test_browser.py",
    "agent/test_jobs.py",
    "store/test_conformance.py",
    "agent/test_agreement.py",
    "rendezvous/test_torch_scenarios.py",
    "agent/test_torch_scenarios.py",
    "store/test_torch_scenarios.py",
    "monitor/test_simulated_jobs.py",
    "agent/test_model.py",
    "rendezvous/test_torch_mutants.py",
    "simulator/test_swarms.py",
    "checker/test_random_systems.py",
    "agent/test_edges.py",
    "autograd/test_note_example.py",
    "rendezvous/test_changes.py",
    "monitor/rendezvous/test_follower.py",
    "checker/test_export_promela.py",
    "page/test_engine.py",
    "prover/test_proofs.py",
)
