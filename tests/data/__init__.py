"Tests of `eqtutor.data`."
