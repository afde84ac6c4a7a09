"""The driver in real time: asyncio, real HTTP."""
