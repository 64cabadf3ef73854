"""How a person or an agent speaks to it: cli, mcp, dashboard, report, install, demo.

They call verbs and decide nothing.
"""
