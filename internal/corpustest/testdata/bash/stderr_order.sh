echo out; echo err >&2; echo out2; echo err2 1>&2
