"What Moodle and Canvas hand out is read, and what they take back is written."
import csv
import io
import json
import zipfile
from datetime import datetime

import pytest

from eqtutor.grading.grade import grade
from eqtutor.grading.gradebook import Policy, write_tables
from eqtutor.grading.handins import LARGEST_FILE, find_hand_ins
from eqtutor.grading.pages import feedback_page
from eqtutor.grading.roster import read_roster

GROUPS = '01_groups'
MOODLE = {'Ann Lee_17_assignsubmission_file_/01_groups.ipynb': '{}',
          'Ben Oh_18_assignsubmission_file_01_groups.ipynb': '{}',      # without folders
          'Cat Ng_19_assignsubmission_file/deep/01.ipynb': '{}',        # of Moodle 4.1
          'Dan Po_20_assignsubmission_file_/report.pdf': '%PDF',
          'Dan Po_20_assignsubmission_onlinetext_/onlinetext.html': 'hello',
          '__MACOSX/Ann Lee_17_assignsubmission_file_/._01_groups.ipynb': 'x'}
CANVAS = {'leeann_17_203_01_groups.ipynb': '{}', 'ohben_LATE_18_204_01_groups-2.ipynb': '{}'}


def zipped(file, files, when=(2026, 11, 1, 9, 30, 0)):
    "A zip of these files."
    with zipfile.ZipFile(file, 'w') as z:
        for name, text in files.items(): z.writestr(zipfile.ZipInfo(name, when), text)
    return file


def found(tmp_path, *paths, due=None):
    "The hand-ins in some zips or folders."
    (folder := tmp_path/'unpacked').mkdir(exist_ok=True)
    return find_hand_ins(paths, tmp_path/'out', folder, due)


def test_the_zip_of_moodle(tmp_path):
    own = found(tmp_path, zipped(tmp_path/'m.zip', MOODLE))
    assert list(own) == ['Ann Lee_17/01_groups', 'Ben Oh_18/01_groups', 'Cat Ng_19/deep/01',
                         'Dan Po_20/report']
    assert {h.origin for h in own.values()} == {'moodle'}
    assert own['Ann Lee_17/01_groups'].time == '2026-11-01T09:30:00'


def test_the_zip_of_canvas(tmp_path):
    own = found(tmp_path, zipped(tmp_path/'c.zip', CANVAS))
    assert {name: h.late for name, h in own.items()} == {'leeann_17/01_groups': False,
                                                         'ohben_18/01_groups': True}


def test_the_same_unpacked(tmp_path):
    for name, text in {**MOODLE, **CANVAS}.items():
        (file := tmp_path/'in'/name).parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert {'Ann Lee_17/01_groups', 'ohben_18/01_groups'} < set(found(tmp_path, tmp_path/'in'))


@pytest.mark.parametrize('name, result', [('../../x.ipynb', 'x'), ('/etc/x.ipynb', 'etc/x'),
                                          ('class/ann/x.ipynb', 'ann/x')])
def test_no_name_in_a_zip_leads_elsewhere(name, result, tmp_path):
    own = found(tmp_path, zipped(tmp_path/'z.zip', {name: '{}'}))
    assert list(own) == [result]
    lies = list(tmp_path.rglob('x.ipynb'))
    assert len(lies) == 1 and tmp_path/'unpacked' in lies[0].parents


def test_what_cannot_be_unpacked_costs_itself(tmp_path):
    large, file = bytes(int(LARGEST_FILE) + 9), tmp_path/'z.zip'
    with zipfile.ZipFile(file, 'w', zipfile.ZIP_DEFLATED) as z:
        for name, text in {'a.ipynb': large, 'b.ipynb': '{}'*99, 'c.ipynb': '{}'}.items():
            z.writestr(name, text)
    data = bytearray(file.read_bytes())
    with zipfile.ZipFile(file) as z: start = z.getinfo('b.ipynb').header_offset
    data[start + 30 + 7:start + 30 + 11] = b'\xff'*4
    file.write_bytes(data)
    records = grade([file], tmp_path/'out', chapter='01', unsafe=True)
    problems = {r['name']: r['problem'] for r in records}
    assert 'larger than 20 MB' in problems['a'] and 'JSONDecodeError' in problems['b']
    assert 'no list of cells' in problems['c']


def test_a_damaged_zip_is_an_error_that_names_it(tmp_path):
    (tmp_path/'z.zip').write_bytes(b'PK\x03\x04' + bytes(99))
    with pytest.raises(ValueError, match=r'z\.zip is no zip archive, or a damaged one'):
        found(tmp_path, tmp_path/'z.zip')


def test_a_second_hand_in_stays_with_its_student(tmp_path):
    first = zipped(tmp_path/'week1.zip', MOODLE)
    second = zipped(tmp_path/'week2.zip', MOODLE | {}, when=(2026, 11, 9, 0, 0, 0))
    names = set(found(tmp_path, first, second))
    assert {'Ann Lee_17/week1/01_groups', 'Ann Lee_17/week2/01_groups'} < names


def test_what_was_written_after_the_time_is_late(tmp_path):
    file = zipped(tmp_path/'m.zip', MOODLE)
    for hour, late in ((9, True), (10, False)):
        own = found(tmp_path, file, due=datetime(2026, 11, 1, hour, 0))
        assert {h.late for h in own.values()} == {late}


# --- what goes back

