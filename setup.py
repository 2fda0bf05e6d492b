"Packaging: every value comes from `settings.ini`, the file nbdev reads too."
import shutil
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.sdist import sdist

here = Path(__file__).parent
config = ConfigParser(delimiters=['='], interpolation=None)
config.read(here/'settings.ini', encoding='utf-8')
cfg = config['DEFAULT']


class SdistWithSettings(sdist):
    "An sdist that carries `settings.ini`, which this file needs when a wheel is built from it."
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        shutil.copy(here/'settings.ini', base_dir)


pythons = [f'3.{minor}' for minor in range(int(cfg['min_python'].split('.')[1]), 14)]
setup(
    name=cfg['lib_name'],
    version=cfg['version'],
    description=cfg['description'],
    long_description=(here/'README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    author=cfg['author'],
    author_email=cfg['author_email'],
    url=cfg['git_url'],
    license='Apache-2.0',
    keywords=cfg['keywords'],
    packages=find_packages(include=['eqtutor', 'eqtutor.*']),
    package_data={'eqtutor': ['py.typed']},
    cmdclass={'sdist': SdistWithSettings},
    python_requires=f">={cfg['min_python']}",
    install_requires=cfg['requirements'].split(),
    extras_require={'dev': cfg['dev_requirements'].split(), 'pcam': cfg['pcam_requirements'].split()},
    entry_points={'console_scripts': cfg['console_scripts'].split(),
                  'nbdev': [f"{cfg['lib_name']}={cfg['lib_path']}._modidx:d"]},
    classifiers=['Development Status :: 3 - Alpha', 'Intended Audience :: Science/Research',
                 'Intended Audience :: Education', 'License :: OSI Approved :: Apache Software License',
                 *(f'Programming Language :: Python :: {v}' for v in pythons)],
)
