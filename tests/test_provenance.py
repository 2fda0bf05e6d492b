"Where a number's code is in no commit, that stands beside the number, wherever it is quoted."
import copy
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import pages, read as notebook

from eqtutor.files import NOTE, provenance_mark, with_note
from eqtutor.papers.reproduce import Job, Place, Plan, progress_of
from eqtutor.papers.tables import chosen_tables

ROOT = Path(__file__).parents[1]
RESULTS = ROOT/'results'
sys.path.append(str(ROOT/'tools'))
import quote_results  # noqa: E402

COMMIT = '0123456789'*4


def read(path): return json.loads(path.read_text(encoding='utf-8'))

def record_of(name): return read(RESULTS/f'{name}.json')


# --- the mark

@pytest.mark.parametrize('record, marked', [
    ({'commit': COMMIT}, False), ({'commit': f'{COMMIT}-dirty'}, True),
    ({'commit': f'{COMMIT}-unpublished'}, True), ({'commit': None}, True), ({}, True),
    ({'environment': {'commit': COMMIT}}, False),
    ({'environment': {'commit': f'{COMMIT}-dirty'}}, True),
    ({'commit': COMMIT, 'resumed': [{'commit': COMMIT}]}, False),
    ({'commit': COMMIT, 'resumed': [{'commit': f'{COMMIT}-dirty'}]}, True)])
def test_a_number_is_marked_unless_commits_hold_its_code(record, marked):
    assert provenance_mark(record) == (' †' if marked else '')
    assert provenance_mark({'commit': COMMIT}, record) == provenance_mark(record)

def test_the_mark_is_explained_once_and_only_where_it_is():
    assert with_note('| 1 |') == '| 1 |'
    assert with_note('| 1 † |') == with_note(with_note('| 1 † |')) == f'| 1 † |\n\n{NOTE}'

def test_commits_that_are_not_marked_are_in_the_repository():
    "A result of a commit that was not kept says so: `…-unpublished`."
    def git(*words):
        return subprocess.run(['git', *words], cwd=ROOT, capture_output=True, text=True)
    if git('rev-parse', '--is-shallow-repository').stdout.strip() != 'false':
        pytest.skip('no git, or a clone without its history')
    commits = set()
    for path in RESULTS.rglob('*.json'):
        record = read(path)
        if provenance_mark(record): continue
        heads = record.get('environment', record), *record.get('resumed', ())
        commits |= {head['commit'] for head in heads}
    assert len(commits) > 5
    assert not [c for c in commits if git('cat-file', '-e', f'{c}^{{commit}}').returncode]


# --- where numbers are quoted: all files of these names under `results`

QUOTES = {
    'nbs/3_papers/21b_attentive_networks': [
        'bench/attentive', 'p4-cnn*-rotmnist/*', 'p4-cnn-rotmnist-12000/*', 'alpha-*/*',
        'published-weights', 'equal-time/p4-cnn-*/*', 'equal-time/alpha-*/*'],
    'nbs/3_papers/22_affine': ['affine-slope/*'],
    'nbs/3_papers/22b_affine_networks': ['bench/affine'],
    'nbs/3_papers/23b_self_attention_networks': ['bench/gsa', 'bench/e4', 'bench/networks'],
    'nbs/3_papers/24b_e4_networks': [
        'bench/e4', 'p4-cnn-rotmnist/*', 'p4-e4-net-rotmnist/*',
        'p4-recipe/p4-cnn-rotmnist/*', 'p4-cnn-big*-rotmnist/*'],
    'nbs/3_papers/26_beyond_the_grid': ['beyond-accuracy', 'beyond-training'],
    'nbs/3_papers/27_when_attention_pays': ['when-attention-pays/*', 'bench/small-tasks'],
    'nbs/4_course/30_results': ['*-rotmnist/*', '*-rotmnist-12000/*', 'p4-recipe/*/*',
                                'published-weights'],
    'nbs/4_course/30b_when_equivariance_pays': [
        'z2-cnn-rotmnist/*', 'p4-cnn-rotmnist/*', '*-rotmnist-turn/*', 'equal-time/costs',
        'equal-time/*cnn-*/*', 'data-efficiency/*/*'],
    'nbs/6_reference/99_every_table': ['*-rotmnist/*'],
    'nbs/6_reference/94_audit_attentive': [
        'bench/attentive', 'bench/published', 'published-weights', 'p4-cnn-rotmnist/*',
        'alpha-F-p4-cnn-rotmnist/*', '*-rotmnist-12000/*', 'short/alpha-*/*'],
    'nbs/6_reference/96_audit_self_attention': ['bench/published', 'short/gsa-*/*'],
    'nbs/6_reference/95_audit_affine': ['affine-short/*', 'affine-starts/*', 'affine-small/*'],
    'nbs/6_reference/97_audit_e4': [
        'bench/e4', 'bench/published', 'data-efficiency/*/*', 'equal-time/*/*', 'p4-cnn-rotmnist/0',
        'p4-recipe/p4-cnn-rotmnist/*', 'p4-e4-net-rotmnist/*', 'short/p4-e4-net-*/*'],
    'nbs/6_reference/98_coming_from': ['bench/beside_escnn']}
