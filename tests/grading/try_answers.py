"""Run as a program: answers to 1.2, all in one sandbox, judged; by a process that holds secrets.

JSON on the standard input: sources by name, limits. Written: what is said of each, by its name.
A secret stands in the arguments, in the environment, in a file that is open, and in the keyrings.
"""
import ctypes
import json
import platform
import sys
from dataclasses import asdict

from eqtutor.grading.judge import judge_reply, task_of
from eqtutor.grading.limits import Limits
from eqtutor.grading.sandbox import Submission, run
from eqtutor.tutor.exercise import get_exercise

ADD, CONTROL = {'aarch64': (217, 219)}.get(platform.machine(), (248, 250))
UNLINK, SESSION, USER = 9, -3, -4


def main():
    asked = json.load(sys.stdin)
    e, libc, secret = get_exercise('1.2'), ctypes.CDLL(None), sys.argv[1].encode()
    keys = [libc.syscall(ADD, b'user', secret + b'-key', b'secret', 6, ring)
            for ring in (SESSION, USER)]
    try:
        tasks = tuple(task_of(e, source, 0) for source in asked['sources'].values())
        replies = run(Submission(tasks), Limits(*asked['limits']))
    finally:
        for key, ring in zip(keys, (SESSION, USER)): libc.syscall(CONTROL, UNLINK, key, ring)
    said = [asdict(judge_reply(e, reply, 0)) for reply in replies]
    print(json.dumps(dict(zip(asked['sources'], said))))


if __name__ == '__main__': main()
