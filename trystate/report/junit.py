"""The results of `verify` as JUnit XML: a suite per run, a test case per property; coverage, conformance.

What was not decided is an error, so that a continuous integration server does not take it for a pass.
"""

from __future__ import annotations

from xml.etree import ElementTree as xml

from trystate.diagrams import sequence_text
from trystate.model.checker.expectations import Judgement

from .json import counterexample
from .results import Checked, Conformed, Gap, Results
from .summary import explain


def results_junit(results: Results) -> str:
    """The whole document."""
    root = xml.Element("testsuites", name="trystate verify", time=f"{results.seconds:.3f}")
    for checked in results.checked:
        _run(root, checked)
    if results.gaps:
        suite = xml.SubElement(root, "testsuite", name="coverage")
        for gap in results.gaps:
            _gap(suite, gap)
    if results.conformed:
        suite = xml.SubElement(root, "testsuite", name="conformance")
        for conformed in results.conformed:
            _conformed(suite, conformed)
    for suite in root:
        suite.set("tests", str(len(suite)))
        for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    xml.indent(root)
    return xml.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: xml.Element, classname: str, name: str, seconds: float = 0.0) -> xml.Element:
    return xml.SubElement(suite, "testcase", classname=classname, name=name, time=f"{seconds:.3f}")


def _run(root: xml.Element, checked: Checked) -> None:
    seconds = checked.report.exploration.seconds
    suite = xml.SubElement(root, "testsuite", name=checked.label, time=f"{seconds:.3f}")
    for verdict, judgement in checked.judged:
        case = _case(suite, checked.label, verdict.property.name)
        if judgement is Judgement.AS_DECLARED:
            continue
        tag = "error" if judgement is Judgement.NOT_DECIDED else "failure"
        found = xml.SubElement(case, tag, message=explain(checked, verdict, judgement), type=judgement.value)
        run = counterexample(verdict)
        found.text = sequence_text(checked.report.system, run) if run is not None else None


def _gap(suite: xml.Element, gap: Gap) -> None:
    case = _case(suite, "coverage", f"{gap.system} {gap.edition}".strip())
    lines = gap.lines()
    xml.SubElement(case, "failure", message=f"{len(lines)} gaps", type="coverage gap").text = "\n".join(lines)


def _conformed(suite: xml.Element, conformed: Conformed) -> None:
    outcome = conformed.outcome
    case = _case(suite, "conformance", conformed.name, outcome.seconds if outcome is not None else 0.0)
    if conformed.stopped:
        xml.SubElement(case, "error", message=conformed.stopped, type="not decided")
    elif outcome is None:
        xml.SubElement(case, "skipped", message=conformed.skipped)
    elif conformed.disagreements:
        message = f"{len(conformed.disagreements)} disagreements in {outcome.compared} {outcome.unit}"
        xml.SubElement(case, "failure", message=message, type="disagreement").text = "\n".join(conformed.disagreements)
