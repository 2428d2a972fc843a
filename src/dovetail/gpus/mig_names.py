"""How a MIG profile gets its name: from the eighths of memory it takes, rounded the way the driver rounds.

Given bytes, returns text. Names move with the memory a driver reports: they label profiles, never key them.
"""

GIB = 1024**3
EIGHTHS = (
    8  # go-nvlib counts an instance's memory in eighths of the board's, whatever its slice count
)


def profile_name(
    compute_slices: int, instance_bytes: int, *, board_bytes: int, suffix: str = ""
) -> str:
    """Such as "3g.71gb" or, with the suffix "+me", "1g.18gb+me"."""
    return f"{compute_slices}g.{named_gigabytes(instance_bytes, board_bytes)}gb{suffix}"


def named_gigabytes(instance_bytes: int, board_bytes: int) -> int:
    """The gigabytes in a name: eighths rounded up, of the board's GiB rounded up, with a half rounded up.

    Python's round() would turn a half to the even side: 70 where the driver says 71.
    """
    if not 0 < instance_bytes <= board_bytes:
        raise ValueError(
            f"an instance of {instance_bytes} bytes does not fit a board of {board_bytes} bytes"
        )
    eighths = -(-EIGHTHS * instance_bytes // board_bytes)
    board_gib = -(-board_bytes // GIB)
    return (2 * eighths * board_gib + EIGHTHS) // (2 * EIGHTHS)
