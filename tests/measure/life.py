"""Measures by the clock what core/PERFORMANCE.md says of the cache's life and of several clients at once.

    python3 tests/measure/life.py saving|boot|killed|crowd BINARY MODEL [ROUNDS]

On a machine that does nothing else: figures are compared within a run, in pairs that are taken in turn.
Needs nothing but Python's own library.
"""

import json
import os
import pathlib
import pty
import random
import re
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

READY = b"inference state ready"


def ids(count, seed):
    numbers = random.Random(seed)
    return [numbers.randrange(1000, 100000) for _ in range(count)]


def line(tokens):
    return (",".join(map(str, tokens)) + "\n").encode()


class Process:
    """A `generate --jsonl` that takes requests."""

    def __init__(self, binary, model, most, *more):
        command = [binary, "generate", "--jsonl", "-n", str(most), "-m", model, "--ctx", "8192", *more]
        pipe = subprocess.PIPE
        start = time.monotonic()
        self.child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        for said in self.child.stderr:
            if said.startswith(READY):
                break
        self.boot = time.monotonic() - start
        # Nobody may wait for a full pipe.
        threading.Thread(target=self.child.stderr.read, daemon=True).start()

    def ask(self, tokens):
        start = time.monotonic()
        self.child.stdin.write(line(tokens))
        self.child.stdin.flush()
        if not self.child.stdout.readline():
            sys.exit("the process ended")
        return time.monotonic() - start

    def kill(self):
        self.child.kill()
        self.child.wait()


def saving(binary, model, folder, rounds):
    """What --disk-kv adds to a reply: 160 tokens of prompt, 96 of reply, with and without, in turn."""
    without = Process(binary, model, 96)
    with_it = Process(binary, model, 96, "--disk-kv", str(folder / "kv"))
    ratios = []
    for i in range(rounds or 40):
        prompt, took = ids(160, i), {}
        for process in (without, with_it) if i % 2 else (with_it, without):
            took[process] = process.ask(prompt)
        ratios.append(took[with_it] / took[without])
    low, middle, high = statistics.quantiles(ratios)
    print(f"with / without: median of {len(ratios)} pairs {middle:.4f}, quartiles {low:.3f} and {high:.3f}")
    without.kill()
    with_it.kill()


def boot(binary, model, folder, rounds):
    """From the start of a process until it takes a request, with few and with 100,000 blocks stored."""
    folders = [folder / "few", folder / "many"]
    for disk in folders:
        process = Process(binary, model, 1, "--disk-kv-sync", "--disk-kv", str(disk))
        process.ask(ids(200, 1))
        process.kill()
    fingerprint = next(path for path in folders[1].iterdir() if path.is_dir())
    block = next(fingerprint.glob("*/*.kv"))
    for i in range(100_000):
        name = f"{random.Random(i).getrandbits(128):032x}"
        (fingerprint / name[:2]).mkdir(exist_ok=True)
        path = fingerprint / name[:2] / f"{name}.kv"
        # File systems allow so many names of one file.
        if i % 40_000:
            os.link(block, path)
        else:
            shutil.copy(block, path)
            block = path
    times = {disk: [] for disk in folders}
    for _ in range(rounds or 15):
        for disk in folders:
            process = Process(binary, model, 1, "--disk-kv", str(disk))
            times[disk].append(process.boot * 1e3)
            time.sleep(0.5)
            process.kill()
    for disk, took in times.items():
        print(f"{disk.name:>4} blocks: ready after {statistics.median(took):.1f} ms, at best {min(took):.1f}")


def killed(binary, model, folder, rounds):
    """A prompt of 6,000 tokens, killed on the way: what its progress line had said, and what was found."""
    words = random.Random(3)
    text = " ".join(f"{words.choice(['river', 'stone', 'code', 'light'])}{words.randrange(10)}" for _ in range(3000))
    prompt, disk = folder / "text", folder / "kv"
    prompt.write_text(text)
    command = [binary, "run", "-m", model, "--raw", "--file", str(prompt), "-n", "1", "--temp", "0", "--ctx", "8192"]
    command += ["--disk-kv", str(disk)]
    for seconds in [5, 11, 17, 23][: rounds or 4]:
        shutil.rmtree(disk, ignore_errors=True)
        terminal, theirs = pty.openpty()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        said, end = b"", time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([terminal], [], [], 0.02)[0]:
                said += os.read(terminal, 4096)
        child.kill()
        child.wait()
        os.close(terminal)
        done = re.findall(rb"(\d+) of (\d+)", said)
        again = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        found = re.search(r"loaded (\d+)-token", again)
        done, found = int(done[-1][0]) if done else 0, int(found[1]) if found else 0
        print(f"killed after {seconds} s: {done} tokens were done, {found} were found, {done - found} lost")


def crowd(binary, model, folder, rounds):
    """Four clients at once against one after the other: tokens a second, and whether replies are equal."""
    child = subprocess.Popen([binary, "serve", "-m", model, "--port", "0"], stderr=subprocess.PIPE, text=True)
    address = next(m[1] for m in map(re.compile(r"listening at (\S+)").search, child.stderr) if m)
    threading.Thread(target=child.stderr.read, daemon=True).start()
    questions = ["What is a river?", "Sort a list in Python.", "Tell me about the moon.", "What is a compiler?"]

    def ask(question):
        """The text, and when each token came. One token an event: temperature 0 and words of ASCII."""
        body = {"messages": [{"role": "user", "content": question}], "max_tokens": 192, "temperature": 0}
        body |= {"ignore_eos": True, "cache_prompt": False, "stream": True}
        request = urllib.request.Request(address + "/v1/chat/completions", json.dumps(body).encode())
        text, times = "", []
        with urllib.request.urlopen(request) as events:
            for event in events:
                delta = b'"content"' in event and json.loads(event[6:])["choices"][0]["delta"].get("content")
                if delta:
                    text += delta
                    times.append(time.monotonic())
        return text, times

    def between(replies):
        """Tokens a second while all of them were written: from the last beginning to the first end."""
        start, end = max(times[0] for _, times in replies), min(times[-1] for _, times in replies)
        return sum(start < at <= end for _, times in replies for at in times) / (end - start)

    while True:
        try:
            urllib.request.urlopen(address + "/health").close()
            break
        except OSError:
            time.sleep(0.1)
    for _ in range(rounds or 3):
        alone = [ask(question) for question in questions]
        together = [None] * len(questions)

        def one(i):
            together[i] = ask(questions[i])

        clients = [threading.Thread(target=one, args=(i,)) for i in range(len(questions))]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        single, all_of_them = statistics.harmonic_mean([between([reply]) for reply in alone]), between(together)
        equal = [text for text, _ in alone] == [text for text, _ in together]
        print(f"one {single:.1f} tokens/s, four {all_of_them:.1f}: {all_of_them / single:.2f} times; equal: {equal}")
    child.terminate()
    child.wait()


def main():
    tasks = {"saving": saving, "boot": boot, "killed": killed, "crowd": crowd}
    if len(sys.argv) not in (4, 5) or sys.argv[1] not in tasks:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        rounds = int(sys.argv[4]) if len(sys.argv) == 5 else None
        tasks[sys.argv[1]](sys.argv[2], sys.argv[3], pathlib.Path(folder), rounds)


if __name__ == "__main__":
    main()
