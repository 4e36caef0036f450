import time, datetime
print(time.tzname, time.timezone, datetime.datetime.fromtimestamp(0))
