"""From files to marks: results as JSON, a table, and a page for each student.

What is done for a class needs no torch, and loads none: a process that would hold it beside that of
`judges` costs half a gigabyte.
"""
# Plain module: edited by hand, no notebook exports it.
import os
import secrets
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from .gradebook import Policy, marks_from_page, marks_of_a_person, write_tables
from .handins import HandIn, find_hand_ins
from .judges import Judges, Settings
from .roster import read_roster
from .sandbox import Limits, without_isolation


def grade(
    paths:Iterable[str|Path],  # notebooks, folders of them, or the zips of Moodle and Canvas
    out:str|Path,              # results: marks.csv, marks.json, results/, feedback/
    chapter:str|None=None,     # '05' for all; if None, read from each file
    limits:Limits=Limits(),    # of a submission
    workers:int|None=None,     # submissions side by side; one a core if None
    seed:int|None=None,        # of the class; a new one if None
    unsafe:bool=False,         # without bubblewrap: a submission can do whatever you can
    roster:str|Path|None=None, # CSV, a row a student, in which a column has the folders' names
    report:Callable[[dict], None]=lambda record: None, # called after each submission
    due:datetime|None=None,    # a file that was written later is late
    policy:Policy=Policy(),    # what late and repeated hand-ins count
    by_hand:str|Path|None=None, # what was saved on the page of proofs
)->list[dict]:
    """Grade submissions side by side, each by a process that has read no other.

    What lies in `out` already is not graded again, and stays in the tables.
    """
    if not unsafe and (why := without_isolation()): raise RuntimeError(why)
    out, seed = Path(out), secrets.randbelow(2**31) if seed is None else seed
    settings = Settings(out, limits, chapter, seed, unsafe)
    # errors before the work
    marks_of_a_person(out/'marks.csv')
    students = read_roster(Path(roster)) if roster else None
    marks = marks_from_page(Path(by_hand)) if by_hand else {}
    with TemporaryDirectory() as unpacked:
        work = find_hand_ins([Path(p) for p in paths], out, Path(unpacked), due)
        records = grade_all(list(work.values()), settings, workers, report)
    write_tables(records, out, students, policy, marks)
    return records


def grade_all(
    work:list[HandIn],
    settings:Settings,
    workers:int|None,
    report:Callable[[dict], None],
)->list[dict]:
    "The results of hand-ins, side by side."
    settings.out.mkdir(parents=True, exist_ok=True)
    count = min(workers or os.cpu_count() or 1, len(work))
    with Judges(settings) as judges, ThreadPoolExecutor(count) as pool:
        def one(h:HandIn)->dict:
            record = judges.record(h)
            report(record)
            return record
        return list(pool.map(one, work))
