"Tests of `eqtutor.widgets`: what it says, in a browser, in JupyterLab, and for everyone."
