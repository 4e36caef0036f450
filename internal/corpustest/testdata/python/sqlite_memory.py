import sqlite3
c = sqlite3.connect(":memory:")
c.execute("create table t (a int, b text)")
c.executemany("insert into t values (?, ?)", [(1, "x"), (2, "y")])
print(c.execute("select * from t order by a desc").fetchall())
