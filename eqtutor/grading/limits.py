"""What a hand-in may take, and whoever judges it: every number of the grader, in one place."""
# Plain module: edited by hand, no notebook exports it. The sandbox's process imports it.
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    "What a hand-in may take."
    seconds:int=10    # for one answer; waiting for a processor does not count
    memory:int=1024   # MB for all processes together, beyond what torch needs
    processes:int=16  # at one time


# --- a sandbox

START = 120              # seconds that a loaded machine may need to import torch
SPARE = 10               # seconds that it may need beyond the answers' own
PATIENCE = 5             # times an answer's limit, on a busy machine
TORCH = 1024             # MB that torch may need itself
TEMPORARY = 2**26        # bytes in the sandbox's /tmp
LARGEST_ANSWER = 2**24   # bytes, of one exercise
LARGEST_WRITTEN = 2**22  # bytes, of one file
OPEN_FILES = 64
TICK = .05               # seconds between two looks at the processes

# --- a judge

READING = 2**31          # bytes that reading and judging may take
JUDGE_SECONDS = 600      # of processor time, for one hand-in
JUDGING = 20             # seconds for one answer
LARGEST_RESULT = 2**24   # bytes
LONGEST_MESSAGE = 2000   # letters
LONGEST_PROOF = 50_000   # letters

# --- a folder of hand-ins

LARGEST_FILE = 20_000_000   # bytes
DEEPEST = 12                # folders inside one another
MOST_FILES = 20_000         # of one student, that are looked at
MOST_NOTEBOOKS = 50         # of one student
