import asyncio
async def inner():
    raise ValueError("in a task")
async def main():
    t = asyncio.create_task(inner(), name="t1")
    await asyncio.sleep(0)
    await t
asyncio.run(main())
