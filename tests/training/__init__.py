"Tests of `eqtutor.training`."
