"""Reads the report of the Autobahn test suite and lists every case that is not as RFC 6455 wants it.

    python3 verdict.py REPORT_DIR/index.json SECONDS

Exit code 0 if all cases passed, 1 otherwise. Fewer cases than the suite has is a failure too: a
server that stops answering half way must not pass.
"""

import json
import sys

GOOD = {"OK", "NON-STRICT", "INFORMATIONAL"}
CASES_MIN = 247  # groups 1 to 7 and 10


def main(path: str, seconds: str) -> int:
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
    if len(cases) < CASES_MIN:
        print(f"autobahn: FAILED: {CASES_MIN} cases were expected")
        return 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
