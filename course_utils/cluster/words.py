"""Small words for sentences about values."""


def a_type(value) -> str:
    """ "an int", "a list", "None": what kind of thing a value is, with its article."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"


def shortened(text: str, limit: int) -> str:
    """The text, its middle left out where it is longer than about `limit` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} … ({len(text) - 2 * half} characters left out) … {text[-half:]}"