ELSEWHERE = {   # not in a chapter
    'demo/*': 'README, the figure', 'bench/networks': 'README', 'bench/escnn': 'README',
    'beyond-frame': 'chapter 25, no number'}

def files_of(patterns): return {p for pattern in patterns for p in RESULTS.glob(f'{pattern}.json')}

def shown(chapter):
    "Markdown of a chapter, its own and that of its outputs."
    return [text for _, text in pages(notebook(ROOT/f'{chapter}.ipynb'))]

def test_all_result_files_are_known_here():
    known = set().union(*map(files_of, QUOTES.values()), files_of(ELSEWHERE))
    assert set(RESULTS.rglob('*.json')) == known

@pytest.mark.parametrize('chapter', QUOTES)
def test_chapters_mark_what_they_quote(chapter):
    "As many explanations as tables with a mark; a mark if and only if a file has one."
    marked = any(provenance_mark(read(path)) for path in files_of(QUOTES[chapter]))
    texts = [text for text in shown(chapter) if '†' in text]
    assert marked == bool(texts)
    tables = [text for text in texts if re.search(r'^\|.*†', text, re.M)]
    assert all(NOTE in text for text in tables)
    assert not marked or tables

ROWS = {
    'nbs/3_papers/21b_attentive_networks': [
        ('bench/attentive', r'^\| network \|.*\| peak memory{} \|'),
        ('p4-cnn-rotmnist/*', r'^\| p4-CNN \| 2\.39, 2\.40, 2\.41 \| 2\.40 ± 0\.01{} \|'),
        ('p4-cnn-big11-rotmnist/*', r'^\| BIG11-p4-CNN \| 2\.62 \| 2\.62{} \|')],
    'nbs/3_papers/22b_affine_networks': [
        ('bench/affine', r'^\| network \|.*\| time of a training step{} \| peak memory{} \|')],
    'nbs/6_reference/95_audit_affine': [
        ('affine-small/p4-asc-0', r'^\| p4ResNet29\+ASC \|[^|†]*{} \|[^|†]*{} \|'),
        ('affine-small/asc-0', r'^\| ResNet29\+ASC \|[^|†]*{} \|[^|†]*{} \|$'),
        ('affine-short/conv-se-0', r'^\| ResNet29\+SE \|[^|†]*{} \|$')],
    'nbs/3_papers/23b_self_attention_networks': [
        ('bench/gsa', r'^\| network \| multiply-acc.*\| time{} \| peak memory{} \|')],
    'nbs/3_papers/24b_e4_networks': [
        ('bench/e4', r'^\| \| parameters \| multiply-accumulates \| time{} \| memory{} \|'),
        ('p4-cnn-rotmnist/*', r"^\| p4-CNN, P1's recipe \| 2\.40 ± 0\.01 %{} \|"),
        ('p4-recipe/p4-cnn-rotmnist/*', r"^\| p4-CNN, P4's recipe \| 2\.08 ± 0\.02 %{} \|"),
        ('p4-e4-net-rotmnist/*', r"^\| E4-Net, P4's recipe \| 1\.64 ± 0\.09 %{} \|")],
    'nbs/3_papers/26_beyond_the_grid': [
        ('beyond-accuracy', r'^\| group \| parameters \| test error, ours{} \|.*at 22\.5°{} \|')],
    'nbs/4_course/30_results': [
        ('p4-cnn-rotmnist-12000/*',
         r'^\| p4-CNN \| 12,000 digits, best epoch \| 2\.048 ± 0\.045 \| 2\.07 ± 0\.04{} \| 3 \|'),
        ('alpha-F-p4-cnn-rotmnist-12000/*',
         r'^\| α_F-p4-CNN \| 12,000 digits, best epoch \| 1\.795 ± 0\.028 \| 1\.89 ± 0\.18{} ')],
    'nbs/4_course/30b_when_equivariance_pays': [
        ('p4-cnn-rotmnist/*', r'^\| p4-CNN \| 2\.40 ± 0\.01{} \(3\) \|'),
        ('equal-time/p4-cnn-rotmnist/*', r'^\| p4-CNN \| 1\.0 .*\| 3\.7 ± 0\.2{} \|')],
    'nbs/6_reference/99_every_table': [
        ('z2-cnn-rotmnist/*', r'^\| Z2-CNN \|.*\| \*\*6\.18 ± 0\.30\*\*{} \|'),
        ('p4-cnn-rotmnist/*', r'^\| p4-CNN \|.*\| \*\*2\.40 ± 0\.01\*\*{} \|'),
        ('p4-e4-net-rotmnist/*', r'^\| E⁴-Net \|.*\| \*\*1\.64 ± 0\.09\*\*{} \|')],
    'nbs/6_reference/94_audit_attentive': [
        ('bench/attentive', r'^\| layer 2 \|.*\| time{} \|'),
        ('published-weights', r'best epoch, on our digits{} \|'),
        ('bench/published', r'^\| ours over theirs, in one process \| time{} \| memory{} \|')],
    'nbs/6_reference/96_audit_self_attention': [
        ('bench/published', r'^\| ours over theirs, in one process \| time{} \| memory{} \|')],
    'nbs/6_reference/97_audit_e4': [
        ('bench/e4', r'^\| a training step of 16 digits, .*\| time{} \|')],
    'nbs/6_reference/98_coming_from': [
        ('bench/beside_escnn', r'^\| here / escnn [\d.]+{} \|')]}

