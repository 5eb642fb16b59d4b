/* A library of nothing, to be linked to by the name that it is given. */
