"""The plugin examples/python: the runners echo and desk in one process."""

from desk import Desk
from echo import Echo

from runner_sdk import serve

if __name__ == "__main__":
    serve(Echo(), Desk())