def result(name, marks, origin, late=False, time='', waits=0, chapter=GROUPS):
    "A result of a chapter with a proof of 4 marks and code of 6."
    state = 'by hand' if waits else 'passed'
    parts = [dict(id='1.1', state=state, marks=None if waits else 0, of=4, message='my proof',
                  task='Prove it.', answer='<b>proof</b>'),
             dict(id='1.2', state='passed', marks=marks, of=6, message='', task='', answer='')]
    return dict(name=name, chapter=chapter, parts=parts, marks=marks, of=10, problem='', late=late,
                isolation='bubblewrap', origin=origin, time=time) | {'by hand': waits}


def written(tmp_path, records, roster, policy=Policy()):
    "The tables and pages of a class."
    (file := tmp_path/'class.csv').write_text(roster)
    out = tmp_path/'out'
    for r in records:
        page = out/'feedback'/f'{r["name"]}.html'
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(feedback_page(r))
    write_tables(records, out, read_roster(file), policy)
    return out


def rows(file): return list(csv.DictReader(io.StringIO(file.read_text())))


WORKSHEET = '''Identifier,"Full name",Status,Grade,"Maximum Grade","Feedback comments"
"Participant 17","Ann Lee",Submitted,,100.00,
"Participant 18","Ben Oh",Submitted,5,100.00,kept
"Participant 21","Eve Ito","No submission",,100.00,
'''


def test_the_worksheet_comes_back_to_moodle_with_grades(tmp_path):
    class_ = [result('Ann Lee_17/01', 5, 'moodle'), result('Ben Oh_18/01', 6, 'moodle', waits=4)]
    out = written(tmp_path, class_, WORKSHEET)
    ann, ben, eve = rows(out/'moodle.csv')
    assert list(ann) == next(csv.reader(WORKSHEET.splitlines()))
    assert (ann['Grade'], ann['Feedback comments']) == ('50.00', '01_groups: 5 of 10. ')
    assert (ben['Grade'], ben['Feedback comments']) == ('5', 'kept')   # a proof waits
    assert eve['Grade'] == ''
    with zipfile.ZipFile(out/'feedback-moodle.zip') as z:
        assert z.namelist() == ['Ann Lee_17_assignsubmission_file_/01.html',
                                'Ben Oh_18_assignsubmission_file_/01.html']
        assert b'<title>Ann Lee_17: 01_groups' in z.read(z.namelist()[0])


GRADEBOOK = '''Student,ID,SIS User ID,SIS Login ID,Section,01 Groups (371),Current Score
    Points Possible,,,,,5,(read only)
"Lee, Ann",17,s17,ann,A,,
"Oh, Ben",18,s18,ben,A,,
"17, Unlucky",99,17,x,A,3,
'''


def test_the_grade_book_comes_back_to_canvas(tmp_path):
    class_ = [result('leeann_17/01', 5, 'canvas'), result('ohben_18/01', 6, 'canvas', late=True),
              result('ohben_18/02', 6, 'canvas', chapter='02_actions')]
    out = written(tmp_path, class_, GRADEBOOK, Policy(late=50))
    head, ann, ben, other = rows(out/'canvas.csv')
    assert list(ann) == ['Student', 'ID', 'SIS User ID', 'SIS Login ID', 'Section',
                         '01 Groups (371)', '02_actions']
    assert (head['01 Groups (371)'], head['02_actions']) == ('5', '10')
    assert (ann['01 Groups (371)'], ann.get('02_actions')) == ('2.50', '')
    assert (ben['01 Groups (371)'], ben['02_actions']) == ('1.50', '6.00')
    assert other['01 Groups (371)'] == '3'   # his ID is another


@pytest.mark.parametrize('policy, total', [(Policy(), '6'), (Policy(repeated='last'), '4'),
                                           (Policy(late=50), '3'), (Policy(50, 'last'), '2')])
def test_what_late_and_repeated_hand_ins_count(policy, total, tmp_path):
    class_ = [result('ann/01', 3, '', time='2026-11-01T00:00:00'),
              result('ann/a/01', 6, '', late=True, time='2026-11-02T00:00:00'),
              result('ann/b/01', 4, '', late=True, time='2026-11-03T00:00:00')]
    out = written(tmp_path, class_, 'name\nann\n', policy)
    assert rows(out/'students.csv')[0]['total'] == total
    remarks = {row['submission']: row['remarks'] for row in rows(out/'marks.csv')}
    assert remarks['ann/b/01'] == 'late (2026-11-03T00:00:00)' and not remarks['ann/01']
    assert 'Handed in late' in (out/'feedback'/'ann'/'b'/'01.html').read_text()


def test_late_hand_ins_are_told_in_their_results(tmp_path):
    file = zipped(tmp_path/'c.zip', CANVAS)
    records = grade([file], tmp_path/'out', chapter='01', unsafe=True)
    assert [r['late'] for r in records] == [False, True]
    stored = json.loads((tmp_path/'out'/'results'/'ohben_18'/'01_groups.json').read_text())
    assert stored['late'] and stored['origin'] == 'canvas'
    again = grade([file], tmp_path/'out', chapter='01', unsafe=True)
    assert not any(r['new'] for r in again)


def test_copies_of_the_first_pages_are_no_hand_ins(tmp_path):
    for name in 'index', '00_turn_a_digit', '01_groups':
        (tmp_path/'ann').mkdir(exist_ok=True)
        (tmp_path/'ann'/f'{name}.ipynb').write_text('{}')
    assert [*find_hand_ins([tmp_path], tmp_path/'marks')] == ['ann/01_groups']
