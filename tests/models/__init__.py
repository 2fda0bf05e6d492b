"Tests of `eqtutor.models`."
