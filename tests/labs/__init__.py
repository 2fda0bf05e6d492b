"Tests of `eqtutor.labs`."
