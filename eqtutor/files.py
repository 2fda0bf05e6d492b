"""Files that are never half there, and that are what they were: write, check, sum up."""
# Plain module: edited by hand, no notebook exports it.
import glob
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from .names import require

__all__ = ['write_atomic', 'write_json', 'checksum', 'check_readable', 'lock_folder',
           'writable_folder', 'remove_litter', 'results_folder', 'stored', 'timings', 'NOTE',
           'provenance_mark', 'with_note']

LITTER = 3600   # seconds after which a part that a killed writer left is taken away


def write_atomic(
    path:str|Path, # the file to replace
    data:bytes,    # its new content
)->None:
    """Replace a file whole: a reader, or a power cut, meets old bytes or new ones, never a part.

    Two that write the same file at once write parts of different names; the last one stays.
    """
    path = Path(path)
    remove_litter(path)
    part = path.with_name(f'{path.name}.{secrets.token_hex(4)}.part')
    try:
        with open(part, 'xb') as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    if os.name != 'posix': return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name, too, must reach the disk
    finally:
        os.close(folder)


def remove_litter(
    path:Path,          # of the file
    seconds:int=LITTER, # since they were written
)->None:
    "Remove parts of a file that killed writers left."
    for part in path.parent.glob(f'{glob.escape(path.name)}.*.part'):
        try:
            if time.time() - part.stat().st_mtime >= seconds: part.unlink()
        except OSError:
            continue


@contextmanager
def lock_folder(
    folder:str|Path, # that is there
)->Iterator[None]:
    """Inside, no other process that asks as well is in the folder; a `ValueError` if one is.

    The lock ends with the process at the latest. Its file, `.lock`, is gone afterwards.
    """
    filelock, file = require('filelock', 'train'), Path(folder)/'.lock'
    lock = filelock.FileLock(file)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise ValueError(f'Another process is at work in {folder}. Wait until it has ended, or '
                         'give another folder: nothing was written.') from None
    try:
        yield
    finally:
        with suppress(OSError): file.unlink()   # Windows keeps a file that is open
        lock.release()


def writable_folder(
    out:Path,
    other:str='another with --out, for instance --out ~/eqtutor-demo', # what to choose
)->Path:
    "The folder, made and tried; an error before any work if nothing can be written there."
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out): pass   # others may try at the same time
    except OSError as error:
        raise ValueError(f'The folder {out} cannot be written to ({error.strerror or error}). '
                         f'Choose {other}. Nothing was trained or written.') from error
    return out


def write_json(
    path:str|Path, # the file to replace
    content:Any,   # whatever JSON can hold
)->None:
    "Replace a file by JSON as results are stored: indented by one, letters as they are."
    write_atomic(path, (json.dumps(content, indent=1, ensure_ascii=False) + '\n').encode())


def checksum(
    content:bytes|str|Path, # bytes, or the path of a file that holds them
    algorithm:str='sha256', # a name in `hashlib`; data sets are published with an 'md5'
)->str:                     # hexadecimal
    "The checksum of bytes, or of a file of any size."
    digest = hashlib.new(algorithm, usedforsecurity=False)
    if isinstance(content, bytes):
        digest.update(content)
        return digest.hexdigest()
    with open(content, 'rb') as file:
        while block := file.read(1 << 20): digest.update(block)
    return digest.hexdigest()


def check_readable(
    path:str|Path, # a file that is there
)->None:
    "Complain of a file that may not be read: this is no damage, and needs another remedy."
    if os.access(path, os.R_OK): return
    raise PermissionError(f'{path} is there but may not be read: change its permissions, '
                          'or copy it as a user who may.')


def results_folder()->Path:
    """What was measured: the folder `results` of a checkout or of a copy of the course.

    It is looked for here and above, then in the package, which brings one; `results` if none is.
    """
    package = Path(__file__).parent
    homes = (Path.cwd(), *Path.cwd().parents, package/'course', package.parent)
    folders = (home/'results' for home in homes)
    return next((f for f in folders if (f/'bench').is_dir()), Path('results'))


def stored(
    name:str, # of a file in the folder of results, without its ending
)->Any:       # what the JSON says
    "A run or a benchmark, or None where there is no such file."
    path = results_folder()/f'{name}.json'
    return json.loads(path.read_text(encoding='utf-8')) if path.exists() else None


def stored_runs(
    experiment:str, # folder of a network, its data and what else is named, in that of results
)->list[Any]:
    "The runs of all seeds of an experiment, by seed; none where there is no such folder."
    paths = (results_folder()/experiment).glob('[0-9]*.json')
    return [json.loads(path.read_text(encoding='utf-8'))
            for path in sorted(paths, key=lambda path: int(path.stem))]


def timings(
    name:str, # as for `stored`, of a benchmark
)->dict[str, dict[str, Any]]:
    "The rows of a benchmark's tables by their names; none where it is not at hand."
    record = stored(name) or dict(tables={})
    return {row['name']: row for rows in record['tables'].values() for row in rows}


NOTE = ('† The code that ran is in no commit of the repository: it had uncommitted changes, '
        'or its commit was not kept.')


def provenance_mark(
    *records:dict[str, Any], # of result files
)->str:
    """What stands behind a number of these: ' †' if code that is no commit of the repository had a
    part in any of them, else nothing. `commit` says so: '…-dirty', '…-unpublished', or none."""
    for record in records:
        heads = record.get('environment', record), *record.get('resumed', ())
        commits = [str(head.get('commit')) for head in heads]
        if not all(re.fullmatch('[0-9a-f]{40}', commit) for commit in commits): return ' †'
    return ''


def with_note(
    text:str, # Markdown
)->str:
    "The text, and under it what † says, if it is there."
    return f'{text}\n\n{NOTE}' if '†' in text and NOTE not in text else text
