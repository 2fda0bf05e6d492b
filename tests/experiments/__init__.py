"Tests of `eqtutor.experiments`."
