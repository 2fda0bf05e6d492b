"Tests of `eqtutor.nn`."
