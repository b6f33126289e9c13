"""What does `config.json` say, and is it a model that jaxflow reads? Keys are asked for by name, with their type."""

import json
from pathlib import Path
from typing import Any, final

from jaxflow.errors import InputError
from jaxflow.pretrained.parts import ACTIVATIONS


@final
class Config:
    """The keys of a `config.json`. Errors name the file and the key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.keys: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(
                "does not exist",
                where=str(path),
                expected="a folder with config.json and model.safetensors, as transformers writes it",
            ) from None
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise InputError("is no JSON text", where=str(path), got=error) from None
        if not isinstance(self.keys, dict):
            raise InputError("must be a JSON object", where=str(path), got=type(self.keys).__name__)

    def error(self, what: str, key: str, *, expected: str = "", fix: str = "") -> InputError:
        """An error about one key."""
        return InputError(
            what, where=f"{self.path}: {key}", got=self.keys.get(key, "nothing"), expected=expected, fix=fix
        )

    def whole(self, key: str, default: int | None = None) -> int:
        """A whole number above zero."""
        value = self.keys.get(key, default)
        if isinstance(value, list) and len(set(value)) == 1:
            value = value[0]
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.error("must be a whole number above zero", key, expected="1, 2, …")
        return value

    def number(self, key: str, default: float) -> float:
        """A number above zero."""
        value = self.keys.get(key, default)
        if not isinstance(value, int | float) or not value > 0:
            raise self.error("must be a number above zero", key)
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self.keys.get(key, default)
        if not isinstance(value, bool):
            raise self.error("must be true or false", key)
        return value

    def activation(self, key: str) -> str:
        """One of the activations that jaxflow knows."""
        value = self.keys.get(key, "gelu")
        if value not in ACTIVATIONS:
            raise self.error("is no activation that jaxflow knows", key, expected=", ".join(ACTIVATIONS))
        return value

    def heads(self, d: int) -> int:
        """`num_attention_heads`, which divides d."""
        h = self.whole("num_attention_heads")
        if d % h:
            raise self.error("does not divide hidden_size", "num_attention_heads", expected=f"a divisor of {d}")
        return h

    def only(self, key: str, *values: Any) -> None:
        """The key, where it is given, must have one of these values."""
        if key in self.keys and self.keys[key] not in values:
            raise self.error("is not supported", key, expected=" or ".join(str(value) for value in values))
