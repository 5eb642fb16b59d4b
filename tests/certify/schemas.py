"""The definitions of the two custom resources that exported policies are.

The definition for policy-controller is written down here, with the fields that a policy uses, from
`config/300-clusterimagepolicy.yaml` (Apache-2.0) of https://github.com/sigstore/policy-controller
(`signatureFormat` since 0.13). A cluster drops fields that are not defined, so nothing else is allowed.
"""

from __future__ import annotations

from typing import Any

import jsonschema

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}


def fields(*required: str, **properties: Schema) -> Schema:
    """Return an object with only these fields, in whose names `_` stands for a dash."""
    named = {name.replace("_", "-"): schema for name, schema in properties.items()}
    return {
        "type": "object", "properties": named, "required": list(required), "additionalProperties": False
    }  # fmt: skip


def several(items: Schema) -> Schema:
    return {"type": "array", "items": items, "minItems": 1}


def resource(version: str, kind: str, spec: Schema) -> Schema:
    return fields(
        "apiVersion", "kind", "metadata", "spec",
        apiVersion={"const": version},
        kind={"const": kind},
        metadata=fields("name", name={"type": "string", "pattern": r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"}),
        spec=spec,
    )  # fmt: skip


IDENTITY = fields(issuer=TEXT, issuerRegExp=TEXT, subject=TEXT, subjectRegExp=TEXT)
CLUSTER_IMAGE_POLICY = resource(
    "policy.sigstore.dev/v1beta1",
    "ClusterImagePolicy",
    fields(
        "images", "authorities",
        images=several(fields("glob", glob=TEXT)),
        mode={"enum": ["enforce", "warn"]},
        authorities=several(
            fields(
                name=TEXT,
                key=fields(data=TEXT, hashAlgorithm=TEXT, kms=TEXT),
                keyless=fields(url=TEXT, identities=several(IDENTITY), trustRootRef=TEXT),
                ctlog=fields(url=TEXT, trustRootRef=TEXT),
                signatureFormat={"enum": ["legacy", "bundle"]},
                attestations=several(
                    fields(
                        "name", "predicateType",
                        name=TEXT,
                        predicateType=TEXT,
                        policy=fields("type", "data", type={"enum": ["cue", "rego"]}, data=TEXT),
                    )
                ),
            )
        ),
    ),
)  # fmt: skip


def check_policy(format_: str, document: Any) -> None:
    """Raise an error if a cluster would reject the resource of a policy, or drop a part of it."""
    if format_ == "policy-controller":
        jsonschema.validate(document, CLUSTER_IMAGE_POLICY)
        return
    # Made from Kyverno's definition. The import takes two seconds.
    from cloudcoil.models.kyverno.v1 import ClusterPolicy

    read = ClusterPolicy.model_validate(document)
    assert read.model_dump(mode="json", by_alias=True, exclude_unset=True) == document
