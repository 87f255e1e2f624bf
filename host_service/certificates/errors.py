"""What is wrong with a certificate or a key."""


class CertificateUnusable(Exception):
    """A certificate, a key or a file of authorities that cannot be used.

    Attributes:
        message: What is wrong, naming the file.
        advice: What to do next.
    """

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.message}: {self.advice}"
