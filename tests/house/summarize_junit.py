# SPDX-License-Identifier: Apache-2.0
"""Counts a JUnit file of ctest or pytest: lists skips and failures, then prints `N passed, N failed`.

ctest calls a test "skipped" also if its program could not be started, and if it printed gtest's skip
mark and then failed. Neither is a skip here: a skip is a test that asked for it and failed nothing.
"""

import argparse
import os
import re
import sys
import tempfile
import xml.etree.ElementTree

SKIP_MARK = "[  SKIPPED ]"
FAIL_MARK = "[  FAILED  ]"
ASKED_TO_SKIP = re.compile(r"SKIP_REGULAR_EXPRESSION_MATCHED|SKIP_RETURN_CODE")


def skip_reason(output):
    """What the test said after `file:line: Skipped`, on one line; or its last line of output."""
    match = re.search(r"^\S+:\d+: Skipped\n(.*?)^" + re.escape(SKIP_MARK), output, re.S | re.M)
    lines = (match.group(1) if match else output.strip().rpartition("\n")[2]).split("\n")
    return " ".join(line.strip() for line in lines if line.strip()) or "no reason given"


def failure_reason(output):
    """The first thing that gtest said was wrong, on one line; or the last line of output."""
    match = re.search(r"^(\S+:\d+): Failure\n(.*?)(?:\n\n|^\S+:\d+: Failure|^\[ )", output, re.S | re.M)
    lines = match.group(2).split("\n") if match else [output.strip().rpartition("\n")[2]]
    said = " ".join(line.strip() for line in lines if line.strip())
    return f"{os.path.basename(match.group(1))}: {said}"[:600] if match else said[:600]


def name_of(case):
    """ctest's names are whole; pytest says the module, tests.engines.test_x, beside the name."""
    module = case.get("classname", "").removeprefix("tests.")
    return case.get("name") if "status" in case.attrib else f"{module}.{case.get('name')}".lstrip(".")


def classify_pytest(case):
    for element in (case.find("failure"), case.find("error"), case.find("skipped")):
        if element is not None:
            reason = " ".join(element.get("message", "").split())[:600]
            return "skipped" if element.tag == "skipped" else "failed", reason or "no reason given"
    return "passed", ""


def classify(case):
    """('passed' | 'failed' | 'skipped', a reason for the latter two)."""
    if "status" not in case.attrib:
        return classify_pytest(case)
    output = case.findtext("system-out") or ""
    status = case.get("status")
    if status == "run" and case.find("failure") is None:
        return "passed", ""
    if status == "disabled":
        return "skipped", "disabled in its source"
    skipped = case.find("skipped")
    if status == "notrun" and skipped is not None and ASKED_TO_SKIP.match(skipped.get("message", "")):
        return ("failed", "skipped itself and failed") if FAIL_MARK in output else ("skipped", skip_reason(output))
    element = skipped if skipped is not None else case.find("failure")
    message = element.get("message", "") if element is not None else ""
    return "failed", ": ".join(part for part in (message, failure_reason(output)) if part)


