"""What Moodle and Canvas make of a class, on its way to nbgrader's `submitted`: for `zip_collect`.

Of each student one notebook is taken, from the zip's own folder or name for the student, never from
a name inside it. What cannot be taken is refused with its name, and stops nobody else.
"""
# Plain module: edited by hand, no notebook exports it.
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath

from nbgrader.api import Gradebook, MissingEntry
from nbgrader.plugins import ExtractorPlugin, FileNameCollectorPlugin
from nbgrader.utils import find_all_notebooks
from traitlets import Unicode

from .platforms import (
    CANVAS, MOODLE, ClassList, Participant, as_csv, read_list, utc_time,
)

LARGEST_FILE = 20_000_000   # bytes
# what a browser or a platform puts behind the name of a second version
AGAIN = r'(?:[ _-]?\(?(?P<again>\d{1,3})\)?)?'
REPORT = 'collected.csv'


@dataclass(frozen=True)
class HandIn:
    "A file in a zip that is some student's."
    archive:Path
    member:zipfile.ZipInfo
    who:Participant
    file:str       # its name, without the student's
    late:bool      # as Canvas says it


class Refused(ValueError):
    "A file that is not taken; the message says why."


class Extract(ExtractorPlugin):
    "The notebook of each student, to `extracted/<student>/`, and a table of what became of all."

    timezone = Unicode('', help="Of the times in Moodle's worksheet, 'Europe/Vienna'; of this "
                                'computer if empty.').tag(config=True)

    def extract(self, archive_path:str, extracted_path:str)->None:
        "Read the list and the zips in a folder; write what counts."
        course = self.parent.coursedir
        try:
            people = read_list(Path(archive_path))
        except ValueError as error:
            self.parent.fail(str(error))
        released = course.format_path(course.release_directory, '.', course.assignment_id)
        names = [n for n in find_all_notebooks(released) if '/' not in n]
        if not names: self.parent.fail(f'there is no notebook in {released}. Release it first: '
                                       f'nbgrader generate_assignment {course.assignment_id}')
        self.report, self.times = list[dict[str, str]](), dict[str, datetime|None]()
        with Gradebook(course.db_url, course.course_id) as book:
            enrol(book, people)
            found = self.found_in(Path(archive_path), people)
            for who, own in by_student(found).items():
                for notebook in names:
                    taken = self.taken(own, notebook, Path(extracted_path)/who)
                    if not taken: continue
                    self.times[who] = self.time_of(taken, people, book, course.assignment_id)
            for h in (h for own in by_student(found).values() for h in own):
                if not any(version_of(h.file, notebook) is not None for notebook in names):
                    self.refuse(h.archive, h.member.filename, why_not(h.file, names), h.who.marked_as)
        missing = {p.marked_as for p in people.participants} - {*self.times}
        file = Path(archive_path).parent/REPORT
        file.write_bytes(as_csv(['student', 'archive', 'file', 'what'], self.report))
        self.log.warning('%d collected, %d refused, %d of the list without a notebook: see %s',
                         len(self.times), sum(r['what'] != 'collected' for r in self.report),
                         len(missing), file)

    def found_in(self, folder:Path, people:ClassList)->list[HandIn]:
        "The files of students in all zips of a folder; of several zips the later ones come last."
        found = list[tuple[tuple, list[HandIn]]]()
        for archive in sorted(p for p in folder.iterdir() if p.suffix.lower() == '.zip'):
            try:
                with zipfile.ZipFile(archive) as z: members = z.infolist()
            except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
                self.refuse(archive, '', f'the archive is damaged ({error}); download it again')
                continue
            newest = max((m.date_time for m in members), default=())
            found.append((newest, list(self.owned(archive, members, people))))
        return [h for _, own in sorted(found, key=lambda pair: pair[0]) for h in own]

    def owned(self,
        archive:Path,
        members:list[zipfile.ZipInfo],
        people:ClassList,
    )->Iterator[HandIn]:
        "The members that belong to somebody on the list."
        pattern = {'moodle': MOODLE, 'canvas': CANVAS}[people.kind]
        for m in members:
            parts = PurePosixPath(m.filename).parts
            if m.is_dir() or any(p.startswith('.') or p == '__MACOSX' for p in parts): continue
            # the outermost name that is one of the platform's: what lies below is the student's own
            place = next(((i, hit) for i, p in enumerate(parts) if (hit := pattern.fullmatch(p))),
                         None)
            who = place and people.owner(place[1]['name'], place[1]['number'])
            if not who:
                self.refuse(archive, m.filename, f'it belongs to nobody in {people.file.name}')
                continue
            i, hit = place
            file = hit['file'] if i == len(parts) - 1 else parts[-1]
            yield HandIn(archive, m, who, file, bool(hit.groupdict().get('late')))

    def taken(self, own:list[HandIn], notebook:str, folder:Path)->HandIn|None:
        "Write the version of a notebook that counts: the last zip's, of its versions the highest."
        versions = [(version, n, h) for n, h in enumerate(own)
                    if (version := version_of(h.file, notebook)) is not None]
        last = versions[-1][2].archive if versions else None
        counting = sorted((v for v in versions if v[2].archive == last), key=lambda v: v[:2])
        for *_, h in [v for v in versions if v[2].archive != last] + counting[:-1]:
            self.refuse(h.archive, h.member.filename, 'a later version counts', h.who.marked_as)
        for *_, h in counting[-1:]:
            try:
                content = content_of(h)
            except Refused as error:
                self.refuse(h.archive, h.member.filename, str(error), h.who.marked_as)
                continue
            folder.mkdir(parents=True, exist_ok=True)
            (folder/notebook).write_bytes(content)
            self.tell(h.archive, h.member.filename, 'collected', h.who.marked_as)
            return h
        return None

    def time_of(self,
        h:HandIn,
        people:ClassList,
        book:Gradebook,
        assignment:str,
    )->datetime|None:
        """When it came in, as the platform says it: never the zip's time, which is the download's.

        Moodle's worksheet says when. Canvas says only that something is late: it counts from the
        first second behind the student's own deadline.
        """
        if people.kind == 'canvas': return canvas_time(h, book, assignment)
        try:
            times = [utc_time(p.time, self.timezone) for p in people.participants
                     if p.marked_as == h.who.marked_as]
        except (ValueError, OverflowError):
            times = []
        known = [t for t in times if t]
        if not known: self.log.warning('%s: no time in %s; it counts as handed in on time',
                                       h.who.marked_as, people.file.name)
        return max(known, default=None)

    def refuse(self, archive:Path, file:str, why:str, student:str='')->None:
        "Say of a file why it is not taken."
        self.log.warning('refused: %s of %s: %s', ascii(file), archive.name, why)
        self.tell(archive, file, why, student)

    def tell(self, archive:Path, file:str, what:str, student:str='')->None:
        "Write a line of the report."
        self.report.append({'student': student, 'archive': archive.name, 'file': file,
                            'what': what})


