"""The MCP server, and the card that it shows in a chat."""
