"""Runs the checks of a script one after the other. Must not know any client.

A check is a function whose name begins with `check_`; its first line of documentation says what it shows.
"""

import base64
import json
import os
import sys
import time
import traceback
import urllib.request

# Greedy replies of the model to these are known well enough to be asserted.
CAPITAL = "What is the capital of France? Answer with one word."

# One red pixel.
PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108020000009077"
        "53de0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
    )
).decode()

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}


def server():
    """Address and key of the server, from the environment."""
    return os.environ["KINGLET_URL"], os.environ["KINGLET_KEY"]


def status():
    """What the server says about itself."""
    url, key = server()
    request = urllib.request.Request(url + "/admin/api/status", headers={"Authorization": "Bearer " + key})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)


def wait_until_idle(seconds=20):
    """Waits until no reply is being computed; fails if that takes longer."""
    end = time.monotonic() + seconds
    while True:
        now = status()
        if now["active"] == 0 and now["queued"] == 0:
            assert all(slot["state"] == "idle" for slot in now["slots"]), now["slots"]
            return
        assert time.monotonic() < end, f"still computing after {seconds} s: {now}"
        time.sleep(0.05)


def equal(got, wanted):
    """Fails unless both are the same."""
    assert got == wanted, f"{got!r} is not {wanted!r}"


def holds(text, part):
    """Fails unless the text has the part in it."""
    assert part in text, f"{part!r} is not in {text!r}"


def refused(kind, call, *parts):
    """The error of that class which the call raises; each part must be in its message."""
    try:
        got = call()
    except kind as error:
        for part in parts:
            holds(str(error), part)
        return error
    raise AssertionError(f"answered with {got!r}, not refused")


def run(names):
    """Runs all checks of a module, says how long each took, and ends the process."""
    failed = 0
    for name, check in list(names.items()):
        if not name.startswith("check_"):
            continue
        start = time.monotonic()
        try:
            check()
            word = "ok    "
        except Exception:
            traceback.print_exc()
            failed += 1
            word = "FAILED"
        title = (check.__doc__ or name).splitlines()[0]
        print(f"  {word} {time.monotonic() - start:5.1f} s  {title}", flush=True)
    sys.exit(1 if failed else 0)
