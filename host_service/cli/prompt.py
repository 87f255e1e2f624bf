"""The prompt of an interactive chat: editing, history, pasted lines kept together."""

from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent


class MessagePrompt:
    """Asks for messages on a terminal.

    Args:
        history_file: Where earlier messages are remembered; None: in memory only.
    """

    def __init__(self, history_file: Path | None) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=_history(history_file),
            key_bindings=_key_bindings(),
            enable_open_in_editor=True,
            prompt_continuation="  ",
        )

    async def ask(self) -> str | None:
        """Asks for a message; None when the person leaves, empty when they changed their mind."""
        try:
            return await self._session.prompt_async(
                FormattedText([("bold", "> ")]),
                # The chat has its own handling of signals, for the time in which it is not asking.
                handle_sigint=False,
            )
        except KeyboardInterrupt:
            return ""
        except EOFError:
            return None


def _history(path: Path | None) -> History:
    if path is None:
        return InMemoryHistory()
    # Made before anybody writes to it: what people say to agents is private.
    path.touch(mode=0o600)
    return FileHistory(path)


def _key_bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("escape", "enter")
    def _insert_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings
