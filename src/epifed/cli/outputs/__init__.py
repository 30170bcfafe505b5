"""What every command prints with `--json`, as models that JSON Schemas are made from.

No command builds its output from these: a test runs the commands and validates what they print.
"""

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from epifed.cli.outputs import cases, privacy, rehearsed
from epifed.evaluate.manifest import BacktestRecord

OUTPUTS: dict[str, Any] = {
    "run": cases.Ran,
    "reproduce": list[cases.PaperRow],
    "figures": cases.Drawn,
    "backtest": BacktestRecord,
    "train": privacy.Trained,
    "forecast": cases.Forecasted,
    "hub score": cases.HubScores,
    "nowcast": cases.Nowcasted,
    "simulate": cases.Simulated,
    "explain": privacy.Explained,
    "audit": privacy.Audited | list[privacy.Attacked],
    "calibrate": privacy.Calibrated,
    "data check": cases.Checked,
    "data fetch rki": cases.Fetched,
    "data communities": dict[str, list[cases.ZeroEntries]],
    "ledger show": privacy.LedgerShown,
    "ledger plan": privacy.LedgerPlan,
    "ledger verify": privacy.LedgerVerified,
    "federation init": privacy.Kits,
    "federation check": list[privacy.Finding],
    "federation report": privacy.SiteReport,
    "federation site": privacy.SitePreview,
    "federation train": privacy.TrainingStatus,
    "federation status": privacy.FederationStatus,
    "federation rehearse": rehearsed.Rehearsal | rehearsed.RehearsedYear,
}
"""Each command with `--json`, and what it prints."""


class _Schema(GenerateJsonSchema):
    """JSON has no infinity: epifed prints the text "inf". A dataclass, too, has no other fields."""

    def dataclass_schema(self, schema: Any) -> JsonSchemaValue:
        return super().dataclass_schema(schema) | {"additionalProperties": False}

    def float_schema(self, schema: Any) -> JsonSchemaValue:
        return {"anyOf": [super().float_schema(schema), {"enum": ["inf", "-inf"]}]}


def schema(command: str) -> dict[str, Any]:
    """The JSON Schema of what a command prints.

    >>> sorted(schema("ledger verify")["properties"])
    ['head', 'rows', 'verified']
    >>> schema("ledger verify")["title"]
    'epifed ledger verify --json'
    """
    made = TypeAdapter(OUTPUTS[command]).json_schema(schema_generator=_Schema)
    said = {"$schema": GenerateJsonSchema.schema_dialect, "title": f"epifed {command} --json"}
    return said | made | said