class Collect(FileNameCollectorPlugin):
    "Student and file of what `Extract` wrote, and when it came in."

    def collect(self, submitted_file:str)->dict|None:
        "What nbgrader asks of a file; the folder is the student's."
        path = Path(submitted_file)
        if path.suffix not in self.valid_ext: return None
        student = path.parent.name
        return {'student_id': student, 'file_id': path.name,
                'timestamp': self.parent.extractor_plugin_inst.times.get(student)}


def by_student(found:list[HandIn])->dict[str, list[HandIn]]:
    "The files of each student of nbgrader."
    own = dict[str, list[HandIn]]()
    for h in found: own.setdefault(h.who.marked_as, []).append(h)
    return own


def enrol(book:Gradebook, people:ClassList)->None:
    "Put the list into the grade book: also who has handed in nothing."
    for p in people.participants:
        first, _, last = p.name.rpartition(' ') if people.kind == 'moodle' else (
            p.name.partition(', ')[2], '', p.name.partition(', ')[0])
        about = {'first_name': first, 'last_name': last, 'lms_user_id': p.number}
        if p.team: about = {'last_name': p.row.get('Group', '')}
        book.update_or_create_student(p.marked_as, **about)


def version_of(
    file:str,     # as a student's file is called
    notebook:str, # as the released one is called
)->int|None:
    "0 of the name itself, 2 of `name (2)` or `name-2`; None of another name."
    stem = re.escape(notebook.removesuffix('.ipynb'))
    named = re.fullmatch(rf'{stem}{AGAIN}\.ipynb', file, re.I)
    return None if not named else int(named['again'] or 0)


def why_not(file:str, names:list[str])->str:
    "Why a file is not taken, by its name."
    if file.lower().endswith('.ipynb'): return f'it is not called {" or ".join(names)}'
    if re.search(r'\.(zip|tar|gz|tgz|7z|rar)$', file, re.I):
        return 'it is an archive; hand in the notebook itself'
    return 'it is no notebook (*.ipynb)'


def content_of(h:HandIn)->bytes:
    "A file's bytes."
    m = h.member
    if stat.S_ISLNK(m.external_attr >> 16): raise Refused('it is a link, and no file')
    if m.file_size > LARGEST_FILE: raise Refused('it is larger than 20 MB')
    try:
        with zipfile.ZipFile(h.archive) as z, z.open(m) as file:
            content = file.read(LARGEST_FILE + 1)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, OSError, EOFError,
            ValueError) as error:
        raise Refused(f'it cannot be unpacked ({type(error).__name__}: {error})') from None
    if len(content) > LARGEST_FILE: raise Refused('it is larger than 20 MB')
    return content


def canvas_time(h:HandIn, book:Gradebook, assignment:str)->datetime|None:
    "A second behind the deadline of what Canvas calls late, and the deadline of all else."
    try:
        due = book.find_assignment(assignment).duedate
        extension = book.find_submission(assignment, h.who.marked_as).extension
    except MissingEntry:
        extension = None
    if not due: return None
    due += extension or timedelta()
    return due + timedelta(seconds=1) if h.late else due
