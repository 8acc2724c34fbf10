"""The demo's agents: real processes of the Python client, each killed in its window.

`stories` is what each agent is to do, `agent` the process that does it, `acts` what happens to it on the way
and how it must end, `facts` what came of it, and `cast` runs them all side by side.
"""
