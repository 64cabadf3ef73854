"""How people and agents speak to it: terminal, MCP server, dashboard, report, installation, demo."""