@pytest.mark.parametrize('chapter, files, line', [
    (chapter, *row) for chapter, rows in ROWS.items() for row in rows])
def test_a_line_has_the_mark_of_its_files_and_no_other(chapter, files, line):
    mark = provenance_mark(*map(read, files_of([files])))
    assert re.search(line.replace('{}', mark), '\n'.join(shown(chapter)), re.M)


# --- README, and the command that runs the tables

@pytest.mark.parametrize('name', ['networks', 'published', 'escnn'])
def test_readme_follows_the_commit_of_a_benchmark(name, monkeypatch):
    readme, bench = (ROOT/'README.md').read_text(encoding='utf-8'), quote_results.bench
    counts = []
    for suffix in ('', '-dirty'):
        def changed(other, suffix=suffix):
            record = copy.deepcopy(bench(other))
            if other == name: record['commit'] = COMMIT + suffix
            return record
        monkeypatch.setattr(quote_results, 'bench', changed)
        text = quote_results.renewed(readme)
        assert quote_results.renewed(text) == text
        counts.append(text.count('†'))
    assert counts[0] < counts[1]

def test_reproduce_marks_a_result_in_its_list(tmp_path):
    table, = chosen_tables(['P4.1'])
    job = Job(table.name, table.rows[0].label, table.training(table.rows[0]))
    place, known = Place(tmp_path, tmp_path/'unfinished'), record_of('p4-e4-net-rotmnist/0')
    place.result(job).parent.mkdir(parents=True)
    texts = []
    for suffix in ('', '-dirty'):
        place.result(job).write_text(json.dumps(known | {'commit': COMMIT + suffix}))
        progress = progress_of(job, place)
        assert progress.complete
        texts.append(str(Plan([], {job: progress}, {})) + progress.mark)
    assert texts[0] != texts[1] and texts[1].endswith('†')
