#!/usr/bin/env python3
"""A client that retries a write safely through idempo. Standard library only.

    python3 client.py http://127.0.0.1:10000/v1/charges '{"amount": 1000}' [KEY]

One key is made for the operation, before the first attempt, and every attempt carries it. What to do
next depends on the `code` of a refusal, not on its status, which operators may change.
"""

import json
import random
import sys
import time
import urllib.error
import urllib.request
import uuid

ATTEMPTS = 5
CAP_S = 32

# The operation was not run, or still runs: the same request may be sent again later.
AGAIN = {"in_flight", "store_unavailable", "store_recovering", "store_full"}


# The operation ran; only its answer cannot be served again.
HAPPENED = {"replay_unavailable"}


def attempt(url, body, key, timeout):
    """One HTTP request: (status, headers, body), or None where no answer came."""
    request = urllib.request.Request(
        url,
        data=body.encode(),
        headers={"content-type": "application/json", "idempotency-key": key},
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.headers, answer.read()
    except OSError:
        return None


def code_of(headers, body):
    """The stable code of a refusal by idempo; None for an upstream's answer."""
    if headers.get_content_type() != "application/problem+json":
        return None
    try:
        return json.loads(body).get("code")
    except ValueError:
        return None


def wait_s(headers, failures):
    """What the server asks for, or a jittered back-off, whichever is longer."""
    own = random.uniform(0.5, 1) * min(CAP_S, 2**failures)
    asked = headers.get("retry-after", "") if headers else ""
    return max(own, int(asked)) if asked.isdigit() else own


def run(url, body, key, timeout=20.0):
    """Runs the operation: the upstream's answer, or SystemExit with what to do.

    The time-out is longer than the route's (15 s unless configured): a client that leaves before the
    upstream has answered makes its own operation unknown.
    """
    for failures in range(ATTEMPTS):
        answer = attempt(url, body, key, timeout)
        headers = answer[1] if answer else None
        if answer:
            status, headers, content = answer
            code = code_of(headers, content)
            state = headers.get("idempotency-status")
            released = state == "released"
            if state == "unknown":
                sys.exit(f"unknown: ask about operation {headers.get('idempotency-operation')}, do not retry")
            if code in HAPPENED:
                sys.exit(f"it happened, but the answer is gone: operation {headers.get('idempotency-operation')}")
            if code and code not in AGAIN:
                sys.exit(f"refused: {code}: {json.loads(content).get('detail')}")
            if not code and not released:
                return status, headers, content
        # No answer at all, a release or a passing refusal: the same key again.
        time.sleep(wait_s(headers, failures))
    sys.exit(f"gave up after {ATTEMPTS} attempts; the key is {key}")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    # A real client keeps the key with the operation, where a restart finds it again.
    key = sys.argv[3] if len(sys.argv) == 4 else str(uuid.uuid4())
    status, headers, content = run(sys.argv[1], sys.argv[2], key)
    replayed = headers.get("idempotent-replayed", "false")
    print(f"{status} replayed={replayed} {content.decode(errors='replace')}")
