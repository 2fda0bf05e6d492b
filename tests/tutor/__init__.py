"Tests of `eqtutor.tutor`."
