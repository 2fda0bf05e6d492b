"""Packaging: every value comes from `settings.ini`, the file nbdev reads too; `MANIFEST.in` lists
what a source distribution holds besides the package."""
import re
import shutil
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

here = Path(__file__).parent
config = ConfigParser(delimiters=['='], interpolation=None)
config.read(here/'settings.ini', encoding='utf-8')
cfg = config['DEFAULT']


# what `eqtutor lab` copies
COURSE = [('nbs', '*.ipynb'), ('nbs', '*.bib'),
          ('nbs/images', '*'), ('results', '*.json'), ('results/weights', '*')]


def copy_course(target):
    "The notebooks, their pictures, and the results their tables read, to a folder."
    for folder, pattern in COURSE:
        for source in sorted((here/folder).rglob(pattern)):
            if any(part.startswith(('.', '_')) for part in source.relative_to(here).parts): continue
            goal = Path(target)/source.relative_to(here)
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, goal)


class BuildWithCourse(build_py):
    "A wheel with the course as `eqtutor/course`: an editable install reads it where it lies."
    def run(self):
        super().run()
        if not self.editable_mode: copy_course(Path(self.build_lib)/'eqtutor'/'course')


def with_whole_links(text):
    "The README where nothing lies beside it: its links lead to the repository."
    files, raw = (f"{cfg['git_url']}/{kind}/{cfg['branch']}/" for kind in ('blob', 'raw'))
    here = r'(?!https?:|mailto:|#)'
    text = re.sub(rf'(!\[[^\]]*\]\(){here}', rf'\g<1>{raw}', text)
    text = re.sub(rf'(\b(?:src|srcset)="){here}', rf'\g<1>{raw}', text)
    return re.sub(rf'(\]\(){here}', rf'\g<1>{files}', text)


site = cfg['doc_host'] + cfg['doc_baseurl'] + '/'
EXTRAS = 'train', 'lab', 'grading', 'onnx', 'pcam', 'cluster', 'dev'
pythons = [f'3.{minor}' for minor in range(int(cfg['min_python'].split('.')[1]), 15)]
setup(
    name=cfg['lib_name'],
    version=cfg['version'],
    description=cfg['description'],
    long_description=with_whole_links((here/'README.md').read_text(encoding='utf-8')),
    long_description_content_type='text/markdown',
    author=cfg['author'],
    author_email=cfg['author_email'],
    url=cfg['git_url'],
    project_urls={'Documentation': site, 'Source': cfg['git_url'],
                  'Issues': f"{cfg['git_url']}/issues",
                  'Changelog': f"{cfg['git_url']}/blob/{cfg['branch']}/CHANGELOG.md"},
    license_expression='Apache-2.0',
    license_files=['LICENSE'],
    keywords=cfg['keywords'],
    packages=find_packages(include=['eqtutor', 'eqtutor.*']),
    # An editable install then puts this folder on Python's path. By default it hooks into imports,
    # behind the path: where the current folder holds a clone named eqtutor, `import eqtutor` would
    # take that folder, which has no __init__.py, for the package.
    package_dir={'': '.'},
    package_data={'eqtutor': ['py.typed', '*.mplstyle'],
                  'eqtutor.kernels': ['*.c', '*.h'],
                  'eqtutor.sessions': ['*.html', '*.css', '*.js', 'REVEAL_LICENSE'],
                  'eqtutor.widgets': ['*.js', '*.css', '*.html', '*.safetensors'],
                  'eqtutor.grading': ['*.html', '*.js'],
                  'eqtutor.grading.nbgrader': ['*.html', '*.j2']},
    cmdclass={'build_py': BuildWithCourse},
    python_requires=f">={cfg['min_python']}",
    install_requires=cfg['requirements'].split(),
    extras_require={extra: cfg[f'{extra}_requirements'].split() for extra in EXTRAS},
    entry_points={'console_scripts': cfg['console_scripts'].split(),
                  'nbdev': [f"{cfg['lib_name']}={cfg['lib_path']}._modidx:d"]},
    classifiers=['Development Status :: 3 - Alpha', 'Intended Audience :: Science/Research',
                 'Intended Audience :: Education',
                 *(f'Programming Language :: Python :: {v}' for v in pythons)],
)
