"""Where this course comes from: what pip installs elsewhere to have the same one."""
# Plain module: edited by hand, no notebook exports it.
import json
import subprocess
from importlib.metadata import distributions
from pathlib import Path

from .._modidx import d as modules
from .course import course_folder, package_folder

REPOSITORY:str = modules['settings']['git_url']   # type: ignore[index]  # of settings.ini
# what pip builds the package from: other files may differ from the commit
BUILT_FROM = 'eqtutor', 'nbs', 'results', 'settings.ini', 'setup.py'
REMEDY = ('Copies for Colab install the commit they were made from: make them in a clone of '
          f'{REPOSITORY}, or where eqtutor was installed with pip from there or as a release.')


def own_requirement()->str:
    """What pip installs to have this package with this course, and no other state of it.

    With what a lesson computes and draws with; Colab has a Jupyter of its own.

    In a clone its commit; of an installed package the commit or the release that pip installed.
    """
    root = package_folder().parent
    if course_folder().parent != root: return installed_requirement(root)
    return f'eqtutor[train] @ git+{REPOSITORY}@{clean_commit(root)}'


def installed_requirement(
    site:Path, # the folder that the package was installed to
)->str:
    "The commit that pip built the package from, or the release; an error if it was neither."
    found = next(iter(distributions(name='eqtutor', path=[str(site)])), None)
    if found is None:
        raise ValueError(f'{site} does not say where its eqtutor comes from. {REMEDY}')
    written = found.read_text('direct_url.json')   # PEP 610: missing for what an index gave
    if written is None: return f'eqtutor[train]=={found.version}'
    told = json.loads(written)
    if told.get('vcs_info', {}).get('vcs') != 'git' or not told['url'].startswith('https:'):
        raise ValueError(f'eqtutor was installed from {told["url"]}, which is no commit that '
                         f'others can install. {REMEDY}')
    return f'eqtutor[train] @ git+{told["url"]}@{told["vcs_info"]["commit_id"]}'


def clean_commit(
    root:Path, # of a clone
)->str:
    "The commit that a clone holds, if nothing that the package is built from differs from it."
    top = git(root, 'rev-parse', '--show-toplevel')
    if not top or not Path(top).samefile(root):
        raise ValueError(f'{root} is no clone that git can read. {REMEDY}')
    changed = git(root, 'status', '--porcelain', '--', *BUILT_FROM)
    if changed:
        raise ValueError('Copies for Colab install the commit they were made from, and what is '
                         f'here is no commit: commit or remove\n{changed}')
    return git(root, 'rev-parse', 'HEAD')


def git(
    folder:Path,
    *words:str,
)->str:
    "What git says of a folder; '' if it fails."
    try:
        done = subprocess.run(['git', '-C', str(folder), *words], capture_output=True, text=True)
    except OSError:
        return ''   # no git on this machine
    return done.stdout.rstrip() if done.returncode == 0 else ''
