from dataclasses import dataclass, field
@dataclass(order=True)
class Item:
    name: str
    price: float = 1.5
    tags: list[str] = field(default_factory=list)
print(Item("a"), sorted([Item("b"), Item("a", 2)]), repr(Item))
