import random, uuid, secrets, tempfile
print(len({random.random() for _ in range(3)}), random.getstate()[0], len(secrets.token_hex(4)))
random.seed(7)
print(random.random(), random.randint(1, 100), random.choice("abc"))
