"""Files that are never half there, and that are what they were: write, check, sum up."""
# Plain module: edited by hand, no notebook exports it.
import hashlib
import json
import os
from pathlib import Path
from typing import Any

__all__ = ['write_atomic', 'write_json', 'checksum', 'check_readable']


def write_atomic(
    path:str|Path, # the file to replace
    data:bytes,    # its new content
)->None:
    "Replace a file whole: a reader, or a power cut, meets old bytes or new ones, never a part."
    path = Path(path)
    part = path.with_name(path.name + '.part')
    try:
        with open(part, 'wb') as file:
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
