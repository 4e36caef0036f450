import asyncio
async def work(n):
    await asyncio.sleep(0.001 * n)
    return n * 2
async def main():
    print(await asyncio.gather(*(work(i) for i in range(5))))
    try:
        await asyncio.wait_for(asyncio.sleep(10), 0.01)
    except asyncio.TimeoutError:
        print("timed out")
asyncio.run(main())
