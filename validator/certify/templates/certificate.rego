package {{ package }}

import rego.v1

wanted := {{ wanted }}

default {{ rule }} := false

{{ rule }} if {
    input.predicateType == wanted.predicateType
    input.predicate.result in {"PASSED", "WARNED"}
    part.certificate.annotations.fixture == wanted.fixture
    the_driver_is_wanted
    the_gpus_are_wanted
    it_counts_now
    count(refused) == 0
    every check in required {
        check in input.predicate.passedTests
    }
}

part[name] := entry if {
    some entry in input.predicate.configuration
    name := entry.name
}

the_driver_is_wanted if {
    split(part.host.annotations.driver, ".")[0] in wanted.drivers
}

the_gpus_are_wanted if {
    found := {gpu.compute_capability | some gpu in part.host.annotations.gpus}
    count(found) == 1
    every capability in found {
        capability in wanted.capabilities
    }
}

second := 1000000000

measured := time.parse_rfc3339_ns(part.record.annotations.finished)

issued := time.parse_rfc3339_ns(part.certificate.annotations.issued)

expires := time.parse_rfc3339_ns(part.certificate.annotations.expires)

it_counts_now if {
    now := time.now_ns()
    now < expires
    issued <= now + (wanted.toleranceSeconds * second)
    measured <= issued + (wanted.toleranceSeconds * second)
{%- if limited %}
    now - measured <= wanted.maxAgeSeconds * second
{%- endif %}
}

# The limits of this image on that host that the trust file refuses.
refused contains limit.code if {
    some limit in part.limits.annotations.limits
    limit.code in wanted.refusedLimits
}

required contains check if some check in wanted.checks

# Packages were added to the image, so the check that imports them is required too.
required contains wanted.addedPackages if contains(part.image.annotations.spec, "_")

# The user's own checks say themselves if they are required.
required contains entry.name if {
    some entry in input.predicate.configuration
    startswith(entry.name, wanted.ownChecks)
    entry.annotations.required == true
}
