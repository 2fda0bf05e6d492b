"The fast operators under the layers."
# Plain module: edited by hand, no notebook exports it.
