import contextvars
v = contextvars.ContextVar("v", default="unset")
print(v.get(), len(contextvars.copy_context()))
