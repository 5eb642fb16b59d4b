"""The fields of two custom resources that exported policies use, written down from their definitions.

Sources, both under the licence Apache-2.0: `config/300-clusterimagepolicy.yaml` of
https://github.com/sigstore/policy-controller (`signatureFormat` since 0.13), and
`config/crds/kyverno/kyverno.io_clusterpolicies.yaml` of https://github.com/kyverno/kyverno (`failureAction`
and `SigstoreBundle` since 1.13). A cluster drops fields that are not defined, so nothing else is allowed.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
FLAG: Schema = {"type": "boolean"}


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

REKOR = fields(url=TEXT, ignoreTlog=FLAG, pubkey=TEXT)
CONDITION = fields(
    "key", "operator", "value",
    key={},
    operator={
        "enum": [
            "Equals", "NotEquals", "AnyIn", "AllIn", "AnyNotIn", "AllNotIn", "GreaterThan",
            "GreaterThanOrEquals", "LessThan", "LessThanOrEquals",
        ]
    },
    value={},
)  # fmt: skip
ATTESTORS = several(
    fields(
        "entries",
        count={"type": "integer", "minimum": 1},
        entries=several(
            fields(
                keys=fields(publicKeys=TEXT, rekor=REKOR),
                keyless=fields(issuer=TEXT, subject=TEXT, rekor=REKOR),
            )
        ),
    )
)
CLUSTER_POLICY = resource(
    "kyverno.io/v1",
    "ClusterPolicy",
    fields(
        "rules",
        background=FLAG,
        webhookConfiguration=fields(
            failurePolicy={"enum": ["Ignore", "Fail"]},
            timeoutSeconds={"type": "integer", "minimum": 1, "maximum": 30},
        ),
        rules=several(
            fields(
                "name", "match",
                name={"type": "string", "maxLength": 63},
                match=fields(any=several(fields(resources=fields(kinds=several(TEXT))))),
                verifyImages=several(
                    fields(
                        type={"enum": ["Cosign", "SigstoreBundle", "Notary"]},
                        imageReferences=several(TEXT),
                        failureAction={"enum": ["Audit", "Enforce"]},
                        mutateDigest=FLAG,
                        verifyDigest=FLAG,
                        required=FLAG,
                        attestations=several(
                            fields(
                                type=TEXT,
                                attestors=ATTESTORS,
                                conditions=several(fields(all=several(CONDITION), any=several(CONDITION))),
                            )
                        ),
                    )
                ),
            )
        ),
    ),
)  # fmt: skip
