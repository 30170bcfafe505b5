"""TOML files that are checked as they are read."""

import tomllib
from pathlib import Path
from typing import Self

import tomli_w
from pydantic import BaseModel, ConfigDict, ValidationError

from epifed.errors import EpifedError
from epifed.settings import sentence_of


class Table(BaseModel):
    """A frozen table of a TOML file. What does not fit is one sentence."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True)

    @classmethod
    def read(cls, path: Path) -> Self:
        """The table in a file."""
        try:
            return cls(**tomllib.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise EpifedError(f"{path}: cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise EpifedError(f"{path}: expected TOML; {error}") from None
        except ValidationError as error:
            raise EpifedError(f"{path}: {sentence_of(error)}") from None

    def to_toml(self) -> str:
        """The table as `read` takes it."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))
