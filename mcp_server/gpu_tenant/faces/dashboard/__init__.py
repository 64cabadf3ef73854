"""A local web page of everything that is leased.

`gate` decides who may speak, `looks` keeps how everything stands, `stream` tells what changes,
`reads` and `acts` are the routes, `errands` are the actions that take a while, and `serving` puts them
together on a port of this computer. The page itself is in `page/`: plain modules, nothing to build.
"""
