"""Reads the report of the Autobahn test suite and lists every case that does not conform to RFC 6455.

    python3 verdict.py REPORT_DIR/index.json SECONDS CASES_MIN

Exit code 0 if all cases passed, 1 otherwise. Fewer cases than the suite has is a failure too: a
server that stops answering half way must not pass.
"""

import json
import sys

GOOD = {"OK", "NON-STRICT", "INFORMATIONAL"}


def main(path: str, seconds: str, cases_min: str) -> int:
    with open(path, encoding="utf-8") as file:
        agents = json.load(file)
    cases = next(iter(agents.values()), {})
    bad = {
        case: (result["behavior"], result["behaviorClose"])
        for case, result in cases.items()
        if result["behavior"] not in GOOD or result["behaviorClose"] not in GOOD
    }
    for case in sorted(bad, key=lambda name: [int(part) for part in name.split(".")]):
        print(f"autobahn: case {case}: behaviour {bad[case][0]}, close {bad[case][1]}")
    strict = sum(result["behavior"] == "OK" for result in cases.values())
    print(f"autobahn: {len(cases) - len(bad)} of {len(cases)} cases passed ({strict} strictly) in {seconds} s")
    if len(cases) < int(cases_min):
        print(f"autobahn: FAILED: {cases_min} cases were expected")
        return 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
