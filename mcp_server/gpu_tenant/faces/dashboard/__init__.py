"""A local web page of everything that is leased.

`auth` decides who may use it. `poller` keeps the state of everything. `sse` tells open pages what changes.
`queries` and `actions` are the routes. `background_tasks` are the actions that take a while. `server` puts them
together on a port of this computer. The page itself is in `page/`: plain modules, nothing to build.
"""
