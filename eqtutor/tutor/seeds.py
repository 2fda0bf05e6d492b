"""A student's own: the seed of the cases, and the name of a file for what is theirs."""
# Plain module: edited by hand, no notebook exports it.
import hashlib


def as_bytes(text:str)->bytes:
    "The text as UTF-8; half a character from a submission stops no class."
    return text.encode('utf-8', 'backslashreplace')


def short_hash(text:str)->str:
    "Eight digits that tell texts apart."
    return hashlib.sha256(as_bytes(text)).hexdigest()[:8]


def seed_of(name:str, seed:int)->int:
    "The seed of a submission's cases, from the class's: nobody gets another's numbers."
    return int(short_hash(f'{seed} {name}'), 16) % 2**31


def file_name(part:str)->str:
    "A part of a name, if it can be a file's or folder's beside those we write; else shortened."
    fits = len(part.encode()) < 200 and not part.endswith(('.json', '.html'))
    return part if fits else f'{part[:40]}-{short_hash(part)}'
