"""How a person or an agent uses the program: cli, mcp, dashboard, report, install, demo.

The faces call verbs, and decide nothing.
"""
