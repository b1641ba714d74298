#!/usr/bin/env python3
"""Runs every check in order, adds up what the test runners counted, and ends with one line:

    N passed, N failed, N skipped

A stage that fails does not stop the others, except that nothing runs on modules that were not built.
The exit code is 0 only where every stage succeeded and every test runner ran at least one test.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WASM = "wasm32-unknown-unknown"
WASM_RUNNER = ROOT / ".tools/bin/wasm-bindgen-test-runner"
NEXTEST_CONFIG = ROOT / "host-tests/nextest.toml"
HAS_NEXTEST = shutil.which("cargo-nextest") is not None

# cargo test and wasm-bindgen-test-runner, one line per binary
LIBTEST = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.M)
# nextest, one line per run: "Summary [ 1.2s] 9 tests run: 7 passed (1 slow), 1 failed, 1 timed out, 3 skipped"
NEXTEST = re.compile(r"^\s*Summary \[.*?\] +\d+(?:/\d+)? tests? run: (.*)$", re.M)


class Counts:
    """Tests passed, failed and skipped."""

    def __init__(self, passed=0, failed=0, skipped=0):
        self.passed, self.failed, self.skipped = passed, failed, skipped

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def count(output):
    """What the runners in this output say about themselves."""
    output = re.sub(r"\x1b\[[0-9;]*m", "", output)
    counts = Counts()
    for passed, failed, ignored in LIBTEST.findall(output):
        counts.add(Counts(int(passed), int(failed), int(ignored)))
    for summary in NEXTEST.findall(output):
        for number, word in re.findall(r"(\d+) (passed|failed|timed out|exec failed|skipped)", summary):
            name = word if word in ("passed", "skipped") else "failed"
            counts.add(Counts(**{name: int(number)}))
    return counts


def run(command, env):
    """Runs one command, passes its output through, and gives (exit code, output)."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output = bytearray()
    while chunk := process.stdout.read1(65536):
        output += chunk
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
    return process.wait(), output.decode("utf-8", "replace")


def tests(*arguments):
    """A cargo test run by nextest where it is installed."""
    if HAS_NEXTEST:
        return ["cargo", "nextest", "run", "--config-file", str(NEXTEST_CONFIG), *arguments]
    return ["cargo", "test", "--no-fail-fast", *arguments]


# What hangs on the host most: the whole of it runs in the newest Envoy only.
ON_OLDEST = ["smoke", "replay", "streams", "uploads", "detached", "faults", "redis", "redis_backlog", "redis_drain"]
OLDEST = os.environ.get("IDEMPO_OLDEST_ENVOY", "")

# (name, command, extra environment, whether it runs tests, whether later stages need it)
NATIVE = ["--package", "idempo-core", "--package", "idempo"]
STAGES = [
    ("formatting", ["cargo", "fmt", "--all", "--check"], {}, False, False),
    (
        "lints",
        ["cargo", "clippy", "--workspace", "--exclude", "idempo-filter", "--all-targets", "--", "-D", "warnings"],
        {}, False, False,
    ),
    (
        "lints of the module",
        ["cargo", "clippy", "--package", "idempo-filter", "--target", WASM, "--all-features", "--", "-D", "warnings"],
        {}, False, False,
    ),
    ("unit tests", tests(*NATIVE), {}, True, False),
    # nextest leaves these out; cargo test has run them above.
    *(
        [(
            "documentation examples",
            ["cargo", "test", "--doc", *NATIVE[:2], "--package", "host-tests"],
            {}, True, False,
        )]
        if HAS_NEXTEST
        else []
    ),
    (
        "unit tests as wasm in Node",
        ["cargo", "test", "--package", "idempo-core", "--lib", "--target", WASM],
        {"CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER": str(WASM_RUNNER)}, True, False,
    ),
    ("model checking, quick bound", tests("--package", "idempo-prove"), {}, True, False),
    ("modules", ["make", "--no-print-directory", "filter"], {}, False, True),
    # One process: the module is compiled once for all of its tests.
    ("second engine", ["cargo", "test", "--package", "idempo-engine-tests"], {}, True, False),
    # nextest.toml says how many Envoys run at once; cargo test has to be told.
    (
        "end to end in Envoy",
        tests("--package", "host-tests") + ([] if HAS_NEXTEST else ["--", "--test-threads=3"]),
        {}, True, False,
    ),
    *(
        [(
            "end to end in the oldest Envoy",
            tests("--package", "host-tests", *(word for name in ON_OLDEST for word in ("--test", name)))
            + ([] if HAS_NEXTEST else ["--", "--test-threads=3"]),
            {"IDEMPO_ENVOY": OLDEST}, True, False,
        )]
        if OLDEST
        else []
    ),
]


def main():
    total, broken = Counts(), []
    for name, command, env, runs_tests, is_needed in STAGES:
        print(f"\n=== {name}: {' '.join(command)}", flush=True)
        began = time.monotonic()
        code, output = run(command, env)
        seconds = time.monotonic() - began
        counts = count(output) if runs_tests else Counts()
        total.add(counts)
        problem = None
        if code != 0:
            problem = f"{name}: exit code {code}"
        elif runs_tests and counts.passed == 0:
            problem = f"{name}: ran no test"
        elif counts.failed:
            problem = f"{name}: failures although the exit code was 0"
        if problem:
            broken.append(problem)
            # A stage that broke without a failing test still has to show in the sum.
            if counts.failed == 0:
                total.failed += 1
        print(f"=== {name}: {counts if runs_tests else 'done'} in {seconds:.0f} s", flush=True)
        if problem and is_needed:
            print("=== the stages after this one need it and were left out", flush=True)
            break
    print()
    for problem in broken:
        print(f"FAILED {problem}")
    print(total)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
