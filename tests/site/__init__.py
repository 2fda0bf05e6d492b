"Tests of `tools/site`."
