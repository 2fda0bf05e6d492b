"""`eqtutor labs grade`: the one command that loads no torch.

That would cost half a gigabyte beside the process that judges. The other commands are in `cli`.
"""
# Plain module: edited by hand, no notebook exports it.
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import typer

from .grade import grade
from .gradebook import Policy
from .sandbox import Limits


@contextmanager
def explained(
    flags:dict[str, str]|None=None, # an argument's name, and the flag that was typed
)->Iterator[None]:
    "What is wrong with what was typed: a sentence and exit code 1, and no traceback."
    try: yield
    except (ValueError, RuntimeError, OSError) as error:
        said = str(error)
        for name, flag in (flags or {}).items(): said = said.replace(name, flag)
        typer.secho(said, fg='red', err=True)
        raise typer.Exit(1) from None


labs = typer.Typer(
    help='Exercises: students\' notebooks, marks, and one\'s own progress.',
    no_args_is_help=True)

@labs.callback()
def labs_main()->None:
    "Exercises: students' notebooks, marks, and one's own progress."

@labs.command('grade', help=(
    'Grade submissions, each in a sandbox of its own (bubblewrap): no '
    'network, no file of yours, limits on time and memory. Exit code 1 if a '
    'file could not be graded.'))
def labs_grade(
    submissions:list[Path]=typer.Argument(
        ..., help='Notebooks, folders of them (a folder for each student), or the zips '
                  'that Moodle and Canvas make of a class.'),
    out:Path=typer.Option(
        Path('marks'), help='Folder for marks.csv, students.csv, marks.json, results/, '
                            'feedback/ and proofs.html. What is graded there already '
                            'is not graded again.'),
    chapter:str=typer.Option(
        None, help='05, where the files do not say.  [default: read from each file]'),
    seconds:int=typer.Option(10, min=1, help='Time for one answer.'),
    memory:int=typer.Option(
        1024, min=64, help='MB for a submission, beyond what torch needs.'),
    workers:int=typer.Option(
        None, min=1, help='Submissions side by side.  [default: one a core]'),
    seed:int=typer.Option(
        None, help='Seed of the random cases. Each submission gets its own from it, '
                   'written into its result.  [default: a new one]'),
    unsafe:bool=typer.Option(
        False, '--unsafe', help='Grade without a sandbox, where bubblewrap is missing. '
                                'A submission can then read, change and send whatever '
                                'you can; every result says so.'),
    roster:Path=typer.Option(
        None, help='A list of the class (CSV): students.csv gets its rows and columns. '
                   'One column holds the names of the folders. Of a grading worksheet '
                   'from Moodle or a grade book from Canvas, moodle.csv or canvas.csv '
                   'is made for import.'),
    due:datetime=typer.Option(
        None, formats=['%Y-%m-%d', '%Y-%m-%dT%H:%M'],
        help='Files that were written later are late, and what Canvas calls so.'),
    late:int=typer.Option(
        100, min=0, max=100, help='Percent of the marks that count where it is late.'),
    repeated:str=typer.Option(
        'best', help='Which counts where a chapter came in twice: best or last.'),
    by_hand:Path=typer.Option(
        None, help='Marks from the page proofs.html, on which proofs are marked with '
                   'a key each: the file that it saves.'),
    as_json:bool=typer.Option(False, '--json', help='Print the results as JSON.'),
)->None:
    "Grade submissions, each in a sandbox of its own."
    def report(record:dict)->None:
        if not as_json: typer.echo(marks_line(record))
    with explained():
        paths = [p.expanduser() for p in submissions]
        records = grade(paths, out.expanduser(), chapter, Limits(seconds, memory),
                        workers, seed, unsafe, roster and roster.expanduser(), report,
                        due, Policy(late, repeated), by_hand and by_hand.expanduser())
    there = ', '.join(sorted(p.name for p in out.expanduser().iterdir()))
    text = f'Written to {out}: {there}.'
    if unsafe: text += ' Graded without a sandbox.'
    # JSON in ASCII: a file's name may be no text
    typer.echo(json.dumps(records) if as_json else text)
    if any(r['problem'] for r in records): raise typer.Exit(1)


def marks_line(record:dict)->str:
    "One line on a graded file."
    said, by_hand = record['problem'], record['by hand']
    if not said:
        said = f'{record["marks"]} of {record["of"]}'
        if by_hand: said += f', {by_hand} by hand'
    return printable(f'{record["name"]}: {said}') + (
        '' if record['new'] else ' (as before)')

def printable(text:str)->str:
    "The text without what moves a terminal's cursor, or is half a character."
    return ''.join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
