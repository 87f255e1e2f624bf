"""A tool server over standard input and output, made with the official SDK."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("calculator")


@server.tool()
def add(a: int, b: int) -> int:
    """两个数相加. Adds two numbers."""
    return a + b


if __name__ == "__main__":
    server.run()