def summarize(junit_path, runner_status):
    """(lines to print, exit status)."""
    lines = []
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    try:
        cases = list(xml.etree.ElementTree.parse(junit_path).getroot().iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        cases = []
        lines.append(f"no test ran: {error}")
    for case in sorted(cases, key=name_of):
        verdict, reason = classify(case)
        counts[verdict] += 1
        if verdict != "passed":
            lines.append(f"{verdict}: {name_of(case)}" + (f": {reason}" if reason else ""))
    if cases and runner_status != 0 and counts["failed"] == 0:
        lines.append(f"the runner exited with {runner_status}, though no test failed")
    line = f"{counts['passed']} passed, {counts['failed']} failed"
    if counts["skipped"]:
        line += f", {counts['skipped']} skipped"
    lines.append(line)
    good = counts["failed"] == 0 and counts["passed"] > 0 and runner_status == 0
    return lines, 0 if good else 1


def self_test():
    passed = '<testcase name="a" status="run"><system-out>ok</system-out></testcase>'
    failed = '<testcase name="b" status="fail"><failure message="SEGFAULT"/></testcase>'
    wrong = ('<testcase name="b" status="fail"><failure message=""/><system-out>CAIRN_TEST_SEED=4\n'
             f"/src/y_test.cc:9: Failure\nExpected: 1\n  Actual: 2\n\n{FAIL_MARK} B.b\n</system-out></testcase>")
    skip_message = '<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'
    skipped = (f'<testcase name="c" status="notrun">{skip_message}<system-out>[ RUN      ] C.c\n'
               f"x_test.cc:8: Skipped\nno ring\nhere\n{SKIP_MARK} C.c\n</system-out></testcase>")
    skipped_and_failed = (f'<testcase name="d" status="notrun">{skip_message}<system-out>'
                          f"{SKIP_MARK} D.d\n{FAIL_MARK} D.d\n</system-out></testcase>")
    script_skip = ('<testcase name="e" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>'
                   "<system-out>first\nno tool\n</system-out></testcase>")
    not_built = ('<testcase name="f" status="notrun"><skipped message="Unable to find executable"/>'
                 "</testcase>")
    disabled = '<testcase name="g" status="disabled"/>'
    module = 'classname="tests.engines.test_x"'
    pytest_passed = f'<testcase {module} name="test_a"/>'
    pytest_failed = f'<testcase {module} name="test_b"><failure message="assert 1&#10; == 2">trace</failure></testcase>'
    pytest_error = f'<testcase {module} name="test_c"><error message="no fixture"/></testcase>'
    pytest_skipped = f'<testcase {module} name="test_d"><skipped type="pytest.skip" message="no package"/></testcase>'
    samples = [
        # cases, the runner's status, last line, exit status, a line that must be printed
        ([passed], 0, "1 passed, 0 failed", 0, None),
        ([passed, failed], 8, "1 passed, 1 failed", 1, "failed: b: SEGFAULT"),
        ([wrong], 8, "0 passed, 1 failed", 1, "failed: b: y_test.cc:9: Expected: 1 Actual: 2"),
        ([passed, skipped], 0, "1 passed, 0 failed, 1 skipped", 0, "skipped: c: no ring here"),
        ([skipped], 0, "0 passed, 0 failed, 1 skipped", 1, None),
        ([passed, skipped_and_failed], 0, "1 passed, 1 failed", 1, "failed: d: skipped itself and failed"),
        ([passed, script_skip], 0, "1 passed, 0 failed, 1 skipped", 0, "skipped: e: no tool"),
        ([passed, not_built], 0, "1 passed, 1 failed", 1, "failed: f: Unable to find executable"),
        ([passed, disabled], 0, "1 passed, 0 failed, 1 skipped", 0, "skipped: g: disabled in its source"),
        ([passed], 8, "1 passed, 0 failed", 1, "the runner exited with 8, though no test failed"),
        ([pytest_passed], 0, "1 passed, 0 failed", 0, None),
        ([pytest_passed, pytest_failed], 1, "1 passed, 1 failed", 1,
         "failed: engines.test_x.test_b: assert 1 == 2"),
        ([pytest_passed, pytest_error], 1, "1 passed, 1 failed", 1, "failed: engines.test_x.test_c: no fixture"),
        ([pytest_passed, pytest_skipped], 0, "1 passed, 0 failed, 1 skipped", 0,
         "skipped: engines.test_x.test_d: no package"),
        ([], 8, "0 passed, 0 failed", 1, None),
        (None, 8, "0 passed, 0 failed", 1, None),
    ]
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, (cases, runner_status, last_line, exit_status, wanted) in enumerate(samples):
            path = os.path.join(folder, f"{number}.xml")
            if cases is not None:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(f"<testsuite>{''.join(cases)}</testsuite>")
            lines, status = summarize(path, runner_status)
            if lines[-1] != last_line or status != exit_status or (wanted and wanted not in lines):
                bad += 1
                print(f"sample {number}: exit status {status}, lines {lines}")
    print(f"{len(samples) - bad} of {len(samples)} samples as expected")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("junit", nargs="?", help="what ctest --output-junit or pytest --junit-xml wrote")
    parser.add_argument("--status", type=int, default=0, help="the exit status of ctest or pytest")
    parser.add_argument("--self-test", action="store_true", help="check this script on built-in samples")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    lines, status = summarize(arguments.junit or "", arguments.status)
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(main())
