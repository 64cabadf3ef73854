"""How a person or an agent uses the program: cli, mcp, dashboard, report, install, demo.

The faces only call the operations of `service.py` (the verbs), and decide nothing themselves.
"""
