"""Runs a notebook's cells in a Jupyter kernel of its own, and prints what each gave as JSON.

Started by `test_notebook.py` as a process: what Jupyter's client keeps (threads, descriptors) goes with it. A cell that
comes with gates is interrupted, as by the button, once all of them are reached.
"""

import asyncio
import json
import sys

import nbformat
from nbclient import NotebookClient
from support import WAIT_S, Gate, descendants, environment, wait_until


async def main(cells):
    sources = [nbformat.v4.new_code_cell(cell["source"]) for cell in cells]
    notebook = nbformat.v4.new_notebook(cells=sources)
    client = NotebookClient(notebook, timeout=WAIT_S * 2, allow_errors=True, coalesce_streams=True)
    async with client.async_setup_kernel(env=environment()):
        for index, cell in enumerate(cells):
            running = asyncio.create_task(client.async_execute_cell(client.nb.cells[index], index))
            if cell["gates"]:
                await interrupt(client, cell["gates"])
            print(json.dumps([seen(output) for output in (await running).outputs]), flush=True)
            if cell["gates"]:
                # While the kernel goes on: nothing is left to what its end would take along.
                pid = client.km.provisioner.pid
                await asyncio.to_thread(wait_until, lambda: not descendants(pid), what="the end of the workers")


async def interrupt(client, gates):
    for gate in gates:
        await asyncio.to_thread(Gate(gate).wait_begun)
    await client.km.interrupt_kernel()


def seen(output):
    """What somebody who looks at the notebook reads: a stream's text, a value, an error."""
    if output.output_type == "stream":
        return output.name, output.text
    if output.output_type == "error":
        return "error", output.ename
    return "value", output.data["text/plain"]


asyncio.run(main(json.loads(sys.argv[1])))
