"""A folder of hand-ins, without nbgrader: verdicts as JSON and CSV, a page for each student.

What is done for a class needs no torch, and loads none: a process that would hold it beside the
fork server costs half a gigabyte.
"""
# Plain module: edited by hand, no notebook exports it.
import json
import os
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..files import write_atomic
from ..tutor.course import exercise_order
from ..tutor.seeds import as_bytes
from . import server
from .folder import HandIn, hand_ins
from .limits import Limits
from .sandbox import UNSAFE, without_isolation
from .tables import table


def grade(
    folder:str|Path,         # a folder for each student, notebooks in it; or one notebook
    out:str|Path,            # marks.csv, marks.json, results/, pages/
    chapter:str|None=None,   # '05' for all; if None, read from each file
    limits:Limits=Limits(),  # of a hand-in
    workers:int|None=None,   # hand-ins side by side; one a core if None
    seed:int|None=None,      # of the class; a new one if None
    unsafe:bool=False,       # without bubblewrap: a hand-in can do whatever you can
    report:Callable[[dict], None]=lambda result: None, # called after each
)->list[dict]:
    """Grade hand-ins side by side, each by a process that has read no other.

    What lies in `out` already, of the same file and under the same limits, is not graded again.
    """
    if not unsafe and (why := without_isolation()): raise RuntimeError(why)
    found = hand_ins(Path(folder), Path(out))
    seed = secrets.randbelow(2**31) if seed is None else seed
    settings = server.Settings(os.path.abspath(out), limits, chapter, seed, unsafe)
    Path(out).mkdir(parents=True, exist_ok=True)
    def one(h:HandIn)->dict:
        said = server.result(h, settings)
        report(said)
        return said
    with ThreadPoolExecutor(min(workers or os.cpu_count() or 1, len(found))) as pool:
        results = list(pool.map(one, found))
    text = json.dumps(results, indent=1, ensure_ascii=False) + '\n'
    write_atomic(Path(out)/'marks.json', as_bytes(text))
    write_atomic(Path(out)/'marks.csv', as_bytes(marks_table(results)))
    return results


def marks_table(results:list[dict])->str:
    "`marks.csv`: a row for each hand-in; a proof, which a person marks, is empty."
    ids = sorted({v['id'] for r in results for v in r['parts']}, key=exercise_order)
    rows = []
    for r in results:
        marks = {v['id']: v['marks'] for v in r['parts']}
        rows.append([r['student'], r['name'], r['chapter'], *(marks.get(id) for id in ids),
                     r['marks'], r['of'], r['by hand'], '; '.join(remarks_on(r))])
    return table(['student', 'hand-in', 'chapter', *ids, 'marks', 'of', 'by hand', 'remarks'], rows)


def remarks_on(r:dict)->list[str]:
    "What a teacher should know of a hand-in."
    remarks = [r['problem']] if r['problem'] else []
    if r['isolation'] == UNSAFE: remarks.append('graded without a sandbox')
    return remarks + [f'{v["id"]} {v["state"]}' for v in r['parts']
                      if v['state'] in ('stopped', 'missing')]
