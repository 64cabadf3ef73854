"""The dashboard: a local web page that shows all leases.

`auth` decides who may use it. `poller` asks providers and boxes for their state. `sse` sends changes to open pages.
`queries` and `actions` are the routes. `background_tasks` runs actions that take a while. `server` puts all this
together on a port of this computer. The page itself is in `page/`: plain JavaScript modules, nothing to build.
"""
