"""The right answers, a file for each chapter: `chNN.EXERCISES`, one record an exercise.

`labs.exercise` reads a chapter when it is asked for one; `import eqtutor.tutor` reads none.
"""
# Plain module: edited by hand, no notebook exports it.
