"""The results of `verify` as JUnit XML: a suite per run, a test case per property; coverage, conformance.

A property that was not decided is an error: a continuous integration server must not take it for a pass.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as xml

from trystate.model.checker.expectations import Judgement

from .results import Checked, Compared, Gap, Results

NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that no document may have


def results_junit(results: Results) -> str:
    """The whole document."""
    root = xml.Element("testsuites", name="trystate verify", time=f"{results.seconds:.3f}")
    for checked in results.checked:
        _run(root, checked)
    if results.gaps:
        suite = xml.SubElement(root, "testsuite", name="coverage")
        for gap in results.gaps:
            _gap(suite, gap)
    if results.compared:
        suite = xml.SubElement(root, "testsuite", name="conformance")
        for compared in results.compared:
            _compared(suite, compared)
    if results.left:
        suite = xml.SubElement(root, "testsuite", name="not done")
        for name in results.left:
            xml.SubElement(_case(suite, "not done", name), "error", message=f"ended by {results.interrupted}")
    for suite in root:
        suite.set("tests", str(len(suite)))
        for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    xml.indent(root)
    text = xml.tostring(root, encoding="unicode", xml_declaration=True)
    return NOT_XML.sub("\ufffd", text) + "\n"


def _case(suite: xml.Element, classname: str, name: str, seconds: float = 0.0) -> xml.Element:
    return xml.SubElement(suite, "testcase", classname=classname, name=name, time=f"{seconds:.3f}")


def _run(root: xml.Element, checked: Checked) -> None:
    suite = xml.SubElement(root, "testsuite", name=checked.label, time=f"{checked.seconds:.3f}")
    for answer in checked.answers:
        case = _case(suite, checked.label, answer.name)
        if answer.judgement.is_expected:
            continue
        tag = "error" if answer.judgement is Judgement.NOT_DECIDED else "failure"
        found = xml.SubElement(case, tag, message=answer.verdict, type=answer.judgement.value)
        found.text = answer.text or None


def _gap(suite: xml.Element, gap: Gap) -> None:
    case = _case(suite, "coverage", f"{gap.system} {gap.edition}".strip())
    lines = gap.lines()
    xml.SubElement(case, "failure", message=f"{len(lines)} gaps", type="coverage gap").text = "\n".join(lines)


def _compared(suite: xml.Element, compared: Compared) -> None:
    outcome = compared.outcome
    case = _case(suite, "conformance", compared.name, outcome.seconds if outcome is not None else 0.0)
    if compared.stopped:
        xml.SubElement(case, "error", message=compared.stopped, type="not decided")
    elif outcome is None:
        xml.SubElement(case, "skipped", message=compared.skipped)
    elif compared.disagreements:
        message = f"{len(compared.disagreements)} disagreements in {outcome.amount}"
        xml.SubElement(case, "failure", message=message, type="disagreement").text = "\n".join(compared.disagreements)
