"""The course in nbgrader: it keeps the grade book and the marking pages, we judge.

`course` writes a course folder whose `nbgrader_config.py` names the rest: `collect` (the zips of
Moodle and Canvas), `autograde` (our judge in the place of the kernel), `late` (days of grace),
`feedback` (a page for each student) and `export` (what Moodle and Canvas import).
"""
# Plain module: edited by hand, no notebook exports it.
