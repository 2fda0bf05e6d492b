"Tests of `eqtutor.train`."
