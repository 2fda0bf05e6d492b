"Tests of `eqtutor.kernels`."
