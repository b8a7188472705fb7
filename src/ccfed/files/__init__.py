"""Files that are there whole or not at all, whatever ends the process: for all rooms above."""

from ccfed.files.sealed import Damaged, Sealed, check, load, load_newest, save
from ccfed.files.whole import previous_of, write_whole

__all__ = ["Damaged", "Sealed", "check", "load", "load_newest", "previous_of", "save", "write_whole"]
