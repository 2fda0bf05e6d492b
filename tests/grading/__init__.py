"Tests of `eqtutor.grading`."
