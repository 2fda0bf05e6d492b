"Tests of `eqtutor.papers`."
