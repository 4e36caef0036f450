import sys
values = []
exec("\n".join(f"values.append({i})" for i in range(5000)))
print(len(values), sum(values))
