code = "def g():\n    raise KeyError('inside')\ng()\n"
exec(compile(code, "<made>", "exec"))
