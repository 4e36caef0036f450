from __future__ import annotations
import typing
class Node:
    next: Node | None = None
def f(a: Node, b: "int") -> list[Node]: ...
print(typing.get_type_hints(f), typing.get_type_hints(Node))
